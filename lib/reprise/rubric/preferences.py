"""Preferred responses as pairs of judge scores: read from a file, and packed so that one call scores them all.

Source: the pairwise model is that of R. Bradley and M. Terry, Biometrika 39 (1952) 324-345.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reprise.rubric.batch import compile_batch
from reprise.rubric.errors import RubricError
from reprise.rubric.graph import RubricGraph
from reprise.rubric.retention import DEFAULT_RETENTION

FIELDS = frozenset({"reward_model", "chosen", "rejected"})


class PreferenceError(RubricError):
    """Pairs that cannot be fitted; the message names the pair or the line."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Two responses to one rubric's prompt by their judge scores, the preferred one first.

    Attributes:
        graph: the rubric.
        chosen, rejected: (criteria,) scores in [0, 1].
    """

    graph: RubricGraph
    chosen: Sequence[float]
    rejected: Sequence[float]


def read_pairs(path: str | Path) -> list[Pair]:
    """Pairs of a JSON Lines file; blank lines are passed over.

    A line is an object with `reward_model` (see `RubricGraph.from_reward_model`), `chosen` and `rejected`, the scores
    of the two responses in the order of the rubric's criteria.

    Raises:
        PreferenceError: a line is no such object; the message has the file and the line.
        OSError: the file cannot be read.
    """
    pairs = []
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                missing = FIELDS.difference(row) if isinstance(row, dict) else FIELDS
                if missing:
                    raise PreferenceError(f"expected an object with {', '.join(sorted(missing))}")
                pair = Pair(RubricGraph.from_reward_model(row["reward_model"]), row["chosen"], row["rejected"])
                _scores(pair)
            except ValueError as error:
                raise PreferenceError(f"{path}, line {number}: {error}") from error
            pairs.append(pair)
    return pairs


class PackedPairs:
    """Pairs by rubric, in one program of exact marginals.

    A rubric's c-th pair stands in columns c (chosen) and columns + c (rejected) of its rows.

    Attributes:
        graphs: the rubrics that occur, each once.
        rubric: (pairs,) number of each pair's rubric.
        edges: of all rubrics, in order.
        own: (edges,) their retentions before anything is learned: an edge's own, else that of its type.
        first_edge: (rubrics + 1,) where each rubric's edges begin.

    Raises:
        PreferenceError: there is no pair, or a pair's scores do not fit its rubric.
        GraphError: a rubric is not valid.
    """

    def __init__(self, pairs: Iterable[Pair]):
        pairs = tuple(pairs)
        if not pairs:
            raise PreferenceError("pairs: none: expected at least one")
        place: dict[str, int] = {}
        self.rubric = np.array([place.setdefault(pair.graph.fingerprint(), len(place)) for pair in pairs])
        self.graphs = [pairs[int(np.argmax(self.rubric == k))].graph for k in range(len(place))]
        self.column = np.zeros(len(pairs), dtype=int)
        starts = np.cumsum([0, *map(len, self.graphs)])
        columns = np.bincount(self.rubric).max()
        self.scores = np.zeros((starts[-1], 2 * columns))
        used = [0] * len(place)
        for n, pair in enumerate(pairs):
            k = self.rubric[n]
            self.column[n] = used[k]
            used[k] += 1
            try:
                both = _scores(pair)
            except PreferenceError as error:
                raise PreferenceError(f"pair {n}: {error}") from None
            self.scores[starts[k] : starts[k + 1], self.column[n] :: columns] = both.T
        self.columns = columns
        self.program = compile_batch(self.graphs, inference="exact")
        self.edges = [edge for graph in self.graphs for edge in graph.edges]
        self.own = np.array([DEFAULT_RETENTION[e.type] if e.retention is None else e.retention for e in self.edges])
        self.first_edge = np.cumsum([0, *(len(graph.edges) for graph in self.graphs)])

    def margins(self, retention: np.ndarray) -> np.ndarray:
        """(pairs,) S(chosen) - S(rejected) under one retention an edge."""
        rewards = self.program.reward(self.program.marginals(self.scores, retention=retention))
        return rewards[self.rubric, self.column] - rewards[self.rubric, self.columns + self.column]

    def slopes(self, retention: np.ndarray) -> np.ndarray:
        """[pairs, edges of the largest rubric] derivative of the margins by each edge of the pair's own rubric.

        The k-th edges of all rubrics are moved together: a pair depends on the edges of one rubric only.
        """
        counts = np.diff(self.first_edge)
        slopes = np.zeros((len(self.rubric), counts.max(initial=0)))
        for k in range(slopes.shape[1]):
            moved = self.first_edge[:-1][counts > k] + k
            ends = []
            for end in (1.0, 0.0):
                at_end = retention.copy()
                at_end[moved] = end
                ends.append(self.margins(at_end))
            slopes[:, k] = np.where(counts[self.rubric] > k, ends[0] - ends[1], 0.0)
        return slopes


def _scores(pair: Pair) -> np.ndarray:
    """[2, criteria]: chosen, rejected."""
    rows = []
    for name in ("chosen", "rejected"):
        try:
            scores = np.asarray(getattr(pair, name), dtype=np.float64)
        except (TypeError, ValueError):
            scores = np.empty(0)
        if scores.shape != (len(pair.graph),) or not ((scores >= 0) & (scores <= 1)).all():
            raise PreferenceError(f"{name}={getattr(pair, name)}: expected {len(pair.graph)} scores in [0, 1]")
        rows.append(scores)
    return np.array(rows)
