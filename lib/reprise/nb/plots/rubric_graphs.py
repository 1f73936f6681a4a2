"""Pictures of rubric graphs and of the judges that build and fill them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from reprise.nb.style import PALETTE, REPORTED

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROLE_COLOURS = {
    "foundation": PALETTE["sky"],
    "bonus": PALETTE["green"],
    "penalty": PALETTE["vermilion"],
    "trigger": PALETTE["orange"],
}
# found by both, by the judge alone, by the person alone
EDGE_STYLES = {
    "both": (PALETTE["blue"], "solid"),
    "built only": (PALETTE["vermilion"], "solid"),
    "drawn only": ("#999999", "dashed"),
}
BEND = "arc3,rad=0.14"  # so that the two directions of a pair do not cover each other


def candidates(counts: pd.DataFrame, audit: pd.DataFrame) -> Figure:
    """What numbers of candidates the role rule can give, and what the reported means leave for foundations.

    Args:
        counts: a row for each composition: criteria, foundations, candidates.
        audit: a row for each benchmark: benchmark, criteria, candidates, most (mean number of foundations at most),
            without_triggers (their number if nothing is a trigger).
    """
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.7), width_ratios=(1.25, 1))
    colours = {4: PALETTE["blue"], 5: PALETTE["orange"]}
    for k, (criteria, part) in enumerate(counts.groupby("criteria")):
        points = part.drop_duplicates(["foundations", "candidates"])
        shift = 0.16 * (k - 0.5)
        left.plot(
            points.foundations + shift, points.candidates, "o", color=colours[criteria], label=f"{criteria} criteria"
        )
    for row in audit[audit.criteria <= 5].itertuples():
        left.axhline(row.candidates, color=colours[round(row.criteria)], linestyle="--", linewidth=1.2)
        left.text(5.35, row.candidates + 0.3, f"{row.benchmark}: mean {row.candidates:.2f}", ha="right", fontsize=8.5)
    left.set(xlabel="foundations in the rubric", ylabel="candidate pairs", xticks=range(6), xlim=(-0.4, 5.4))
    left.set_title("Three foundations already give more candidates\nthan WritingBench and PLawBench report")
    left.legend(loc="upper left")
    at = np.arange(len(audit))
    right.bar(at, 100 * audit.most / audit.criteria, 0.62, color="#d9d9d9", label="at most, whatever the other roles")
    right.plot(
        at, 100 * audit.without_triggers / audit.criteria, "D", color=PALETTE["blue"], label="if nothing is a trigger"
    )
    right.axhline(100, color=REPORTED, linestyle="--", linewidth=1.2, label="roles by sign, were all points positive")
    right.set_xticks(at, audit.benchmark)
    right.set(ylabel="foundations (% of criteria)", ylim=(0, 135))
    shares = 100 * audit.most / audit.criteria
    right.set_title(f"At most {shares.min():.0f} to {shares.max():.0f} % of the criteria\ncan be foundations")
    right.legend(loc="upper center", fontsize=8.5, ncols=1)
    return fig


def graphs(rubrics: Sequence[Mapping]) -> Figure:
    """Rubric graphs side by side, drawn with networkx; edges by who drew them.

    Args:
        rubrics: for each a title, nodes (rows of id, role, level) and edges (rows of parent, child, type, status), the
            status one of EDGE_STYLES.
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    fig, axes = plt.subplots(1, len(rubrics), figsize=(4.6 * len(rubrics), 3.7), squeeze=False)
    for ax, rubric in zip(axes[0], rubrics, strict=True):
        _graph(ax, rubric)
    handles = [Line2D([], [], color=c, linestyle=line, label=name) for name, (c, line) in EDGE_STYLES.items()]
    handles += [Line2D([], [], color=c, marker="o", linestyle="", label=role) for role, c in ROLE_COLOURS.items()]
    fig.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8.5)
    return fig


def _graph(ax: Axes, rubric: Mapping) -> None:
    import networkx

    graph = networkx.DiGraph()
    edges = rubric["edges"]
    nodes = _under_parents(rubric["nodes"], edges)
    for row in nodes.itertuples():
        graph.add_node(row.id, layer=row.level)
    place = networkx.multipartite_layout(graph, subset_key="layer", align="horizontal")
    place = {id: (x, -y) for id, (x, y) in place.items()}
    colours = [ROLE_COLOURS[row.role] for row in nodes.itertuples()]
    networkx.draw_networkx_nodes(graph, place, node_color=colours, node_size=1500, ax=ax)
    networkx.draw_networkx_labels(graph, place, font_size=7.5, ax=ax)
    for status, (colour, line) in EDGE_STYLES.items():
        part = [(row.parent, row.child) for row in edges.itertuples() if row.status == status]
        networkx.draw_networkx_edges(
            graph,
            place,
            edgelist=part,
            edge_color=colour,
            style=line,
            width=1.8,
            node_size=1500,
            ax=ax,
            connectionstyle=BEND,
        )
    for number, row in enumerate(edges.itertuples()):
        name, at = {(row.parent, row.child): row.type}, (0.56, 0.42)[number % 2]  # neighbours at different heights
        networkx.draw_networkx_edge_labels(
            graph, place, name, at, font_size=7.5, ax=ax, rotate=False, connectionstyle=BEND
        )
    ax.set_title(rubric["title"], fontsize=10)
    ax.margins(0.14)
    ax.axis("off")


def _under_parents(nodes: pd.DataFrame, edges: pd.DataFrame) -> pd.DataFrame:
    """The rows level by level, each criterion near the middle of its parents, so that few edges cross."""
    import pandas as pd

    place, rows = {}, []
    for _, level in nodes.groupby("level"):
        parents = [[place[p] for p in edges.parent[edges.child == id] if p in place] for id in level.id]
        middle = [np.mean(above) if above else 0.0 for above in parents]
        level = level.assign(middle=middle).sort_values("middle", kind="stable")
        place |= {id: rank - (len(level) - 1) / 2 for rank, id in enumerate(level.id)}
        rows.append(level)
    return pd.concat(rows)


def judge_noise(noise: pd.DataFrame, scores: pd.DataFrame) -> Figure:
    """What a small judge sees of each criterion, and how its scores lie.

    Args:
        noise: a row for each way of asking and criterion: ask, criterion, auc, auc_error (its standard error).
        scores: a row for each judgement of the better way: truth, p.
    """
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.0), width_ratios=(1.5, 1))
    markers = {
        "yes_no": ("s", PALETTE["vermilion"], "asked yes or no"),
        "likelihood": ("o", PALETTE["blue"], "by likelihood"),
    }
    single = noise[noise.criterion != "all"]
    order = single[single.ask == "likelihood"].sort_values("auc", kind="stable").criterion.tolist()
    means = single.groupby("ask").auc.mean()
    for ask, (marker, colour, label) in markers.items():
        part = single[single.ask == ask].set_index("criterion").loc[order]
        at = np.arange(len(order)) + (0.12 if ask == "yes_no" else -0.12)
        bars = [np.minimum(1.96 * part.auc_error, room) for room in (part.auc, 1 - part.auc)]
        name = f"{label}, mean {means[ask]:.2f}"
        left.errorbar(at, part.auc, bars, fmt=marker, color=colour, elinewidth=1, markersize=5, label=name)
    left.axhline(0.5, color=REPORTED, linestyle="--", linewidth=1.2, label="chance")
    left.set_xticks(range(len(order)), order, rotation=40, ha="right")
    left.set(ylabel="P(true scores above false), 95 %", ylim=(0, 1.35), yticks=np.arange(0, 1.01, 0.25))
    left.set_title("Asked yes or no, a model of 135M is blind; its likelihoods are not")
    left.legend(loc="upper left", fontsize=8.5, ncols=3)
    bins = np.linspace(0, 1, 21)
    for truth, colour, label in ((False, "#b6bec7", "does not hold"), (True, PALETTE["blue"], "holds")):
        part = scores.p[scores.truth == truth]
        right.hist(
            part,
            bins,
            density=True,
            histtype="step",
            linewidth=2,
            color=colour,
            label=f"{label}, mean {part.mean():.2f}",
        )
    right.set(xlabel="score p, by likelihood", ylabel="density")
    right.set_title("Its scores overlap over the whole range")
    right.legend(fontsize=8.5)
    return fig
