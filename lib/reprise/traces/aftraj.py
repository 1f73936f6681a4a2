"""AFTraj-2K: `aftraj_safe.parquet` and `aftraj_unsafe.parquet`, or their rows as JSON.

conv_id, domain, task, gold_answer, num_turns, tools, turns [{role, action, content, thought}], mistake_step,
mistake_agent, mistake_reason, unsafe_source. `action` is the JSON text of a list of tool calls, or empty. A safe row
has no mistake_step, or -1.
Source: ZBox1005/AgentForesight, inference/data.py; the data set's card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reprise.traces.fields import arguments, calls_text, get, joined, records
from reprise.traces.log import Log
from reprise.traces.turns import ToolCall, ToolResult, Turn

NAME = "aftraj"


def looks_like(document: Any) -> bool:
    """Whether the first row has conv_id and turns."""
    first = document[0] if isinstance(document, list) and document else document
    return isinstance(first, Mapping) and "conv_id" in first and "turns" in first


def read(document: Any) -> list[Log]:
    """One run a row.

    Raises:
        TraceError: a row or a turn that is none.
    """
    rows = [document] if isinstance(document, Mapping) else records(document, "")
    return [_run(row, f"[{k}]") for k, row in enumerate(rows)]


def _run(row: Mapping, place: str) -> Log:
    turns = []
    for k, record in enumerate(records(row.get("turns"), f"{place}.turns")):
        where = f"{place}.turns[{k}]"
        action = get(record, "action", str, where, default="")
        calls = _calls(action)
        thought, content = (get(record, name, str, where, default="") for name in ("thought", "content"))
        # an action that is no list of calls is a word of its own ("compute", "handoff")
        kind = f"tool:{calls[0].name}" if calls else action.strip() or "say"
        text, role = joined(thought, content, calls_text(calls)), get(record, "role", str, where)
        asked = turns[-1].calls if turns else ()
        # the environment answers the turn before it, all its calls at once
        results = (ToolResult(asked[-1].name, content),) if role == "environment" and asked else ()
        turns.append(Turn(role, kind, text, record, calls, results))
    meta = {name: value for name, value in row.items() if name != "turns"}
    return Log(tuple(turns), (), NAME, str(row["conv_id"]) if "conv_id" in row else place, meta)


def _calls(action: str) -> tuple[ToolCall, ...]:
    try:
        found = json.loads(action)
    except (ValueError, RecursionError):
        return ()
    found = found if isinstance(found, list) else [found]
    named = all(isinstance(call, Mapping) and isinstance(call.get("name"), str) for call in found)
    if not named:
        return ()
    return tuple(ToolCall(call["name"], arguments(call.get("arguments")), str(call.get("id", ""))) for call in found)
