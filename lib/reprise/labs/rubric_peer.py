"""The aggregator as it is usually written: one response at a time, dictionaries by criterion, a topological walk.

This is the other side of our speed ratios and an oracle of the numbers. It follows the structure of the paper's public
code: the record is read again for every response, and all three rewards are computed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

NAMES = {"weak": 0.6, "strong": 0.2, "activation": 0.0}


def parse(record: Mapping[str, Any]) -> dict[str, Any]:
    """Weights by id, incoming edges by child, ids in topological order; an edge that closes a cycle is skipped."""
    weights = {line["id"]: float(line["points"]) for line in record["rubrics"]}
    below: dict[str, list[str]] = defaultdict(list)
    incoming: dict[str, list[Mapping]] = defaultdict(list)
    waiting_for = dict.fromkeys(weights, 0)
    for edge in record["graph"]["edges"]:
        parent, child = edge["parent"], edge["child"]
        if parent not in weights or child not in weights or _reaches(below, child, parent):
            continue
        below[parent].append(child)
        incoming[child].append(edge)
        waiting_for[child] += 1
    ready = deque(id for id, count in waiting_for.items() if count == 0)
    order = []
    while ready:
        id = ready.popleft()
        order.append(id)
        for child in below[id]:
            waiting_for[child] -= 1
            if waiting_for[child] == 0:
                ready.append(child)
    return {"weights": weights, "incoming": incoming, "order": order}


def _reaches(below: Mapping[str, Sequence[str]], start: str, end: str) -> bool:
    stack, seen = [start], set()
    while stack:
        here = stack.pop()
        if here == end:
            return True
        if here not in seen:
            seen.add(here)
            stack.extend(below.get(here, ()))
    return False


def linear(parsed: Mapping[str, Any], p: Mapping[str, float]) -> dict[str, float]:
    """Topological update of one response."""
    q: dict[str, float] = {}
    for id in parsed["order"]:
        gate = 1.0
        for edge in parsed["incoming"].get(id, ()):
            retention = min(1.0, max(0.0, float(NAMES.get(edge["type"], 1.0))))
            above = q[edge["parent"]]
            gate *= above + (1.0 - above) * retention
        q[id] = p[id] * gate
    return q


def enumerate_states(parsed: Mapping[str, Any], p: Mapping[str, float]) -> dict[str, float]:
    """Marginals of one response by a loop over all 2^K states."""
    order = parsed["order"]
    q = dict.fromkeys(order, 0.0)
    for bits in product((0, 1), repeat=len(order)):
        state = dict(zip(order, bits, strict=True))
        chance = 1.0
        for id in order:
            alpha = p[id]
            for edge in parsed["incoming"].get(id, ()):
                alpha *= 1.0 if state[edge["parent"]] else NAMES[edge["type"]]
            chance *= alpha if state[id] else 1.0 - alpha
            if chance == 0.0:
                break
        for id in order:
            if state[id]:
                q[id] += chance
    return q


def rewards(record: Mapping[str, Any], scores: Sequence[float]) -> dict[str, float]:
    """Flat, hard and linear reward of one response."""
    parsed = parse(record)
    p = {id: min(1.0, max(0.0, float(score))) for id, score in zip(parsed["weights"], scores, strict=True)}
    hard = {}
    for id in parsed["order"]:
        met = all(p[edge["parent"]] >= 0.5 for edge in parsed["incoming"].get(id, ()))
        hard[id] = p[id] if met else 0.0
    return {
        name: reward(parsed["weights"], q) for name, q in (("flat", p), ("hard", hard), ("linear", linear(parsed, p)))
    }


def linear_reward(parsed: Mapping[str, Any], scores: Sequence[float]) -> float:
    """Linear reward of one response to a rubric that was read before."""
    weights = parsed["weights"]
    return reward(weights, linear(parsed, dict(zip(weights, scores, strict=True))))


def reward(weights: Mapping[str, float], q: Mapping[str, float]) -> float:
    """Weighted sum over the positive weights."""
    scale = sum(max(weight, 0.0) for weight in weights.values())
    return sum(weight * q[id] for id, weight in weights.items()) / (scale if scale > 0 else 1.0)
