"""Pictures of a rubric's reward: scores and what is left of them, and what each unmet parent takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from reprise.nb.style import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHOD_COLOURS = {"flat": "orange", "hard": "vermilion", "hard_transitive": "green", "gear": "blue"}
METHOD_LABELS = {
    "flat": "flat (the judge's scores)",
    "hard": "hard gating, direct parents",
    "hard_transitive": "hard gating, transitive",
    "gear": "GEAR",
}


def marginal_bars(ax: Axes, labels: Sequence[str], q: Mapping[str, Sequence[float]]) -> None:
    """A group of bars a criterion: what each method counts of it.

    Args:
        labels: of the criteria.
        q: method -> marginal of each criterion.
    """
    place = np.arange(len(labels))
    height = 0.8 / len(q)
    for k, (method, values) in enumerate(q.items()):
        ax.barh(place + (k - len(q) / 2 + 0.5) * height, values, height, color=PALETTE[METHOD_COLOURS[method]])
        ax.plot([], [], "s", color=PALETTE[METHOD_COLOURS[method]], label=METHOD_LABELS[method])
    ax.set_yticks(place, labels, fontsize=9)
    ax.invert_yaxis()
    ax.set(xlim=(0, 1), xlabel="share of the criterion that counts")
    ax.grid(axis="y", visible=False)
    ax.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.4, 1.08), ncols=2)


def waterfall(
    ax: Axes, start: float, steps: Mapping[str, float], end: float, ends=("flat reward", "GEAR reward")
) -> None:
    """From one reward to another, a step for each criterion that changes it.

    Args:
        start, end: the two rewards; `start` plus the steps is `end`.
        steps: label -> change of the reward, drawn from top to bottom.
    """
    labels = [ends[0], *steps, ends[1]]
    at = start
    ax.barh(0, start, color=PALETTE[METHOD_COLOURS["flat"]])
    for row, change in enumerate(steps.values(), 1):
        colour = "#888888" if change < 0 else PALETTE["green"]
        ax.barh(row, change, left=at, color=colour)
        right = max(at, at + change)
        ax.text(right + 0.01, row, f"{change:+.3f}", va="center", fontsize=8)
        ax.plot([at + change] * 2, [row - 0.4, row + 1.4], color="black", linewidth=0.6)
        at += change
    ax.barh(len(labels) - 1, end, color=PALETTE[METHOD_COLOURS["gear"]])
    for row, value in ((0, start), (len(labels) - 1, end)):
        ax.text(max(value, 0) + 0.01, row, f"{value:.3f}", va="center", fontsize=8, fontweight="bold")
    ax.set_yticks(range(len(labels)), labels, fontsize=9)
    ax.invert_yaxis()
    ax.axvline(0, color="black", linewidth=0.8)
    ax.margins(x=0.12)
    ax.set_xlabel("reward (1 is the best response)")
    ax.grid(axis="y", visible=False)


def reward_curves(ax: Axes, scores: np.ndarray, rewards: Mapping[str, np.ndarray], chosen: float) -> None:
    """Reward of each method as one parent's score moves, and where it stands.

    Args:
        scores: of the parent.
        rewards: method -> reward at each score.
        chosen: the score that is set.
    """
    for method, values in rewards.items():
        line = "-" if method == "gear" else "--"
        ax.plot(scores, values, line, color=PALETTE[METHOD_COLOURS[method]], label=METHOD_LABELS[method])
    ax.axvline(chosen, color="black", linewidth=1, linestyle=":")
    ax.set(xlabel="score of the parent", ylabel="reward of the response")
    ax.legend(fontsize=7, loc="upper left", borderaxespad=0)


def suppression_bars(ax: Axes, labels: Sequence[str], suppressed: Sequence[float]) -> None:
    """How much of each dependent criterion unmet parents take."""
    ax.barh(range(len(labels)), suppressed, color="#888888")
    ax.set_yticks(range(len(labels)), labels, fontsize=9)
    ax.invert_yaxis()
    ax.set(xlim=(0, 1), xlabel="probability taken away, p - q")
    ax.grid(axis="y", visible=False)


def gates(ax: Axes, types: Mapping[str, float]) -> None:
    """Share of a child that is kept, against its parent's probability, for each type of edge."""
    parent = np.array([0.0, 1.0])
    for (name, retention), colour in zip(types.items(), ("green", "orange", "vermilion"), strict=True):
        ax.plot(parent, parent + (1 - parent) * retention, color=PALETTE[colour])
        ax.text(1.02, 0.93 - 0.12 * list(types).index(name), f"{name}, keeps {retention:g}", color=PALETTE[colour])
    ax.set(xlim=(0, 1), ylim=(0, 1.05), xlabel="probability of the parent", ylabel="share of the child that is kept")
