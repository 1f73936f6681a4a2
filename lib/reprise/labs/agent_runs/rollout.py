"""Injecting a fault into a safe run: a faulty turn, then a real rollout from the corrupted prefix."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from reprise.audit.environment import BUDGET, Environment, Rollout, Task, roll
from reprise.labs.agent_runs import faults
from reprise.traces import Turn


class Discard(StrEnum):
    """Why an injected run is not kept."""

    TOO_SHORT = "too short"
    NO_CATEGORY = "no fitting category"
    UNCHANGED = "turn unchanged"
    BUDGET = "budget reached"
    RECOVERED = "recovered"
    REPAIRED = "fault repaired, failed later"
    LABEL_CONFLICT = "label conflict"


class Injection(NamedTuple):
    """An injected run, the step and category of its fault, or why there is none."""

    run: Rollout | None
    step: int | None
    category: str | None
    discard: Discard | None


def inject_fault(
    environment: Environment,
    task: Task,
    clean: tuple[Turn, ...],
    rng: np.random.Generator,
    budget: int = BUDGET,
) -> Injection:
    """Corrupt one turn of a clean run and let the system go on from there.

    The step is uniform over 1..N-2 (neither the task nor the last turn), the category uniform over those that fit its
    speaker.

    Args:
        environment: the system; it goes on with a fresh stream of chances, its own slips included.
        task: what the run is about.
        clean: the turns of a safe run.
        rng: draws step, category, fault and rollout.
        budget: most turns of a run.

    Source: AgentForesight, constructive stream; appendix B.3.1.
    """
    if len(clean) < 3:
        return Injection(None, None, None, Discard.TOO_SHORT)
    step = int(rng.integers(1, len(clean) - 1))
    categories = faults.fitting(clean[step])
    if not categories:
        return Injection(None, step, None, Discard.NO_CATEGORY)
    category = categories[int(rng.integers(len(categories)))]
    turn = faults.faulty_turn(category, task, clean[:step], rng)
    if turn == clean[step]:
        return Injection(None, step, category, Discard.UNCHANGED)
    run = roll(environment, task, (*clean[:step], turn), rng, budget)
    if not run.finished:
        return Injection(run, step, category, Discard.BUDGET)
    if environment.omega(task, run.turns):
        return Injection(run, step, category, Discard.RECOVERED)
    if repaired(environment, task, run.turns, step):
        return Injection(run, step, category, Discard.REPAIRED)
    return Injection(run, step, category, None)


def repaired(environment: Environment, task: Task, turns: tuple[Turn, ...], step: int) -> bool:
    """Whether the run was back on track after `step`, so that something else made it fail."""
    return any(environment.on_track(task, turns[: k + 1]) for k in range(step + 1, len(turns)))
