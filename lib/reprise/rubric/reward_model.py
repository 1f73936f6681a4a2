"""The record a trainer carries for each prompt, {rubrics, graph}, read into a graph and written back.

Source: the layout of the paper's public code; HealthBench and PLawBench have its `rubrics` part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reprise.rubric.errors import GraphError
from reprise.rubric.graph import Criterion, Edge

if TYPE_CHECKING:
    from reprise.rubric.graph import RubricGraph


def read(record: Mapping[str, Any]) -> tuple[list[Criterion], list[Edge]]:
    """Criteria and edges of a record; see `RubricGraph.from_reward_model`."""
    if not isinstance(record, Mapping):
        raise GraphError(f"reward_model: {type(record).__name__}: expected an object with rubrics and graph")
    rubrics = _rows(record.get("rubrics"), "rubrics")
    graph = record.get("graph")
    if graph is not None and not isinstance(graph, Mapping):
        raise GraphError(f"graph: {type(graph).__name__}: expected an object with nodes and edges")
    graph = graph or {}
    roles = {
        str(_field(row, "id", f"graph.nodes[{k}]")): row.get("node_type")
        for k, row in enumerate(_rows(graph.get("nodes"), "graph.nodes"))
    }
    ids = _ids(rubrics)
    criteria = [
        _criterion(row, id, roles.get(str(id)), k) for k, (row, id) in enumerate(zip(rubrics, ids, strict=True))
    ]
    edges = [
        Edge(*(_field(row, name, f"graph.edges[{k}]") for name in ("parent", "child", "type")), row.get("retention"))
        for k, row in enumerate(_rows(graph.get("edges"), "graph.edges"))
    ]
    return criteria, edges


def write(graph: RubricGraph) -> dict[str, Any]:
    """A record of plain JSON types; see `RubricGraph.to_reward_model`."""
    rubrics = [{"id": c.id, "points": float(c.weight), "criterion": c.text} for c in graph.criteria]
    nodes = [{"id": c.id, "node_type": None if c.role is None else str(c.role)} for c in graph.criteria]
    edges = []
    for edge in graph.edges:
        row = {"parent": edge.parent, "child": edge.child, "type": str(edge.type)}
        edges.append(row if edge.retention is None else row | {"retention": float(edge.retention)})
    return {"rubrics": rubrics, "graph": {"nodes": nodes, "edges": edges}}


def _rows(value: Any, name: str) -> Sequence[Mapping]:
    """A list of objects; parquet readers return arrays of them, and None for none."""
    if value is None:
        return []
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise GraphError(f"{name}: {type(value).__name__}: expected a list of objects")
    for k, row in enumerate(value):
        if not isinstance(row, Mapping):
            raise GraphError(f"{name}[{k}]: {type(row).__name__}: expected an object")
    return value


def _field(row: Mapping, name: str, where: str) -> Any:
    if row.get(name) is None:
        raise GraphError(f"{where}.{name}: expected a value")
    return row[name]


def _ids(rubrics: Sequence[Mapping]) -> list[Any]:
    given = [row.get("id") for row in rubrics]
    if all(id is None for id in given):
        return [f"r{k + 1}" for k in range(len(rubrics))]
    return [_field(row, "id", f"rubrics[{k}]") for k, row in enumerate(rubrics)]


def _criterion(row: Mapping, id: str, role: Any, k: int) -> Criterion:
    if role is None and isinstance(row.get("tags"), Mapping):
        role = row["tags"].get("node_type")
    return Criterion(id, _field(row, "points", f"rubrics[{k}]"), role, str(row.get("criterion") or ""))
