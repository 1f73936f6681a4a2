"""What every reader asks of a record: a field of a type, with an error that says where; and text of what is no text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from reprise.traces.errors import TraceError
from reprise.traces.turns import ToolCall

SHOWN = 60  # characters of a value in an error
KINDS = {str: "a string", list: "a list", Mapping: "an object", bool: "true or false", int: "an integer"}
MISSING = object()


def shown(value: Any) -> str:
    """A value as an error shows it: one line, cut."""
    if value is MISSING:
        return "missing"
    text = repr(value) if not isinstance(value, Mapping | list) else f"{type(value).__name__} of {len(value)}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def checked(value: Any, kind: type, place: str) -> Any:
    """The value, if it is of the kind.

    Raises:
        TraceError: it is not; the message begins with the place.
    """
    # True is an int to Python and not to anyone who reads a log
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TraceError(f"{place}={shown(value)}: expected {KINDS[kind]}")
    return value


def get(record: Mapping[str, Any], name: str, kind: type, place: str, default: Any = MISSING) -> Any:
    """record[name], checked; `default`, where one is given, for an absent or null field."""
    value = record.get(name, MISSING)
    if value is MISSING or value is None:
        if default is MISSING:
            raise TraceError(f"{place}.{name}: {'null' if value is None else 'missing'}: expected {KINDS[kind]}")
        return default
    return checked(value, kind, f"{place}.{name}")


def records(value: Any, place: str) -> list[Mapping[str, Any]]:
    """A list of objects.

    Raises:
        TraceError: no list, or an item that is no object.
    """
    for k, item in enumerate(checked(value, list, place)):
        checked(item, Mapping, f"{place}[{k}]")
    return value


def as_text(value: Any) -> str:
    """A value as a reader sees it: strings as they are, None as nothing, all else as compact JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)


def parts_text(content: Any) -> str:
    """Text of a message's content: a string, or a list of parts, of which those without text leave their type."""
    if not isinstance(content, list):
        return as_text(content)
    texts = []
    for part in content:
        if isinstance(part, Mapping):
            text = next((part[key] for key in ("text", "content", "refusal", "thinking") if key in part), None)
            # an image is a megabyte of base64 that no auditor reads; the turn's raw record keeps it
            texts.append(as_text(text) if text is not None else f"[{part.get('type', 'part')}]")
        else:
            texts.append(as_text(part))
    return "\n".join(texts)


def joined(*texts: str) -> str:
    """The texts that are not empty, on lines of their own."""
    return "\n".join(text for text in texts if text)


def arguments(value: Any) -> Any:
    """A call's arguments: the object that a JSON text holds, else the value itself."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return parsed if isinstance(parsed, dict) else value
    return value


def function_calls(value: Any, place: str) -> tuple[ToolCall, ...]:
    """OpenAI's tool_calls: [{id, type, function: {name, arguments}}]; null and absent are no calls."""
    calls = []
    for k, call in enumerate(records([] if value is None else value, place)):
        where = f"{place}[{k}]"
        function = get(call, "function", Mapping, where, default=call)  # some writers leave the inner object out
        name = get(function, "name", str, where)
        calls.append(ToolCall(name, arguments(function.get("arguments")), get(call, "id", str, where, default="")))
    return tuple(calls)


def calls_text(calls: Sequence[ToolCall]) -> str:
    """Calls as lines of JSON: what an auditor sees of them."""
    return "\n".join(as_text({"name": call.name, "arguments": call.arguments}) for call in calls)
