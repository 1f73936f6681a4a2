"""Pictures of the scores a paper prints for FP4 rollout: nothing in them is measured here, and every one says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from reprise.nb import style
from reprise.nb.plots.fp4_methods import COLOURS
from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "reported by the paper, not measured"


def stamp(fig: Figure) -> None:
    """The line under every picture of this kind; goes into the label of the whole figure's x axis."""
    fig.supxlabel(LABEL, fontsize=8, color=REPORTED, x=0.99, ha="right")


def scores_by_setting(scores: pd.DataFrame, title: str) -> Figure:
    """Average score of each method, one line a setting; the dashed line is the BF16 rollout.

    Args:
        scores: columns setting, method, average (numbers), the BF16 row among them.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    reference = float(scores.average[scores.method == "BF16"].iloc[0])
    settings = list(dict.fromkeys(scores.setting[scores.method != "BF16"]))
    fig, ax = plt.subplots(figsize=(7.6, 2.9))
    ax.axvline(reference, color=COLOURS["BF16"], linestyle="--", linewidth=1.2, label="BF16")
    for line, setting in enumerate(settings):
        own = scores[scores.setting == setting]
        ax.plot([own.average.min(), own.average.max()], [line, line], color="#cccccc", zorder=1)
        for method, average in zip(own.method, own.average, strict=True):
            ax.plot(average, line, "o", color=COLOURS[method], markersize=8)
    for method in ("QAT", "QaRL", "QUADS", "TRACE"):
        ax.plot([], [], "o", color=COLOURS[method], label=method)
    ax.set_yticks(range(len(settings)), settings)
    ax.set_ylim(len(settings) - 0.5, -0.5)
    ax.set(xlabel="average of four benchmarks (%)", title=title)
    ax.set_ylabel("W/A: weights, activations\nKV: keys and values", fontsize=8, color=REPORTED)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    stamp(fig)
    return fig


def recomputed(offsets: pd.DataFrame, title: str) -> Figure:
    """How far each printed figure lies from its own recomputation, in units of its last digit.

    Args:
        offsets: columns kind ("average", "gain of averages", ...) and offset; one row a figure.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    kinds = list(dict.fromkeys(offsets.kind))
    fig, ax = plt.subplots(figsize=(7.6, 2.5))
    ax.axvspan(-0.5, 0.5, color=PALETTE["green"], alpha=0.12, linewidth=0, label="rounds to the printed digit")
    for line, kind in enumerate(kinds):
        values, counts = np.unique(offsets.offset[offsets.kind == kind], return_counts=True)
        ax.scatter(values, np.full(len(values), line), s=20 + 4 * counts, color=PALETTE["blue"], alpha=0.75)
        for value, count in zip(values, counts, strict=True):
            if count > 1:
                ax.annotate(f"{count}", (value, line), xytext=(0, 9), textcoords="offset points", ha="center", size=8)
    ax.set_yticks(range(len(kinds)), kinds)
    ax.set_ylim(len(kinds) - 0.4, -0.7)
    ax.set(xlabel="recomputed minus printed (units of the last digit printed)", xlim=(-1.3, 1.3))
    style.title(fig, title)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    stamp(fig)
    return fig


def information_kept(kept: pd.DataFrame, references: dict[str, float], error: float, title: str) -> Figure:
    """Average score against what the guidance keeps: bits in all layers on the left, layers with one bit on the right.

    Args:
        kept: columns bits, layers, average (numbers).
        references: label -> average of a method to draw as a dashed line.
        error: half-length of the bar on each dot, two standard errors of a difference of two averages, in points.
        title: the finding.
    """
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(8, 2.9), sharey=True)
    panels = (
        (left, kept[kept.layers == 40].sort_values("bits"), "bits", "bits kept, all 40 layers"),
        (right, kept[kept.bits == 1].sort_values("layers"), "layers", "layers guided (last ones), 1 bit"),
    )
    for ax, rows, column, label in panels:
        places = range(len(rows))
        ax.errorbar(places, rows.average, yerr=error, fmt="o-", color=COLOURS["TRACE"], capsize=3, linewidth=1.2)
        ax.set_xticks(places, [str(x) for x in rows[column]])
        ax.set_xlim(-0.4, len(rows) - 0.6)
        ax.set_xlabel(label)
        for name, value in references.items():
            ax.axhline(value, color=COLOURS[name], linestyle="--", linewidth=1.2, label=name)
    left.set(ylabel="average score (%)\nbar: 2 standard errors\nof a difference", title=title)
    right.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    stamp(fig)
    return fig


def differences(ax: Axes, labels: Sequence[str], values: Sequence[float], errors: Sequence[float]) -> None:
    """Horizontal bars of score differences with a bar of error on each; those beyond their error stand out."""
    for line, (value, error) in enumerate(zip(values, errors, strict=True)):
        beyond = 0 < error < abs(value)  # an error of 0 is one that is not known
        ax.barh(line, value, 0.6, color=COLOURS["TRACE"] if beyond else "#c9c9c9")
        if error:
            ax.errorbar(value, line, xerr=error, color="black", capsize=3, linewidth=1)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(labels)), labels)
    ax.invert_yaxis()
