"""Gates other than the exact one: hard decisions, and the three ways to combine parents that the paper compares.

    hard             q_i = p_i if every parent has p_j >= threshold, else 0
    hard transitive  the same, and every parent must itself be open: what retention 0 means for binary scores
    geometric, arithmetic, max
                     q_i = p_i * mean or maximum over parents of f_j = q_j + (1 - q_j) retention_ji

Hard gating looks at direct parents only: in a chain a -> b -> c with a unmet, c keeps its score if b's own is high.

Source: GEAR, sections 3.5 and 4.1 (hard gating), 4.7 (several parents).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from reprise.rubric.errors import RubricError, shown
from reprise.rubric.graph import RubricGraph
from reprise.rubric.validate import is_share


@dataclass(frozen=True)
class Layer:
    """Criteria of all graphs at one topological level, all with parents.

    Attributes:
        nodes: (criteria,) rows.
        parents, edges: (criteria, most parents) rows and edges, 0 where there is none.
        present: (criteria, most parents, 1) whether there is one.
    """

    nodes: np.ndarray
    parents: np.ndarray
    edges: np.ndarray
    present: np.ndarray


def layers(graphs: Sequence[RubricGraph]) -> list[Layer]:
    """Layers of a batch whose criteria and edges are numbered one graph after another."""
    first_row = accumulate((len(graph) for graph in graphs), initial=0)
    first_edge = accumulate((len(graph.edges) for graph in graphs), initial=0)
    found: dict[int, list[tuple[int, list[tuple[int, int]]]]] = {}
    for graph, row, edge in zip(graphs, first_row, first_edge, strict=False):
        for depth, level in enumerate(graph.levels[1:]):
            for i in level:
                above = [(row + j, edge + k) for j, k in graph.parents[i]]
                found.setdefault(depth, []).append((row + i, above))
    made = []
    for _, members in sorted(found.items()):
        shape = len(members), max(len(above) for _, above in members)
        parents, edges, present = np.zeros(shape, np.intp), np.zeros(shape, np.intp), np.zeros((*shape, 1), bool)
        for k, (_, above) in enumerate(members):
            parents[k, : len(above)], edges[k, : len(above)] = np.transpose(above)
            present[k, : len(above)] = True
        made.append(Layer(np.array([i for i, _ in members], np.intp), parents, edges, present))
    return made


def check_threshold(threshold: Any) -> None:
    """Raise RubricError unless threshold is a number in [0, 1]: beyond 1, or NaN, it would close every child."""
    if not is_share(threshold):
        raise RubricError(f"threshold={shown(threshold)}: expected 0 <= threshold <= 1")


def hard_gates(batch: Sequence[Layer], met: np.ndarray, transitive: bool) -> np.ndarray:
    """Which criteria are open.

    Args:
        batch: from `layers`.
        met: (criteria, responses) bool, p >= threshold.
        transitive: whether a closed parent closes its children.

    Returns:
        (criteria, responses) bool.
    """
    open_ = np.ones_like(met)
    for layer in batch:
        above = met[layer.parents] & open_[layer.parents] if transitive else met[layer.parents]
        open_[layer.nodes] = (above | ~layer.present).all(axis=1)
    return open_


def combined(batch: Sequence[Layer], p: Any, retention: Any, rule: str) -> Any:
    """Topological update with another rule for several parents; arrays or tensors.

    Args:
        batch: from `layers`.
        p: (criteria, responses) scores.
        retention: (edges,), of p's kind and dtype.
        rule: "product", "geometric", "arithmetic" or "max".
    """
    is_array = isinstance(p, np.ndarray)
    q = p.copy() if is_array else p
    for layer in batch:
        parent = q[layer.parents]
        present = layer.present.astype(p.dtype) if is_array else p.new_tensor(layer.present)
        gate = _combine(parent + (1 - parent) * retention[layer.edges][..., None], present, rule)
        if is_array:
            q[layer.nodes] = p[layer.nodes] * gate
        else:
            nodes = p.new_tensor(layer.nodes).long()
            q = q.index_copy(0, nodes, p[nodes] * gate)
    return q


def _combine(factors: Any, present: Any, rule: str) -> Any:
    """Combine (criteria, parents, responses) over the parents that are there, where `present` is 1 and not 0."""
    count = present.sum(1)
    if rule == "arithmetic":
        return (factors * present).sum(1) / count
    if rule == "max":
        kept = factors * present
        return kept.max(axis=1) if isinstance(kept, np.ndarray) else kept.amax(1)
    product = (factors * present + (1 - present)).prod(1)
    if rule == "product":
        return product
    # 0 ** (1 / n) is 0, but its slope is infinite: let nothing through there
    positive = product > 0
    return (product + ~positive) ** (1 / count) * positive
