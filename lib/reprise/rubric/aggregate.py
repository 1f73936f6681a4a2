"""From the criterion scores of a response to one reward.

    flat             q = p
    hard             q_i = p_i if every parent has p_j >= threshold, else 0
    hard_transitive  the same, and a closed parent closes its children
    gear             q_i = probability of the event given the scores, damped where parents are unmet

    reward = sum_i w_i q_i / sum of the positive w_i

>>> from reprise.rubric.graph import Criterion, Edge, RubricGraph
>>> graph = RubricGraph([Criterion("grounded", 1), Criterion("evidence", 1)], [Edge("grounded", "evidence", "weak")])
>>> result = aggregate(graph, [0.2, 0.9])
>>> round(result.reward, 3), result.q.round(3).tolist(), result.inference_used
(0.406, [0.2, 0.612], 'mean_field')

Source: GEAR, equations 2 and 6-14.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reprise.rubric.batch import INFERENCES, RULES, PackedProgram, compile_batch
from reprise.rubric.bounds import reward_interval
from reprise.rubric.errors import GraphError, RubricError, ScoreError
from reprise.rubric.gates import check_threshold
from reprise.rubric.graph import RubricGraph
from reprise.rubric.marginals import MAX_TERMS, check_limit
from reprise.rubric.retention import DEFAULT_RETENTION, edge_retention
from reprise.rubric.scores import ON_MISSING, as_scores, choose, in_range, refuse_missing, torch_of

__all__ = ["DEFAULT_RETENTION", "METHODS", "Aggregation", "aggregate"]

METHODS = ("gear", "flat", "hard", "hard_transitive")


@dataclass(frozen=True)
class Aggregation:
    """A reward and where it comes from. With (R, K) scores every field has a row a response, with (K,) it has none.

    Attributes:
        reward: number or (R,), of the scores' kind, a tensor too where retention is one; NaN or None (single response)
            where a score was missing and on_missing="none".
        q: marginals (K,) or (R, K); NaN for a criterion that was skipped.
        p: the scores used, in [0, 1].
        suppressed: p - q, the part of each score that unmet parents took.
        gap: width of the certified interval q .. q + gap around the exact marginals, (K,) or (R, K); None if none
            was computed. NaN for a response without a reward.
        inference_used: "mean_field", "exact" (moments), "elimination" (exact, other algorithm) or "bounds"; "none" for
            flat and hard.
        fingerprint: of the graph.
        reward_interval: lowest and highest reward within the certified interval, (2,) or (R, 2); None and NaN as `gap`.
    """

    reward: Any
    q: Any
    p: Any
    suppressed: Any
    gap: Any
    inference_used: str
    fingerprint: str
    reward_interval: Any = None


def aggregate(
    graph: RubricGraph,
    scores: Any,
    method: str = "gear",
    inference: str = "mean_field",
    rule: str = "product",
    retention: Any = None,
    gamma: float = 1.0,
    on_missing: str = "error",
    *,
    threshold: float = 0.5,
    clamp: bool = False,
    denominator: str = "positive",
    max_terms: int = MAX_TERMS,
) -> Aggregation:
    """Reward of one response, or of several to the same prompt.

    Args:
        graph: the rubric; strictly validated.
        scores: (K,) or (R, K) in [0, 1]: array, tensor or lists. Within 1e-6 of the range they are set to its end.
        method: see the first lines.
        inference: of method "gear": "mean_field" (the paper's linear update), "exact", "auto" (exact where it fits in
            `max_terms`, else as "bounds"), "bounds" (mean field with its gap and reward interval).
        rule: how mean field combines several parents: "product", "geometric", "arithmetic" or "max".
        retention: None for DEFAULT_RETENTION, a mapping that replaces it for the types it names, or one value an edge.
        gamma: exponent on the retentions, >= 0, with 0 ** 0 = 1.
        on_missing: what a missing score (NaN, None, no number) does: "error"; "zero"; "skip" leaves the criterion out
            of the rubric, and its children as if they had no such parent; "none" gives the response no reward.
        threshold: from which score on a parent is met, for the hard methods; in [0, 1].
        clamp: set scores outside [0, 1] to its ends instead of refusing them.
        denominator: "positive" or "abs"; see `reprise.rubric.validate.denominator`.

    Raises:
        GraphError, ScoreError, RetentionError, RubricError: bad input of that kind; nothing is guessed.
    """
    choose("on_missing", on_missing, ON_MISSING)
    how = _How(method, inference, rule, retention, gamma, threshold, denominator, max_terms)
    if on_missing == "none" and not graph.criteria:
        return Aggregation(None, *[np.zeros(0)] * 3, None, "none", "")
    graph.validate()
    p, single = as_scores(scores, graph.ids)
    p = in_range(p, graph.ids, clamp)
    if method != "gear":
        edge_retention(graph.edges, retention, gamma)  # not used, but checked
    elif (torch := torch_of(retention)) is not None:
        p = torch.as_tensor(p)
    reward, q, p, gap, interval, used = _with_missing(graph, p, on_missing, how)
    if single:
        q, p = q[0], p[0]
        gap, interval = (None if each is None else each[0] for each in (gap, interval))
        reward = float(reward[0]) if torch_of(p) is None else reward[0]
        if on_missing == "none" and bool(reward != reward):
            reward = None
    return Aggregation(reward, q, p, p - q, gap, used, graph.fingerprint(), interval)


@dataclass(frozen=True)
class _How:
    """The options of `aggregate` that concern complete scores."""

    method: str
    inference: str
    rule: str
    retention: Any
    gamma: float
    threshold: float
    denominator: str
    max_terms: int

    def __post_init__(self):
        choose("method", self.method, METHODS)
        choose("inference", self.inference, INFERENCES)
        choose("rule", self.rule, RULES)
        check_threshold(self.threshold)
        check_limit(self.max_terms)
        if self.method == "gear" and self.rule != "product" and self.inference != "mean_field":
            raise RubricError(f"rule={self.rule!r}: expected 'product', the only rule of inference={self.inference!r}")


def _with_missing(graph: RubricGraph, p: Any, on_missing: str, how: _How) -> tuple[Any, ...]:
    """(reward, q, p as used, gap, reward interval, inference used) of (responses, criteria) scores.

    A score that is missing is NaN.
    """
    if on_missing == "error":
        refuse_missing(p, graph.ids)
    if on_missing == "skip" and len(p):
        reward, q, *rest = _skipping(graph, p, how)
        return reward, q, p, *rest
    xp = torch_of(p) or np
    missing = p != p
    filled = xp.where(missing, xp.zeros_like(p), p)
    reward, q, gap, interval, used = _complete(graph, filled, how)
    if on_missing != "none":
        return reward, q, filled, gap, interval, used
    unscored, nothing = missing.any(-1), xp.full_like(reward, float("nan"))
    q, gap, interval = (
        None if each is None else xp.where(unscored[:, None], nothing[:, None], each) for each in (q, gap, interval)
    )
    return xp.where(unscored, nothing, reward), q, p, gap, interval, used


def _complete(graph: RubricGraph, p: Any, how: _How) -> tuple[Any, Any, Any, Any, str]:
    """(reward, q, gap, reward interval, inference used) of (responses, criteria) scores without a missing one."""
    gear = how.method == "gear"
    program = _packed(graph, how.inference if gear else "mean_field", how.max_terms, how.denominator)
    gap, interval, used = None, None, "none"
    if gear:
        used = program.inference_used[0]
        q = program.marginals(p.T, how.retention, how.gamma, how.rule)
        if how.inference == "bounds" or (how.inference == "auto" and used == "mean_field"):
            lower, upper = program.bounds(p.T, how.retention, how.gamma)
            gap = _like(p, (upper - lower).T)
            ends = reward_interval(program.weights, lower, upper, program.denominators[0])
            interval = _like(p, np.stack(ends, 1))
    elif how.method == "flat":
        q = p.T
    else:
        q = program.hard(p.T, how.threshold, transitive=how.method == "hard_transitive")
    return program.reward(q)[0], q.T, gap, interval, used


def _packed(graph: RubricGraph, *options: Any) -> PackedProgram:
    """The program of one graph, kept with it: responses to a prompt come one at a time."""
    kept = graph.__dict__.setdefault("_packed", {})
    if options not in kept:
        kept[options] = compile_batch([graph], *options)
    return kept[options]


def _skipping(graph: RubricGraph, p: Any, how: _How) -> tuple[Any, Any, Any, Any, str]:
    """Responses that miss the same criteria are aggregated together, on the graph without these criteria."""
    xp = torch_of(p) or np
    pattern = np.asarray((p != p).tolist(), bool)
    if pattern.all(axis=1).any():
        response = int(pattern.all(axis=1).argmax())
        raise ScoreError(f"scores of response {response}: all missing: expected at least one with on_missing='skip'")
    patterns, owner = np.unique(pattern, axis=0, return_inverse=True)
    owner = owner.reshape(-1)
    vector = None
    if how.retention is not None and not isinstance(how.retention, Mapping):
        vector = edge_retention(graph.edges, how.retention)
    results, order = [], []
    for number, gone in enumerate(patterns):
        members = np.flatnonzero(owner == number)
        kept = np.flatnonzero(~gone)
        left = graph.without(graph.ids[i] for i in np.flatnonzero(gone))
        own = how
        if vector is not None:
            remaining = set(left.edges)
            own = replace(how, retention=vector[[k for k, edge in enumerate(graph.edges) if edge in remaining]])
        try:
            reward, q, gap, interval, used = _complete(left, p[members][:, kept], own)
        except GraphError as error:
            missing = ", ".join(graph.ids[i] for i in np.flatnonzero(gone)) or "none"
            raise GraphError(f"scores of response {members[0]}, {missing} missing: {error}") from None
        # a criterion that is gone reads the column of NaN put behind the others
        column = np.full(len(graph), len(kept))
        column[kept] = np.arange(len(kept))
        blank = xp.full_like(q[:, :1], float("nan"))
        spread = [None if each is None else xp.concatenate([each, blank], 1)[:, column] for each in (q, gap)]
        results.append((reward, *spread, interval, used))
        order.append(members)
    back = np.argsort(np.concatenate(order))
    rewards, qs, gaps, intervals, used = zip(*results, strict=True)
    gap = interval = None
    if any(each is not None for each in gaps):
        gap = xp.concatenate([q * 0 if each is None else each for q, each in zip(qs, gaps, strict=True)])[back]
        ends = [xp.stack([r, r], 1) if each is None else each for r, each in zip(rewards, intervals, strict=True)]
        interval = xp.concatenate(ends)[back]
    return xp.concatenate(rewards)[back], xp.concatenate(qs)[back], gap, interval, "+".join(sorted(set(used)))


def _like(p: Any, values: np.ndarray) -> Any:
    return values.astype(p.dtype) if torch_of(p) is None else p.new_tensor(values)
