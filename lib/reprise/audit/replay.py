"""Strict incremental replay: the auditor is asked after every turn of a recorded run, and sees only what was there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from reprise.audit.errors import AuditError
from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import Verdict
from reprise.traces import Turn

# turns 0..k -> verdict on them
Auditor: TypeAlias = Callable[[tuple[Turn, ...]], Verdict]

SAFE_PROTOCOLS = ("replay", "single_look")


@dataclass(frozen=True)
class ReplayConfig:
    """How judges are asked in the paper: one greedy call a prefix, at most 1,500 response tokens.

    `safe_protocol`: "replay" asks after every turn of a safe run, as the text says; "single_look" once, on the whole
    run, as the released runners do.
    """

    response_tokens: int = 1_500
    temperature: float = 0.0
    safe_protocol: str = "replay"


@dataclass(frozen=True)
class Replay:
    """What an auditor said of one run.

    `verdicts` has one entry a query, in order; it ends at the first alarm. `pred_step` and `pred_agent` are those of
    that alarm and `detection_step` is the turn after which it came (`pred_step <= detection_step`); all None without
    one.
    """

    id: str
    verdicts: tuple[Verdict, ...]
    pred_step: int | None = None
    pred_agent: str | None = None
    detection_step: int | None = None

    @property
    def invalid(self) -> int:
        """Queries whose output was no verdict; each counted as Continue."""
        return sum(not verdict.valid for verdict in self.verdicts)

    @property
    def invalid_rate(self) -> float:
        """Share of queries whose output was no verdict."""
        return self.invalid / len(self.verdicts)


def replay(auditor: Auditor, trajectory: Trajectory, safe_protocol: str = ReplayConfig.safe_protocol) -> Replay:
    """Ask after turn 0, 1, ... until the first alarm.

        for k in 0..N-1: v_k = auditor(turns 0..k); the first alarm is the prediction, k the detection step

    The auditor gets a new tuple of k+1 new turns without their source records (`Turn.raw`), so that neither the
    length, the label nor a later turn is within its reach, and what it does to its copy changes nothing. This keeps
    honest code honest: code that searches the interpreter's memory can find anything in it, and belongs in a process
    of its own (`isolated`).

    Args:
        auditor: called with turns 0..k; returns a verdict, invalid ones included.
        trajectory: the run. Without `decisive_step` it counts as safe.
        safe_protocol: "replay", or "single_look": a safe run is looked at once, whole. Unsafe runs are always replayed.

    Raises:
        AuditError: an unknown protocol, or an auditor that returns no Verdict or names a turn it has not seen.
            What the auditor raises passes through.

    Source: AgentForesight, strict incremental evaluation.
    """
    if safe_protocol not in SAFE_PROTOCOLS:
        raise AuditError(f"safe_protocol={safe_protocol!r}: expected one of {', '.join(SAFE_PROTOCOLS)}")
    last = len(trajectory) - 1
    once = safe_protocol == "single_look" and trajectory.decisive_step is None
    verdicts = []
    for k in (last,) if once else range(last + 1):
        verdict = _ask(auditor, trajectory.prefix(k), f"trajectory {trajectory.id!r}, turn {k}")
        verdicts.append(verdict)
        if verdict.is_alarm:
            return Replay(trajectory.id, tuple(verdicts), verdict.step, verdict.agent, k)
    return Replay(trajectory.id, tuple(verdicts))


def visible(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Copies of turns as an auditor may see them: role, action and content, no source record."""
    return tuple(Turn(turn.role, turn.action, turn.content) for turn in turns)


def _ask(auditor: Auditor, prefix: tuple[Turn, ...], where: str) -> Verdict:
    verdict = auditor(visible(prefix))
    if not isinstance(verdict, Verdict):
        raise AuditError(f"{where}: auditor returned {type(verdict).__name__}: expected a Verdict")
    if verdict.is_alarm and verdict.step >= len(prefix):
        raise AuditError(f"{where}: step={verdict.step}: expected a turn in 0..{len(prefix) - 1}, which it has seen")
    return verdict
