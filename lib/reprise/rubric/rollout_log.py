"""Training logs with judge scores, read one response at a time: the public code's layout, and plain JSON Lines.

Public: verl writes one file a step, <step>.jsonl, one object a response, to which the reward code adds

    rubric_ids, p_list              ids of the criteria and the judge's scores, in one order
    graph_edges                     [{parent, child, type}]
    flat_q_list, hard_q_list, dag_q_list, q_list    what each aggregation pays, and what was paid
    rubric_weights                  often absent: the points stand in the data set, see `rubrics`
    step, input                     verl's own

Plain: the names a person would choose, `scores` (a list, or an object by criterion), `reward_model` or `rubrics` with
`graph`, `q` (an object of lists by aggregation), `paid` (the name of one of them), `step`, `prompt_id`.

Names of both may be mixed, and every list may be JSON text, as `make_verl_reward(log=True)` writes it. What was paid
is `q_list`, else the aggregation that `paid` names, else `q.paid`; where nothing says so, the scores were.

Source: github.com/LvCan926/GEAR (snapshot 34a3920), scripts/compute_fcp_metrics.py and health_bench/; verl's dump of
generations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reprise.rubric.errors import shown
from reprise.rubric.graph import Criterion, Edge, RubricGraph
from reprise.rubric.rollout_fields import (
    LogError,
    NoRubric,
    aggregations,
    as_list,
    as_object,
    criterion_id,
    edge,
    first,
    parsed,
    prompt_label,
    scores,
    step_of,
    weights,
)
from reprise.rubric.rubric_file import read_rubrics

LONGEST_LINE = 1 << 26  # bytes; a line holds one prompt and one response


@dataclass(frozen=True)
class Rollout:
    """One scored response.

    Attributes:
        graph: its rubric, K criteria, valid. Responses to one prompt share the object.
        p: [K] the judge's scores.
        paid: [K] what the reward summed.
        q: aggregation -> [K], those the log has.
        step: of training.
        prompt: label that responses to one prompt share.
        excerpt: beginning of the prompt's text, "" if the log has none.
    """

    graph: RubricGraph
    p: np.ndarray
    paid: np.ndarray
    q: Mapping[str, np.ndarray]
    step: int
    prompt: str
    excerpt: str


def log_files(path: str | Path) -> list[Path]:
    """A log's files: the path itself, or a folder's *.jsonl in the order of the numbers in their names.

    Raises:
        LogError: there is no such file, or the folder holds none.
    """
    path = Path(path)
    if not path.is_dir():
        if not path.exists():
            raise LogError(f"{path}: no such file or folder")
        return [path]
    files = sorted(path.glob("*.jsonl"), key=lambda each: (not each.stem.isdecimal(), each.stem.zfill(20)))
    if not files:
        raise LogError(f"{path}: expected files named *.jsonl")
    return files


def read_log(
    path: str | Path,
    rubrics: Sequence[RubricGraph] | None = None,
    repeats: int = 1,
    bad_lines: list[str] | None = None,
    progress: Callable[[int], None] = lambda nbytes: None,
) -> Iterator[Rollout]:
    """The scored responses of a log, in order; nothing but the current line is held.

    Args:
        path: a file, or a folder of them.
        rubrics: one graph a prompt, in the order of the log, for logs without weights (`rubric_table`).
        repeats: responses to each prompt that follow one another in the log; used with `rubrics`, counted anew in
            each file.
        bad_lines: where given, a line that cannot be read is described here and left out instead of raised.
        progress: called with the number of bytes read since the last call.

    Raises:
        LogError: a line is no scored response; the message names file, line and field.
    """
    if repeats < 1:
        raise LogError(f"repeats={repeats}: expected at least 1")
    reader = _Reader(rubrics, repeats)
    for file in log_files(path):
        step = int(file.stem) if file.stem.isdecimal() else 0
        for number, raw in _lines(file):
            progress(len(raw))
            try:
                if raw.strip():
                    yield reader.rollout(raw, step, number)
            except NoRubric:
                continue
            except (ValueError, OverflowError) as error:
                if bad_lines is None:
                    raise LogError(f"{file}, line {number}: {error}") from error
                bad_lines.append(f"{file}, line {number}: {error}")


def rubric_table(path: str | Path) -> list[RubricGraph]:
    """The rubrics of a data set, one a row: JSON Lines, or Parquet with a column `reward_model`.

    Raises:
        RubricError: a row has no rubric; the message names it. Or the file is no Parquet, or nothing here reads it.
        OSError: the file cannot be read.
    """
    if Path(path).suffix != ".parquet":
        return [row.graph for row in read_rubrics(path)]
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        raise LogError(f"{path}: pyarrow is not installed: expected it, or JSON Lines") from None
    try:
        table = parquet.read_table(path)
    except ArrowException as error:
        raise LogError(f"{path}: not read as Parquet: {error}") from error
    if "reward_model" not in table.column_names:
        raise LogError(f"{path}: columns {', '.join(table.column_names)}: expected reward_model")
    graphs = []
    for number, value in enumerate(table.column("reward_model").to_pylist()):
        try:
            graphs.append(RubricGraph.from_reward_model(as_object(value, "reward_model")))
        except ValueError as error:
            raise LogError(f"{path}, row {number}: {error}") from error
    return graphs


class _Reader:
    """Turns lines into rollouts; remembers each rubric it has seen, as a log repeats them thousands of times."""

    def __init__(self, rubrics: Sequence[RubricGraph] | None, repeats: int):
        self.rubrics, self.repeats = rubrics, repeats
        self.seen: dict[tuple, RubricGraph] = {}

    def rollout(self, raw: bytes, step: int, number: int) -> Rollout:
        record = parsed(raw)
        graph = self._graph(record, number)
        p = scores(first(record, "p_list", "scores"), graph, "p_list")
        q = {name: scores(value, graph, field) for name, field, value in aggregations(record)}
        label, excerpt = prompt_label(record, graph)
        return Rollout(graph, p, self._paid(record, graph, p, q), q, step_of(record, step), label, excerpt)

    def _paid(self, record: Mapping, graph: RubricGraph, p: np.ndarray, q: Mapping[str, np.ndarray]) -> np.ndarray:
        if record.get("q_list") is not None:
            return scores(record["q_list"], graph, "q_list")
        name = first(record, "paid")
        if name is None:
            name = "paid" if "paid" in q else "flat"
        if not isinstance(name, str) or name not in q and name != "flat":
            raise LogError(f"paid={shown(name)}: expected one of {', '.join(['flat', *q])}")
        return q.get(name, p)

    def _graph(self, record: Mapping, number: int) -> RubricGraph:
        """A line's rubric: its own ids, weights and edges first, then its reward_model, then the data set's row."""
        row = self._row(record, number)
        ids = as_list(record.get("rubric_ids"), "rubric_ids")
        if not ids:
            if row is None:
                if as_list(record.get("p_list"), "p_list") == []:
                    raise NoRubric("rubric_ids: no criteria")
                raise LogError("rubric_ids: missing: expected ids, or reward_model with rubrics")
            ids = row.ids
        ids = tuple(map(criterion_id, ids))
        points = weights(record, ids, row)
        own = as_list(first(record, "graph_edges", "edges"), "graph_edges") or []
        edges = tuple(edge(each, k) for k, each in enumerate(own))
        # like the public script, a line without edges falls back on the data set's
        inherited = row.edges if row is not None and not edges else ()
        texts = tuple(row.criteria[row.index[id]].text if row is not None and id in row.index else "" for id in ids)
        key = (ids, points, texts, edges, inherited)
        if key not in self.seen:
            criteria = [Criterion(*each[:2], text=each[2]) for each in zip(ids, points, texts, strict=True)]
            graph = RubricGraph(criteria, [Edge(*ends) for ends in edges] or inherited)
            graph.validate()
            self.seen[key] = graph
        return self.seen[key]

    def _row(self, record: Mapping, number: int) -> RubricGraph | None:
        holder = record.get("reward_model")
        if holder is not None:
            return RubricGraph.from_reward_model(as_object(holder, "reward_model"))
        if record.get("rubrics") is not None:
            return RubricGraph.from_reward_model(record)
        if self.rubrics is None:
            return None
        place = (number - 1) // self.repeats
        if place >= len(self.rubrics):
            raise LogError(f"no row {place} among {len(self.rubrics)} rubrics: is repeats={self.repeats} right?")
        return self.rubrics[place]


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as stream:
        number = 0
        while raw := stream.readline(LONGEST_LINE + 1):
            number += 1
            if len(raw) > LONGEST_LINE:
                raise LogError(f"{file}, line {number}: longer than {LONGEST_LINE} bytes")
            yield number, raw
