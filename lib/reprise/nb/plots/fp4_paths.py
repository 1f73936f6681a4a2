"""Pictures of two FP4 paths that drift apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reprise.nb.style import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLOOR = 1e-5
SITES = {"x": "inputs x", "h": "hidden h", "k": "keys", "v": "values"}
LOOK = {
    "unquantised": ("black", "o-"),
    "unquantised, sites in BF16": ("black", "o:"),
    "RTN": (PALETTE["vermilion"], "s-"),
    "QUADS-like": (PALETTE["orange"], "^-"),
    "QaRL-like": (PALETTE["purple"], "v-"),
    "TRACE": (PALETTE["blue"], "D-"),
    "1 bit": (PALETTE["sky"], "x--"),
    "1 bit, last half": (PALETTE["green"], "P-"),
    "TRACE, x and h only": (PALETTE["sky"], "d:"),
}


def label(variant: str) -> str:
    """As in a legend."""
    return f"TRACE, {variant}" if variant.startswith("1 bit") else variant


def by_layer(sites: pd.DataFrame, variants: Sequence[str], title: str, kinds: str = "xhkv") -> Figure:
    """Relative D_act of every layer, one panel a kind of site, logarithmic.

    Args:
        sites: rows of variant, layer, site and relD; several seeds are averaged. What is below FLOOR, zero included, is
            drawn there.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(kinds), figsize=(3.6 + 1.2 * len(kinds), 2.7), sharey=True, squeeze=False)
    axes = axes[0]
    size = 4 if sites.layer.max() < 10 else 0
    for ax, site in zip(axes, kinds, strict=True):
        for variant in variants:
            rows = sites[(sites.variant == variant) & (sites.site == site)].groupby("layer").relD.mean()
            colour, marks = LOOK[variant]
            ax.plot(rows.index, rows.clip(lower=FLOOR), marks, color=colour, markersize=size, label=label(variant))
        ax.set_yscale("log")
        ax.minorticks_off()
        ax.set_title(SITES[site], fontsize=10, fontweight="normal")
        ax.set_xlabel("layer")
        if sites.layer.max() < 10:
            ax.set_xticks(range(sites.layer.max() + 1))
    axes[0].axhline(FLOOR, color="black", linewidth=0.8)
    axes[0].text(0, FLOOR * 1.3, "zero", fontsize=8)
    axes[0].set_ylabel("relative $D_{act}$")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)
    fig.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=11)
    return fig


def against_staleness(ax: Axes, gaps: pd.DataFrame, variants: Sequence[str]) -> None:
    """The gap against the optimiser steps between the two paths; the band spans the seeds.

    What lies below FLOOR is drawn there. The dotted line is the change of the policy itself, on RTN's rollout path.
    """
    for variant in variants:
        spread = gaps[gaps.variant == variant].groupby("k").gap.agg(["mean", "min", "max"]).clip(lower=FLOOR)
        colour, marks = LOOK[variant]
        places = range(len(spread))
        ax.plot(places, spread["mean"], marks, color=colour, markersize=5, linewidth=1.5, label=label(variant))
        ax.fill_between(places, spread["min"], spread["max"], color=colour, alpha=0.15, linewidth=0)
        ax.set_xticks(places, spread.index)
    own = gaps[(gaps.variant == "RTN") & (gaps.k > 0)].groupby("k").own_gap.mean()
    ax.plot([spread.index.get_loc(k) for k in own.index], own, "*:", color="black", label="the policy's own change")
    ax.set_yscale("log")
    ax.minorticks_off()
    ax.set_xlabel("optimiser steps between rollout and trainer")


def bars(ax: Axes, rows: Sequence[tuple[str, Sequence[float], str]]) -> None:
    """Horizontal bars of means with a dot for every seed: (name, one value a seed, colour), from top to bottom."""
    for place, (_, values, colour) in enumerate(rows):
        ax.barh(place, sum(values) / len(values), color=colour, alpha=0.5, height=0.7)
        ax.plot(values, [place] * len(values), "o", color=colour, markersize=3.5)
    ax.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
