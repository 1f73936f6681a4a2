"""The fields of one line of a training log: read, checked, and named in every refusal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from reprise.rubric.errors import RubricError, shown
from reprise.rubric.graph import RubricGraph
from reprise.rubric.scores import ROUNDING

NAMED_Q = {"flat": "flat_q_list", "hard": "hard_q_list", "gear": "dag_q_list"}
NUMBERS = {int, float}  # what JSON calls a number; bool is neither
LATEST_STEP = 1 << 53  # the largest whole numbers that float64 tells apart
SHOWN = 60  # characters of a prompt kept to recognise it by


class LogError(RubricError):
    """A line that cannot be read as a scored response; the message has the file, the line and the field."""


class NoRubric(LogError):
    """A response without a single criterion: the public code writes those for prompts without a rubric."""


def _is_number(value: Any) -> bool:
    return type(value) in NUMBERS


def parsed(raw: bytes) -> Mapping[str, Any]:
    """The object on a line."""
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise LogError(f"not JSON ({error})") from None
    if not isinstance(record, dict):
        raise LogError(f"{type(record).__name__}: expected an object")
    return record


def first(record: Mapping, *names: str) -> Any:
    """The first of these fields that is there and not null."""
    return next((record[name] for name in names if record.get(name) is not None), None)


def from_text(value: Any, field: str, expected: str) -> Any:
    """The value that a text holds as JSON, and any other value itself: trainers store what is nested as text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise LogError(f"{field}: a text that is not JSON: expected {expected}") from None


def as_object(value: Any, field: str) -> Mapping:
    """The object, which may be JSON text."""
    value = from_text(value, field, "an object")
    if not isinstance(value, Mapping):
        raise LogError(f"{field}: {type(value).__name__}: expected an object")
    return value


def as_list(value: Any, field: str) -> list | None:
    """The list, which may be JSON text, or None where there is none."""
    value = from_text(value, field, "a list")
    if value is not None and not isinstance(value, list):
        raise LogError(f"{field}: {type(value).__name__}: expected a list")
    return value


def criterion_id(value: Any) -> str:
    """An id, which may be a number."""
    if not isinstance(value, str) and not _is_number(value):
        raise LogError(f"rubric_ids: {shown(value)}: expected texts or numbers")
    return str(value)


def edge(value: Any, k: int) -> tuple:
    """(parent, child, type, retention or None)."""
    found = as_object(value, f"graph_edges[{k}]")
    for name in ("parent", "child", "type"):
        if not isinstance(found.get(name), str | int):
            raise LogError(f"graph_edges[{k}].{name}={shown(found.get(name))}: expected an id, or the name of a type")
    retention = found.get("retention")
    if retention is not None and not _is_number(retention):
        raise LogError(f"graph_edges[{k}].retention={shown(retention)}: expected a number or nothing")
    return found["parent"], found["child"], found["type"], retention


def weights(record: Mapping, ids: tuple[str, ...], row: RubricGraph | None) -> tuple[float, ...]:
    """Points of the criteria: the line's own, else those of its rubric."""
    given = as_list(first(record, "rubric_weights", "weights"), "rubric_weights")
    if given is not None:
        if len(given) != len(ids):
            raise LogError(f"rubric_weights: {len(given)} numbers: expected {len(ids)}, as rubric_ids has")
        for id, value in zip(ids, given, strict=True):
            if not _is_number(value):
                raise LogError(f"rubric_weights: criterion {id}: {shown(value)}: expected a number")
        return tuple(given)
    if row is None:
        raise LogError("rubric_weights: missing: expected them here, in reward_model, or in the data set (--rubrics)")
    if missing := [id for id in ids if id not in row.index]:
        raise LogError(f"rubric_ids: {', '.join(missing)} not in this line's rubric of {', '.join(row.ids)}")
    return tuple(row.weights[row.index[id]] for id in ids)


def aggregations(record: Mapping) -> Iterator[tuple[str, str, Any]]:
    """(aggregation, field, list) for each that the line has."""
    for name, field in NAMED_Q.items():
        if record.get(field) is not None:
            yield name, field, record[field]
    for name, value in as_object(record.get("q") or {}, "q").items():
        yield name, f"q.{name}", value


def scores(values: Any, graph: RubricGraph, field: str) -> np.ndarray:
    """[K] scores, which may be JSON text, clipped where they lie outside [0, 1] by rounding alone."""
    values = from_text(values, field, "a list of scores")
    if isinstance(values, Mapping):
        if sorted(values) != sorted(graph.ids):
            raise LogError(f"{field}: criteria {', '.join(sorted(values))}: expected {', '.join(sorted(graph.ids))}")
        values = [values[id] for id in graph.ids]
    if not isinstance(values, list):
        raise LogError(f"{field}: {'missing' if values is None else type(values).__name__}: expected a list of scores")
    if len(values) != len(graph):
        raise LogError(f"{field}: {len(values)} scores: expected {len(graph)}, one a criterion")
    for k, value in enumerate(values):
        if type(value) not in NUMBERS or not -ROUNDING <= value <= 1 + ROUNDING:
            raise LogError(f"{field}: criterion {graph.ids[k]}: {shown(value)}: expected a score in [0, 1]")
    return np.array(values, dtype=np.float64).clip(0.0, 1.0)


def step_of(record: Mapping, otherwise: int) -> int:
    """The training step a line names, else the one its file is named for."""
    step = first(record, "step", "global_step")
    step = otherwise if step is None else step
    if not isinstance(step, int) or isinstance(step, bool) or abs(step) > LATEST_STEP:
        raise LogError(f"step={shown(step)}: expected a whole number")
    return step


def prompt_label(record: Mapping, graph: RubricGraph) -> tuple[str, str]:
    """Label and excerpt: the data set's id if there is one, else a digest of the prompt's text, else of the rubric.

    verl's `uid` comes last: it is drawn anew at every step, and the prompt would not be recognised.
    """
    text = first(record, "input", "prompt")
    if text is not None and not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    excerpt = " ".join((text or "").split())[:SHOWN]
    if record.get("prompt_id") is not None:
        return str(record["prompt_id"]), excerpt
    if text is None:
        return str(first(record, "uid") or graph.fingerprint()[:8]), ""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest(), excerpt
