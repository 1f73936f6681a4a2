"""Pictures of auditors: F1 in two readings, unsafe runs each row allows, false alarms against step accuracy, looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS = {
    "this work": "vermilion",
    "proprietary model": "blue",
    "open model": "orange",
    "method on Qwen2.5-7B": "green",
}


def readings(table: Any) -> Figure:
    """Printed F1 of each auditor, and the interval of the F1 that the printed formula gives.

    Args:
        table: data frame with columns auditor, printed, text_low, text_high, in the order of the lines.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(7.5, 4.4))
    for at, row in enumerate(table.itertuples()):
        ax.plot([row.printed, row.text_low], [at, at], color="#cccccc", linewidth=1)
        ax.plot([row.text_low, row.text_high], [at, at], color=PALETTE["blue"], linewidth=6, alpha=0.45,
                solid_capstyle="butt")  # fmt: skip
        if row.text_high - row.text_low < 0.3:  # a point has no length to draw
            ax.plot([row.text_low], [at], "|", color=PALETTE["blue"], markersize=9)
        ax.plot([row.printed], [at], "o", color=REPORTED, markersize=5)
    ax.plot([], [], "o", color=REPORTED, label="printed; released code, precision over all alarms")
    ax.plot(
        [],
        [],
        color=PALETTE["blue"],
        alpha=0.45,
        linewidth=6,
        label="printed formula, precision over alarms on unsafe runs",
    )
    ax.set_yticks(range(len(table)), list(table.auditor), fontsize=9)
    ax.set(ylim=(len(table) - 0.4, -0.6), xlim=(0, 75), xlabel="exact F1 (%)")
    ax.legend(loc="lower right", fontsize=8.5)
    return fig


def unsafe_runs(panels: Mapping[str, Any], size: int) -> Figure:
    """How many unsafe runs of one domain each row allows, one panel a reading of F1; the shaded band satisfies all.

    Args:
        panels: title -> data frame with columns auditor, low, high; several lines for a row of several possibilities.
        size: runs of the domain.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(panels), figsize=(9, 4), sharey=True)
    for ax, (title, table) in zip(axes, panels.items(), strict=True):
        names = list(dict.fromkeys(table.auditor))
        for at, name in enumerate(names):
            for row in table[table.auditor == name].itertuples():
                ax.plot([row.low, row.high], [at, at], color=PALETTE["blue"], linewidth=5, solid_capstyle="butt")
        common = [
            u
            for u in range(size + 1)
            if all(any(r.low <= u <= r.high for r in table[table.auditor == n].itertuples()) for n in names)
        ]
        if common:
            ax.axvspan(common[0] - 0.5, common[-1] + 0.5, color=PALETTE["green"], alpha=0.25, linewidth=0)
        ax.set_yticks(range(len(names)), names, fontsize=9)
        ax.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, size), xlabel=f"unsafe runs among {size}")
        told = f"{common[0]} to {common[-1]} fit every row" if common else "no number fits every row"
        ax.set_title(f"{title}: {told}", fontsize=10, fontweight="normal")
    return fig


def region(table: Any, points: Any, most_far: float, least_step_acc: float) -> Figure:
    """False alarms and step accuracy of each auditor, as intervals, and the deployable region.

    Args:
        table: data frame with columns auditor, group, step_acc, far_low, far_high, shift_low, shift_high.
        points: data frame with columns auditor, step_acc, far of the reported points.
        most_far, least_step_acc: corner of the region, in percent.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    fig, ax = plt.subplots(figsize=(8.4, 5))
    corner = (0, least_step_acc), most_far, 75 - least_step_acc
    ax.add_patch(Rectangle(*corner, color=PALETTE["green"], alpha=0.15, linewidth=0))
    ax.text(1, 73, "deployable", color=PALETTE["green"], va="top")
    drawn, name_at = set(), 80.0
    for row in table.sort_values("step_acc", ascending=False, kind="stable").itertuples():
        colour, height = PALETTE[GROUPS[row.group]], row.step_acc
        while round(height, 2) in drawn:  # the same accuracy twice: side by side
            height -= 0.9
        drawn.add(round(height, 2))
        ax.plot([row.far_low, row.far_high], [height] * 2, color=colour, linewidth=1, alpha=0.5)
        ax.plot([row.shift_low, row.shift_high], [height] * 2, color=colour, linewidth=5, alpha=0.55,
                solid_capstyle="butt")  # fmt: skip
        if row.shift_high - row.shift_low < 0.5:  # a point has no length to draw
            ax.plot([row.shift_low], [height], "|", color=colour, markersize=9)
        name_at = min(name_at - 2.6, height)
        ax.annotate(row.auditor, (row.far_high, height), (103, name_at), fontsize=8, color=colour, va="center",
                    annotation_clip=False,
                    arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.4})  # fmt: skip
    ax.plot(points.far, points.step_acc, "o", color=REPORTED, markersize=5, label="reported point")
    for group, colour in GROUPS.items():
        ax.plot([], [], color=PALETTE[colour], linewidth=5, alpha=0.55, label=group)
    ax.set(xlim=(0, 101), ylim=(0, 75), xlabel="safe runs with an alarm, FAR (%)", ylabel="step accuracy (%)")
    ax.legend(loc="upper right", fontsize=8.5, ncol=2)
    return fig


def looks(table: Any, curve: Any, most_far: float) -> Figure:
    """False-alarm rate of an auditor of chance, looked at after every turn or once.

    Args:
        table: data frame with columns q (percent), protocol, far, low, high of the runs.
        curve: data frame with columns q (percent), every_turn, once: the rates expected.
        most_far: limit of the deployable region, in percent.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(7, 3.4))
    ax.axhspan(0, most_far, color=PALETTE["green"], alpha=0.15, linewidth=0, label="deployable")
    styles = {
        "replay": ("every_turn", "vermilion", "asked after every turn"),
        "single_look": ("once", "blue", "asked once"),
    }
    for protocol, (column, colour, label) in styles.items():
        own = table[table.protocol == protocol]
        ax.plot(curve.q, curve[column], color=PALETTE[colour], linewidth=1.4, label=label)
        errors = [own.far - own.low, own.high - own.far]
        ax.errorbar(own.q, own.far, errors, fmt="o", color=PALETTE[colour], markersize=4, capsize=2, linewidth=1)
    ax.set(xlim=(0, None), ylim=(0, None), xlabel="probability of a false alarm at one look (%)", ylabel="FAR (%)")
    ax.legend(fontsize=9)
    return fig
