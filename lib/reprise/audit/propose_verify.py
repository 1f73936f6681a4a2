"""Finding the decisive error of a natural failure with fallible judges: some propose steps, others verify them.

Deliberately more cautious than one majority round: a step is admitted only if most verifiers find that the error
exists, matters, decides the outcome and is the earliest such error. What no verifier majority admits is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

from reprise.audit.errors import AuditError
from reprise.audit.trajectory import Trajectory

# AgentForesight, diagnostic stream: five proposers of at most three candidates, three verifiers, temperature 0.2
PROPOSERS, CANDIDATES, VERIFIERS, TEMPERATURE = 5, 3, 3, 0.2


@dataclass(frozen=True)
class Candidate:
    """A step that a proposer suspects, its confidence in [0, 1], and its reason."""

    step: int
    confidence: float = 1.0
    reason: str = ""

    def __post_init__(self):
        _confidence("candidate", self.confidence)


@dataclass(frozen=True)
class Check:
    """What a verifier says of a candidate: four criteria, and its confidence in [0, 1]."""

    exists: bool
    substantive: bool
    decisive: bool
    earliest: bool
    confidence: float = 1.0

    def __post_init__(self):
        _confidence("check", self.confidence)

    @property
    def passed(self) -> bool:
        """Whether all four criteria hold."""
        return self.exists and self.substantive and self.decisive and self.earliest


class Admission(NamedTuple):
    """The admitted step and its speaker, or None twice; how many steps were proposed and how many admitted."""

    step: int | None
    agent: str | None
    proposed: int
    admitted: int


Proposer = Callable[[Trajectory], Sequence[Candidate]]
Verifier = Callable[[Trajectory, Candidate], Check]


def threshold(voters: int) -> int:
    """Votes needed of an odd number of verifiers: floor(V / 2) + 1."""
    if type(voters) is not int or voters < 1 or voters % 2 == 0:
        raise AuditError(f"verifiers={voters!r}: expected an odd number of at least 1")
    return voters // 2 + 1


def admit(trajectory: Trajectory, proposers: Sequence[Proposer], verifiers: Sequence[Verifier]) -> Admission:
    """Propose steps and verify each.

        admitted  <=>  #{j : verifier j finds all four criteria} >= floor(V / 2) + 1

    Candidates are joined by step (the most confident one stands). Of several admitted steps the one with the highest
    mean confidence of its verifiers is taken, then the smaller step; the tie rule is our choice.

    Raises:
        AuditError: an even number of verifiers, too many candidates of one proposer, or a step outside the run.

    Source: AgentForesight, diagnostic stream.
    """
    needed = threshold(len(verifiers))
    candidates: dict[int, Candidate] = {}
    for number, proposer in enumerate(proposers):
        proposed = proposer(trajectory)
        if len(proposed) > CANDIDATES:
            raise AuditError(f"proposer {number}: {len(proposed)} candidates: expected at most {CANDIDATES}")
        for candidate in proposed:
            if type(candidate.step) is not int or not 0 <= candidate.step < len(trajectory):
                raise AuditError(
                    f"proposer {number}: step={candidate.step!r}: expected an int in 0..{len(trajectory) - 1}"
                )
            known = candidates.get(candidate.step)
            if known is None or candidate.confidence > known.confidence:
                candidates[candidate.step] = candidate
    ranked = []
    for step in sorted(candidates):
        checks = [verifier(trajectory, candidates[step]) for verifier in verifiers]
        if sum(check.passed for check in checks) >= needed:
            ranked.append((-sum(check.confidence for check in checks) / len(checks), step))
    if not ranked:
        return Admission(None, None, len(candidates), 0)
    step = min(ranked)[1]
    return Admission(step, trajectory.turns[step].role, len(candidates), len(ranked))


def admission_rate(p: float, voters: int = VERIFIERS) -> float:
    """Chance that enough of `voters` independent verifiers pass a step, each with probability p.

        sum_{n >= floor(V/2) + 1} C(V, n) p^n (1 - p)^(V - n)

    With p = a^4, a the accuracy on one criterion, it bounds how many true steps independent judges can admit.

    >>> round(admission_rate(0.9), 4)
    0.972
    """
    if not 0 <= p <= 1:
        raise AuditError(f"p={p}: expected a probability in [0, 1]")
    return sum(comb(voters, n) * p**n * (1 - p) ** (voters - n) for n in range(threshold(voters), voters + 1))


def _confidence(what: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise AuditError(f"{what}: confidence={value!r}: expected a number in [0, 1]")
