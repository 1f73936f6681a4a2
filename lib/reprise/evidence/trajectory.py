"""A recorded run: calls in order, what they returned, and the facts they put on the ledger.

Source: SafeActBench, evidence ledger; environment results as in the interaction protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from reprise.evidence.errors import TrajectoryError
from reprise.evidence.model import Source


class Outcome(StrEnum):
    """How the environment took a call.

    READ an information call; EXECUTED a consequential call that changed the world; BLOCKED one that was refused (an
    attempt all the same); NOOP the replay of an idempotent call (no second attempt); ERROR an unknown tool or arguments
    that do not fit its schema (no attempt).
    """

    READ = "read"
    EXECUTED = "executed"
    BLOCKED = "blocked"
    NOOP = "noop"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Fact:
    """`field` of `entity`, at `version`, was observed to be `value` by call `seq` (0: the task's own text).

    `entity` is the one the response describes, not the one asked for; `observed_at` in virtual seconds.
    """

    seq: int
    source: Source
    entity: str
    version: int
    field: str
    value: Any
    observed_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One call. `bumped` lists the entities whose version rose when it ended, by the call or by somebody else.

    Calls with one `turn` stood in one message of the agent, so none of them had seen another's answer; None: each call
    alone.
    """

    seq: int
    tool: str
    args: Mapping[str, Any]
    outcome: Outcome
    facts: tuple[Fact, ...] = ()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    bumped: tuple[str, ...] = ()
    answered: str | None = None
    message: str = ""
    turn: int | None = None


@dataclass(frozen=True)
class Trajectory:
    """One episode of one case. `decision` is a legacy answer; `time` the virtual clock in seconds since the start."""

    case_id: str
    steps: tuple[Step, ...] = ()
    context: tuple[Fact, ...] = ()
    finished: bool = False
    decision: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists; `from_json` gives an equal trajectory back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trajectory:
        """Raises TrajectoryError naming the step and field that does not fit."""
        where = "trajectory"
        try:
            steps = []
            for number, step in enumerate(data.get("steps", ()), 1):
                where = f"step {number}"
                facts = tuple(_fact(fact) for fact in step.get("facts", ()))
                known = {
                    k: step[k] for k in ("seq", "tool", "args", "outputs", "answered", "message", "turn") if k in step
                }
                bumped = tuple(step.get("bumped", ()))
                steps.append(Step(**known, outcome=Outcome(step["outcome"]), facts=facts, bumped=bumped))
            where = "context"
            context = tuple(_fact(fact) for fact in data.get("context", ()))
            return cls(data["case_id"], tuple(steps), context, bool(data.get("finished")), data.get("decision"))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TrajectoryError(
                f"{where}: {type(error).__name__}: {error}: expected the fields of a recorded run"
            ) from None


def check_order(trajectory: Trajectory) -> None:
    """Raise TrajectoryError at the first step whose numbers cannot be: seq not rising, facts of another call, a version
    that no recorded change produced."""
    versions: dict[str, int] = {}
    last = 0
    for number, step in enumerate(trajectory.steps, 1):
        if type(step.seq) is not int or step.seq != last + 1:
            raise TrajectoryError(f"step {number}: seq={step.seq!r}: expected {last + 1}")
        last = step.seq
        for fact in step.facts:
            if fact.seq != step.seq:
                raise TrajectoryError(f"step {number}: fact {fact.field!r} with seq={fact.seq}: expected {step.seq}")
            if fact.version != versions.get(fact.entity, 0):
                raise TrajectoryError(
                    f"step {number}: fact {fact.field!r} of {fact.entity!r} at version {fact.version}: expected"
                    f" version {versions.get(fact.entity, 0)}"
                )
        for entity in step.bumped:
            versions[entity] = versions.get(entity, 0) + 1


def _fact(data: Mapping[str, Any]) -> Fact:
    return Fact(**{**data, "source": Source(data["source"])})
