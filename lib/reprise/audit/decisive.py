"""The decisive error of a failed run, in the three ways its definition can be read.

The printed definition asks for the first step at which *some* admissible turn lets *some* rollout succeed. Taken
literally that is nearly always the first step after the task, because a fresh rollout does not repeat the fault; the
prose means one of the other two readings.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from reprise.audit.environment import BUDGET, Environment, Task, roll
from reprise.audit.errors import AuditError
from reprise.audit.trajectory import Trajectory
from reprise.traces import Turn

# rollouts a step is tried with; our choice, the paper gives none
FLIP_ROLLOUTS, RETURN_ROLLOUTS = 8, 32


class Reading(StrEnum):
    """Which reading of the definition is computed."""

    EARLIEST_FLIP = "earliest_flip"
    POINT_OF_NO_RETURN = "point_of_no_return"
    LITERAL = "literal"


def decisive_step(
    environment: Environment,
    trajectory: Trajectory,
    mode: str = "earliest_flip",
    n_rollouts: int | None = None,
    seed: int = 0,
    budget: int = BUDGET,
) -> int | None:
    """The decisive step of a failed run whose task lies in `trajectory.meta["task"]`.

    With S rollouts Roll(s) of the system, s < S, seeded by 1000 * seed + s:

        earliest_flip        min {k locally wrong : some s has omega(turns[:k] + fix(k) + Roll(s)) = 1}
        point_of_no_return   min {k : no s has omega(turns[:k + 1] + Roll(s)) = 1}
        literal              min {k >= 1 : some s has omega(turns[:k] + Roll(s)) = 1}

    `earliest_flip` is the label of a corpus: the first wrong turn whose correction flips the outcome.
    `point_of_no_return` is never earlier, up to the chance that S rollouts all miss a way back; the difference is the
    slack in which an intervention still helps without a correction.

    Args:
        environment: the system the run came from.
        trajectory: a failed run.
        mode: a `Reading`.
        n_rollouts: S; by default 8, for the point of no return 32.
        seed: of the rollouts.
        budget: most turns of a run.

    Returns:
        The step, counted from 0, or None where no step qualifies.

    Raises:
        AuditError: the run succeeded, its task is missing, or an argument is outside its range.

    Source: AgentForesight, definition of the decisive error.
    """
    if mode not in set(Reading):
        raise AuditError(f"mode={mode!r}: expected one of {', '.join(Reading)}")
    if n_rollouts is None:
        n_rollouts = RETURN_ROLLOUTS if mode == Reading.POINT_OF_NO_RETURN else FLIP_ROLLOUTS
    if type(n_rollouts) is not int or n_rollouts < 1:
        raise AuditError(f"n_rollouts={n_rollouts!r}: expected an int of at least 1")
    if "task" not in trajectory.meta:
        raise AuditError(f"trajectory {trajectory.id!r}: meta has no 'task': expected the task it was run on")
    task, turns = trajectory.meta["task"], trajectory.turns
    if environment.omega(task, turns):
        raise AuditError(f"trajectory {trajectory.id!r}: trajectory succeeded: a decisive error needs a failed run")
    seeds = range(1000 * seed, 1000 * seed + n_rollouts)
    search = {
        Reading.EARLIEST_FLIP: _earliest_flip,
        Reading.POINT_OF_NO_RETURN: _point_of_no_return,
        Reading.LITERAL: _literal,
    }[Reading(mode)]
    return search(environment, task, turns, seeds, budget)


def _earliest_flip(environment: Environment, task: Task, turns: tuple[Turn, ...], seeds: range, budget: int):
    for k in range(len(turns)):
        if not environment.locally_wrong(task, turns, k):
            continue
        for s in seeds:
            rng = np.random.default_rng(s)
            fixed = environment.fix(task, turns, k, rng)
            prefix = turns[:k] if fixed is None else (*turns[:k], fixed)
            if environment.omega(task, roll(environment, task, prefix, rng, budget).turns):
                return k
    return None


def _point_of_no_return(environment: Environment, task: Task, turns: tuple[Turn, ...], seeds: range, budget: int):
    return next(
        (k for k in range(len(turns)) if not _reachable(environment, task, turns[: k + 1], seeds, budget)), None
    )


def _literal(environment: Environment, task: Task, turns: tuple[Turn, ...], seeds: range, budget: int):
    return next((k for k in range(1, len(turns)) if _reachable(environment, task, turns[:k], seeds, budget)), None)


def _reachable(environment: Environment, task: Task, prefix: tuple[Turn, ...], seeds: range, budget: int) -> bool:
    """Whether one of the system's own rollouts from `prefix` succeeds."""
    return any(
        environment.omega(task, roll(environment, task, prefix, np.random.default_rng(s), budget).turns) for s in seeds
    )
