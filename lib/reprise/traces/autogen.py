"""AutoGen AgentChat (0.4 and later): messages and events as `message.dump()` writes them.

A list of {source, type, content, ...}, a TaskResult {"messages": [...], "stop_reason"}, or JSON Lines of messages from
`run_stream`. Chunks of a streamed message are merged into it.
Source: microsoft/autogen, autogen_agentchat/messages.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprise.traces.errors import TraceError
from reprise.traces.fields import arguments, as_text, calls_text, get, joined, parts_text, records, shown
from reprise.traces.log import Dropped, Log
from reprise.traces.turns import ToolCall, ToolResult, Turn

NAME = "autogen"
CHUNK = "ModelClientStreamingChunkEvent"


def looks_like(document: Any) -> bool:
    """Whether the first message has a source and a type."""
    first = document.get("messages") if isinstance(document, Mapping) else document
    first = first[0] if isinstance(first, list) and first else None
    return isinstance(first, Mapping) and isinstance(first.get("source"), str) and isinstance(first.get("type"), str)


def read(document: Any) -> list[Log]:
    """The one run.

    Raises:
        TraceError: a message without source, type or content.
    """
    whole = isinstance(document, Mapping)
    place = "messages" if whole else ""
    messages = records(document.get("messages") if whole else document, place)
    turns, dropped, waiting = [], [], _Chunks()
    for k, message in enumerate(messages):
        where = f"{place}[{k}]"
        if "source" not in message and "stop_reason" in message:  # run_stream ends with the TaskResult
            dropped.append(Dropped(where, "task result that repeats the messages before it"))
            continue
        source, kind = get(message, "source", str, where), get(message, "type", str, where)
        if kind == CHUNK:
            turns += waiting.add(where, message, source, get(message, "content", str, where))
            continue
        turn = _turn(message, where, source, kind)
        kept, merged = waiting.before(turn)
        turns += [*kept, turn]
        dropped += merged
    turns += waiting.flush()
    meta = {name: value for name, value in document.items() if name != "messages"} if whole else {}
    return [Log(tuple(turns), tuple(dropped), NAME, "", meta)]


def _turn(message: Mapping, place: str, source: str, kind: str) -> Turn:
    # code executors write `result`, all other kinds `content`
    field = "result" if "content" not in message and "result" in message else "content"
    if field not in message:
        raise TraceError(f"{place}.content: missing: expected a string or a list")
    content = message[field]
    if kind == "ToolCallRequestEvent":
        calls = tuple(
            _call(call, f"{place}.content[{k}]") for k, call in enumerate(records(content, f"{place}.content"))
        )
        return Turn(source, kind, calls_text(calls), message, calls)
    if kind == "ToolCallExecutionEvent":
        items = enumerate(records(content, f"{place}.content"))
        results = tuple(_result(item, f"{place}.content[{k}]") for k, item in items)
        return Turn(source, kind, "\n".join(result.content for result in results), message, (), results)
    text = parts_text(content)
    if kind == "HandoffMessage":
        text = joined(text, f"-> {get(message, 'target', str, place)}")
    return Turn(source, kind, text, message)


def _call(call: Mapping, place: str) -> ToolCall:
    return ToolCall(
        get(call, "name", str, place), arguments(call.get("arguments")), get(call, "id", str, place, default="")
    )


def _result(item: Mapping, place: str) -> ToolResult:
    failed = item.get("is_error")
    if failed not in (None, True, False):
        raise TraceError(f"{place}.is_error={shown(failed)}: expected true or false")
    name, id = (get(item, field, str, place, default="") for field in ("name", "call_id"))
    return ToolResult(name or "unknown", as_text(item.get("content")), id, bool(failed))


class _Chunks:
    """Chunks of one source in a row, until the message that they are pieces of is there, or is not coming."""

    def __init__(self):
        self.source, self.texts, self.places, self.raw = None, [], [], None

    def add(self, place: str, message: Mapping, source: str, text: str) -> list[Turn]:
        done = self.flush() if source != self.source else []
        self.source, self.raw = source, self.raw or message
        self.texts.append(text)
        self.places.append(place)
        return done

    def before(self, turn: Turn) -> tuple[list[Turn], list[Dropped]]:
        """What stands before the turn: a turn of its own, or nothing where the turn says the same."""
        if self.source == turn.role and "".join(self.texts) == turn.content:
            merged = [Dropped(place, "chunk of the message that follows") for place in self.places]
            self.__init__()
            return [], merged
        return self.flush(), []

    def flush(self) -> list[Turn]:
        turns = [Turn(self.source, CHUNK, "".join(self.texts), self.raw)] if self.texts else []
        self.__init__()
        return turns
