"""One look for all figures: defaults, a palette that colour-blind readers can tell apart, and reported values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from reprise.errors import RepriseError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# M. Okabe and K. Ito, Color Universal Design (2008); yellow is left out, it vanishes on white
PALETTE = {
    "blue": "#0072b2",
    "orange": "#e69f00",
    "green": "#009e73",
    "vermilion": "#d55e00",
    "sky": "#56b4e9",
    "purple": "#cc79a7",
    "black": "#000000",
}
REPORTED = "#555555"  # what a paper reports, never a colour of what is computed here

DEFAULTS = {
    "figure.figsize": (7.0, 4.0),
    "figure.dpi": 100,
    "savefig.dpi": 100,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that text has the same size everywhere
    "font.size": 10,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "svg.hashsalt": "reprise",  # element ids of an SVG that do not change from run to run
}
WIDEST = 3.0  # tolerances; a claim farther off is drawn at the edge


def use() -> None:
    """Set matplotlib's defaults for the notebook."""
    import matplotlib
    from cycler import cycler

    matplotlib.rcParams.update({**DEFAULTS, "axes.prop_cycle": cycler(color=list(PALETTE.values()))})


def title(fig: Figure, text: str) -> None:
    """What a picture found, from the left edge of the figure, so that long names of rows leave it the whole width."""
    fig.suptitle(text, x=0.01, ha="left", fontweight="bold", fontsize=11)


def reported(ax: Axes, value: float | tuple[float, float], *, axis: str = "y", label: str = "reported") -> None:
    """Mark a reported value by a dashed line, or a reported range by a band.

    Args:
        ax: where.
        value: the number, or the two ends of the range, in the units of the axis.
        axis: "y" for a horizontal mark, "x" for a vertical one.
        label: text of the legend.
    """
    if axis not in ("x", "y"):
        raise RepriseError(f"axis={axis!r}: expected 'x' or 'y'")
    if isinstance(value, tuple):
        band = ax.axhspan if axis == "y" else ax.axvspan
        band(*value, color=REPORTED, alpha=0.15, linewidth=0, label=label)
    else:
        line = ax.axhline if axis == "y" else ax.axvline
        line(value, color=REPORTED, linestyle="--", linewidth=1.2, label=label)


def reported_vs_here(ax: Axes, claims: Iterable[Mapping[str, Any]]) -> dict[str, list]:
    """Dot plot of (here - reported) / tolerance, one line a numeric claim; the shaded band is agreement.

    Args:
        ax: where.
        claims: rows of `reprise.nb.scoreboard`; those without a deviation are left out.

    Returns:
        Columns id, deviation, status: what is drawn, for the figure's CSV. A claim beyond three tolerances is drawn
        at the edge as a triangle; its deviation is returned in full.
    """
    from reprise.nb.scoreboard_page import COLOURS

    shown = [row for row in claims if row.get("deviation") is not None]
    ax.axvspan(-1, 1, color=PALETTE["green"], alpha=0.12, linewidth=0)
    ax.axvline(0, color=REPORTED, linewidth=0.8)
    for height, row in enumerate(shown):
        place = max(-WIDEST, min(WIDEST, row["deviation"]))
        marker = "o" if place == row["deviation"] else ">" if place > 0 else "<"
        ax.plot(place, height, marker, color=COLOURS[row["status"]])
    ax.set_yticks(range(len(shown)), [row["id"] for row in shown], fontsize=8)
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.set_xlim(-1.1 * WIDEST, 1.1 * WIDEST)
    ax.set_xlabel("(here - reported) / tolerance")
    ax.grid(axis="x", visible=False)
    return {name: [row[name] for row in shown] for name in ("id", "deviation", "status")}
