"""OTLP JSON: attribute values, spans and log records, without what they mean.

A document is one export request ({"resourceSpans": [...]}, {"resourceLogs": [...]}), or a list of them, as the
collector's file exporter writes one a line.
Source: open-telemetry/opentelemetry-proto, trace/v1, logs/v1 and common/v1 in their JSON mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reprise.traces.errors import TraceError
from reprise.traces.fields import checked, get, records, shown

DEPTH = 64  # of nested attribute values


def spans(document: Any) -> Iterator[tuple[str, Mapping]]:
    """(place, span) of every span."""
    yield from _items(document, "resourceSpans", "scopeSpans", "spans")


def log_records(document: Any) -> Iterator[tuple[str, Mapping]]:
    """(place, record) of every log record."""
    yield from _items(document, "resourceLogs", "scopeLogs", "logRecords")


def _items(document: Any, *names: str) -> Iterator[tuple[str, Mapping]]:
    requests = [document] if isinstance(document, Mapping) else records(document, "")
    found = [("" if isinstance(document, Mapping) else f"[{k}]", each) for k, each in enumerate(requests)]
    for name in names:
        found = [
            (f"{place}.{name}[{k}]", item)
            for place, record in found
            for k, item in enumerate(records(get(record, name, list, place, default=[]), f"{place}.{name}"))
        ]
    yield from found


def attributes(record: Mapping, place: str) -> dict[str, Any]:
    """Attributes as a dict of Python values."""
    found = {}
    for k, pair in enumerate(records(get(record, "attributes", list, place, default=[]), f"{place}.attributes")):
        where = f"{place}.attributes[{k}]"
        found[get(pair, "key", str, where)] = value(pair.get("value"), f"{where}.value")
    return found


def value(any_value: Any, place: str, depth: int = 0) -> Any:
    """An AnyValue as str, bool, int, float, list or dict; an empty one is None.

    Raises:
        TraceError: no AnyValue, or one nested deeper than DEPTH.
    """
    if any_value is None or any_value == {}:
        return None
    if depth > DEPTH:
        raise TraceError(f"{place}: nested deeper than {DEPTH}")
    kind, inner = next(iter(checked(any_value, Mapping, place).items()))
    if kind in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        return inner
    if kind == "intValue":  # 64-bit integers are strings in protobuf's JSON
        return nanoseconds(inner, f"{place}.intValue")
    if kind == "arrayValue":
        items = get(checked(inner, Mapping, place), "values", list, place, default=[])
        return [value(item, f"{place}[{k}]", depth + 1) for k, item in enumerate(items)]
    if kind == "kvlistValue":
        pairs = records(get(checked(inner, Mapping, place), "values", list, place, default=[]), place)
        return {get(pair, "key", str, place): value(pair.get("value"), place, depth + 1) for pair in pairs}
    raise TraceError(f"{place}: {shown(kind)}: expected stringValue, intValue, kvlistValue or another AnyValue")


def nanoseconds(text: Any, place: str) -> int:
    """A 64-bit integer, which the JSON mapping writes as a string."""
    plain = isinstance(text, int) and not isinstance(text, bool)
    if not plain and not (isinstance(text, str) and text.lstrip("-").isdecimal() and len(text) <= 20):
        raise TraceError(f"{place}={shown(text)}: expected an integer")
    return int(text)
