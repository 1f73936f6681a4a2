"""Shares of right choices of a language model under conditions, with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reprise.nb import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# first word of a condition, behind its world -> colour: no note, a note that applies, one that does not
COLOURS = {
    "none": style.REPORTED,
    "line": style.PALETTE["green"],
    "five": style.PALETTE["green"],
    "notes": style.PALETTE["green"],
    "irrelevant": style.PALETTE["vermilion"],
    "elsewhere": style.PALETTE["orange"],
    "scrambled": style.PALETTE["vermilion"],
}
SAYS = {
    "none": "no note",
    "line": "one line",
    "irrelevant line": "one line, wrong note",
    "five": "five parts",
    "five + irrelevant": "five parts, then a wrong note",
    "five, short": "five parts, short",
    "five, other words": "five parts, in other words",
    "irrelevant": "five parts, wrong note",
    "irrelevant + five": "a wrong note, then five parts",
    "elsewhere": "five parts, note of another domain",
    "five, no frame": "five parts, not asked to check",
    "irrelevant, no frame": "wrong note, not asked to check",
    "scrambled": "scrambled (control)",
}


def probe_bars(ax: Axes, shares: pd.DataFrame, title: str, chance: float | None = None, labels: bool = True) -> None:
    """One bar a condition, top to bottom in the order given, with its interval.

    Args:
        shares: columns condition (or memory), right, low, high in [0, 1].
        chance: share of a blind choice, drawn as a dashed line.
        labels: whether the conditions are named.
    """
    names = shares.iloc[:, 0].tolist()
    both = shares.right - shares.low, shares.high - shares.right
    colours = [
        style.PALETTE["sky"] if " + " in name else COLOURS[name.split(": ")[-1].split(",")[0].split(" ")[0]]
        for name in names
    ]
    ax.barh(names, shares.right, color=colours, alpha=0.6)
    ax.errorbar(shares.right, names, xerr=both, fmt="none", ecolor="black", elinewidth=1, capsize=2)
    if chance is not None:
        ax.axvline(chance, color=style.REPORTED, linestyle="--", linewidth=1)
        ax.text(chance, len(names) - 0.45, " chance", fontsize=8, color=style.REPORTED, va="center")
    ax.set_yticks(range(len(names)), [SAYS.get(name, name) for name in names] if labels else [])
    ax.set(xlim=(0, 1.03), xlabel="share of right choices")
    ax.set_title(title, fontsize=10)
    ax.invert_yaxis()
