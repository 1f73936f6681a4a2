"""Labelled runs and what an auditor predicted for them: one record a run, from replays or from files of results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Integral
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reprise.audit.errors import AuditError, shown
from reprise.audit.replay import Replay
from reprise.audit.trajectory import Trajectory, normalize_agent

NONE = -1  # in a column of steps: no step
# sums of steps stay exact in float64 and int64
STEP_LIMIT = 2**31
# the paper's three domains, and the benchmarks of the released results
MACRO_DOMAINS = {"math": "Math", "coding": "Coding"}
MACRO_DOMAINS |= dict.fromkeys(("hotpotqa", "gaia", "toolsafety", "expert_team"), "Agentic")


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Label and prediction of one run.

    `gt_step` k* is None on a safe run, `pred_step` without an alarm. `detection_step` is the turn after which the alarm
    came, `n_turns` the length; None where unknown. Agents are compared as they stand. Records of one `family` are
    drawn together by the bootstrap; "" is a family of its own, named by the id. `queries` and `invalid` count the
    auditor's answers and those that were no verdict.
    """

    id: str
    gt_step: int | None
    pred_step: int | None
    gt_agent: str | None = None
    pred_agent: str | None = None
    detection_step: int | None = None
    n_turns: int | None = None
    domain: str = ""
    family: str = ""
    queries: int = 0
    invalid: int = 0


def record(trajectory: Trajectory, replay: Replay) -> AuditRecord:
    """The record of a replayed run; agents without a recipient (`normalize_agent`)."""
    label, said = trajectory.decisive_agent, replay.pred_agent
    return AuditRecord(
        trajectory.id,
        trajectory.decisive_step,
        replay.pred_step,
        label and normalize_agent(label),
        said and normalize_agent(said),
        replay.detection_step,
        len(trajectory),
        trajectory.domain,
        trajectory.family,
        len(replay.verdicts),
        replay.invalid,
    )


class Columns(NamedTuple):
    """Records as arrays, checked. Steps are int64 with -1 for None; agents and labels are object arrays."""

    id: Sequence[str]
    gt_step: np.ndarray
    pred_step: np.ndarray
    gt_agent: np.ndarray
    pred_agent: np.ndarray
    detection_step: np.ndarray
    n_turns: np.ndarray
    domain: Sequence[str]
    family: Sequence[str]
    queries: np.ndarray
    invalid: np.ndarray


def columns(records: Iterable[AuditRecord]) -> Columns:
    """Check records and turn them into columns.

    Raises:
        AuditError: an id twice; a step that is no int (bools are none), negative, or outside the run; a labelled agent
            without a labelled step; a prediction later than its detection, or a detection without a prediction; more
            invalid answers than queries. The message names the record, the field and the value.
    """
    records = list(records)
    raw = {name: list(map(attrgetter(name), records)) for name in AuditRecord.__dataclass_fields__}
    ids = _texts(raw["id"], "id", raw["id"])
    if len(set(ids)) != len(ids):
        seen: set[str] = set()
        twice = next(each for each in ids if each in seen or seen.add(each))
        raise AuditError(f"record {twice!r}: id stands twice: expected one record a run")
    steps = ("gt_step", "pred_step", "detection_step", "n_turns", "queries", "invalid")
    agents = ("gt_agent", "pred_agent")
    families = _texts(raw["family"], "family", ids)
    found = Columns(
        id=ids,
        domain=_texts(raw["domain"], "domain", ids),
        family=[family or name for family, name in zip(families, ids, strict=True)],
        **{name: _integers(raw[name], name, ids) for name in steps},
        **{name: np.array(_texts(raw[name], name, ids, {type(None)}), object) for name in agents},
    )
    _check(found)
    return found


def _texts(values: list, name: str, ids: list, also: Set[type] = frozenset()) -> list:
    """Values, if all are texts or of one of the other types."""
    if wrong := set(map(type, values)) - {str} - also:
        at = next(i for i, value in enumerate(values) if type(value) in wrong)
        raise AuditError(f"record {ids[at]!r}: {name}={shown(values[at])}: expected a text")
    return values


def _integers(values: list, name: str, ids: list[str]) -> np.ndarray:
    """Values as int64 with -1 for None."""
    allowed = {kind for kind in set(map(type, values)) if issubclass(kind, Integral) and kind is not bool}
    wrong = set(map(type, values)) - allowed - {type(None)}
    if wrong:
        at = next(i for i, value in enumerate(values) if type(value) in wrong)
        raise AuditError(f"record {ids[at]!r}: {name}={shown(values[at])}: expected an int or None")
    try:
        numbers = np.array(values, np.float64)  # None becomes NaN
        outside = (numbers < 0) | (numbers >= STEP_LIMIT)
    except OverflowError:
        outside = np.array([value is not None and not 0 <= value < STEP_LIMIT for value in values])
    if outside.any():
        at = int(np.argmax(outside))
        raise AuditError(f"record {ids[at]!r}: {name}={shown(values[at])}: expected at least 0 and less than 2**31")
    return np.where(np.isnan(numbers), NONE, numbers).astype(np.int64)


def _check(found: Columns) -> None:
    """Relations between the fields of a record; the first record that breaks one is named."""

    def refuse(broken: np.ndarray, name: str, expected: str) -> None:
        if broken.any():
            at = int(np.argmax(broken))
            raise AuditError(f"record {found.id[at]!r}: {name}={getattr(found, name)[at]!s}: expected {expected}")

    length = np.where(found.n_turns == NONE, STEP_LIMIT, found.n_turns)
    refuse(found.n_turns == 0, "n_turns", "at least one turn")
    for name in ("gt_step", "pred_step", "detection_step"):
        refuse(getattr(found, name) >= length, name, "a turn of the run, below n_turns")
    refuse((found.gt_agent != None) & (found.gt_step == NONE), "gt_agent", "None without gt_step")  # noqa: E711
    refuse((found.pred_agent != None) & (found.pred_step == NONE), "pred_agent", "None without pred_step")  # noqa: E711
    detected = found.detection_step != NONE
    refuse(detected & (found.pred_step == NONE), "detection_step", "None without pred_step")
    refuse(detected & (found.pred_step > found.detection_step), "pred_step", "at most detection_step")
    refuse(found.invalid > found.queries, "invalid", "at most queries")


# -- files -------------------------------------------------------------------------------------------------------------


def read_records(path: str | Path) -> list[AuditRecord]:
    """Records of a JSONL file: a pair [gt_step, pred_step], an object with the fields of `AuditRecord`, or the released
    `per_sample.jsonl`, a line each.

    Where the file does not say, ids are line numbers. The released layout writes -1 for None and has no labelled agent;
    its first line holds settings and is passed over. A `pred_step` there that no parser should have let through (-5,
    true, 3.9, beyond the run) is counted as an invalid answer and the run as unflagged. Only the last answer of a run
    is known, so `queries` is 1.

    Raises:
        AuditError: a line is neither; the message names file, line and field.
    """
    records = []
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise AuditError(f"{path}, line {number}: expected JSON: {error}") from None
            if isinstance(row, Mapping) and row.get("_record_type") == "config":
                continue
            records.append(_row(row, f"{path}, line {number}", str(number)))
    columns(records)  # refuse here, where the file is known
    return records


def _row(row: Any, where: str, number: str) -> AuditRecord:
    if isinstance(row, list) and len(row) == 2:
        return AuditRecord(number, *row)
    if not isinstance(row, Mapping) or not {"gt_step", "pred_step"} <= set(row):
        raise AuditError(f"{where}: expected a pair [gt_step, pred_step] or an object with these fields")
    if "conv_id" in row:
        return _released_row(row, where)
    fields = {name: row[name] for name in AuditRecord.__dataclass_fields__ if name in row}
    return AuditRecord(**{"id": number, **fields})


def _released_row(row: Mapping[str, Any], where: str) -> AuditRecord:
    label, said, length = row["gt_step"], row["pred_step"], row.get("num_turns")
    if type(label) is not int or label < -1:
        raise AuditError(f"{where}: gt_step={label!r}: expected -1 or a turn")
    usable = type(said) is int and -1 <= said < (STEP_LIMIT if length is None else length)
    flagged = usable and said != -1
    domain = str(row.get("domain", ""))
    return AuditRecord(
        str(row["conv_id"]),
        None if label == -1 else label,
        said if flagged else None,
        None,
        row.get("pred_agent") or None if flagged else None,
        row.get("detection_step") if flagged and label != -1 else None,
        length,
        MACRO_DOMAINS.get(domain, domain),
        queries=1,
        invalid=int(not usable or row.get("format_valid") is False),
    )
