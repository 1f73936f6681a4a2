"""Pictures of how a payload reaches several receivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reprise.nb import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Place = tuple[float, float]
SENDER: Place = (0.5, 0)


def ways_across(
    members: Sequence[int], passed_on: Sequence[tuple[int, int]], names: Mapping[str, str], colours: Mapping[str, str]
) -> Figure:
    """A store that every receiver downloads from beside a tree of receivers, the boundary of the cluster dashed.

    Args:
        members: receivers 0, 1, ... in the tree's order, its root first; two children each.
        passed_on: (receiver, its child) of each link of the tree.
        names, colours: of "store" and "relay".
    """
    import matplotlib.pyplot as plt

    count, depth = len(members), {node: (place + 1).bit_length() for place, node in enumerate(members)}
    tree = {node: ((place + 1.5) / 2 ** (depth[node] - 1) - 1, -depth[node]) for place, node in enumerate(members)}
    row = {node: ((node + 0.5) / count, -1) for node in range(count)}
    downloads = [(SENDER, place) for place in row.values()]
    relayed = [(SENDER, tree[members[0]]), *((tree[node], tree[child]) for node, child in passed_on)]
    fig, axes = plt.subplots(1, 2, figsize=(8.5, 2.8), sharey=True)
    drawn = {"store": (row, downloads, "sender, store"), "relay": (tree, relayed, "sender")}
    for ax, (name, (places, arrows, label)) in zip(axes, drawn.items(), strict=True):
        _graph(ax, places, arrows, label, colours[name])
        crossings = sum(start == SENDER for start, _ in arrows)
        ax.set_title(f"{names[name]}: {crossings} x V crosses", fontsize=10)
        ax.set(xlim=(-0.05, 1.05), ylim=(-max(depth.values()) - 0.4, 0.4))
        ax.axis("off")
    return fig


def _graph(ax: Axes, places: Mapping[int, Place], arrows: Sequence[tuple[Place, Place]], label: str, colour: str):
    """Receivers at their places, the sender above the boundary, and an arrow for each transfer of the payload."""
    for start, end in arrows:
        shade, width = (colour, 2) if start == SENDER else (style.REPORTED, 1)
        look = dict(arrowstyle="->", color=shade, linewidth=width, shrinkA=10, shrinkB=10)
        ax.annotate("", end, start, arrowprops=look)
    for node, place in places.items():
        ax.text(*place, node, ha="center", va="center", bbox=dict(boxstyle="circle", facecolor="white"))
    ax.text(*SENDER, label, ha="center", fontweight="bold")
    ax.axhline(-0.35, color=style.REPORTED, linestyle="--", linewidth=1)
