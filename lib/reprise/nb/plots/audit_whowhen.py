"""Pictures of failure attribution: where errors lie, what scorers reward, what a model ranks, what replay costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUBSETS = {"AG": ("126 algorithm-generated logs", "blue"), "HC": ("58 hand-crafted logs", "orange")}


def positions(logs: Any) -> Figure:
    """Step of the decisive error among each log's turns.

    Args:
        logs: data frame with columns domain, turns, step.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(8.5, 3))
    for ax, (subset, (name, colour)) in zip(axes, SUBSETS.items(), strict=True):
        part = logs[logs.domain == subset]
        ax.scatter(part.turns, part.step, s=16, color=PALETTE[colour], alpha=0.45, linewidth=0)
        longest = part.turns.max()
        ax.plot([0, longest], [0, longest - 1], color=REPORTED, linewidth=1, linestyle=":")
        ax.text(longest, longest - 1, "last turn ", ha="right", va="bottom", fontsize=8, color=REPORTED)
        share = (part.step / part.turns).mean()
        ax.plot([0, longest], [0, share * longest], color=PALETTE[colour], linewidth=1.2)
        ax.set(xlabel="turns of the log", ylabel="step of the decisive error", xlim=(0, None), ylim=(-0.5, None))
        ax.set_title(f"{name}: on average {share:.0%} in", fontsize=10, fontweight="normal")
    return fig


def scorers(table: Any, best: Mapping[str, float]) -> Figure:
    """Step accuracy of answers that read nothing, under equality and under containment of digits.

    Args:
        table: data frame with columns subset, rule, step, substring (percent).
        best: subset -> best reported step accuracy, percent.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(8.5, 3), sharex=True)
    for ax, (subset, (name, colour)) in zip(axes, SUBSETS.items(), strict=True):
        part = table[(table.subset == subset) & table.step.notna()].drop_duplicates("rule")
        at = np.arange(len(part))
        ax.barh(at + 0.2, part.step, 0.38, color=PALETTE[colour], label="integers are equal")
        ax.barh(at - 0.2, part.substring, 0.38, color=PALETTE["vermilion"], alpha=0.45, label="digits are contained")
        for y, values in enumerate(zip(part.step, part.substring, strict=True)):
            for shift, value in zip((0.2, -0.2), values, strict=True):
                ax.text(value + 1, y + shift, f"{value:.1f}", va="center", fontsize=7.5)
        ax.axvline(best[subset], color=REPORTED, linestyle="--", linewidth=1.2, label="best reported")
        ax.set_yticks(at, [f"always {rule}" if rule.startswith("step") else rule for rule in part.rule], fontsize=8.5)
        ax.set(xlabel="step accuracy (%)", xlim=(0, 112), ylim=(len(part) - 0.4, -0.6))
        ax.set_title(name, fontsize=10, fontweight="normal")
    axes[1].legend(loc="upper right", fontsize=8)
    return fig


def local_model(intervals: Any, rules: Any) -> Figure:
    """What a small model's scores say of the decisive turn: its rank, against the control, and the steps it hits.

    Args:
        intervals: data frame with columns label, mean, low, high and kind: "label" or "control" for ranks less one
            half, "difference" for the first less the second; in the order of the lines.
        rules: data frame with columns rule, accuracy, low, high (percent), in the order of the bars.
    """
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.5), width_ratios=(1.1, 1))
    kinds = {"label": ("o", "blue"), "control": ("s", "orange"), "difference": ("D", "green")}
    for at, row in enumerate(intervals.itertuples()):
        marker, colour = kinds[row.kind]
        left.plot([row.low, row.high], [at, at], color=PALETTE[colour], linewidth=2)
        left.plot([row.mean], [at], marker, color=PALETTE[colour], markersize=6)
    left.axvline(0, color=REPORTED, linewidth=1.2)
    left.set_yticks(range(len(intervals)), list(intervals.label), fontsize=8.5)
    left.set(xlabel="rank in the log less 1/2, or difference of ranks", ylim=(len(intervals) - 0.5, -0.5))
    plain = [rule.startswith(("always", "uniform")) for rule in rules.rule]
    colours = [PALETTE["orange"] if each else PALETTE["blue"] for each in plain]
    at = np.arange(len(rules))
    errors = [rules.accuracy - rules.low, rules.high - rules.accuracy]
    right.barh(at, rules.accuracy, 0.6, color=colours, alpha=0.55, xerr=errors, error_kw={"linewidth": 1})
    right.set_yticks(at, list(rules.rule), fontsize=8.5)
    right.set(xlabel="exact step accuracy, % (95 %)", ylim=(len(rules) - 0.4, -0.6), xlim=(0, None))
    return fig


def replay_cost(logs: Any) -> Figure:
    """Characters read when every prefix is read anew, as a multiple of the log, against the number of turns.

    Args:
        logs: data frame with columns domain, turns, characters, replayed.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(6.5, 3.2))
    for subset, (name, colour) in SUBSETS.items():
        part = logs[logs.domain == subset]
        whole = part.replayed.sum() / part.characters.sum()
        label = f"{name}, together {whole:.1f} times"
        ax.scatter(
            part.turns,
            part.replayed / part.characters,
            s=16,
            color=PALETTE[colour],
            alpha=0.6,
            label=label,
            linewidth=0,
        )
    longest = logs.turns.max()
    ax.plot(
        [1, longest], [1, (longest + 1) / 2], color=REPORTED, linestyle="--", linewidth=1, label="turns of equal length"
    )
    ax.set(xlabel="turns of the log", ylabel="characters read / of the log", xlim=(0, None), ylim=(0, None))
    ax.legend(fontsize=8.5, loc="upper left")
    return fig
