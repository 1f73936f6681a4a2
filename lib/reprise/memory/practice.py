"""Practice before any task: an explorer sets tasks it saw solved, a solver fails them, and what repairs it is kept.

Our reading of DAEDALUS, of which the abstract alone is known to us: two agents, a heuristic that comes from a failure
of the solver, and admission to memory only after repeated success with it. Every rule and number below is our choice.
Success is read back through tools the solver has too; a checker of tasks takes no part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from reprise.memory.errors import MemoryFault

FORGET_ABOVE, FORGET_TO = 12, 0.7  # counters above the one are multiplied by the other
MASTERED = 10  # successes in a row after which a family needs no more practice
TARGETING = ("uniform", "learnability", "gap")


@dataclass(frozen=True)
class Task:
    """A goal with its parameters, one of a family of alike ones."""

    family: str
    params: Mapping[str, Any]
    goal: str


@dataclass(frozen=True)
class Heuristic:
    """How one thing is done in this environment.

    Attributes:
        slot: what it settles, such as the format of dates; memory holds at most one heuristic a slot.
        value: how.
        provenance: the family whose failure it came from.
        trials: attempts it was tested on.
    """

    slot: str
    value: Any
    provenance: str = ""
    trials: int = 0


Memory = Mapping[str, Heuristic]


@dataclass(frozen=True)
class Witness:
    """A task with a way of doing things under which it was seen to succeed.

    Attributes:
        configuration: slot -> value.
        share: share of the tries that succeeded, what the "gap" targeting goes by.
        sandboxes: fresh sandboxes it took.
    """

    task: Task
    configuration: Mapping[str, Any]
    share: float
    sandboxes: int


@dataclass(frozen=True)
class Trajectory:
    """One attempt.

    Attributes:
        success: as read back.
        calls: tool calls.
        configuration: slot -> value that the solver set out with.
    """

    task: Task
    success: bool
    calls: int
    configuration: Mapping[str, Any]


class Explorer(Protocol):
    families: Sequence[str]

    def propose(self, family: str, rng: np.random.Generator) -> Witness | None:
        """A task of the family with a witness, or None where none was found within the explorer's budget."""

    def another(self, task: Task, rng: np.random.Generator) -> Task:
        """A fresh task of the same family."""


class Solver(Protocol):
    def attempt(self, task: Task, memory: Memory, rng: np.random.Generator) -> Trajectory: ...


@dataclass(frozen=True)
class RepeatedSuccess:
    """Admit a heuristic after `needed` successes in `trials` fresh tasks; by default none of them may be missed.

    Attributes:
        needed: successes; 0 admits unverified, infinity admits nothing and tries nothing.
        trials: tasks, at least `needed`; None for as many.
    """

    needed: float = 3
    trials: int | None = None

    def __post_init__(self):
        if self.needed < 0 or (math.isfinite(self.needed) and self.needed != int(self.needed)):
            raise MemoryFault(f"needed={self.needed}: expected a count of at least 0, or infinity")
        if self.trials is not None and self.trials < self.needed:
            raise MemoryFault(f"trials={self.trials}: expected at least needed={self.needed:g}")

    def admits(self, attempt: Callable[[], bool]) -> tuple[bool, int]:
        """Whether it passes, and attempts made; ends as soon as the outcome is certain."""
        if math.isinf(self.needed):
            return False, 0
        total = int(self.needed) if self.trials is None else self.trials
        passed = made = 0
        while passed < self.needed and passed + total - made >= self.needed:
            passed += bool(attempt())
            made += 1
        return passed >= self.needed, made

    def pass_probability(self, success: float) -> float:
        """Probability that a heuristic passes under which a task succeeds with probability `success`.

        >>> RepeatedSuccess(3).pass_probability(.5), RepeatedSuccess(4, 5).pass_probability(.5)
        (0.125, 0.1875)
        """
        if math.isinf(self.needed):
            return 0.0
        total, needed = (int(self.needed) if self.trials is None else self.trials), int(self.needed)
        return sum(math.comb(total, k) * success**k * (1 - success) ** (total - k) for k in range(needed, total + 1))

    def success_bound(self, confidence: float = 0.95) -> float:
        """One-sided lower bound of the success rate of what passed without a miss: (1 - confidence)^(1/needed).

        >>> [round(RepeatedSuccess(r).success_bound(), 3) for r in (1, 3, 5, 10)]
        [0.05, 0.368, 0.549, 0.741]
        """
        if self.trials not in (None, self.needed):
            raise MemoryFault(f"trials={self.trials}: expected as many as needed={self.needed:g}, no miss allowed")
        return (1 - confidence) ** (1 / self.needed) if self.needed else 0.0


@dataclass(frozen=True)
class Round:
    """What happened in one round: "no witness", "solved", "rejected" or "learned", and what it cost."""

    family: str
    outcome: str
    sandboxes: int
    attempts: int
    learned: tuple[Heuristic, ...] = ()


@dataclass(frozen=True)
class PracticeReport:
    """Memory after practice, and how it came about."""

    memory: dict[str, Heuristic]
    rounds: tuple[Round, ...]
    candidates: int

    @property
    def sandboxes(self) -> int:
        return sum(each.sandboxes for each in self.rounds)

    @property
    def attempts(self) -> int:
        return sum(each.attempts for each in self.rounds)

    @property
    def accepted(self) -> int:
        return sum(each.outcome == "learned" for each in self.rounds)


@dataclass
class _Counts:
    """Successes, failures and witness shares of one family, the older ones forgotten."""

    solved: float = 0.0
    failed: float = 0.0
    share: float = 0.5
    streak: int = 0

    def add(self, success: bool, share: float) -> None:
        self.solved, self.failed = self.solved + success, self.failed + (not success)
        self.share, self.streak = share, self.streak + 1 if success else 0
        if self.solved + self.failed > FORGET_ABOVE:
            self.solved, self.failed = self.solved * FORGET_TO, self.failed * FORGET_TO


@dataclass
class _Families:
    """Which family is practised next."""

    targeting: str
    counts: dict[str, _Counts] = field(default_factory=dict)

    def choose(self, rng: np.random.Generator) -> str:
        names = list(self.counts)
        if self.targeting == "uniform":
            return names[rng.integers(len(names))]
        draws = np.array([rng.beta(1 + each.solved, 1 + each.failed) for each in self.counts.values()])
        if self.targeting == "learnability":
            return names[int(np.argmax(draws * (1 - draws)))]
        return names[int(np.argmax((1 - draws) * [each.share for each in self.counts.values()]))]

    @property
    def mastered(self) -> bool:
        return all(each.streak >= MASTERED for each in self.counts.values())


def practice(
    explorer: Explorer,
    solver: Solver,
    gate: RepeatedSuccess,
    rounds: int,
    rng: np.random.Generator,
    targeting: str = "uniform",
) -> PracticeReport:
    """Practise until the rounds are over or every family is mastered.

    Args:
        rounds: at least 0.
        targeting: "uniform"; "learnability", the largest p (1 - p) of Beta draws; "gap", the largest (1 - p) times the
            share of tries that were a witness.

    Raises:
        MemoryFault: rounds < 0, an unknown targeting, or an explorer without families.
    """
    if rounds < 0:
        raise MemoryFault(f"rounds={rounds}: expected at least 0")
    if targeting not in TARGETING:
        raise MemoryFault(f"targeting={targeting!r}: expected one of {', '.join(TARGETING)}")
    if not explorer.families:
        raise MemoryFault("explorer.families: expected at least one")
    families = _Families(targeting, {name: _Counts() for name in explorer.families})
    memory: dict[str, Heuristic] = {}
    done, candidates = [], 0
    while len(done) < rounds and not families.mastered:
        family = families.choose(rng)
        witness = explorer.propose(family, rng)
        if witness is None:
            done.append(Round(family, "no witness", getattr(explorer, "budget", 0), 0))
            continue
        first = solver.attempt(witness.task, memory, rng)
        families.counts[family].add(first.success, witness.share)
        if first.success:
            done.append(Round(family, "solved", witness.sandboxes, 1))
            continue
        learned, tried, attempts = _repair(witness, first, explorer, solver, gate, memory, rng)
        candidates += tried
        memory |= {each.slot: each for each in learned}
        done.append(Round(family, "learned" if learned else "rejected", witness.sandboxes, 1 + attempts, learned))
    return PracticeReport(memory, tuple(done), candidates)


def candidate_repairs(witness: Witness, failed: Trajectory) -> list[dict[str, Any]]:
    """What the witness did otherwise: each difference alone, in the order of slots, then all of them together."""
    other = {
        slot: value
        for slot, value in sorted(witness.configuration.items())
        if slot not in failed.configuration or failed.configuration[slot] != value
    }
    return [{slot: value} for slot, value in other.items()] + ([other] if len(other) > 1 else [])


def _repair(witness, failed, explorer, solver, gate, memory, rng) -> tuple[tuple[Heuristic, ...], int, int]:
    """The first candidate that passes the gate, candidates tried, and attempts made."""
    attempts = 0
    for tried, change in enumerate(candidate_repairs(witness, failed), 1):
        trial = {slot: Heuristic(slot, value, witness.task.family) for slot, value in change.items()}

        def attempt(memory=memory | trial):
            return solver.attempt(explorer.another(witness.task, rng), memory, rng).success

        passed, made = gate.admits(attempt)
        attempts += made
        if passed:
            kept = (Heuristic(h.slot, h.value, h.provenance, made) for h in trial.values())
            return tuple(kept), tried, attempts
    return (), len(candidate_repairs(witness, failed)), attempts
