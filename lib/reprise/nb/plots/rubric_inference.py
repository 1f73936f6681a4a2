"""Pictures of exact and approximate marginals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reprise.nb import style
from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"spread": "blue", "near": "orange", "shared": "vermilion", "activation": "purple"}
LABELS = {
    "spread": "parents drawn anywhere",
    "near": "parents drawn nearby",
    "shared": "parents that share ancestors",
    "activation": "sharing ancestors, all edges activations",
}


def intervals(rows: pd.DataFrame, title: str) -> Figure:
    """Criteria with several parents, by exact marginal: the certified interval and where the exact value lies in it.

    Args:
        rows: mean_field, exact, upper of each criterion.
    """
    import matplotlib.pyplot as plt

    shown = rows.sort_values("exact").reset_index(drop=True)
    width = shown.upper - shown.mean_field
    open_ = width > 1e-9
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=(1.6, 1))
    left.vlines(
        shown.index, shown.mean_field, shown.upper, color=PALETTE["sky"], linewidth=1.2, label="certified interval"
    )
    left.plot(
        shown.index, shown.mean_field, ".", markersize=3, color=PALETTE["blue"], label="linear update (lower end)"
    )
    left.plot(shown.index, shown.exact, ".", markersize=3, color="black", label="exact")
    left.set(xlabel="criteria with several parents, by exact marginal", ylabel="marginal probability", ylim=(0, 1))
    left.legend(loc="upper left")
    left.set_title(title)
    place = ((shown.exact - shown.mean_field) / width)[open_]
    right.hist(place, bins=20, range=(0, 1), color=PALETTE["blue"])
    right.set(xlabel="place of the exact value in its interval\n(0 linear update, 1 upper bound)", ylabel="criteria")
    right.set_title(f"{len(place)} have a width, {len(shown) - len(place)} are one point")
    return fig


def reported_errors(rows: pd.DataFrame, reported: pd.DataFrame, title: str) -> Figure:
    """Error of the linear update by benchmark, for each way of wiring with its 95 % interval, beside the reported one.

    Args:
        rows: benchmark, wiring, and marginal_mae, marginal_se, reward_mae, reward_se.
        reported: the two errors by benchmark, as index.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(10, 3.9))
    names = list(reported.index)
    subjects = {"marginal": "a criterion's marginal", "reward": "a response's reward"}
    for ax, (column, subject) in zip(axes, subjects.items(), strict=True):
        for k, (wiring, part) in enumerate(rows.groupby("wiring", sort=False)):
            part = part.set_index("benchmark").reindex(names)
            places = [n + 0.16 * (k - 1.5) for n in range(len(names))]
            half = 1.96 * part[f"{column}_se"]
            colour = PALETTE[COLOURS[wiring]]
            ax.errorbar(places, part[f"{column}_mae"], half, fmt="o", color=colour, markersize=6, label=LABELS[wiring])
        for n, name in enumerate(names):
            text = "reported" if n == 0 else None
            ax.hlines(
                reported.loc[name, f"{column}_mae"], n - 0.35, n + 0.35, color=REPORTED, linestyle="--", label=text
            )
        ax.set_xticks(range(len(names)), names)
        ax.set(ylim=(0, None), ylabel=f"mean absolute error of {subject}")
    axes[1].legend(fontsize=8)
    style.title(fig, title)
    return fig


def speed(ax: Axes, microseconds: pd.DataFrame) -> None:
    """Time of each way to score a step: median, and the spread over rounds.

    Args:
        microseconds: a column a way, a row a round.
    """
    for row, name in enumerate(microseconds):
        times = microseconds[name]
        ours = name in ("mean field", "exact")
        colour = PALETTE["blue" if ours else "orange"]
        ax.plot([times.min(), times.max()], [row, row], color=colour, linewidth=3, alpha=0.4)
        ax.plot(times.median(), row, "o", color=colour, markersize=8)
        ax.text(times.median(), row - 0.25, f"{times.median():.2g}", ha="center", fontsize=9)
    says = {"mean field": "batch, linear update", "exact": "batch, exact marginals"}
    ax.set_yticks(range(len(microseconds.columns)), [says.get(name, f"one by one, {name}") for name in microseconds])
    ax.invert_yaxis()
    ax.margins(y=0.25)
    ax.set(xscale="log", xlim=(0.1, 100), xlabel="CPU microseconds a response (log scale)")


def program_size(ax: Axes, sizes: pd.DataFrame, limit: int) -> None:
    """Terms of moment programs against the number of criteria, and what enumeration costs.

    Args:
        sizes: criteria, edges, terms, enumeration, density ("sparse" or "dense") of each graph.
        limit: terms at which compilation stops.
    """
    for density, colour in (("sparse", "blue"), ("dense", "orange")):
        part = sizes[sizes.density == density].groupby("criteria")
        median = part.terms.median()
        label = "exact program, K edges" if density == "sparse" else "exact program, 4 edges a criterion"
        ax.plot(median.index, median, "o-", markersize=4, color=PALETTE[colour], label=label)
        ax.fill_between(median.index, part.terms.min(), part.terms.max(), color=PALETTE[colour], alpha=0.2, linewidth=0)
    states = sizes.groupby("criteria").enumeration.first()
    states = states[states <= 1e9]
    ax.plot(states.index, states, "--", color="black", linewidth=1.2, label="enumeration: $2^K$ states, K nodes each")
    ax.axhline(
        limit, color=REPORTED, linewidth=1, linestyle=":", label="limit: above it another exact method takes over"
    )
    ax.set(yscale="log", xlabel="criteria K", ylabel="numbers read a response (operands)")
    ax.legend(fontsize=8)
