"""Pictures of what actions rested on: call -> fact -> requirement -> action, and where a chain is broken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = {"call": 0.0, "fact": 1.0, "requirement": 2.15, "action": 3.2}
HEADS = {"call": "reads", "fact": "facts needed", "requirement": "requirements", "action": "actions"}
WIDEST = 34  # characters of a label


def chains(panels: Mapping[str, tuple[Any, Any]]) -> Figure:
    """One graph a panel, in four columns from reads to actions.

    Blue is established; red and dotted is a broken link, with no read behind a fact that was never observed; grey
    reads support nothing.

    Args:
        panels: title -> (nodes, edges); `nodes` a data frame with columns id, kind ("call", "fact", "requirement",
            "action"), label, good; `edges` one with columns source, target, good.
    """
    import matplotlib.pyplot as plt

    heights = [max(nodes.kind.value_counts().max(), 2) for nodes, _ in panels.values()]
    fig, axes = plt.subplots(
        len(panels), 1, figsize=(9.4, 0.42 * sum(heights) + 0.75 * len(panels) + 0.5), height_ratios=heights,
        squeeze=False,
    )  # fmt: skip
    for ax, height, (title, (nodes, edges)) in zip(axes[:, 0], heights, panels.items(), strict=True):
        _graph(ax, nodes, edges, height)
        ax.set_title(title, fontsize=10, fontweight="normal")
    for kind, x in COLUMNS.items():
        axes[-1, 0].text(x, heights[-1] + 0.05, HEADS[kind], ha="center", va="top", fontsize=9, color=REPORTED)
    return fig


def _graph(ax: Axes, nodes: Any, edges: Any, height: int) -> None:
    places, boxes = _places(nodes, edges, height), {}
    for node in nodes.itertuples():
        colour = PALETTE["blue"] if node.good else REPORTED if node.kind == "call" else PALETTE["vermilion"]
        label = node.label if len(node.label) <= WIDEST else f"{node.label[: WIDEST - 3]}..."
        box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": colour, "linewidth": 1.2,
               "linestyle": "-" if node.good else ":"}  # fmt: skip
        text = ax.text(*places[node.id], label, ha="center", va="center", fontsize=7.5, color=colour, bbox=box)
        boxes[node.id] = text.get_bbox_patch()
    for edge in edges.itertuples():
        colour, line = (PALETTE["blue"], "-") if edge.good else (PALETTE["vermilion"], ":")
        arrow = {"arrowstyle": "->", "color": colour, "linestyle": line, "linewidth": 1.2, "shrinkA": 2, "shrinkB": 2}
        ends = {"patchA": boxes[edge.source], "patchB": boxes[edge.target]}
        ax.annotate("", places[edge.target], places[edge.source], arrowprops=arrow | ends, zorder=4)
    ax.set(xlim=(-0.45, 3.65), ylim=(height - 0.4, -0.6))
    ax.axis("off")


def _places(nodes: Any, edges: Any, height: int) -> dict[str, tuple[float, float]]:
    """Columns by kind: calls and actions in their order, what lies between by the mean place of what it supports, so
    that few lines cross."""
    places: dict[str, tuple[float, float]] = {}
    targets = edges.groupby("source").target.agg(list).to_dict() if len(edges) else {}
    for kind in reversed(COLUMNS):
        ids = list(nodes.id[nodes.kind == kind])
        if kind in ("fact", "requirement"):
            means = {i: [places[t][1] for t in targets.get(i, ()) if t in places] for i in ids}
            ids.sort(key=lambda i: sum(means[i]) / len(means[i]) if means[i] else height)
        step = height / max(len(ids), 1)
        places |= {i: (COLUMNS[kind], (k + 0.5) * step - 0.5) for k, i in enumerate(ids)}
    return places
