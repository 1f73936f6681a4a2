"""Pictures of reported evidence metrics: success by protocol, and the intervals that two margins leave possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def protocols(table: Any) -> Figure:
    """Reported success of configurations by protocol.

    Args:
        table: data frame, rows are configurations, columns protocols, values percent.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(7.4, 3.2))
    for (name, row), marker in zip(table.iterrows(), "os^v", strict=False):
        ax.plot(
            range(len(row)),
            row.values,
            marker=marker,
            color=REPORTED,
            linestyle="-" if marker == "o" else "--",
            label=name,
        )
        for place, value in enumerate(row.values):
            above = value == table.iloc[:, place].max()
            ax.annotate(
                f"{value:g}",
                (place, value),
                xytext=(0, 6 if above else -13),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
            )
    ax.set_xticks(range(len(table.columns)), list(table.columns))
    ax.set(ylim=(0, 112), ylabel="exact case success, % (reported)")
    ax.legend(loc="upper right", bbox_to_anchor=(1, 0.95))
    return fig


def strips(panels: Mapping[str, Any], said: Mapping[str, str]) -> Figure:
    """One strip a comparison: the exact interval of every table of pairs that the two printed counts allow.

    Args:
        panels: label -> data frame with columns gained, low, high, excludes_zero (percentage points).
        said: label -> what the paper says about the interval.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(2, (len(panels) + 1) // 2, figsize=(9.2, 5.2), sharex=True)
    for ax, (label, table) in zip(axes.flat, panels.items(), strict=True):
        for row in table.itertuples():
            colour = PALETTE["blue" if row.excludes_zero else "orange"]
            ax.plot([row.low, row.high], [row.gained, row.gained], color=colour, linewidth=2.2)
        ax.axvline(0, color=REPORTED, linewidth=1)
        share = f"{int(table.excludes_zero.sum())} of {len(table)} tables exclude zero (blue)"
        ax.set_title(f"{label}\n{share}", fontsize=9.5, fontweight="normal")
        ax.text(0.02, 0.97, f"paper: {said[label]}", transform=ax.transAxes, fontsize=8, va="top", color=REPORTED)
        ax.set_ylim(-0.8, max(table.gained) * 1.22 + 1)
        ax.yaxis.get_major_locator().set_params(integer=True)
    for ax in axes[-1]:
        ax.set_xlabel("change in acting, points (95 %)")
    for ax in axes[:, 0]:
        ax.set_ylabel("cases that began to act")
    return fig
