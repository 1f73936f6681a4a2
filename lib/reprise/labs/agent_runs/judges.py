"""Judges that err at a known rate, independently or together, so that a voting rule can be checked against the truth.

The truth about every turn of a run comes from its environment. A judge's answer is the truth, flipped with a known
probability; with probability `shared` it is the reading of the turn that the whole panel has in common. A common
reading is as often right on each criterion as an own one, but where it is wrong it is wrong on all four: a turn that
takes a panel in. Every single answer stays as good as before; what agreement is worth changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reprise.audit.environment import Environment, roll
from reprise.audit.propose_verify import CANDIDATES, PROPOSERS, VERIFIERS, Candidate, Check, admit
from reprise.audit.trajectory import Trajectory
from reprise.labs.agent_runs.chances import ChanceError

SEEDS = 8  # rollouts that may show a correction to be decisive


class Truth(NamedTuple):
    """The decisive step of a run and, for each turn, whether (exists, substantive, decisive, earliest) hold."""

    step: int
    criteria: tuple[tuple[bool, bool, bool, bool], ...]


def truth(environment: Environment, run: Trajectory) -> Truth:
    """What a judge who never errs would say of each turn of a labelled failure.

    An error of these environments is never cosmetic: substantive means that it exists.
    """
    criteria = []
    for k in range(len(run)):
        wrong = environment.locally_wrong(run.meta["task"], run.turns, k)
        criteria.append((wrong, wrong, wrong and _flips(environment, run, k), k == run.decisive_step))
    return Truth(run.decisive_step, tuple(criteria))


def _flips(environment: Environment, run: Trajectory, k: int) -> bool:
    task = run.meta["task"]
    for s in range(SEEDS):
        rng = np.random.default_rng(s)
        fixed = environment.fix(task, run.turns, k, rng)
        prefix = run.turns[:k] if fixed is None else (*run.turns[:k], fixed)
        if environment.omega(task, roll(environment, task, prefix, rng).turns):
            return True
    return False


@dataclass(frozen=True)
class Panel:
    """Five proposers and three verifiers of one quality.

    Attributes:
        hit: chance that a proposer's first candidate is the decisive step; otherwise it is any other turn.
        accuracy: chance that a verifier is right on one criterion.
        shared: chance that a proposer's guess, or a verifier's reading of a turn, is the one common to the panel.
    """

    hit: float
    accuracy: float
    shared: float = 0.0

    def __post_init__(self):
        for name in ("hit", "accuracy", "shared"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise ChanceError(f"{name}={value}: expected a probability in [0, 1]")

    def guesses(self, run: Trajectory, rng: np.random.Generator) -> list[int]:
        """First candidates of the proposers."""
        common = self._guess(run, rng)
        own = [self._guess(run, rng) for _ in range(PROPOSERS)]
        return [common if rng.random() < self.shared else guess for guess in own]

    def _guess(self, run: Trajectory, rng: np.random.Generator) -> int:
        if rng.random() < self.hit:
            return run.decisive_step
        other = int(rng.integers(len(run) - 1))
        return other + (other >= run.decisive_step)

    def proposers(self, run: Trajectory, guesses: Sequence[int], rng: np.random.Generator) -> list:
        """Each names its guess and up to two further turns."""
        lists = []
        for guess in guesses:
            others = [k for k in range(len(run)) if k != guess]
            more = rng.permutation(others)[: int(rng.integers(CANDIDATES))]
            lists.append([Candidate(int(k)) for k in (guess, *more)])
        return [lambda _, found=found: found for found in lists]

    def verifiers(self, run: Trajectory, known: Truth, rng: np.random.Generator) -> list:
        """Each sees every criterion of every turn, right with probability `accuracy`."""
        common = rng.random((1, len(run), 1)) >= self.accuracy
        own = rng.random((VERIFIERS, len(run), 4)) >= self.accuracy
        wrong = np.where(rng.random((VERIFIERS, len(run), 1)) < self.shared, common, own)
        seen = np.array(known.criteria) ^ wrong
        confidence = rng.random((VERIFIERS, len(run)))

        def verifier(j: int):
            return lambda _, candidate: Check(*map(bool, seen[j, candidate.step]), float(confidence[j, candidate.step]))

        return [verifier(j) for j in range(VERIFIERS)]


class Outcome(NamedTuple):
    """Shares over runs: labelled at all, labelled rightly of those labelled, and rightly by one vote or one guess.

    `true_passed` is the share of runs whose true step the verifiers would admit, proposed or not. For independent
    judges it is `admission_rate(accuracy ** 4)` in expectation, the ceiling of how many runs get their true label.
    """

    yielded: float
    precision: float
    majority: float
    single: float
    true_passed: float


def vote(panel: Panel, runs: Sequence[Trajectory], truths: Sequence[Truth], seed: int) -> Outcome:
    """Label runs by propose and verify, by the plurality of the same proposers' guesses, and by the first of them."""
    labels, plural, single, passed = [], [], [], []
    for number, (run, known) in enumerate(zip(runs, truths, strict=True)):
        rng = np.random.default_rng([seed, number])
        guesses = panel.guesses(run, rng)
        verifiers = panel.verifiers(run, known, rng)
        labels.append(admit(run, panel.proposers(run, guesses, rng), verifiers).step)
        plural.append(max(sorted(set(guesses)), key=guesses.count) == known.step)
        single.append(guesses[0] == known.step)
        passed.append(admit(run, [lambda _, k=known.step: [Candidate(k)]], verifiers).step is not None)
    right = [label == known.step for label, known in zip(labels, truths, strict=True) if label is not None]
    precision = float(np.mean(right)) if right else float("nan")
    rates = (float(np.mean(values)) for values in (plural, single, passed))
    return Outcome(len(right) / len(labels), precision, *rates)
