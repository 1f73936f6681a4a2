"""Practice in the convention sandbox, measured: seeded runs that return tables, with every mechanism as a switch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from reprise.labs.convention_sandbox import (
    CONVENTIONS,
    FAMILIES,
    HUMAN_GUIDELINE,
    SPACE,
    RandomExplorer,
    TrialAndError,
    draw_task,
    guideline,
    true_check,
)
from reprise.memory.practice import Memory, PracticeReport, RepeatedSuccess, practice

CALL_LIMIT = 24  # tool calls in evaluation


class ShuffledFamilies(RandomExplorer):
    """Proposes a task of a family drawn anew each time, whatever was asked for: what targeting aims at is lost."""

    def propose(self, family, rng):
        return super().propose(self.families[rng.integers(len(self.families))], rng)


def practised(
    seed: int,
    rounds: int = 60,
    needed: float = 3,
    flake: float = 0.1,
    targeting: str = "uniform",
    shuffled: bool = False,
) -> PracticeReport:
    """One practice from an empty memory. `shuffled`: the placebo of targeting."""
    explorer = (ShuffledFamilies if shuffled else RandomExplorer)(flake=flake)
    rng = np.random.default_rng([seed, rounds])
    return practice(explorer, TrialAndError(flake), RepeatedSuccess(needed), rounds, rng, targeting)


def scrambled(memory: Memory, seed: int) -> Memory:
    """The same slots, each with another of its values: the placebo of what was learned."""
    rng = np.random.default_rng([seed, 7])
    found = {}
    for slot, heuristic in memory.items():
        others = [value for value in SPACE[slot] if value != heuristic.value]
        found[slot] = replace(heuristic, value=others[rng.integers(len(others))])
    return found


def evaluated(memory: Memory, seed: int, flake: float = 0.1, tasks: int = 25) -> dict[str, float]:
    """Success under the hidden checker and mean calls, over the same tasks of every family for every memory.

    Args:
        tasks: of each of the eight families.
    """
    rng, solver = np.random.default_rng([seed, 1]), TrialAndError(flake, CALL_LIMIT, true_check)
    found = [solver.attempt(draw_task(family, rng), memory, rng) for family in FAMILIES for _ in range(tasks)]
    return {
        "success": float(np.mean([each.success for each in found])),
        "calls": float(np.mean([each.calls for each in found])),
    }


def memories(seeds: Iterable[int], tasks: int = 25, **settings) -> pd.DataFrame:
    """Success and calls with no memory, the practised one, a person's guideline and the scrambled one.

    Returns:
        columns seed, memory ("none", "practised", "guideline", "scrambled"), success, calls.
    """
    flake, rows = settings.get("flake", 0.1), []
    for seed in seeds:
        learned = practised(seed, **settings).memory
        kinds = {"none": {}, "practised": learned, "guideline": guideline(), "scrambled": scrambled(learned, seed)}
        rows += [{"seed": seed, "memory": name, **evaluated(kind, seed, flake, tasks)} for name, kind in kinds.items()]
    return pd.DataFrame(rows)


def sweep(seeds: Iterable[int], grid: Iterable[dict], tasks: int = 25) -> pd.DataFrame:
    """Success after practice for every setting of a grid.

    Returns:
        the settings' columns and seed, success, calls, sandboxes, attempts, candidates, learned, wrong, idle:
        heuristics held, those that contradict a convention, and those about what makes no difference.
    """
    rows = []
    for settings in grid:
        for seed in seeds:
            report = practised(seed, **settings)
            held = report.memory.values()
            counts = {
                "learned": len(report.memory),
                "wrong": sum(h.slot in CONVENTIONS and h.value != HUMAN_GUIDELINE[h.slot] for h in held),
                "idle": sum(h.slot not in CONVENTIONS for h in held),
            }
            costs = {"sandboxes": report.sandboxes, "attempts": report.attempts, "candidates": report.candidates}
            score = evaluated(report.memory, seed, settings.get("flake", 0.1), tasks)
            rows.append({**settings, "seed": seed, **score, **costs, **counts})
    return pd.DataFrame(rows)
