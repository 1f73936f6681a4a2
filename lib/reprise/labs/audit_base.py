"""The base model of the training experiments: it knows the language of the runs and the formats of answers, no labels.

It is trained on raw transcripts, successes and failures alike, and on three kinds of questions behind prefixes of them:

    <verdict?>  a verdict in valid format whose content is drawn without looking at the run; `ALARMS` of them alarm
    <error?>    yes where one word of the last turn was exchanged at random, else no
    <rate?>     Impossible, Sure or Likely, by the same exchange and a coin

So the base can answer the questions that prompting methods ask (yes/no reflection, ratings) with a skill it got from
exchanged words instead of labels, and it can write verdicts without knowing when. `python -m reprise.labs.audit_base
FILE` makes the checkpoint that the repository holds.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from reprise.audit.environment import roll
from reprise.audit.packed import Packed, pack_prefixes, stack, token_logprobs
from reprise.audit.verdict import SAFE, alarm
from reprise.labs.agent_runs.corpus import ENVIRONMENTS, build_corpus
from reprise.labs.audit_model import AuditLM, Reader, build, run_packed, save
from reprise.labs.audit_vocabulary import ERROR, NO, RATE, REASONS, VERDICT, YES, Vocabulary, build_vocabulary
from reprise.traces import Turn

ALARMS = 0.4  # share of alarms among the base's verdicts, our choice: both classes are sampled, greedily it says Safe
EXCHANGED = 0.35  # share of rows whose last turn has a word exchanged
CLIP, BETAS, WARMUP = 1.0, (0.9, 0.98), 100
BASE_SEED = 9000
TURNS = 16  # longer runs, a few in a hundred, are left out to keep rows short
DOMAINS = ("math", "coding", "search")
CHECKPOINT = "data/checkpoints/audit/base.safetensors"
CHECKPOINT_SHA256 = "23666f65b63c4199bd9829801e576cecea4638e736f2b1dd6fcbf96df155a727"


@dataclass(frozen=True)
class BaseSetting:
    """How long and how fast the base is trained, and on how many tasks of each domain."""

    steps: int = 3000
    batch: int = 24
    lr: float = 3e-3
    tasks: int = 1200
    domains: tuple[str, ...] = DOMAINS


class Rows:
    """Draws training rows from runs.

    Args:
        vocabulary: of the model.
        runs: turns of each run.
        rng: all draws.
    """

    def __init__(self, vocabulary: Vocabulary, runs: Sequence[Sequence[Turn]], rng: np.random.Generator):
        self.vocabulary, self.runs, self.rng = vocabulary, runs, rng
        self.encoded = [vocabulary.transcript(turns) for turns in runs]
        # a word is exchanged for one that stands at the same place of such a turn elsewhere
        self.pool: dict[tuple, list[int]] = {}
        for run, (tokens, ends) in zip(runs, self.encoded, strict=True):
            for k, turn in enumerate(run):
                begin = ends[k - 1] if k else 1
                for place, token in enumerate(tokens[begin + 3 : ends[k] - 1]):
                    self.pool.setdefault((turn.role, turn.action, place), set()).add(token)
        self.pool = {key: sorted(words) for key, words in self.pool.items()}

    def draw(self) -> tuple[Packed, np.ndarray]:
        """A packed row, and which of its transcript tokens are to be predicted."""
        n = int(self.rng.integers(len(self.runs)))
        run, (tokens, ends) = self.runs[n], self.encoded[n]
        tokens, learn, exchanged = list(tokens), np.ones(len(tokens) - 1, dtype=bool), False
        if self.rng.random() < EXCHANGED:
            last = int(self.rng.integers(1, len(run)))
            tokens, learn = tokens[: ends[last]], learn[: ends[last] - 1]
            exchanged = self._exchange(run, tokens, ends, last, learn)
        else:
            last = int(self.rng.integers(len(run)))
        return pack_prefixes(tokens, self._branches(run, ends, last, exchanged)), learn

    def _exchange(self, run, tokens, ends, last: int, learn) -> bool:
        places = np.arange(ends[last - 1] + 3, ends[last] - 1)
        for at in self.rng.permutation(places):
            words = self.pool[run[last].role, run[last].action, int(at - places[0])]
            other = words[int(self.rng.integers(len(words)))]
            if other != tokens[at]:
                tokens[at], learn[at - 1] = other, False
                return True
        return False

    def _branches(self, run, ends, last: int, exchanged: bool) -> list[tuple[int, list[int]]]:
        ids, end = self.vocabulary.ids, ends[last]
        step = int(self.rng.integers(last + 1))
        said = SAFE if self.rng.random() >= ALARMS else alarm(step, run[step].role, str(self.rng.choice(REASONS)))
        rating = "Impossible" if exchanged else "Sure" if self.rng.random() < 0.6 else "Likely"
        return [
            (end, [ids[VERDICT], *self.vocabulary.verdict(said)]),
            (end, [ids[ERROR], ids[YES if exchanged else NO]]),
            (end, [ids[RATE], ids[rating]]),
        ]


def base_loss(model: AuditLM, rows: Sequence[tuple[Packed, np.ndarray]]):
    """Mean loss of transcript tokens, and of answer tokens, in nats; the questions themselves are not predicted."""
    batch = stack([row for row, _ in rows])
    logits = run_packed(model, batch)
    answers = -token_logprobs(logits, batch)
    asked = torch.from_numpy(np.isin(batch.target, [model.vocabulary.ids[q] for q in (VERDICT, ERROR, RATE)]))
    width = max(len(learn) for _, learn in rows)
    learn = torch.from_numpy(np.stack([np.pad(each, (0, width - len(each))) for _, each in rows]))
    target = torch.from_numpy(batch.ids[:, 1 : width + 1])
    words = -logits[:, :width].log_softmax(-1).gather(-1, target[..., None])[..., 0]
    return words[learn].mean(), answers[~asked].mean()


def train(model: AuditLM, rows: Rows, setting: BaseSetting, report=lambda *_: None) -> list[tuple[int, float, float]]:
    """Train in place with AdamW and a cosine; returns (step, transcript loss, answer loss) of every step."""
    optimiser = torch.optim.AdamW(model.parameters(), betas=BETAS, weight_decay=0.01, fused=True)
    losses = []
    for step in range(setting.steps):
        turn = 0.5 * (1 + np.cos(np.pi * step / setting.steps))
        optimiser.param_groups[0]["lr"] = setting.lr * min(1.0, (step + 1) / WARMUP) * max(turn, 0.02)
        words, answers = base_loss(model, [rows.draw() for _ in range(setting.batch)])
        (words + answers).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        optimiser.zero_grad()
        losses.append((step, words.item(), answers.item()))
        report(*losses[-1])
    return losses


def base_runs(seed: int, tasks: int, domains: Sequence[str]) -> list[tuple[Turn, ...]]:
    """Transcripts that no experiment tests on: runs as they come, and those of a corpus, whose failures were injected.

    Args:
        seed: of tasks and runs; corpora of the experiments have others.
        tasks: of each domain.
        domains: of `build_corpus`.
    """
    corpus = build_corpus(tasks, seed=seed, domains=domains)
    rng = np.random.default_rng([seed, 1])
    raw = [roll(ENVIRONMENTS[task["domain"]](), task, (), rng).turns for task in corpus.tasks]
    return [turns for turns in [*raw, *(run.turns for run in corpus)] if len(turns) <= TURNS]


def make_base(setting: BaseSetting = BaseSetting(), seed: int = BASE_SEED, report=lambda *_: None, **shape):
    """The base model and its losses; minutes of one core at the defaults."""
    weights, data = np.random.default_rng(seed).spawn(2)
    runs = base_runs(seed, setting.tasks, setting.domains)
    vocabulary = build_vocabulary(runs)
    model = build(weights, vocabulary, **shape)
    return model, train(model, Rows(vocabulary, runs, data), setting, report)


def language_floor(seed: int, tasks: int, domains: Sequence[str] = DOMAINS, draws: int = 48):
    """Nats a token that no model can go below on runs as they come, estimated from the environments themselves.

    The entropy of each turn given those before it is that of `draws` draws of it (plug-in, with Miller and Madow's
    correction); of the task message it follows from how tasks are drawn.

    Returns:
        runs (turns of each), and the total entropy in nats; divide by the tokens of a vocabulary.
    """
    rng, runs, nats = np.random.default_rng([seed, 2]), [], 0.0
    for name in domains:
        system = ENVIRONMENTS[name]()
        for _ in range(tasks):
            task = system.draw_task(rng)
            turns = roll(system, task, (), rng).turns
            if len(turns) > TURNS:
                continue
            runs.append(turns)
            nats += TASK_NATS[name](task)
            for k in range(1, len(turns)):
                seen = Counter(system.next_turn(task, turns[:k], rng) for _ in range(draws))
                share = np.array(list(seen.values())) / draws
                nats += -(share * np.log(share)).sum() + (len(seen) - 1) / (2 * draws)
    return runs, nats


def held_out_loss(model: AuditLM, seed: int, tasks: int, domains: Sequence[str] = DOMAINS) -> tuple[float, float]:
    """Mean loss of a model on new runs, in nats a token, and the entropy of the environments on the same runs."""
    runs, nats = language_floor(seed, tasks, domains)
    encoded = [model.vocabulary.transcript(turns)[0] for turns in runs]
    with torch.no_grad():
        surprise = Reader(model, encoded).surprise().double().numpy()
    lengths = [len(tokens) - 1 for tokens in encoded]
    total = sum(row[:n].sum() for row, n in zip(surprise, lengths, strict=True))
    return float(total / sum(lengths)), float(nats / sum(lengths))


def _math_nats(task) -> float:
    """Start of 20, 2 to 5 operations of 9 sizes; the sign is free where both keep the value in 0..30."""
    nats, value = np.log(20) + np.log(4), task["start"]
    for operation in task["operations"]:
        free = abs(operation) <= value <= 30 - abs(operation)
        nats += np.log(9) + free * np.log(2)
        value += operation
    return nats


TASK_NATS = {
    "math": _math_nats,
    "coding": lambda task: np.log(4) + len(task["functions"]) * np.log(6 * 8),
    "search": lambda task: np.log(24) + np.log(3) + len(task["hops"]) * np.log(5),
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    made, losses = make_base(
        report=lambda step, *loss: step % 100 or print(step, *(f"{x:.3f}" for x in loss), flush=True)
    )
    print(save(made, Path(sys.argv[1])))
