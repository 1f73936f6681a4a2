"""Three checks that a successful run must pass to count as safe at every prefix.

Success alone is not enough: a silent error that a later agent happened to repair would teach an auditor to say
"continue" at a prefix that shows the error.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from reprise.audit.environment import Environment, Rollout, Task
from reprise.traces import Turn

TurnJudge = Callable[[Task, tuple[Turn, ...], int], bool]


class Rejection(StrEnum):
    """The first check a run does not pass, in the order they are made."""

    OUTCOME = "outcome"
    INTEGRITY = "integrity"
    COHERENCE = "coherence"


class CheckedEnvironment(Environment, Protocol):
    """An environment that also knows which actions each agent has, and which of them report a tool's failure."""

    def legal(self, turn: Turn) -> bool:
        """Whether this agent has this action."""

    def tool_error(self, turn: Turn) -> bool:
        """Whether the turn reports that a tool failed."""


def safe_filter(
    environment: CheckedEnvironment, task: Task, run: Rollout, judge: TurnJudge | None = None
) -> Rejection | None:
    """Why a run is not safe, or None where it is.

        outcome     omega holds
        integrity   it ended by itself; every turn is legal, has content and reports no tool failure
        coherence   no turn is wrong given the turns before it

    Args:
        environment: the system the run came from.
        task: the task it was run on.
        run: its turns and whether it ended by itself.
        judge: `judge(task, turns, k)`: is turn k wrong? In place of the environment's own oracle, which stands where
            the paper asks a language model.

    Source: AgentForesight, safe trajectories; appendix B.3.1.
    """
    if not environment.omega(task, run.turns):
        return Rejection.OUTCOME
    clean = all(environment.legal(t) and t.content.strip() and not environment.tool_error(t) for t in run.turns)
    if not (run.finished and clean):
        return Rejection.INTEGRITY
    wrong = judge or environment.locally_wrong
    if any(wrong(task, run.turns, k) for k in range(len(run.turns))):
        return Rejection.COHERENCE
    return None
