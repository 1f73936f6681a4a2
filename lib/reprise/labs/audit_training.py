"""Auditors trained in one stage or two on the same base, and what each says on runs it has not seen.

    auditor = trained_auditor(root / AUDITOR)      # the committed one, of both stages (`audit_checkpoint`)
    auditor(prefix) -> Verdict                     # turns 0..k; what `replay` and `OnlineAuditor` call
    auditor.log_odds(runs) -> [array, ...]         # log P(alarm) - log P(safe) after every turn of every run
    auditor.verdicts(runs) -> [[Verdict, ...], ...]

It reads the runs of `labs.agent_runs` in the domains `audit_base.DOMAINS`, of at most `audit_base.TURNS` turns: other
words become unknown ones. Its training runs are a corpus of seed `DESIGN_SEEDS[0]`, those of its base one of
`audit_base.BASE_SEED`; draw runs for calibration and tests from seeds of 50 to 8,999.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reprise.audit.boundary_pairs import Side
from reprise.audit.metrics import AuditRecord, record
from reprise.audit.replay import replay
from reprise.audit.split import family_split
from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import Verdict
from reprise.labs.agent_runs import build_corpus
from reprise.labs.audit_base import DOMAINS, TURNS
from reprise.labs.audit_model import AuditLM, copy_of, load, next_words, respond
from reprise.labs.audit_prompts import AuditTrainingError, Prompt, Runs
from reprise.labs.audit_stages import Pair, collect_pairs, train_bppo, train_grpo, train_sft
from reprise.labs.audit_vocabulary import ANSWER, SAFE_WORD, STEPS, THINK, VERDICT
from reprise.traces import Turn

AUDITOR = "data/checkpoints/audit/auditor.safetensors"
AUDITOR_SHA256 = "cca2c2a60fd443851fc10c1203528819a3f7dbc9087b9341702622e371df4321"
DESIGN_SEEDS = (0, 1)  # settings were chosen on validation families of these corpora
CLAIM_SEEDS = (20, 21, 22)
STAGES = ("", "bppo", "BE", "BS", "sft")
ROWS = 64  # runs read at once


@dataclass(frozen=True)
class Arm:
    """One way to train an auditor from the base.

    Attributes:
        name: in tables.
        stage1: "" for none, "bppo" on pairs of both sides, "BE" or "BS" on one side, "sft" on right verdicts.
        steps1, lr1, anchor: of stage 1.
        steps2, lr2: of the policy gradient; 0 steps for none.
        p_safe: share of its prompts with truth Safe.
        permuted: labels are exchanged between runs first, so that they say nothing.
        shuffled: the sides of the boundary are dealt to the pairs at random, so that "BE" and "BS" name halves alike.
    """

    name: str
    stage1: str = ""
    steps1: int = 0
    lr1: float = 0.0
    anchor: float = 0.0
    steps2: int = 0
    lr2: float = 0.0
    p_safe: float = 0.5
    permuted: bool = False
    shuffled: bool = False

    def __post_init__(self):
        if self.stage1 not in STAGES:
            raise AuditTrainingError(f"stage1={self.stage1!r}: expected one of {', '.join(map(repr, STAGES))}")
        if not 0 <= self.p_safe <= 1:
            raise AuditTrainingError(f"p_safe={self.p_safe}: expected a share in 0..1")


class Parts(NamedTuple):
    """Runs of families that train, that choose settings, and that nothing has seen."""

    train: tuple[Trajectory, ...]
    validation: tuple[Trajectory, ...]
    test: tuple[Trajectory, ...]


class Trained(NamedTuple):
    """A trained model, the curves of its stages, and counts of boundary pairs."""

    model: AuditLM
    curves: dict[str, list[dict]]
    pairs: dict[str, int]


def corpus_parts(seed: int, tasks: int, domains: Iterable[str] = DOMAINS) -> Parts:
    """A corpus of `tasks` tasks a domain, split by family: 25 % test, 15 % of the rest validation."""
    corpus = build_corpus(tasks, seed=seed, domains=tuple(domains))
    rest, test = family_split((run for run in corpus if len(run) <= TURNS), 0.25, seed)
    return Parts(*family_split(rest, 0.15, seed), test)


def permute_labels(runs: Sequence[Trajectory], rng: np.random.Generator) -> tuple[Trajectory, ...]:
    """The runs with decisive steps exchanged at random, None among them; a step beyond a run's end wraps around."""
    steps = [runs[i].decisive_step for i in rng.permutation(len(runs))]
    found = []
    for run, step in zip(runs, steps, strict=True):
        step = None if step is None else step % len(run)
        agent = None if step is None else run.turns[step].role
        found.append(replace(run, decisive_step=step, decisive_agent=agent, outcome=None))
    return tuple(found)


def sample_pairs(base: AuditLM, runs: Sequence[Trajectory], seed: int) -> tuple[list[Pair], dict[str, int]]:
    """Boundary pairs of labelled runs, which all arms on these runs can share, and counts of them."""
    return collect_pairs(base, Runs(base.vocabulary, tuple(runs)), np.random.default_rng([seed, 8]))


def train_arm(
    base: AuditLM, runs: Sequence[Trajectory], arm: Arm, seed: int, shared: tuple[list[Pair], dict] | None = None
) -> Trained:
    """Train a copy of the base.

    Args:
        base: where the arm starts; not changed.
        runs: labelled runs of the training families.
        arm: what is done.
        seed: of sampling and batches.
        shared: what `sample_pairs` gives for the same arguments, to spare sampling again; not used where the arm
            exchanges labels.
    """
    rng = np.random.default_rng([seed, 7])
    data = Runs(base.vocabulary, permute_labels(runs, rng) if arm.permuted else tuple(runs))
    model, curves, counts = copy_of(base), {}, {}
    if arm.stage1 == "sft":
        curves["stage 1"] = train_sft(model, data, rng, steps=arm.steps1, lr=arm.lr1)
    elif arm.stage1:
        pairs, counts = shared if shared and not arm.permuted else sample_pairs(base, data.runs, seed)
        if arm.shuffled:
            dealt = rng.permutation([pair.side for pair in pairs])
            pairs = [replace(pair, side=Side(side)) for pair, side in zip(pairs, dealt, strict=True)]
        sides = tuple(Side) if arm.stage1 == "bppo" else (Side(arm.stage1),)
        options = {"steps": arm.steps1, "lr": arm.lr1, "anchor": arm.anchor, "sides": sides}
        curves["stage 1"] = train_bppo(model, data, pairs, rng, **options)
    if arm.steps2:
        options = {"steps": arm.steps2, "lr": arm.lr2, "p_safe": arm.p_safe}
        curves["stage 2"] = train_grpo(model, copy_of(model), data, rng, **options)
    return Trained(model, curves, counts)


@dataclass(frozen=True)
class Auditor:
    """A trained model as an auditor that answers greedily."""

    model: AuditLM

    def __call__(self, prefix: Sequence[Turn]) -> Verdict:
        """The verdict on turns 0..k."""
        run = Trajectory("prefix", tuple(prefix))
        (verdicts,) = self._ask([run], [[len(run) - 1]])
        return verdicts[0]

    def verdicts(self, runs: Sequence[Trajectory]) -> list[list[Verdict]]:
        """The verdict after every turn of every run."""
        return self._ask(runs, [range(len(run)) for run in runs])

    def records(self, runs: Sequence[Trajectory]) -> list[AuditRecord]:
        """Strict replay of the runs, up to the first alarm of each."""
        return [
            record(run, replay(lambda prefix, said=said: said[len(prefix) - 1], run))
            for run, said in zip(runs, self.verdicts(runs), strict=True)
        ]

    def log_odds(self, runs: Sequence[Trajectory]) -> list[np.ndarray]:
        """(turns,) log P(alarm) - log P(safe) of each run: of the answer's first word, given the frame before it."""
        words = [SAFE_WORD, *(f"#{k}" for k in range(STEPS))]
        found = []
        for data in _pieces(self.model, runs):
            logp = next_words(self.model, data.tokens, _grid(data.ends), VERDICT, words, (THINK, ANSWER))
            for row, ends in zip(logp, data.ends, strict=True):
                # a step that lies ahead is no alarm
                steps = [np.logaddexp.reduce(row[k, 1 : k + 2]) for k in range(len(ends))]
                found.append(np.array(steps) - row[: len(ends), 0])
        return found

    def _ask(self, runs, lasts) -> list[list[Verdict]]:
        found, asked = [], iter(lasts)
        for data in _pieces(self.model, runs):
            looks = [list(next(asked)) for _ in data.runs]
            ends = _grid([[ends[k] for k in look] for ends, look in zip(data.ends, looks, strict=True)])
            answers = respond(self.model, data.tokens, ends, VERDICT)
            for n, look in enumerate(looks):
                found.append([data.verdicts(Prompt(n, k), answers[n, [i]])[0] for i, k in enumerate(look)])
        return found


def trained_auditor(path: Path) -> Auditor:
    """The auditor of a checkpoint; see the module's docstring for what it offers."""
    return Auditor(load(path))


def _pieces(model: AuditLM, runs: Sequence[Trajectory]) -> Iterable[Runs]:
    for begin in range(0, len(runs), ROWS):
        yield Runs(model.vocabulary, tuple(runs[begin : begin + ROWS]))


def _grid(ends: Sequence[Sequence[int]]) -> np.ndarray:
    """(runs, most looks) ends; the last one of a run is repeated where it has fewer."""
    width = max(map(len, ends))
    return np.array([[*row, *[row[-1]] * (width - len(row))] for row in ends])
