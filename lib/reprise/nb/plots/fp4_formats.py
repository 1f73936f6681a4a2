"""Pictures of E2M1: its staircase, libraries beside it, a rounding boundary, and reconstruction from low bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from reprise.nb.style import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def staircase(z: np.ndarray, values: np.ndarray, ties: np.ndarray, tie_values: np.ndarray) -> Figure:
    """Rounded value over z >= 0, with the ties where they go.

    Args:
        z, values: [n] ascending inputs and what they round to.
        ties, tie_values: [7] inputs half way between two values and what they round to.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(7.5, 3.8))
    ax.plot(z, z, "--", color="#888888", linewidth=1, label="no rounding")
    for value in np.unique(values):
        part = z[values == value]
        ax.plot([part[0], part[-1]], [value, value], "-", color=PALETTE["blue"], linewidth=3, solid_capstyle="butt")
        ax.annotate(f"{value:g}", (part[-1], value), xytext=(4, -3), textcoords="offset points", fontsize=9)
    ax.plot([], [], "-", color=PALETTE["blue"], linewidth=3, label="E2M1 value")
    ax.plot(ties, tie_values, "o", color=PALETTE["vermilion"], label="tie, to the even code")
    ax.set(xlabel="z = x / scale", ylabel="rounded z", xlim=(0, z[-1] + 0.3), ylim=(-0.3, 7))
    ax.set_xticks([*ties, 6], [f"{tie:g}" for tie in ties] + ["6"], fontsize=8)
    ax.legend()
    return fig


def disagreements(rows: pd.DataFrame, order: Sequence[str], columns: Mapping[tuple[str, str], str]) -> Figure:
    """A grid of libraries by sets of inputs; a cell says how many codes and scale bytes differ, and is tinted by share.

    Args:
        rows: columns peer, fmt (its first word is the format), inputs, values, codes, blocks, bytes.
        order: peers from top to bottom.
        columns: (format, inputs) -> label, from left to right.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import LinearSegmentedColormap

    tint = LinearSegmentedColormap.from_list("tint", ["#fbe6da", PALETTE["vermilion"]])
    cells = {(row.peer, row.fmt.split()[0], row.inputs): row for row in rows.itertuples()}
    fig, ax = plt.subplots(figsize=(10, 0.5 * len(order) + 2.2))
    for y, peer in enumerate(order):
        for x, key in enumerate(columns):
            row = cells.get((peer, *key))
            if row is None:
                continue
            share = max(row.codes / row.values, row.bytes / row.blocks if row.blocks else 0)
            # 1 in a million is the faintest, all of them the strongest
            colour = tint(1 + np.log10(max(share, 1e-6)) / 6) if share else "#dceee7"
            ax.add_patch(plt.Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=colour, linewidth=0))
            ax.text(x, y, _cell_text(row), ha="center", va="center", fontsize=8)
    ax.set_xticks(range(len(columns)), columns.values(), fontsize=8)
    ax.set_yticks(range(len(order)), order)
    ax.xaxis.tick_top()
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(order) - 0.5, -0.5))
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    key = "a number: codes that differ from the definition; sc.: block scales that differ; blank: no such format"
    fig.supxlabel(key, fontsize=8, x=0.99, ha="right")
    return fig


def boundary(ax: Axes, points: Sequence[tuple[float, float, str, str]], ticks: Sequence[float], edge: float) -> None:
    """Two values beside a rounding boundary and where each is sent.

    Args:
        ax: where.
        points: (z, value it is rounded to, label, colour of PALETTE) each.
        ticks: E2M1 values on the axis.
        edge: the boundary.
    """
    ax.axvline(edge, color=PALETTE["black"], linewidth=1, linestyle=":")
    ax.annotate("tie", (edge, 1), xytext=(4, -12), textcoords="offset points", fontsize=9)
    for height, (z, value, label, colour) in enumerate(points):
        y = 0.75 - 0.3 * height
        ax.annotate("", (value, y), (z, y), arrowprops={"arrowstyle": "->", "color": PALETTE[colour], "lw": 2})
        ax.plot(z, y, "o", color=PALETTE[colour])
        ax.text(min(ticks) - 0.02, y + 0.06, label, fontsize=9, color=PALETTE[colour])
    ax.set(xlim=(min(ticks) - 0.05, max(ticks) + 0.05), ylim=(0, 1), yticks=[], xlabel="z = x / 24")
    ax.set_xticks(sorted([*ticks, edge]))
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)


def reconstruction(rows: pd.DataFrame, failing: Mapping[str, Sequence[Sequence[float]]], titles: Mapping) -> Figure:
    """For each rule and bit c the value reconstructed over |z|, on the band of z's bracket, failing intervals shaded.

    Args:
        rows: columns rule, c, z, value, low, high.
        failing: rule -> intervals (from, to] of |z|.
        titles: rule -> panel title.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(titles), figsize=(10.5, 3.9), sharey=True)
    for ax, (rule, title) in zip(axes, titles.items(), strict=True):
        part = rows[rows.rule == rule]
        band = part[part.c == part.c.min()]
        ax.fill_between(band.z, band.low, band.high, color="#cccccc", linewidth=0, label="bracket of z")
        for c, colour in ((0, "blue"), (1, "orange")):
            line = part[part.c == c]
            ax.plot(line.z, line.value, color=PALETTE[colour], drawstyle="steps-post", label=f"kept bit {c}")
        for number, (start, stop) in enumerate(failing[rule]):
            label = "outside the bracket" if number == 0 else None
            ax.axvspan(start, stop, color=PALETTE["vermilion"], alpha=0.35, linewidth=0, label=label)
        ax.set_title(title, fontsize=10, fontweight="normal")
        ax.set_xlabel("|z|")
    axes[0].set_ylabel("reconstructed magnitude")
    fig.legend(*axes[0].get_legend_handles_labels(), fontsize=9, loc="outside lower center", ncols=4)
    return fig


def _cell_text(row) -> str:
    if not row.codes and not row.bytes:
        return "0"
    codes = f"{row.codes:,}" if row.codes else ""
    scales = f"{row.bytes:,} sc." if row.bytes else ""
    return "\n".join(filter(None, (codes, scales)))
