"""What an executable environment offers, so that a failed run can be taken up again from any of its turns.

Agents are pure functions of the task, the transcript and a generator: no hidden state survives between turns, so a
rollout from a prefix is a rollout of the system itself and not of a copy that remembers the old future.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from reprise.traces import Turn

Task = Mapping[str, Any]
BUDGET = 40  # turns a run may take (AgentForesight, appendix B.3.1)


class Environment(Protocol):
    """A multi-agent system with its tasks, its outcome check and an oracle for single turns."""

    domain: str

    def next_turn(self, task: Task, turns: tuple[Turn, ...], rng: np.random.Generator) -> Turn | None:
        """The turn that follows, drawn from the system's policy; None when the run has ended."""

    def omega(self, task: Task, turns: tuple[Turn, ...]) -> bool:
        """Whether the run reached the task's goal; an unfinished run has not."""

    def locally_wrong(self, task: Task, turns: tuple[Turn, ...], k: int) -> bool:
        """Whether turn k is wrong given the turns before it, whatever they did."""

    def fix(self, task: Task, turns: tuple[Turn, ...], k: int, rng: np.random.Generator) -> Turn | None:
        """The turn a clean policy takes at k in place of turn k."""


class Rollout(NamedTuple):
    """The turns of a run and whether it ended by itself (False: the budget stopped it)."""

    turns: tuple[Turn, ...]
    finished: bool


def roll(
    environment: Environment,
    task: Task,
    prefix: tuple[Turn, ...],
    rng: np.random.Generator,
    budget: int = BUDGET,
) -> Rollout:
    """Continue a run from `prefix` until it ends or has `budget` turns.

    A prefix that is as long as the budget is returned as it is; it is finished if the system takes no further turn.
    """
    turns = list(prefix)
    while (turn := environment.next_turn(task, tuple(turns), rng)) is not None:
        if len(turns) >= budget:
            return Rollout(tuple(turns), False)
        turns.append(turn)
    return Rollout(tuple(turns), True)
