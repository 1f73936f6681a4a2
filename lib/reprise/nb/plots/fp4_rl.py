"""Pictures of reinforcement learning with an FP4 rollout: one line a method, a band over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reprise.nb.plots.fp4_methods import colour
from reprise.nb.style import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

PERMUTED = ("TRACE, permuted", "TRACE, 1 bit, last half, permuted")  # controls
LOOKS = {name: (colour(name), "-") for name in ("BF16", "QAT", "QUADS-like", "TRACE", "TRACE, 1 bit, last half")}
LOOKS |= {name: (colour(name), ":") for name in PERMUTED}


def summary(curves: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Mean, smallest and largest value over seeds to six decimals, by variant, measure and step.

    Args:
        curves: one row a step of a run, with columns variant, seed, step and the measures.
    """
    long = curves.melt(["variant", "seed", "step"], list(measures), "measure")
    found = long.groupby(["variant", "measure", "step"], sort=False).value.agg(["mean", "min", "max"])
    return found.round(6).reset_index()


def bands(
    ax: Axes, summary: pd.DataFrame, measure: str, smooth: int = 1, permuted: bool = False, shaded: Sequence[str] = ()
) -> None:
    """Mean over seeds against the step.

    Args:
        ax: where.
        summary: as `summary` gives it.
        measure: one of its measures.
        smooth: width of a centred moving average, in steps.
        permuted: whether the controls with permuted guidance are drawn too.
        shaded: variants whose range over seeds is drawn as a band; more than two hide one another.
    """
    for name, (ink, line) in LOOKS.items():
        rows = summary[(summary.variant == name) & (summary.measure == measure)].sort_values("step")
        if rows.empty or (line == ":" and not permuted):
            continue
        drawn = rows[["mean", "min", "max"]].rolling(smooth, center=True, min_periods=1).mean()
        ax.plot(rows.step, drawn["mean"], line, color=ink, label=name, linewidth=1.4)
        if name in shaded:
            ax.fill_between(rows.step, drawn["min"], drawn["max"], color=ink, alpha=0.15, linewidth=0)
    ax.set_xlabel("step")


def intervals(ax: Axes, found: Mapping[str, tuple[float, float, float]]) -> None:
    """Differences with their intervals, one line each; those that leave out 0 stand out.

    Args:
        found: label -> (mean, low, high).
    """
    for row, (mean, low, high) in enumerate(found.values()):
        ink = PALETTE["black"] if low > 0 or high < 0 else "#aaaaaa"
        ax.plot([low, high], [row, row], color=ink, linewidth=2)
        ax.plot(mean, row, "o", color=ink)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(found)), list(found))
    ax.set_ylim(len(found) - 0.5, -0.5)
