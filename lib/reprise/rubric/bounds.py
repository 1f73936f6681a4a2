"""Certified bounds on exact marginals at the cost of the linear update.

The events are increasing functions of independent noises, hence associated, so for every criterion

    mean field <= exact <= upper <= p,
    upper_i = p_i * product over groups of parents with overlapping ancestors of min over the group of
              (u_j + (1 - u_j) retention_ji),   u = upper.

Mean field is exact where every criterion's parents have disjoint ancestors (each with itself), as in a polytree.

Source: ours; association is Esary, Proschan and Walkup, Annals of Mathematical Statistics 38 (1967) 1466-1474.
"""

from __future__ import annotations

import numpy as np

from reprise.rubric.graph import RubricGraph


def parent_groups(graph: RubricGraph) -> tuple[tuple[tuple[tuple[int, int], ...], ...], ...]:
    """For each criterion its (parent, edge) pairs, grouped where the parents' ancestors, themselves included, meet."""
    closures: dict[int, int] = {}  # as bit masks
    found: dict[int, tuple] = {}
    for level in graph.levels:
        for i in level:
            closures[i] = 1 << i
            groups: list[tuple[list, int]] = []
            for j, edge in graph.parents[i]:
                closures[i] |= closures[j]
                members, closure = [(j, edge)], closures[j]
                apart = []
                for group in groups:
                    if group[1] & closure:
                        members, closure = group[0] + members, group[1] | closure
                    else:
                        apart.append(group)
                groups = [*apart, (members, closure)]
            found[i] = tuple(tuple(members) for members, _ in groups)
    return tuple(found[i] for i in range(len(graph)))


def upper_bound(graph: RubricGraph, p: np.ndarray, retention: np.ndarray) -> np.ndarray:
    """The upper bound above; the lower one is mean field.

    Args:
        graph: a valid graph.
        p: (criteria, responses) scores in [0, 1].
        retention: (edges,) in [0, 1].

    Returns:
        (criteria, responses) float64.
    """
    upper = np.array(p, np.float64)
    groups = parent_groups(graph)
    for level in graph.levels:
        for i in level:
            for group in groups[i]:
                above = upper[[j for j, _ in group]]
                kept = retention[[edge for _, edge in group], None]
                upper[i] *= (above + (1 - above) * kept).min(axis=0)
    return upper


def reward_interval(
    weights: np.ndarray, lower: np.ndarray, upper: np.ndarray, denominator: float
) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest reward that marginals between the bounds can give.

    Args:
        weights: (criteria,).
        lower, upper: (criteria, responses).
        denominator: what rewards are divided by.

    Returns:
        (low, high), each (responses,).
    """
    gain, loss = np.maximum(weights, 0), np.minimum(weights, 0)
    return (gain @ lower + loss @ upper) / denominator, (gain @ upper + loss @ lower) / denominator
