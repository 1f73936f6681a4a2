"""Pictures of methods compared over rubric sets: means with Student intervals, paired differences, a map of signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reprise.nb import style
from reprise.nb.style import PALETTE
from reprise.stats import paired_t_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"flat": "orange", "hard": "vermilion", "GEAR": "blue", "untyped": "sky", "random": "purple"}
SIGNS = {1: "green", -1: "vermilion"}


def intervals(frame: Any, metric: str, by: Sequence[str]) -> Any:
    """Mean of a metric over rubric sets with its 95 % Student interval: data frame of `by`, mean, low, high."""
    import pandas as pd

    rows = []
    for key, group in frame.groupby(list(by), sort=False):
        mean, low, high = paired_t_interval(group[metric].to_numpy())
        rows.append({**dict(zip(by, key, strict=True)), "mean": mean, "low": low, "high": high})
    return pd.DataFrame(rows)


def gaps(frame: Any, pairs: Sequence[tuple[str, str]], metric: str) -> Any:
    """Differences of two methods within each rubric set: data frame of better, worse, mean, low, high."""
    import pandas as pd

    values = frame.pivot(index="seed", columns="method", values=metric)
    rows = []
    for better, worse in pairs:
        mean, low, high = paired_t_interval(values[better].to_numpy(), values[worse].to_numpy())
        rows.append({"better": better, "worse": worse, "mean": mean, "low": low, "high": high})
    return pd.DataFrame(rows)


def lines(ax: Axes, table: Any, x: str, colours: Mapping[str, str] = COLOURS, series: str = "method") -> None:
    """Means with their intervals as bars, one line a method, over column `x` of `intervals`' table."""
    for name, group in table.groupby(series, sort=False):
        colour = PALETTE[colours[name]]
        ax.plot(group[x], group["mean"], "o-", markersize=3, linewidth=1.4, color=colour, label=name)
        ax.vlines(group[x], group["low"], group["high"], color=colour, linewidth=1.2)


def bands(ax: Axes, table: Any, x: str, colours: Mapping[str, str] = COLOURS, series: str = "method") -> None:
    """The same with the intervals as bands."""
    for name, group in table.groupby(series, sort=False):
        colour = PALETTE[colours[name]]
        ax.plot(group[x], group["mean"], linewidth=1.6, color=colour, label=name)
        ax.fill_between(group[x], group["low"], group["high"], color=colour, alpha=0.15, linewidth=0)


def forest(table: Any, title: str, xlabel: str) -> Figure:
    """Paired differences as dots with intervals, blocks by comparison, green above and red below 0 where the interval
    says so.

    Args:
        table: data frame with columns better, worse, condition, mean, low, high.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(6.8, 0.8 + 0.17 * len(table)))
    height, ticks, labels = 0.0, [], []
    for (better, worse), group in table.groupby(["better", "worse"], sort=False):
        ax.text(
            0.005,
            height - 0.75,
            f"{better} - {worse}",
            transform=ax.get_yaxis_transform(),
            fontweight="bold",
            fontsize=9,
        )
        for row in group.itertuples():
            sign = (row.low > 0) - (row.high < 0)
            colour = PALETTE[SIGNS[sign]] if sign else "#888888"
            ax.plot([row.low, row.high], [height, height], color=colour, linewidth=2)
            ax.plot(row.mean, height, "o", color=colour, markersize=4)
            ticks.append(height)
            labels.append(row.condition)
            height += 1
        height += 1.2
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(ticks, labels, fontsize=7.5)
    ax.set_ylim(height - 0.9, -1.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(xlabel)
    style.title(fig, title)
    return fig


def sign_map(ax: Axes, table: Any, limit: float) -> None:
    """Mean differences by condition as colours; a cell whose interval holds 0 is printed in brackets.

    Args:
        ax: where.
        table: data frame with columns blind, edge_error, mean, low, high.
        limit: differences of this size have the full colour.
    """
    blinds, errors = sorted(table.blind.unique()), sorted(table.edge_error.unique())
    cells = table.set_index(["edge_error", "blind"])
    values = [[cells.loc[(error, blind), "mean"] for blind in blinds] for error in errors]
    ax.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit, origin="lower", aspect="auto")
    for y, error in enumerate(errors):
        for x, blind in enumerate(blinds):
            cell = cells.loc[(error, blind)]
            text = f"{cell['mean']:+.1f}"
            open_ = cell["low"] <= 0 <= cell["high"]
            ink = "white" if abs(cell["mean"]) > 0.7 * limit else "black"
            ax.text(x, y, f"({text})" if open_ else text, ha="center", va="center", fontsize=9, color=ink)
    ax.set_xticks(range(len(blinds)), [f"{100 * blind:g}" for blind in blinds])
    ax.set_yticks(range(len(errors)), [f"{100 * error:.2g}" for error in errors])
    ax.grid(visible=False)
    ax.set_xlabel("parents never recognised (%)")
