"""OpenAI chat messages: a list of {role, content}, objects {messages: [...]}, or JSON Lines of either.

AutoGen 0.2's and AG2's chat_history has the same layout with `name` for the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprise.traces.errors import TraceError
from reprise.traces.fields import as_text, calls_text, function_calls, get, joined, parts_text, records
from reprise.traces.log import Log
from reprise.traces.turns import ToolCall, ToolResult, Turn

NAME = "openai_messages"


def looks_like(document: Any) -> bool:
    """Whether the first message has a role, and content, tool_calls or function_call."""
    first = document[0] if isinstance(document, list) and document else document
    if isinstance(first, Mapping) and isinstance(first.get("messages"), list) and first["messages"]:
        first = first["messages"][0]
    return isinstance(first, Mapping) and isinstance(first.get("role"), str) and _speaks(first)


def read(document: Any) -> list[Log]:
    """One run, or one for each conversation of a list of them.

    Raises:
        TraceError: a message that is none, or without turns.
    """
    if isinstance(document, Mapping):
        return [_conversation(document, "", "")]
    first = document[0] if isinstance(document, list) and document else None
    if isinstance(first, Mapping) and "messages" in first:
        rows = records(document, "")
        return [_conversation(row, f"[{k}]", str(row.get("id", k))) for k, row in enumerate(rows)]
    return [_run(document, "", "", {})]


def _conversation(row: Mapping, place: str, run: str) -> Log:
    meta = {name: value for name, value in row.items() if name != "messages"}
    return _run(row.get("messages"), f"{place}.messages", run, meta)


def _run(messages: Any, place: str, run: str, meta: Mapping) -> Log:
    turns, called, unmatched = [], {}, []
    for k, message in enumerate(records(messages, place)):
        turn = message_turn(message, f"{place}[{k}]", called)
        if any(result.id and result.id not in called for result in turn.results):
            unmatched.append(k)
        called |= {call.id: call for call in turn.calls if call.id}
        turns.append(turn)
    # a result whose call is not in the log is a turn all the same; whoever checks evidence must know
    return Log(tuple(turns), (), NAME, run, {**meta, **({"unmatched_results": unmatched} if unmatched else {})})


def message_turn(message: Mapping, place: str, called: Mapping[str, ToolCall]) -> Turn:
    """The turn of one message; `called` holds earlier calls by id."""
    role = get(message, "role", str, place)
    if not _speaks(message):
        raise TraceError(f"{place}: keys {', '.join(map(str, message))[:80]}: expected content or tool_calls")
    calls = function_calls(message.get("tool_calls"), f"{place}.tool_calls")
    if message.get("function_call") is not None:  # the older form, one call without an id
        calls += function_calls([{"function": message["function_call"]}], f"{place}.function_call")
    text = parts_text(message.get("content"))
    if not text and message.get("refusal"):
        text = as_text(message["refusal"])
    speaker = get(message, "name", str, place, default="") or role
    if role not in ("tool", "function"):
        return Turn(speaker, "say", joined(text, calls_text(calls)), message, calls)
    id = get(message, "tool_call_id", str, place, default="")
    known = called.get(id)
    tool = known.name if known else get(message, "name", str, place, default="unknown")
    return Turn(speaker, f"tool:{tool}", text, message, calls, (ToolResult(tool, text, id),))


def _speaks(message: Mapping) -> bool:
    return any(name in message for name in ("content", "tool_calls", "function_call"))
