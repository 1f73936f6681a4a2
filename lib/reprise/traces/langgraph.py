"""LangGraph: chunks of `graph.stream(stream_mode="updates")`, one object {node: update} each, as a list or JSON Lines.

Also read: (namespace, chunk) pairs of `subgraphs=True`, (mode, chunk) pairs of several stream modes, stream parts
{"type": "updates", "ns", "data"}, and the server's {"event", "data"}. Messages inside an update may be written by
`message.model_dump()`, `message_to_dict` ({type, data}) or `dumpd` ({lc, kwargs}).
Source: langchain-ai/langgraph, pregel streaming; langchain_core.messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprise.traces.fields import arguments, as_text, calls_text, checked, get, joined, parts_text, records
from reprise.traces.log import Dropped, Log
from reprise.traces.turns import ToolCall, ToolResult, Turn

NAME = "langgraph"
MODES = {"updates", "values", "messages", "custom", "debug", "checkpoints", "tasks", "metadata", "error", "end"}
KINDS = {"ai", "human", "system", "tool", "function", "chat", "remove", "AIMessageChunk"}
# the names under which its classes are dumped
CLASSES = {"AIMessage": "ai", "HumanMessage": "human", "SystemMessage": "system", "ToolMessage": "tool"}


def looks_like(document: Any) -> bool:
    """Whether the first chunk maps a node to its update."""
    if isinstance(document, Mapping):
        document = [document]
    if not isinstance(document, list) or not document:
        return False
    first = document[0]
    if isinstance(first, Mapping) and isinstance(first.get("data"), Mapping):
        return bool({str(first.get("type")), str(first.get("event")).partition("|")[0]} & MODES)
    if isinstance(first, list):
        return len(first) in (2, 3) and (first[0] in MODES if isinstance(first[0], str) else isinstance(first[0], list))
    # {"messages": [...]} is a conversation, and a graph's update is an object or null
    if not isinstance(first, Mapping) or not first or not all(_is_update(value) for value in first.values()):
        return False
    # any object of objects looks like one chunk: alone it must hold a message
    return len(document) > 1 or any(isinstance(each, Mapping) and any(_messages(each)) for each in first.values())


def read(document: Any) -> list[Log]:
    """The one run.

    Raises:
        TraceError: a chunk that is no update.
    """
    turns, dropped, seen = [], [], {}
    for k, chunk in enumerate([document] if isinstance(document, Mapping) else checked(document, list, "")):
        mode, depth, data = _opened(chunk, f"[{k}]")
        if mode != "updates":
            dropped.append(Dropped(f"[{k}]", f"stream mode {mode}: not an update"))
            continue
        for node, update in checked(data, Mapping, f"[{k}]").items():
            _node(node, update, f"[{k}].{node}", depth, seen, turns, dropped)
    return [Log(tuple(turns), tuple(dropped), NAME)]


def _opened(chunk: Any, place: str) -> tuple[str, int, Any]:
    """(stream mode, depth of the subgraph, what was streamed)."""
    mode, space = "updates", []
    if isinstance(chunk, Mapping) and isinstance(chunk.get("data"), Mapping) and ("event" in chunk or "type" in chunk):
        mode, _, path = str(chunk.get("event") or chunk["type"]).partition("|")
        space, chunk = chunk.get("ns") or [part for part in path.split("|") if part], chunk["data"]
    elif isinstance(chunk, list):
        for part in chunk[:-1]:
            if isinstance(part, str):
                mode = part
            else:
                space = checked(part, list, f"{place}[0]")
        chunk = chunk[-1] if chunk else None
    return mode, len(checked(space, list, f"{place}.ns")), chunk


def _node(node: str, update: Any, place: str, depth: int, seen: dict, turns: list, dropped: list) -> None:
    """Append the turns of one node's update; several updates of one node in one step come as a list."""
    if node == "__metadata__" or update is None:
        dropped.append(Dropped(place, "metadata of the stream" if update is not None else "the node returned nothing"))
        return
    if node == "__interrupt__":
        turns.append(Turn(node, "interrupt", as_text(update), {"node": node, "depth": depth, "update": update}))
        return
    if isinstance(update, list):
        for k, each in enumerate(update):
            _node(node, each, f"{place}[{k}]", depth, seen, turns, dropped)
        return
    found = list(_messages(checked(update, Mapping, place)))
    for path, message in found:
        turn, id = _turn(node, message, f"{place}.{path}", depth)
        # a node that returns the whole state sends the earlier messages again
        if id and seen.get(id) == (turn.content, turn.action):
            dropped.append(Dropped(f"{place}.{path}", "message that an earlier update held already"))
            continue
        seen[id] = turn.content, turn.action
        turns.append(turn)
    others = {key: value for key, value in update.items() if not any(path.split("[")[0] == key for path, _ in found)}
    if not found:
        turns.append(Turn(node, "update", as_text(others), {"node": node, "depth": depth, "update": update}))
    elif others:
        dropped.append(Dropped(place, f"state beside the messages: {', '.join(sorted(map(str, others)))[:200]}"))


def _messages(update: Mapping):
    """(path, message) of every message that the update holds at its first level."""
    for key, value in update.items():
        if _kind(value):
            yield key, value
        elif isinstance(value, list) and value and all(_kind(item) for item in value):
            yield from ((f"{key}[{k}]", item) for k, item in enumerate(value))


def _kind(value: Any) -> str:
    """Type of a serialised message, "" for anything else."""
    if not isinstance(value, Mapping):
        return ""
    if "kwargs" in value and isinstance(value.get("id"), list) and value["id"]:
        return CLASSES.get(str(value["id"][-1]).removesuffix("Chunk"), "")
    kind = value.get("type")
    inside = value["data"] if isinstance(value.get("data"), Mapping) else value
    return kind if isinstance(kind, str) and kind in KINDS and ("content" in inside or kind == "remove") else ""


def _turn(node: str, message: Mapping, place: str, depth: int) -> tuple[Turn, str]:
    kind = _kind(message)
    inside = message.get("kwargs") or (message["data"] if isinstance(message.get("data"), Mapping) else message)
    calls = tuple(
        _call(call, f"{place}.tool_calls[{k}]")
        for k, call in enumerate(records(get(inside, "tool_calls", list, place, default=[]), f"{place}.tool_calls"))
    )
    text = parts_text(inside.get("content"))
    raw = {"node": node, "depth": depth, "message": message}
    id = get(inside, "id", str, place, default="")
    if kind in ("tool", "function"):
        tool = get(inside, "name", str, place, default="") or "unknown"
        failed = inside.get("status") == "error"
        result = ToolResult(tool, text, get(inside, "tool_call_id", str, place, default=""), failed)
        return Turn(node, f"tool:{tool}", text, raw, (), (result,)), id
    return Turn(node, kind, joined(text, calls_text(calls)), raw, calls), id


def _call(call: Mapping, place: str) -> ToolCall:
    return ToolCall(get(call, "name", str, place), arguments(call.get("args")), get(call, "id", str, place, default=""))


def _is_update(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_interrupt, value))
    return value is None or isinstance(value, Mapping)


def _is_interrupt(value: Any) -> bool:
    return isinstance(value, Mapping) and "value" in value
