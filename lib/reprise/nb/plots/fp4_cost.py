"""Pictures of what FP4 guidance weighs: printed sizes, time to move them, and what a trainer could guess."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reprise.nb import style
from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PARTS = {"low bit": PALETTE["blue"], "scale byte": PALETTE["orange"], "global scale": PALETTE["green"]}


def readings(table: pd.DataFrame, title: str) -> Figure:
    """Recomputed sizes over printed ones, for two readings of K and T; grey is what rounds to the printed digits.

    Args:
        table: columns label, printed, half_unit (of its last digit), binary and decimal (recomputed over printed, %).
        title: the finding.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(7.6, 2.5))
    width = 200 * table.half_unit / table.printed
    ax.barh(range(len(table)), width, 0.8, -width / 2, color=REPORTED, alpha=0.2, label="rounds as printed")
    for name, colour, marker in (("binary", "blue", "o"), ("decimal", "vermilion", "D")):
        base = "1024" if name == "binary" else "1000"
        ax.plot(table[name], range(len(table)), marker, color=PALETTE[colour], label=f"powers of {base}", ms=7)
    ax.set_yticks(range(len(table)), table.label)
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set(xlabel="recomputed above printed (%)", title=title)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def crossover(caches: pd.DataFrame, marks: dict[str, float], step: float, added: float, title: str) -> Figure:
    """Time to move a step's cache once against bandwidth; a line of slope -1 for each cache.

    Args:
        caches: columns label, bytes and tokens.
        marks: bandwidths to mark, GB/s by name.
        step, added: seconds of a step, and what guidance added to it.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(7.0, 2.9))
    bandwidth = np.array([0.5, 1000])
    styles = dict(zip(sorted(set(caches.tokens), reverse=True), ("-", "--"), strict=False))
    colours = dict(zip(dict.fromkeys(caches.label), list(PALETTE.values()), strict=False))
    for cache in caches.itertuples():
        label = f"{cache.label}, {cache.tokens // 1024}K tokens"
        ax.plot(bandwidth, cache.bytes / 1e9 / bandwidth, styles[cache.tokens], color=colours[cache.label], label=label)
    for value, text, x, side, up in (
        (step, "a step", 1000, "right", 3),
        (added, "added by guidance", 0.55, "left", -10),
    ):
        ax.axhline(value, color=REPORTED, linestyle=":", linewidth=1.4)
        label = f"{text}: {value:.0f} s"
        ax.annotate(label, (x, value), (0, up), textcoords="offset points", ha=side, size=8, color=REPORTED,
                    bbox={"facecolor": "white", "linewidth": 0, "pad": 0.5, "alpha": 0.85})  # fmt: skip
    for name, value in marks.items():
        ax.axvline(value, color=REPORTED, linewidth=1, alpha=0.6)
        side, shift = ("left", (3, 0)) if value < 100 else ("right", (-3, -12))
        place = {"xytext": shift, "textcoords": "offset points", "ha": side, "va": "top"}
        ax.annotate(name, (value, 3e5), size=8, color=REPORTED, **place)
    ax.set(xscale="log", yscale="log", xlim=(0.5, 1000), ylim=(1, 3e5), title=title)
    ax.set(xlabel="bandwidth (GB/s)", ylabel="one pass over a step's cache (s)")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def per_token(table: pd.DataFrame, printed: dict[str, float], title: str) -> Figure:
    """Bytes a token, stacked by what is counted; a dashed mark where the paper prints a size.

    Args:
        table: index: caches; columns: what is counted, KiB.
        printed: KiB by cache.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(7.6, 3.2))
    left = np.zeros(len(table))
    for colour, name in zip(("blue", "sky", "orange", "green"), table.columns, strict=False):
        ax.barh(range(len(table)), table[name], 0.6, left=left, color=PALETTE[colour], label=name)
        left += table[name].to_numpy(float)
    for row, name in enumerate(table.index):
        ax.annotate(f"{left[row]:.4g}", (left[row], row), (4, -3), textcoords="offset points", size=8)
        if name in printed:
            ax.plot([printed[name]] * 2, [row - 0.42, row + 0.42], color="black", linestyle=":", linewidth=2)
    ax.plot([], [], color="black", linestyle=":", linewidth=2, label="printed in the paper")
    ax.set_yticks(range(len(table)), table.index)
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set(xlabel="guidance a token (KiB)", xlim=(0, left.max() * 1.1))
    style.title(fig, title)
    ax.legend(loc="lower right")
    return fig


def side_information(costs: pd.DataFrame, title: str) -> Figure:
    """Bits a value that guidance carries beyond the trainer's x: entropies stacked, coded size as a diamond.

    Args:
        costs: columns label, low_bit, scale_byte, global_scale, coded (NaN where nothing was coded), low and high (its
            range over seeds) and note, a text beside the bar; one row a bar.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(7.6, 0.9 + 0.27 * len(costs)))
    left = np.zeros(len(costs))
    for name, colour in PARTS.items():
        values = costs[name.replace(" ", "_")].to_numpy(float)
        ax.barh(range(len(costs)), values, 0.62, left=left, color=colour, label=name)
        left += values
    spread = [costs.coded - costs.low, costs.high - costs.coded]
    label = "coded, and range\nover seeds"
    ax.errorbar(costs.coded, range(len(costs)), xerr=spread, fmt="D", color="black", ms=4, capsize=3, lw=1, label=label)
    for row, (end, note) in enumerate(zip(np.fmax(left, costs.high), costs.note, strict=True)):
        ax.annotate(note, (end, row), (7, -3), textcoords="offset points", size=8)
    ax.set_yticks(range(len(costs)), costs.label)
    ax.set_ylim(len(costs) - 0.5, -0.5)
    ax.set(xlabel="bits a value (beside a bar: the same, and bytes a token)", xlim=(0, 2.6))
    style.title(fig, title)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return fig
