"""What an audit keeps of a log: sums over the responses of each prompt and training step.

Memory grows with the number of prompts times the steps they occur in, never with text or with responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprise.rubric.batch import compile_batch
from reprise.rubric.errors import RubricError
from reprise.rubric.graph import EdgeType, RubricGraph
from reprise.rubric.leakage import Cases, case_values, edge_cases, weight_shares
from reprise.rubric.rollout_log import Rollout

ROWS_HELD = 4096  # responses held until they are summed together, as arrays


@dataclass
class Group:
    """Sums over the responses of one prompt in one step.

    Attributes:
        responses: how many.
        leak: [2, K] leak of each criterion, and its square.
        total: [2] leak of a response, and its square.
        edges: [3, considered edges] violated and satisfied cases, utility leaked.
        cases: [2] violated and satisfied cases.
        methods: aggregation -> [2] leaked and kept over those cases.
    """

    responses: int
    leak: np.ndarray
    total: np.ndarray
    edges: np.ndarray
    cases: np.ndarray
    methods: dict[str, np.ndarray]

    @property
    def paid(self) -> float:
        """Utility leaked, edge by edge."""
        return float(self.methods["paid"][0])

    def add(self, other: Group) -> None:
        self.responses += other.responses
        for name in ("leak", "total", "edges", "cases"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        both = self.methods.keys() & other.methods.keys()
        self.methods = {name: self.methods[name] + other.methods[name] for name in self.methods if name in both}


class Sums:
    """Groups by (place, step); a place is a prompt with its rubric, numbered by first appearance."""

    def __init__(self, threshold: float, types: Sequence[EdgeType]):
        self.threshold, self.types = threshold, tuple(types)
        self.groups: dict[tuple[int, int], Group] = {}
        self.labels: list[str] = []
        self.prompt_of: list[int] = []  # a prompt whose rubric changed has several places
        self.excerpts: list[str] = []
        self.graphs: list[RubricGraph] = []
        self.considered: list[np.ndarray] = []
        self._places: dict[tuple[str, str], int] = {}
        self._prompts: dict[str, int] = {}
        self._held: dict[tuple[int, int], list[Rollout]] = {}
        self._waiting = 0

    @property
    def prompts(self) -> int:
        return len(self._prompts)

    @property
    def responses(self) -> int:
        return sum(group.responses for group in self.groups.values())

    @property
    def fingerprints(self) -> set[str]:
        return {fingerprint for _, fingerprint in self._places}

    @property
    def methods(self) -> list[str]:
        """Aggregations that every response has, "paid" first."""
        groups = iter(self.groups.values())
        common = list(next(groups).methods)
        for group in groups:
            common = [name for name in common if name in group.methods]
        return common

    def of_method(self, name: str) -> np.ndarray:
        """[groups, 2] leaked and kept."""
        return np.array([group.methods[name] for group in self.groups.values()])

    def add(self, rollout: Rollout) -> None:
        key = rollout.prompt, rollout.graph.fingerprint()
        place = self._places.setdefault(key, len(self._places))
        if place == len(self.graphs):
            self.labels.append(rollout.prompt)
            self.prompt_of.append(self._prompts.setdefault(rollout.prompt, len(self._prompts)))
            self.excerpts.append(rollout.excerpt)
            self.graphs.append(rollout.graph)
            self.considered.append(edge_cases(rollout.graph, rollout.p[None], self.threshold, self.types).edges)
        self._held.setdefault((place, rollout.step), []).append(rollout)
        self._waiting += 1
        if self._waiting == ROWS_HELD:
            self.flush()

    def flush(self) -> None:
        """Sum what is held.

        Raises:
            RubricError: nothing was ever added.
        """
        for key, held in self._held.items():
            group = summed(self.graphs[key[0]], held, self.threshold, self.types)
            if key in self.groups:
                self.groups[key].add(group)
            else:
                self.groups[key] = group
        self._held, self._waiting = {}, 0
        if not self.groups:
            raise RubricError("rollouts: none: expected at least one scored response")


def summed(graph: RubricGraph, held: Sequence[Rollout], threshold: float, types: Sequence[EdgeType]) -> Group:
    """The sums of a few responses to one prompt."""
    p = np.stack([each.p for each in held])
    paid = np.stack([each.paid for each in held])
    cases = edge_cases(graph, p, threshold, types)
    # a child with several unmet parents leaks once
    unlicensed = np.zeros(p.shape, dtype=bool)
    np.logical_or.at(unlicensed, (slice(None), cases.child), cases.violated)
    leak = np.where(unlicensed, weight_shares(graph) * paid, 0.0)
    total = leak.sum(axis=1)
    edges = [cases.violated, cases.satisfied, case_values(cases, p, paid)[0]]
    return Group(
        len(held),
        np.stack([leak.sum(axis=0), (leak**2).sum(axis=0)]),
        np.array([total.sum(), (total**2).sum()]),
        np.stack([each.sum(axis=0) for each in edges]).astype(np.float64),
        np.array([cases.violated.sum(), cases.satisfied.sum()], dtype=np.float64),
        _methods(graph, held, cases, p, paid),
    )


def _methods(graph: RubricGraph, held: Sequence[Rollout], cases: Cases, p: np.ndarray, paid: np.ndarray) -> dict:
    """Leaked and kept of each aggregation; the paper's rule is computed where the log does not have it."""
    q = {"paid": paid, "flat": p}
    for name in held[0].q:
        if name != "paid" and all(name in each.q for each in held):
            q[name] = np.stack([each.q[name] for each in held])
    if "gear" not in q:
        # marginals do not depend on weights, and a rubric of zeros has no reward
        whole = (
            graph if any(graph.weights) else RubricGraph([replace(c, weight=1) for c in graph.criteria], graph.edges)
        )
        q["gear"] = compile_batch([whole], denominator="abs").marginals(p.T).T
    return {name: np.array([part.sum() for part in case_values(cases, p, each)]) for name, each in q.items()}
