"""Pictures of two FP4 paths that drift apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reprise.nb import style
from reprise.nb.plots.fp4_methods import colour

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLOOR = 1e-5
SITES = {"x": "inputs x", "h": "hidden h", "k": "keys", "v": "values"}
MARKS = {
    "unquantised": "o-",
    "unquantised, sites in BF16": "o:",
    "RTN": "s-",
    "QUADS-like": "^-",
    "QaRL-like": "v-",
    "TRACE": "D-",
    "1 bit": "x--",
    "1 bit, last half": "P-",
    "TRACE, x and h only": "d:",
}


def label(variant: str) -> str:
    """As in a legend."""
    return f"TRACE, {variant}" if variant.startswith("1 bit") else variant


LOOK = {variant: (colour(label(variant)), marks) for variant, marks in MARKS.items()}


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
            ink, marks = LOOK[variant]
            ax.plot(rows.index, rows.clip(lower=FLOOR), marks, color=ink, markersize=size, label=label(variant))
        ax.set_yscale("log")
        ax.minorticks_off()
        ax.set_title(SITES[site], fontsize=10, fontweight="normal")
        ax.set_xlabel("layer")
        if sites.layer.max() < 10:
            ax.set_xticks(range(sites.layer.max() + 1))
    axes[0].axhline(FLOOR, color="black", linewidth=0.8)
    axes[0].text(0, FLOOR * 1.3, "zero", fontsize=8)
    axes[0].set_ylabel("relative distance $D_{act}$")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)
    style.title(fig, title)
    return fig


def against_staleness(ax: Axes, gaps: pd.DataFrame, variants: Sequence[str]) -> None:
    """The gap against the optimiser steps between the two paths; the band spans the seeds.

    What lies below FLOOR is drawn there. The dotted line is the change of the policy itself, on RTN's rollout path.
    """
    for variant in variants:
        spread = gaps[gaps.variant == variant].groupby("k").gap.agg(["mean", "min", "max"]).clip(lower=FLOOR)
        ink, marks = LOOK[variant]
        places = range(len(spread))
        ax.plot(places, spread["mean"], marks, color=ink, markersize=5, linewidth=1.5, label=label(variant))
        ax.fill_between(places, spread["min"], spread["max"], color=ink, alpha=0.15, linewidth=0)
        ax.set_xticks(places, spread.index)
    own = gaps[(gaps.variant == "RTN") & (gaps.k > 0)].groupby("k").own_gap.mean()
    ax.plot([spread.index.get_loc(k) for k in own.index], own, "*:", color="black", label="the policy's own change")
    ax.axhline(FLOOR, color="black", linewidth=0.8)
    ax.text(len(spread) - 1, FLOOR * 1.15, "zero", fontsize=8, ha="right")
    ax.set_yscale("log")
    ax.minorticks_off()
    ax.set_xlabel("optimiser steps between rollout and trainer")


def bars(ax: Axes, rows: Sequence[tuple[str, Sequence[float], str]]) -> None:
    """Horizontal bars of means with a dot for every seed: (name, one value a seed, colour), from top to bottom."""
    for place, (_, values, ink) in enumerate(rows):
        ax.barh(place, sum(values) / len(values), color=ink, alpha=0.5, height=0.7)
        ax.plot(values, [place] * len(values), "o", color=ink, markersize=3.5)
    _named(ax, rows)


def dots(ax: Axes, rows: Sequence[tuple[str, Sequence[float], str]]) -> None:
    """The same on a logarithmic axis, where a bar has no foot to stand on: a dot for every seed, a mark at the mean."""
    for place, (_, values, ink) in enumerate(rows):
        ax.plot(values, [place] * len(values), "o", color=ink, markersize=6, alpha=0.6)
        ax.plot(sum(values) / len(values), place, "|", color=ink, markersize=16, markeredgewidth=2.5)
    ax.set_xscale("log")
    _named(ax, rows)


def _named(ax: Axes, rows: Sequence[tuple]) -> None:
    ax.set_yticks(range(len(rows)), [row[0] for row in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
