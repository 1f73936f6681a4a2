"""OpenTelemetry GenAI spans in OTLP JSON, ordered by when they ended: a turn is visible only once it has.

Messages are taken from `gen_ai.input.messages` and `gen_ai.output.messages` (on the span, or on its event
`gen_ai.client.inference.operation.details`), else from the older events `gen_ai.user.message`, `gen_ai.choice` and
their like, on the span or as log records, else from `gen_ai.content.prompt` and `gen_ai.content.completion`. What a
model is sent again each time is history and no turn: an input message becomes a turn where it is new, when its span
starts. The conventions are at Development status.
Source: open-telemetry/semantic-conventions, gen-ai-spans, gen-ai-agent-spans and gen-ai-events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reprise.traces import otel_messages, otlp
from reprise.traces.fields import arguments, as_text, get, joined, records
from reprise.traces.log import Dropped, Log
from reprise.traces.otel_messages import Message, event_messages
from reprise.traces.turns import ToolCall, ToolResult, Turn

NAME = "otel"
OPERATION = "gen_ai.operation.name"
AGENT = "gen_ai.agent.name"
CALL_ID = "gen_ai.tool.call.id"
WRAPPERS = {"invoke_agent", "create_agent", "invoke_workflow"}
NO_OPERATION = "span without gen_ai.operation.name"


@dataclass(frozen=True)
class _Span:
    place: str
    raw: Mapping
    id: str
    parent: str
    start: int
    end: int
    attributes: Mapping[str, Any]
    inputs: list[Message]
    outputs: list[Message]

    @property
    def operation(self) -> str:
        return str(self.attributes.get(OPERATION) or "")


def looks_like(document: Any) -> bool:
    """Whether it is an export request, or a list of them."""
    first = document[0] if isinstance(document, list) and document else document
    return isinstance(first, Mapping) and bool({"resourceSpans", "resourceLogs"} & set(first))


def read(document: Any) -> list[Log]:
    """One run a trace, in the order in which the traces begin in the file.

    Raises:
        TraceError: no export request, or a span without ids or times.
    """
    events, dropped = _event_records(document)
    traces: dict[str, list[_Span]] = {}
    for place, raw in otlp.spans(document):
        span = _span(place, raw, events.pop(get(raw, "spanId", str, place), []))
        traces.setdefault(get(raw, "traceId", str, place), []).append(span)
    dropped += [Dropped(place, "event of a span that is not here") for own in events.values() for place, _, _ in own]
    runs = [(trace, spans) for trace, spans in traces.items() if any(span.operation for span in spans)]
    others = [span for spans in traces.values() if not any(span.operation for span in spans) for span in spans]
    dropped += [Dropped(span.place, NO_OPERATION) for span in others]
    # what belongs to no run is listed with the first
    return [_run(*run, [] if k else dropped) for k, run in enumerate(runs)] or [Log((), tuple(dropped), NAME)]


def _event_records(document: Any) -> tuple[dict[str, list[tuple[str, str, Mapping]]], list[Dropped]]:
    """Log records that are GenAI events, as (place, name, fields) by the id of their span; and the others."""
    events, dropped = {}, []
    for place, record in otlp.log_records(document):
        found = otlp.attributes(record, place)
        name = str(record.get("eventName") or found.get("event.name") or "")
        span = get(record, "spanId", str, place, default="")
        if not name.startswith("gen_ai.") or not span:
            dropped.append(Dropped(place, "log record without a GenAI event of a span"))
            continue
        body = otlp.value(record.get("body"), f"{place}.body")
        events.setdefault(span, []).append((place, name, {**found, **(body if isinstance(body, dict) else {})}))
    return events, dropped


def _span(place: str, raw: Mapping, logged: list[tuple[str, str, Mapping]]) -> _Span:
    start, end = (
        otlp.nanoseconds(raw.get(f"{name}TimeUnixNano"), f"{place}.{name}TimeUnixNano") for name in ("start", "end")
    )
    found = otlp.attributes(raw, place)
    events = [(name, fields) for _, name, fields in logged]
    for k, event in enumerate(records(get(raw, "events", list, place, default=[]), f"{place}.events")):
        where = f"{place}.events[{k}]"
        events.append((get(event, "name", str, where), otlp.attributes(event, where)))
    details = {}
    for name, fields in events:
        if name == "gen_ai.client.inference.operation.details":
            details |= fields
    sides = [
        otel_messages.attribute_messages({**details, **found}, f"gen_ai.{side}.messages", place)
        for side in ("input", "output")
    ]
    old_in, old_out = event_messages(events, place)
    inputs, outputs = (new or old for new, old in zip(sides, (old_in, old_out), strict=True))
    parent = get(raw, "parentSpanId", str, place, default="")
    return _Span(place, raw, get(raw, "spanId", str, place), parent, start, end, found, inputs, outputs)


def _run(trace: str, spans: list[_Span], dropped: list[Dropped]) -> Log:
    by_id = {span.id: span for span in spans}
    genai = [span for span in spans if span.operation]
    dropped = [*dropped, *(Dropped(span.place, NO_OPERATION) for span in spans if not span.operation)]
    around = {ancestor for span in genai for ancestor in _ancestors(span, by_id) if ancestor != span.id}
    executed = {str(span.attributes.get(CALL_ID)) for span in genai if span.attributes.get(CALL_ID)}
    turns, said, repeats, tools = [], set(), 0, {}
    # an input is visible when its span starts, a turn when it has ended; the file's order settles ties
    points = [(span.end, 0, k) for k, span in enumerate(genai)] + [(span.start, 1, k) for k, span in enumerate(genai)]
    for _, starts, k in sorted(points):
        span = genai[k]
        if starts:
            new = []
            for message in span.inputs:
                if message.key not in said and not any(result.id in executed for result in message.results):
                    new.append(message)
                    said.add(message.key)
            turns += [message.turn(span.raw, tools) for message in new]
            repeats += len(span.inputs) - len(new)
        elif span.id in around and span.operation in WRAPPERS and said.issuperset(each.key for each in span.outputs):
            dropped.append(Dropped(span.place, "span of an agent whose own spans hold what it said"))
        else:
            turn = _turn(span, _agent(span, by_id))
            tools |= {call.id: call.name for call in turn.calls}
            said |= {message.key for message in span.outputs} | {("tool", each.content, ()) for each in turn.results}
            turns.append(turn)
    return Log(tuple(turns), tuple(dropped), NAME, trace, {"repeated_inputs": repeats})


def _turn(span: _Span, agent: str) -> Turn:
    tool = str(span.attributes.get("gen_ai.tool.name") or "")
    action = f"{span.operation} {tool}".strip()
    if span.operation == "execute_tool":
        id = str(span.attributes.get(CALL_ID) or "")
        asked = arguments(span.attributes.get("gen_ai.tool.call.arguments"))
        answered = span.attributes.get("gen_ai.tool.call.result")
        outputs = "\n".join(message.text for message in span.outputs)
        text = as_text(answered) if answered is not None else outputs
        failed = get(span.raw, "status", Mapping, span.place, default={}).get("code") in (2, "STATUS_CODE_ERROR")
        call = (ToolCall(tool, asked, id),) if asked is not None else ()
        return Turn(agent, action, text, span.raw, call, (ToolResult(tool or "unknown", text, id, failed),))
    calls = tuple(call for message in span.outputs for call in message.calls)
    return Turn(agent, action, joined(*(message.shown for message in span.outputs)), span.raw, calls)


def _ancestors(span: _Span, by_id: Mapping[str, _Span]) -> Iterator[str]:
    """Ids of the span and what it stands in, upward; a cycle ends it."""
    seen = set()
    while span is not None and span.id not in seen:
        seen.add(span.id)
        yield span.id
        span = by_id.get(span.parent)


def _agent(span: _Span, by_id: Mapping[str, _Span]) -> str:
    """Name of the nearest agent around the span, itself included; "agent" where none is named."""
    names = (by_id[id].attributes.get(AGENT) for id in _ancestors(span, by_id) if id in by_id)
    return next((str(name) for name in names if name), "agent")
