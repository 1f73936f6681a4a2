"""Pictures of reported tables: hosts and what GEAR adds, checks one square each, candidates by foundations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERDICTS = {"same digit": "green", "within rounding": "orange", "no": "vermilion"}


def gains(table: Any) -> Figure:
    """Average score of each host and of the method over it, one panel a backbone.

    Args:
        table: data frame with columns backbone, method, host_average, average, gain, low, high; low and high are the
            interval of the gain.
    """
    import matplotlib.pyplot as plt

    backbones = list(dict.fromkeys(table.backbone))
    fig, axes = plt.subplots(1, len(backbones), figsize=(9, 2.9), sharey=True)
    for ax, backbone in zip(axes, backbones, strict=True):
        own = table[table.backbone == backbone].reset_index(drop=True)
        for row in own.itertuples():
            colour = PALETTE["green" if row.gain > 0 else "vermilion"]
            ax.barh(row.Index, row.high - row.low, 0.45, left=row.host_average + row.low, color=colour, alpha=0.25)
            ax.annotate("", (row.average, row.Index), (row.host_average, row.Index),
                        arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.6})  # fmt: skip
            ax.plot(row.host_average, row.Index, "o", color=REPORTED, markersize=4)
            ax.text(77.5, row.Index, f"{row.gain:+.1f} ({row.low:+.1f} to {row.high:+.1f})", va="center", fontsize=8.5)
        ax.set_yticks(range(len(own)), list(own.method))
        ax.set(xlim=(50, 92), ylim=(len(own) - 0.4, -0.6))
        ax.set_xticks(range(50, 80, 5))
        ax.set_xlabel("average validation score; band: 95 % of the gain")
        ax.set_title(backbone, fontsize=10, fontweight="normal")
    return fig


def checks(found: Mapping[str, Sequence[str]]) -> Figure:
    """One square for each printed figure that can be recomputed, one row a group.

    Args:
        found: group -> verdicts, in order.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(8.4, 0.32 * len(found) + 1.0))
    for row, verdicts in enumerate(found.values()):
        for column, verdict in enumerate(verdicts):
            ax.plot(column, row, "s", markersize=8, color=PALETTE[VERDICTS[verdict]])
    for verdict, colour in VERDICTS.items():
        count = sum(each == verdict for verdicts in found.values() for each in verdicts)
        ax.plot([], [], "s", markersize=8, color=PALETTE[colour], label=f"{verdict}: {count}")
    ax.set_yticks(range(len(found)), list(found))
    ax.set(xlim=(-0.8, max(map(len, found.values())) - 0.2), ylim=(len(found) - 0.4, -0.6), xticks=[])
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.legend(loc="lower right", fontsize=9, title="recomputed figure")
    return fig


def candidates(panels: Mapping[str, tuple[Mapping[int, Sequence[int]], float]]) -> Figure:
    """Possible numbers of candidate edges by number of foundations, and the reported mean.

    Args:
        panels: title -> (foundations -> possible counts, reported mean).
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(panels), figsize=(8, 2.6))
    for ax, (title, (possible, mean)) in zip(axes, panels.items(), strict=True):
        for foundations, counts in possible.items():
            colour = PALETTE["blue" if min(counts) <= mean else "orange"]
            ax.plot([foundations] * len(counts), counts, "o", color=colour)
        ax.axhline(mean, color=REPORTED, linestyle="--", linewidth=1.2, label=f"reported mean {mean:g}")
        ax.set(xlabel="foundations among the criteria", ylabel="possible candidate edges", ylim=(-1, None))
        ax.set_title(title, fontsize=10, fontweight="normal")
        ax.legend(fontsize=8.5, loc="upper left")
    return fig
