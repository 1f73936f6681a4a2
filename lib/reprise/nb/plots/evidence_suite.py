"""Pictures of the evidence suite: who catches which fault, how much there is to read, and chains from reads to
actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def kill_matrix(table: Any) -> Figure:
    """How many faults of each kind are named by their code, by protocol.

    Args:
        table: data frame with columns mutation, protocol, killed, tried.
    """
    import matplotlib.pyplot as plt

    kinds, protocols = list(dict.fromkeys(table.mutation)), sorted(set(table.protocol))
    fig, ax = plt.subplots(figsize=(7.4, 0.36 * len(kinds) + 1.2))
    for row in table.itertuples():
        place = (protocols.index(row.protocol), kinds.index(row.mutation))
        colour = PALETTE["green" if row.killed == row.tried else "vermilion"]
        ax.add_patch(
            plt.Rectangle((place[0] - 0.47, place[1] - 0.44), 0.94, 0.88, color=colour, alpha=0.28, linewidth=0)
        )
        ax.text(*place, f"{row.killed} of {row.tried}", ha="center", va="center", fontsize=9)
    ax.set_xticks(range(len(protocols)), protocols)
    ax.set_yticks(range(len(kinds)), [kind.replace("_", " ") for kind in kinds])
    ax.set(
        xlim=(-0.5, len(protocols) - 0.5), ylim=(len(kinds) - 0.5, -0.5), xlabel="protocol", ylabel="one fault put in"
    )
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return fig


def reads(counts: Mapping[str, Sequence[int]], reported: tuple[float, float, int]) -> Figure:
    """Required reads of each case, by protocol.

    Args:
        counts: protocol -> reads of each case.
        reported: least and greatest reported mean, and the reported maximum.
    """
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(7.4, 2.9))
    low, high, most = reported
    ax.axvspan(low, high, color=REPORTED, alpha=0.15, linewidth=0, label=f"reported means, {low} to {high}")
    ax.axvline(most, color=REPORTED, linestyle="--", linewidth=1.2, label=f"reported maximum, {most}")
    for height, values in enumerate(counts.values()):
        sizes = {value: values.count(value) for value in sorted(set(values))}
        for value, size in sizes.items():
            ax.plot(value, height, "o", markersize=2 + 1.6 * size**0.5, color=PALETTE["blue"], alpha=0.55, linewidth=0)
        ax.plot(sum(values) / len(values), height, "|", markersize=22, color=PALETTE["vermilion"])
    ax.plot([], [], "|", markersize=12, color=PALETTE["vermilion"], label="mean of our cases", linestyle="none")
    ax.set_yticks(range(len(counts)), list(counts))
    ax.set(xlabel="information calls that a case requires", xlim=(0, most + 1), ylim=(len(counts) - 0.4, -0.6))
    ax.legend(fontsize=8.5, loc="lower right", bbox_to_anchor=(0.93, 0))
    return fig


def chains(panels: Mapping[str, tuple[Any, Any]]) -> Figure:
    """Calls in order, with a line from each read to the action that it supports; broken links in red, idle reads grey.

    Args:
        panels: title -> (calls, links); `calls` a data frame with columns seq, label, kind ("read" or "action"), good;
            `links` one with columns read, action, good.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(len(panels), 1, figsize=(8.6, 2.5 * len(panels)), sharex=True)
    for ax, (title, (calls, links)) in zip(axes, panels.items(), strict=True):
        for link in links.itertuples():
            colour, style = (PALETTE["blue"], "-") if link.good else (PALETTE["vermilion"], ":")
            arrow = {"arrowstyle": "->", "color": colour, "linestyle": style, "linewidth": 1.3}
            ax.annotate("", (link.action, 1), (link.read, 0), arrowprops=arrow)
        for call in calls.itertuples():
            height = 0 if call.kind == "read" else 1
            colour = PALETTE["blue"] if call.good else REPORTED if call.kind == "read" else PALETTE["vermilion"]
            ax.plot(call.seq, height, "o" if height == 0 else "s", markersize=9, color=colour)
            ax.text(call.seq, height - 0.14 if height == 0 else height + 0.14, call.label, fontsize=7.5, ha="center",
                    va="top" if height == 0 else "bottom", rotation=18)  # fmt: skip
        ax.set_title(title, fontsize=10, fontweight="normal")
        ax.set_yticks([0, 1], ["reads", "actions"])
        ax.set(ylim=(-0.75, 1.7))
        ax.grid(visible=False)
        ax.spines["left"].set_visible(False)
    axes[-1].set_xlabel("call")
    return fig
