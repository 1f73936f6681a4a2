"""Messages inside OpenTelemetry GenAI telemetry: today's structured attributes, and the events before them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reprise.traces.errors import TraceError
from reprise.traces.fields import arguments, as_text, calls_text, get, joined, parts_text, records, shown
from reprise.traces.turns import ToolCall, ToolResult, Turn

# event -> role of the message it holds
INPUTS = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}


@dataclass(frozen=True)
class Message:
    """One message of a model's input or output."""

    role: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()

    @property
    def key(self) -> tuple:
        """What makes two of them the same: an answer comes back as history with the same text and calls."""
        return self.role, self.text, tuple(call.id or call.name for call in self.calls)

    @property
    def shown(self) -> str:
        return joined(self.text, calls_text(self.calls))

    def turn(self, raw: Mapping, tools: Mapping[str, str]) -> Turn:
        """As a turn of its own, for what a model was sent; `tools` names the tools of earlier calls by id."""
        results = tuple(replace(each, name=tools.get(each.id, each.name)) for each in self.results)
        return Turn(self.role, f"tool:{results[0].name}" if results else "say", self.shown, raw, self.calls, results)


def attribute_messages(found: Mapping[str, Any], name: str, place: str) -> list[Message]:
    """Messages of one attribute: [{role, parts: [{type, ...}]}], structured or as JSON text."""
    value = parsed(found.get(name), f"{place}.{name}")
    if value is None:
        return []
    return [_structured(each, f"{place}.{name}[{k}]") for k, each in enumerate(records(value, f"{place}.{name}"))]


def _structured(record: Mapping, place: str) -> Message:
    texts, calls, results = [], [], []
    for k, part in enumerate(records(get(record, "parts", list, place, default=[]), f"{place}.parts")):
        where, kind = f"{place}.parts[{k}]", part.get("type")
        id = get(part, "id", str, where, default="")
        if kind == "tool_call":
            calls.append(ToolCall(get(part, "name", str, where), arguments(part.get("arguments")), id))
        elif kind == "tool_call_response":
            text = as_text(part.get("response", part.get("result")))
            results.append(ToolResult(get(part, "name", str, where, default="unknown"), text, id))
            texts.append(text)
        else:
            texts.append(parts_text([part]))
    if "parts" not in record:  # some writers keep the chat layout
        texts.append(parts_text(record.get("content")))
    return Message(get(record, "role", str, place, default="assistant"), joined(*texts), tuple(calls), tuple(results))


def event_messages(events: Sequence[tuple[str, Mapping]], place: str) -> tuple[list[Message], list[Message]]:
    """(inputs, outputs) of the events of the conventions up to 1.36."""
    inputs, outputs = [], []
    for name, fields in events:
        where = f"{place}.{name}"
        if name in INPUTS:
            inputs.append(_chat({"role": INPUTS[name], **fields}, where))
        elif name == "gen_ai.choice":
            inner = parsed(fields.get("message"), f"{where}.message")
            outputs.append(_chat({"role": "assistant", **fields, **(inner if isinstance(inner, dict) else {})}, where))
        elif name in ("gen_ai.content.prompt", "gen_ai.content.completion"):
            key = "gen_ai.prompt" if name.endswith("prompt") else "gen_ai.completion"
            whole = parsed(fields.get(key), f"{where}.{key}")
            whole = (
                whole
                if isinstance(whole, list)
                else [{"role": "user" if "prompt" in key else "assistant", "content": whole}]
            )
            found = [_chat(each, f"{where}[{k}]") for k, each in enumerate(records(whole, where))]
            (inputs if "prompt" in key else outputs).extend(found)
    return inputs, outputs


def _chat(fields: Mapping, place: str) -> Message:
    """A message in the chat layout: role, content, tool_calls, id."""
    role = get(fields, "role", str, place, default="assistant")
    text = parts_text(fields.get("content"))
    calls = []
    listed = parsed(fields.get("tool_calls"), f"{place}.tool_calls") or []
    for k, call in enumerate(records(listed, f"{place}.tool_calls")):
        where = f"{place}.tool_calls[{k}]"
        inner = get(call, "function", Mapping, where, default=call)
        id = get(call, "id", str, where, default="")
        calls.append(ToolCall(get(inner, "name", str, where), arguments(inner.get("arguments")), id))
    results = ()
    if role == "tool":
        name, id = (get(fields, field, str, place, default="") for field in ("name", "id"))
        results = (ToolResult(name or "unknown", text, id),)
    return Message(role, text, tuple(calls), results)


def parsed(value: Any, place: str) -> Any:
    """A structured value, or what its JSON text says; a text that is no JSON stays one where it may be content."""
    if not isinstance(value, str) or value[:1] not in ("[", "{"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        if place.endswith((".gen_ai.prompt", ".gen_ai.completion")):
            return value
        raise TraceError(f"{place}={shown(value)}: expected JSON") from None
