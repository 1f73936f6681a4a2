"""Graphs and slow, plain oracles that the tests of rubric aggregation share."""

from itertools import product

import numpy as np

from reprise.rubric import Criterion, Edge, RubricGraph


def graph_of(ids, weights, *edges) -> RubricGraph:
    """Edges as "a>b weak"."""
    parsed = [edge.replace(">", " ").split() for edge in edges]
    return RubricGraph([Criterion(i, w) for i, w in zip(ids, weights, strict=True)], [Edge(*each) for each in parsed])


def random_graph(rng, criteria: int, edges: int, types=("weak", "strong", "activation")) -> RubricGraph:
    """A DAG without a preferred order of its criteria, signed weights, at least one of them positive."""
    place = rng.permutation(criteria)
    pairs = [(i, j) for i in range(criteria) for j in range(i + 1, criteria)]
    chosen = rng.choice(len(pairs), min(edges, len(pairs)), replace=False) if pairs else []
    weights = rng.integers(1, 11, criteria) * rng.choice([1, 1, 1, -1], criteria)
    weights[0] = abs(weights[0])
    return RubricGraph(
        [Criterion(f"c{k}", int(w)) for k, w in enumerate(weights)],
        [Edge(f"c{place[i]}", f"c{place[j]}", str(rng.choice(types))) for i, j in (pairs[k] for k in chosen)],
    )


def with_ends(rng, size) -> np.ndarray:
    """Numbers in [0, 1], a third of them 0 or 1."""
    values = rng.random(size)
    return np.where(rng.random(size) < 1 / 3, values.round(), values)


def enumerated(graph, p, retention) -> np.ndarray:
    """P(C_i = 1) by summing the joint distribution over all 2^K states. p (criteria,), retention (edges,)."""
    q = np.zeros(len(graph))
    for state in product((0, 1), repeat=len(graph)):
        chance = 1.0
        for i, true in enumerate(state):
            alpha = p[i]
            for j, edge in graph.parents[i]:
                alpha *= 1.0 if state[j] else retention[edge]
            chance *= alpha if true else 1 - alpha
        q += chance * np.array(state)
    return q


def sampled(graph, p, retention, draws: int, rng) -> np.ndarray:
    """Events of the generative view, (draws, criteria): C_i = L_i and, for every parent, C_j or B_ji."""
    events = np.zeros((draws, len(graph)), bool)
    for level in graph.levels:
        for i in level:
            events[:, i] = rng.random(draws) < p[i]
            for j, edge in graph.parents[i]:
                events[:, i] &= events[:, j] | (rng.random(draws) < retention[edge])
    return events


def collider(parents: int) -> RubricGraph:
    """Independent roots that all license one criterion."""
    ids = [f"r{k}" for k in range(parents)]
    return graph_of([*ids, "child"], [1] * (parents + 1), *(f"{id}>child weak" for id in ids))


def ladder(rungs: int) -> RubricGraph:
    """Two rails, strong and weak, and a weak rung from each even criterion to the next odd one but one."""
    edges = []
    for i in range(rungs - 1):
        edges += [f"{2 * i}>{2 * i + 2} strong", f"{2 * i + 1}>{2 * i + 3} weak", f"{2 * i}>{2 * i + 3} weak"]
    return graph_of([str(k) for k in range(2 * rungs)], [1] * (2 * rungs), *edges)
