"""What every trainer adapter does between its own call signature and `aggregate`: read graphs, score, aggregate."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from reprise.rubric.aggregate import aggregate
from reprise.rubric.errors import GraphError, ScoreError
from reprise.rubric.graph import Criterion, RubricGraph
from reprise.rubric.judging import Scorer
from reprise.rubric.scores import as_scores, torch_of

GRAPHS_KEPT = 4096  # parsed rubrics, a few training steps' worth


@dataclass(frozen=True)
class Row:
    """One response to score.

    Attributes:
        prompt, response: texts.
        graph: its rubric; None for a row that has none.
    """

    prompt: str
    response: str
    graph: RubricGraph | None


@dataclass(frozen=True)
class RewardRow:
    """What became of it.

    Attributes:
        reward, flat: by the adapter's method, and the plain weighted sum of the same scores; NaN without a reward.
        missing: scores that the judge did not give.
        p, q: [K] scores and marginals; NaN where a criterion was left out.
        graph: the rubric; None for a row that has none.
    """

    reward: float
    flat: float
    missing: int
    p: np.ndarray
    q: np.ndarray
    graph: RubricGraph | None

    @property
    def scored(self) -> bool:
        return bool(np.isfinite(self.reward))


class RewardRows:
    """A scorer and a way to aggregate, checked once.

    Args:
        scorer: see `reprise.rubric.judging.Scorer`; may be a coroutine function, or an object whose call is one.
        on_missing: "skip" leaves a criterion without a score out of the rubric, "zero" counts it as unmet, "none"
            gives the response no reward, "error" raises.
        options: further arguments of `aggregate`: method, inference, rule, retention by type, gamma, threshold, clamp,
            denominator, max_terms.

    Raises:
        RubricError, TypeError: an option that `aggregate` refuses; here, not in the middle of a training.
    """

    def __init__(self, scorer: Scorer, on_missing: str, options: Mapping[str, Any]):
        self.scorer, self.on_missing, self.options = scorer, on_missing, dict(options)
        probe = RubricGraph([Criterion("probe", 1.0)])
        aggregate(probe, [1.0], on_missing=on_missing, **self.options)
        self.is_async = _is_async(scorer)

    def rewards(self, rows: Sequence[Row]) -> list[RewardRow]:
        """With a scorer that is called."""
        return self._aggregated(rows, [self._ask(row) if row.graph else None for row in rows])

    async def arewards(self, rows: Sequence[Row]) -> list[RewardRow]:
        """With a scorer that is awaited, for all rows at once."""
        import asyncio

        async def ask(row: Row):
            return await self._ask(row) if row.graph else None

        return self._aggregated(rows, await asyncio.gather(*map(ask, rows)))

    def _ask(self, row: Row) -> Sequence[float | None] | Awaitable:
        return self.scorer(row.prompt, row.response, row.graph)

    def _aggregated(self, rows: Sequence[Row], answers: Sequence[Any]) -> list[RewardRow]:
        """Responses to one rubric are aggregated together."""
        done: list[RewardRow | None] = [None] * len(rows)
        groups: dict[str, list[int]] = {}
        for k, row in enumerate(rows):
            # an empty rubric has no reward; unless that is allowed, its fingerprint refuses it
            if row.graph is None or not row.graph.criteria and self.on_missing == "none":
                done[k] = RewardRow(np.nan, np.nan, 0, np.zeros(0), np.zeros(0), None)
            else:
                groups.setdefault(row.graph.fingerprint(), []).append(k)
        for members in groups.values():
            graph = rows[members[0]].graph
            p = np.stack([self._scores(answers[k], graph) for k in members])
            for k, each in zip(members, self._group(graph, p), strict=True):
                done[k] = each
        return done

    def _scores(self, answer: Any, graph: RubricGraph) -> np.ndarray:
        if inspect.iscoroutine(answer):
            answer.close()
            raise ScoreError("scores: a coroutine from a function that is none: expected an `async def` scorer")
        p, single = as_scores(answer, graph.ids)
        if not single:
            raise ScoreError(f"scores: shape {tuple(p.shape)}: expected {len(graph)}, one a criterion")
        p = p[0] if torch_of(p) is None else p[0].detach().cpu()
        return np.asarray(p, np.float64)

    def _group(self, graph: RubricGraph, p: np.ndarray) -> list[RewardRow]:
        missing = np.isnan(p)
        # what is left after skipping needs a weight that counts, or the reward has no scale
        weights = np.array(graph.weights, np.float64)
        counts = weights != 0 if self.options.get("denominator") == "abs" else weights > 0
        hopeless = (missing | ~counts).all(axis=1) & missing.any(axis=1) & (self.on_missing == "skip")
        reward, flat = np.full((2, len(p)), np.nan)
        q = np.full(p.shape, np.nan)
        rest = np.flatnonzero(~hopeless)
        if len(rest):
            result = aggregate(graph, p[rest], on_missing=self.on_missing, **self.options)
            reward[rest], q[rest] = result.reward, result.q
            plain = {name: self.options[name] for name in ("clamp", "denominator") if name in self.options}
            flat[rest] = aggregate(graph, p[rest], "flat", on_missing=self.on_missing, **plain).reward
        return [
            RewardRow(float(reward[k]), float(flat[k]), int(missing[k].sum()), p[k], q[k], graph) for k in range(len(p))
        ]


def graph_of(record: Any) -> RubricGraph | None:
    """The graph in a data set's `reward_model` column: an object, its JSON text, or arrays of objects; None for none.

    Parquet readers give arrays where there were lists, and None for fields that only other rows have.

    Raises:
        GraphError: the text is no JSON, or a field is missing or of the wrong type.
    """
    if record is None or isinstance(record, float) and np.isnan(record):
        return None
    if not isinstance(record, str):
        try:
            record = json.dumps(_plain(record), sort_keys=True)
        except (TypeError, ValueError, RecursionError) as error:
            raise GraphError(f"reward_model: {error}: expected what JSON can hold") from None
    return _parsed(record)


@lru_cache(maxsize=GRAPHS_KEPT)
def _parsed(text: str) -> RubricGraph | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GraphError(f"reward_model: a text that is no JSON ({error}): expected an object") from None
    if not record or isinstance(record, Mapping) and record.get("rubrics") is None:
        return None
    graph = RubricGraph.from_reward_model(record)
    if graph.criteria:
        graph.validate()
    return graph


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _is_async(scorer: Callable) -> bool:
    return inspect.iscoroutinefunction(scorer) or inspect.iscoroutinefunction(type(scorer).__call__)
