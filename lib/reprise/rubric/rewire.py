"""Graphs that keep a rubric's numbers and lose its meaning: the controls of the ablation.

Source: GEAR, section 4.6 and tables 4 and 17 (random graph, untyped graph).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from reprise.rubric.errors import RetentionError
from reprise.rubric.graph import Edge, RubricGraph
from reprise.rubric.retention import DEFAULT_RETENTION
from reprise.rubric.validate import is_share


def rewire_random(graph: RubricGraph, seed: int) -> RubricGraph:
    """The same criteria, types and number of edges between pairs drawn at random.

    A random order of the criteria is drawn first, then distinct pairs of it, the earlier one as the parent, so that the
    result is acyclic whatever is drawn; types, with retentions of their own, are dealt to the pairs at random.

    Args:
        graph: a valid graph.
        seed: the result depends on it and on the graph alone.

    Raises:
        GraphError: the graph is not valid.
    """
    graph.validate()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(graph))
    first, second = np.triu_indices(len(graph), k=1)
    pairs = rng.choice(len(first), size=len(graph.edges), replace=False)
    dealt = rng.permutation(len(graph.edges))
    edges = []
    for pair, k in zip(pairs, dealt, strict=True):
        parent, child = (graph.ids[order[end[pair]]] for end in (first, second))
        edges.append(Edge(parent, child, graph.edges[k].type, graph.edges[k].retention))
    return RubricGraph(graph.criteria, edges)


def untype(graph: RubricGraph, retention: float | None = None) -> RubricGraph:
    """The same edges, all with one retention.

    Args:
        graph: a valid graph.
        retention: of every edge, such as `mean_retention` of a whole corpus; None takes the mean of this graph.

    Raises:
        GraphError: the graph is not valid.
        RetentionError: retention is outside [0, 1].
    """
    graph.validate()
    if retention is None:
        if not graph.edges:
            return graph
        retention = mean_retention([graph])
    if not is_share(retention):
        raise RetentionError(f"retention={retention!r}: expected 0 <= retention <= 1")
    return RubricGraph(graph.criteria, [replace(edge, retention=float(retention)) for edge in graph.edges])


def mean_retention(graphs: Iterable[RubricGraph]) -> float:
    """Retention averaged over all edges of all graphs: each type weighs as often as it occurs.

    Raises:
        RetentionError: there is no edge.

    >>> from reprise.rubric.graph import Criterion
    >>> edges = [Edge("a", "b", "weak"), Edge("a", "c", "weak"), Edge("b", "c", "strong")]
    >>> round(mean_retention([RubricGraph([Criterion(id, 1) for id in "abc"], edges)]), 4)
    0.4667
    """
    values = [
        DEFAULT_RETENTION[edge.type] if edge.retention is None else edge.retention
        for graph in graphs
        for edge in graph.edges
    ]
    if not values:
        raise RetentionError("graphs: no edges: expected at least one")
    return math.fsum(values) / len(values)
