"""inspect logs, .eval or JSON: the events of each sample in transcript order.

A model's output and a tool's result are turns, by the agent whose span they stand in; so are the sample's input, a
person's input, and the errors and limits that ended it. What inspect moved to attachments is put back.
Source: UKGovernmentBEIS/inspect_ai, event and log/_file.py; the log file format's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprise.traces.fields import arguments, as_text, calls_text, get, joined, parts_text, records
from reprise.traces.log import Dropped, Log
from reprise.traces.turns import ToolCall, ToolResult, Turn

NAME = "inspect_log"
ATTACHMENT = "attachment://"
DEPTH = 100  # of values that attachments are put back into
ENDS = {"error": "error", "sample_limit": "limit"}


def looks_like(document: Any) -> bool:
    """Whether it has an eval and samples."""
    return isinstance(document, Mapping) and "eval" in document and "samples" in document


def read(document: Any) -> list[Log]:
    """One run a sample and epoch, named "id" or "id/epoch".

    Raises:
        TraceError: no samples, or an event that is none.
    """
    samples = records(document.get("samples"), "samples")
    several = any(sample.get("epoch", 1) != 1 for sample in samples)
    facts = document["eval"] if isinstance(document["eval"], Mapping) else {}
    whole = {name: facts[name] for name in ("task", "model", "run_id") if name in facts}
    return [_sample(sample, f"samples[{k}]", several, whole) for k, sample in enumerate(samples)]


def _sample(sample: Mapping, place: str, several: bool, whole: Mapping) -> Log:
    run = str(sample.get("id", place)) + (f"/{sample.get('epoch')}" if several else "")
    attachments = get(sample, "attachments", Mapping, place, default={})
    spans: dict[str, tuple[str, str, str]] = {}  # span -> (parent, type, name)
    turns, dropped = [], []
    for k, event in enumerate(records(get(sample, "events", list, place, default=[]), f"{place}.events")):
        where = f"{place}.events[{k}]"
        kind = get(event, "event", str, where)
        if kind == "span_begin":
            spans[str(event.get("id"))] = tuple(str(event.get(key)) for key in ("parent_id", "type", "name"))
        agent, scored = _inside(event, spans)
        found = [] if scored else _turns(whole_again(event, attachments), where, agent)
        turns += found
        if not found:
            dropped.append(Dropped(where, f"{kind} event{' of a scorer' if scored else ''}: no turn"))
    if not turns:  # logs kept without their events still have the conversation
        from reprise.traces.openai_messages import message_turn

        called: dict[str, ToolCall] = {}
        for k, message in enumerate(records(get(sample, "messages", list, place, default=[]), f"{place}.messages")):
            turn = message_turn(whole_again(message, attachments), f"{place}.messages[{k}]", called)
            called |= {call.id: call for call in turn.calls if call.id}
            turns.append(turn)
    labels = {name: sample.get(name) for name in ("target", "scores", "error") if sample.get(name) is not None}
    return Log(tuple(turns), tuple(dropped), NAME, run, {**whole, **labels})


def _turns(event: Mapping, place: str, agent: str) -> list[Turn]:
    kind = event.get("event")
    if kind == "sample_init":
        sample = get(event, "sample", Mapping, place)
        value = sample.get("input")
        if isinstance(value, list):
            return [
                Turn(get(each, "role", str, f"{place}.sample.input[{k}]"), "say", parts_text(each.get("content")), each)
                for k, each in enumerate(records(value, f"{place}.sample.input"))
            ]
        return [Turn("user", "say", as_text(value), event)]
    if kind == "model":
        return [_model(event, place, agent)]
    if kind == "tool":
        return [_tool(event, place, agent)]
    if kind == "input":
        return [Turn("user", "input", as_text(event.get("input")), event)]
    if kind in ENDS:
        said = event.get("error") if kind == "error" else event.get("message")
        return [Turn("inspect", ENDS[kind], as_text(said.get("message") if isinstance(said, Mapping) else said), event)]
    return []


def _model(event: Mapping, place: str, agent: str) -> Turn:
    output = get(event, "output", Mapping, place, default={})
    texts, calls = [], []
    for k, choice in enumerate(records(get(output, "choices", list, place, default=[]), f"{place}.output.choices")):
        where = f"{place}.output.choices[{k}].message"
        message = get(choice, "message", Mapping, f"{place}.output.choices[{k}]")
        texts.append(parts_text(message.get("content")))
        for call in records(get(message, "tool_calls", list, where, default=[]), f"{where}.tool_calls"):
            id = get(call, "id", str, where, default="")
            calls.append(ToolCall(get(call, "function", str, where), arguments(call.get("arguments")), id))
    text = joined(*texts, calls_text(calls), as_text(event.get("error")))
    return Turn(agent, "say", text, event, tuple(calls))


def _tool(event: Mapping, place: str, agent: str) -> Turn:
    name, id = get(event, "function", str, place), get(event, "id", str, place, default="")
    error = get(event, "error", Mapping, place, default=None)
    text = joined(parts_text(event.get("result")), as_text(error.get("message")) if error else "")
    call = ToolCall(name, arguments(event.get("arguments")), id)
    return Turn(agent, f"tool:{name}", text, event, (call,), (ToolResult(name, text, id, bool(error)),))


def _inside(event: Mapping, spans: Mapping[str, tuple[str, str, str]]) -> tuple[str, bool]:
    """The nearest agent around the event (else the role its model has, else "agent"), and whether a scorer is."""
    at, seen, agent = str(event.get("span_id")), set(), ""
    while at in spans and at not in seen:
        seen.add(at)
        at, kind, name = spans[at]
        if kind in ("scorer", "scorers"):
            return agent, True
        if kind == "agent":
            agent = agent or name
    return agent or str(event.get("role") or "agent"), False


def whole_again(value: Any, attachments: Mapping, depth: int = 0) -> Any:
    """The value with the texts that inspect keeps beside it put back in."""
    if depth > DEPTH or not attachments:
        return value
    if isinstance(value, str):
        return attachments.get(value.removeprefix(ATTACHMENT), value) if value.startswith(ATTACHMENT) else value
    if isinstance(value, Mapping):
        return {key: whole_again(item, attachments, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_again(item, attachments, depth + 1) for item in value]
    return value
