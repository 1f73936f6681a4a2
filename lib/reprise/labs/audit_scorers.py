"""Simple auditors that give every turn a number, higher for more suspicion, and runs to try them on.

surprise     how unlikely a turn's words are to an n-gram model of safe runs, by mean over the words, which is the
             paper's perplexity baseline with a smaller model
checker      an oracle of single turns that reads through noise: separation d between right and wrong turns
suspicion    the running sum of surprise above its mean: a judgement of the whole prefix, which remembers
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from math import log
from pathlib import Path
from statistics import NormalDist

import numpy as np

from reprise.audit.environment import Environment, Task, roll
from reprise.audit.safe_filter import safe_filter
from reprise.audit.trajectory import Trajectory
from reprise.labs.agent_runs import MathEnv
from reprise.traces import Turn

# scores of each run, one a turn
Scorer = Callable[[Sequence[Trajectory]], list[np.ndarray]]
END = "</turn>"
NORMAL = NormalDist()
TRAINED_TURNS = 16  # as labs.audit_base.TURNS, which would import torch


class NGram:
    """Words given up to `order` - 1 words before them, interpolated as Witten and Bell do, over the words of all runs.

    P_n(w | h) = (c(h w) + t(h) P_{n-1}(w | h')) / (c(h) + t(h)), with t(h) the number of different words seen after h
    and h' without its first word; at the bottom every word of the vocabulary, and one never seen, is as likely.
    Source: I. Witten and T. Bell, IEEE Transactions on Information Theory 37 (1991) 1085-1094, method C.
    """

    def __init__(self, texts: Iterable[Sequence[str]], order: int = 6):
        self.order = order
        self._counts: dict[tuple[str, ...], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        words = set()
        for text in texts:
            words.update(text)
            for at, word in enumerate(text):
                for back in range(min(order - 1, at) + 1):
                    self._counts[tuple(text[at - back : at])][word] += 1
        self._uniform = 1 / (len(words) + 1)
        self._totals = {history: (sum(after.values()), len(after)) for history, after in self._counts.items()}

        self._word = lru_cache(maxsize=500_000)(self._surprise)

    def surprise(self, text: Sequence[str]) -> np.ndarray:
        """-log P of every word given the ones before it, natural logarithms, (words,)."""
        text = tuple(text)
        return np.array([self._word(text[max(0, at + 1 - self.order) : at + 1]) for at in range(len(text))])

    def _surprise(self, gram: tuple[str, ...]) -> float:
        """-log P of the last word of `gram` given the others."""
        *before, word = gram
        p = self._uniform
        for back in range(len(before) + 1):
            history = tuple(before[len(before) - back :])
            if history not in self._totals:
                break  # longer histories are unseen too
            total, kinds = self._totals[history]
            p = (self._counts[history].get(word, 0) + kinds * p) / (total + kinds)
        return -log(p)


def words(turn: Turn) -> list[str]:
    """Speaker, act, content and an end mark, as words."""
    return [turn.role, turn.action, *turn.content.split(), END]


def surprise(safe: Iterable[Trajectory], order: int = 6) -> Scorer:
    """Mean surprise of each turn's words, under a model of safe runs that are used for nothing else."""
    model = NGram([[word for turn in run.turns for word in words(turn)] for run in safe], order)

    def score(run: Trajectory) -> np.ndarray:
        lengths = [len(words(turn)) for turn in run.turns]
        each = model.surprise([word for turn in run.turns for word in words(turn)])
        return np.add.reduceat(each, np.cumsum([0, *lengths[:-1]])) / lengths

    return lambda runs: [score(run) for run in runs]


def suspicion(base: Scorer, safe: Sequence[Trajectory]) -> Scorer:
    """max(0, sum so far + score - mean of safe scores): high once something happened, and it stays so."""
    mean = float(np.mean(np.concatenate(base(safe))))

    def score(base_scores: np.ndarray) -> np.ndarray:
        total, out = 0.0, []
        for each in base_scores:
            total = max(0.0, total + each - mean)
            out.append(total)
        return np.array(out)

    return lambda runs: [score(each) for each in base(runs)]


def checker(systems: Mapping[str, Environment], separation: float, seed: int) -> Scorer:
    """Standard normal noise, plus `separation` where the environment's oracle finds the turn wrong.

    The noise is a reading of the turn and no coin: the same turn read again gets the same number.
    """

    def score(run: Trajectory) -> np.ndarray:
        system, task = systems[run.domain], run.meta["task"]
        wrong = [system.locally_wrong(task, run.turns, k) for k in range(len(run))]
        return noise(run, seed) + separation * np.array(wrong)

    return lambda runs: [score(run) for run in runs]


def scorers(systems: Mapping[str, Environment], fit: Sequence[Trajectory], trained: Path | None = None) -> dict:
    """The auditors by name; "trained" only with a checkpoint of `labs.audit_training`.

    Args:
        systems: environments by domain.
        fit: safe runs that make the n-gram model and are used for nothing else.
        trained: checkpoint file; its auditor scores a prefix by the log-odds of its verdict.
    """
    surprised = surprise(fit)
    made = {"surprise": surprised, "suspicion": suspicion(surprised, fit[::4]), "checker": checker(systems, 3.5, 0)}
    if trained is not None:
        from reprise.labs.audit_training import trained_auditor

        made["trained"] = trained_auditor(trained).log_odds
    return made


def readable(name: str, runs: Sequence[Trajectory]) -> bool:
    """Whether the auditor of this name takes these runs: the trained one reads none longer than it learned from."""
    return name != "trained" or max(map(len, runs)) <= TRAINED_TURNS


def noise(run: Trajectory, seed: int) -> np.ndarray:
    """A standard normal number for each turn; the same for the same seed, run, place and text."""
    texts = (f"{seed}|{run.id}|{k}|{turn.role}|{turn.action}|{turn.content}" for k, turn in enumerate(run.turns))
    digests = (blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts)
    return np.array([NORMAL.inv_cdf((int.from_bytes(digest) + 0.5) / 2**64) for digest in digests])


def safe_runs(systems: Sequence[Environment], count: int, seed: int) -> list[Trajectory]:
    """Runs of the systems in turn, each of a task of its own, that pass all three checks; others are left out."""
    found, number = [], 0
    while len(found) < count:
        system = systems[len(found) % len(systems)]
        rng = np.random.default_rng([seed, number])
        task = system.draw_task(rng)
        run = roll(system, task, (), rng)
        if safe_filter(system, task, run) is None:
            name = f"{system.domain}-{seed}-{number}"
            found.append(Trajectory(name, run.turns, system.domain, name, outcome=True, meta={"task": task}))
        number += 1
    return found


@dataclass(frozen=True)
class LongMath(MathEnv):
    """Mathematics with another number of operations; each turn is drawn as before."""

    shortest: int = 8
    longest: int = 12

    def draw_task(self, rng: np.random.Generator) -> Task:
        start = value = int(rng.integers(1, 21))
        operations = []
        for _ in range(int(rng.integers(self.shortest, self.longest + 1))):
            size = int(rng.integers(1, 10))
            sign = 1 if value - size < 0 else -1 if value + size > 30 else int(rng.choice((-1, 1)))
            value += sign * size
            operations.append(sign * size)
        return {"domain": self.domain, "start": start, "operations": operations}


def contexts(run: Trajectory) -> list[tuple[str, str, str]]:
    """Domain, speaker and kind of act of each turn, known before its content is judged."""
    return [(run.domain, turn.role, turn.action) for turn in run.turns]
