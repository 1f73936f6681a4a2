"""What may be wrong with a rubric, a graph or scores, and what becomes of it: decided once, here.

A graph is refused by default, with every problem named. `strict=False` drops the edges at fault and reports them;
`project=True` also breaks cycles, in an order that does not depend on how the rubric is numbered or its edges written.

Source: GEAR, appendix A (validation and projection). The paper leaves the order of projection open; ours is stated
below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np

from reprise.rubric.errors import GraphError, ScoreError, shown
from reprise.rubric.graph import Criterion, Edge, EdgeType, RubricGraph

# of two relations between the same criteria the first one listed is kept
PRIORITY = {EdgeType.ACTIVATION: 0, EdgeType.STRONG: 1, EdgeType.WEAK: 2}


@dataclass(frozen=True)
class Dropped:
    """An edge that was left out, and why."""

    edge: Edge
    reason: str

    def __str__(self) -> str:
        return f"edge {self.edge}: {self.reason}"


@dataclass(frozen=True)
class Validation:
    """A graph that holds, and the edges that had to go for it; none after a strict validation."""

    graph: RubricGraph
    dropped: tuple[Dropped, ...] = ()


def validate(graph: RubricGraph, *, strict: bool = True, project: bool = False) -> Validation:
    """Check criteria and edges; see the module's first lines.

    Args:
        graph: as built or read.
        strict: refuse a graph with a bad edge: an unknown end, an edge from a criterion to itself, an unknown type,
            or the same pair twice. Otherwise the edge is dropped; of a pair the type of highest PRIORITY stays.
        project: break cycles by `project_edges` instead of refusing them. Implies dropping, not refusing, of the rest.

    Raises:
        GraphError: the rubric is empty, an id occurs twice, a weight or the sum of all is not a finite number, a
            retention of an edge is outside [0, 1]; or strict and an edge is bad; or a cycle is left. All problems of a
            kind are listed.
    """
    # the flag is the graph's own: criteria and edges of a frozen graph do not change
    if graph.__dict__.get("_valid"):
        return Validation(graph)
    _check_criteria(graph.criteria)
    kept, dropped = _sound_edges(graph)
    if dropped and strict and not project:
        raise GraphError("; ".join(map(str, dropped)))
    if project:
        kept, cyclic = project_edges(graph.ids, kept)
        dropped += cyclic
    elif cycle := find_cycle(graph.ids, kept):
        raise GraphError(f"edges form a cycle: {' -> '.join(cycle)}: expected an acyclic graph; project=True breaks it")
    result = RubricGraph(graph.criteria, kept) if dropped else graph
    result.__dict__["_valid"] = True
    return Validation(result, tuple(dropped))


def _check_criteria(criteria: Sequence[Criterion]) -> None:
    if not criteria:
        raise GraphError("criteria: the rubric is empty: expected at least one criterion")
    problems, seen = [], set()
    for each in criteria:
        if each.id in seen:
            problems.append(f"criterion {each.id}: id occurs more than once: expected unique ids")
        seen.add(each.id)
        if not is_finite(each.weight):
            problems.append(f"criterion {each.id}: weight={shown(each.weight)}: expected a finite number")
    if problems:
        raise GraphError("; ".join(problems))
    try:
        math.fsum(abs(each.weight) for each in criteria)
    except OverflowError:
        raise GraphError(f"weights {[each.weight for each in criteria]}: expected a finite sum") from None


def _sound_edges(graph: RubricGraph) -> tuple[list[Edge], list[Dropped]]:
    """Edges with known ends and types, one for each pair, and the rest with the reason."""
    sound: dict[tuple[str, str], Edge] = {}
    dropped = []
    known = set(graph.ids)
    for edge in graph.edges:
        if edge.retention is not None and not is_share(edge.retention):
            raise GraphError(f"edge {edge}: retention={shown(edge.retention)}: expected 0 <= retention <= 1")
        unknown = [end for end in (edge.parent, edge.child) if end not in known]
        if unknown:
            dropped.append(Dropped(edge, f"{' and '.join(unknown)} unknown: expected ids of criteria"))
        elif edge.parent == edge.child:
            dropped.append(Dropped(edge, "expected two different criteria"))
        elif not isinstance(edge.type, EdgeType):
            dropped.append(Dropped(edge, f"type={edge.type!r}: expected one of {', '.join(EdgeType)}"))
        else:
            pair = (edge.parent, edge.child)
            best, other = edge, sound.get(pair)
            if other is not None:
                # equal types: the first one stays, so that a repeated line changes nothing
                best, worse = (edge, other) if PRIORITY[edge.type] < PRIORITY[other.type] else (other, edge)
                dropped.append(Dropped(worse, f"the pair has an edge of type {best.type}: expected one edge a pair"))
            sound[pair] = best
    return list(sound.values()), dropped


def is_finite(value: object) -> bool:
    """Whether `value` is a number that float64 holds; NaN, booleans and integers of 400 digits are none."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def is_share(value: object) -> bool:
    """Whether `value` is a number in [0, 1]; NaN and booleans are none."""
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= value <= 1


def project_edges(
    ids: Sequence[str], edges: Iterable[Edge], confidence: Mapping[tuple[str, str], float] | None = None
) -> tuple[list[Edge], list[Dropped]]:
    """Keep edges one by one unless they close a cycle.

    The order is by PRIORITY of the type, then falling confidence, then position of parent and child in `ids`: where a
    choice must be made the stronger relation wins, and the order in which edges are given does not matter.

    Args:
        ids: criteria in their order.
        edges: edges with known ends, at most one for each pair.
        confidence: a judge's confidence in each (parent, child), 1 where it gave none.

    Returns:
        (edges kept, in that order; edges dropped, each with the path it would have closed).
    """
    confidence = confidence or {}
    place = {id: k for k, id in enumerate(ids)}

    def rank(edge: Edge) -> tuple:
        pair = (edge.parent, edge.child)
        return PRIORITY[edge.type], -confidence.get(pair, 1.0), place[edge.parent], place[edge.child]

    children: dict[str, list[str]] = {}
    kept, dropped = [], []
    for edge in sorted(edges, key=rank):
        if path := _path(children, edge.child, edge.parent):
            dropped.append(Dropped(edge, f"closes the cycle {' -> '.join([edge.parent, *path])}"))
        else:
            kept.append(edge)
            children.setdefault(edge.parent, []).append(edge.child)
    return kept, dropped


def find_cycle(ids: Iterable[str], edges: Iterable[Edge]) -> list[str]:
    """Ids along one cycle, the first repeated at the end; empty if there is none."""
    children: dict[str, list[str]] = {}
    for edge in edges:
        children.setdefault(edge.parent, []).append(edge.child)
    # peel off what no remaining edge points to; what is left lies on or behind a cycle
    waiting = dict.fromkeys(ids, 0)
    for below in children.values():
        for child in below:
            waiting[child] += 1
    free = [id for id, count in waiting.items() if not count]
    while free:
        id = free.pop()
        del waiting[id]
        for child in children.get(id, ()):
            waiting[child] -= 1
            if not waiting[child]:
                free.append(child)
    for start in waiting:
        for child in children.get(start, ()):
            if path := _path(children, child, start):
                return [start, *path]
    return []


def _path(children: Mapping[str, Sequence[str]], start: str, end: str) -> list[str]:
    """Ids from `start` to `end` along edges, both included; empty if there is no way."""
    before: dict[str, str | None] = {start: None}
    waiting = [start]
    while waiting:
        here = waiting.pop()
        if here == end:
            path = []
            while here is not None:
                path.append(here)
                here = before[here]
            return path[::-1]
        for child in children.get(here, ()):
            if child not in before:
                before[child] = here
                waiting.append(child)
    return []


def denominator(graph: RubricGraph, kind: str = "positive") -> float:
    """What the weighted sum is divided by: the positive weights, or with kind="abs" all weights without their sign.

    Raises:
        GraphError: it is zero.
    """
    weights = [abs(w) if kind == "abs" else max(w, 0.0) for w in graph.weights]
    total = math.fsum(weights)
    if total == 0:
        if not any(graph.weights):
            raise GraphError(f"weights of {', '.join(graph.ids)} are all 0: expected at least one that is not")
        raise GraphError(
            f"weights {list(graph.weights)}: none is positive, the reward has no scale; expected a positive one, "
            "or denominator='abs'"
        )
    return total


def normalise_verdict(met: bool, prob: float, policy: str = "flip") -> tuple[float, bool]:
    """Probability that a criterion is met, from a judge that gives a verdict and a probability.

    A judge that says "not met" with probability .9 may mean .9 for its verdict; another means what it says.

    Args:
        met: the verdict.
        prob: the probability beside it, in [0, 1].
        policy: what to do when they contradict each other: "flip" reads prob as confidence in the verdict, "keep"
            takes prob as it is, "error" refuses.

    Returns:
        (probability that the criterion is met, whether the two contradicted each other).

    Raises:
        ScoreError: met is no boolean, prob is outside [0, 1], the policy is unknown, or it is "error" and they
            disagree.

    >>> normalise_verdict(False, 0.75)
    (0.25, True)
    """
    if policy not in ("flip", "error", "keep"):
        raise ScoreError(f"policy={policy!r}: expected flip, error or keep")
    if not isinstance(met, bool | np.bool_):
        # the text "false" is true to Python
        raise ScoreError(f"met={shown(met)}: expected True or False")
    if not is_share(prob):
        raise ScoreError(f"prob={shown(prob)}: expected 0 <= prob <= 1")
    contradicts = prob > 0.5 if not met else prob < 0.5
    if contradicts and policy == "error":
        raise ScoreError(f"met={met}, prob={prob}: expected a probability on the side of the verdict")
    return (1 - prob if contradicts and policy == "flip" else prob), contradicts
