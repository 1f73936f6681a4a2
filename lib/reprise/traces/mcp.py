"""MCP sessions as JSON-RPC messages: tools/call requests and their results, one message a line or in a list.

A message may stand alone or under `message` beside what a proxy adds (time, direction). Everything but tool calls and
their answers is dropped. A session has no last word of the agent: whether it ended on purpose is not in the log.
Source: Model Context Protocol, 2025-06-18, tools; JSON-RPC 2.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprise.traces.errors import TraceError
from reprise.traces.fields import arguments, as_text, calls_text, get, parts_text, records
from reprise.traces.log import Dropped, Log
from reprise.traces.turns import ToolCall, ToolResult, Turn

NAME = "mcp"


def looks_like(document: Any) -> bool:
    """Whether the first message says jsonrpc."""
    first = document[0] if isinstance(document, list) and document else document
    return isinstance(first, Mapping) and "jsonrpc" in _inner(first)


def read(document: Any) -> list[Log]:
    """One run. What stands beside the first message becomes its meta.

    Raises:
        TraceError: a message that is none, a request without an id or with one in use, or no tool call.
    """
    rows = records(document if isinstance(document, list) else [document], "")
    turns, dropped, waiting = [], [], {}
    for k, row in enumerate(rows):
        message, place = _inner(row), f"[{k}]"
        if message.get("method") == "tools/call":
            call = _call(message, place)
            if call.id in waiting:
                raise TraceError(f"{place}.id={call.id!r}: expected an id that no open request has")
            waiting[call.id] = call
            turns.append(Turn("agent", "say", calls_text((call,)), row, (call,)))
        elif "method" not in message and (call := waiting.pop(as_text(message.get("id")), None)):
            turns.append(_answer(message, call, place, row))
        else:
            dropped.append(Dropped(place, f"{message.get('method', 'answer')}: no tool call"))
    beside = {name: value for name, value in rows[0].items() if name not in _inner(rows[0]) and name != "message"}
    return [Log(tuple(turns), tuple(dropped), NAME, "", beside)]


def _inner(row: Mapping) -> Mapping:
    inner = row.get("message")
    return inner if isinstance(inner, Mapping) and "jsonrpc" in inner else row


def _call(message: Mapping, place: str) -> ToolCall:
    if message.get("id") is None:
        raise TraceError(f"{place}.id: missing: expected the request's id")
    params = get(message, "params", Mapping, place)
    return ToolCall(get(params, "name", str, f"{place}.params"), arguments(params.get("arguments", {})),
                    as_text(message["id"]))  # fmt: skip


def _answer(message: Mapping, call: ToolCall, place: str, row: Mapping) -> Turn:
    error = get(message, "error", Mapping, place, default=None)
    if error is not None:
        text, failed = as_text(error.get("message")), True
    else:
        result = get(message, "result", Mapping, place)
        structured = result.get("structuredContent")
        text = as_text(structured) if structured is not None else parts_text(result.get("content"))
        failed = get(result, "isError", bool, f"{place}.result", default=False)
    return Turn("tool", f"tool:{call.name}", text, row, (), (ToolResult(call.name, text, call.id, failed),))
