"""The example run of `reprise.labs.audit_examples` as telemetry: OpenTelemetry spans, and inspect's events."""

from __future__ import annotations

import json
from typing import Any

from reprise.labs.audit_example_story import ANSWER, CALL, FOUND, PLAN, QUERY, REPORT, START, TASK, function_call


def _attribute(key: str, value: str) -> dict:
    return {"key": key, "value": {"stringValue": value}}


def _span(id: str, parent: str, start: float, end: float, attributes: dict, events: list | None = None) -> dict:
    return {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": id,
        "parentSpanId": parent,
        "name": " ".join(list(attributes.values())[:2]) or "POST",
        "kind": 3,
        "startTimeUnixNano": str(int((START + start) * 1e9)),
        "endTimeUnixNano": str(int((START + end) * 1e9)),
        "attributes": [_attribute(key, value) for key, value in attributes.items()],
        "events": events or [],
        "status": {},
    }


def _request(spans: list[dict]) -> dict:
    scope = {"scope": {"name": "reprise.example"}, "spans": spans}
    resource = {"attributes": [_attribute("service.name", "example")]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def otel_attributes() -> dict:
    """Today's conventions: messages as JSON text in span attributes."""

    def said(role: str, *parts: dict) -> dict:
        return {"role": role, "parts": list(parts)}

    def text(content: str) -> dict:
        return {"type": "text", "content": content}

    operation, agent = "gen_ai.operation.name", "gen_ai.agent.name"
    inputs, outputs = "gen_ai.input.messages", "gen_ai.output.messages"
    ask, plan = said("user", text(TASK)), said("assistant", text(PLAN))
    call = said("assistant", {"type": "tool_call", "id": CALL, "name": "search", "arguments": QUERY})
    back = said("tool", {"type": "tool_call_response", "id": CALL, "response": FOUND})
    report = said("assistant", text(REPORT))
    tool = {operation: "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": CALL}
    tool |= {"gen_ai.tool.call.arguments": json.dumps(QUERY), "gen_ai.tool.call.result": FOUND}

    def chat(*sent: dict, answer: dict) -> dict:
        return {operation: "chat", "gen_ai.request.model": "m", inputs: json.dumps(sent), outputs: json.dumps([answer])}

    whole = {operation: "invoke_agent", agent: "Searcher", outputs: json.dumps([report])}
    # the file's order is not that of the run: spans are written when they end, and batches arrive as they may
    return _request(
        [
            _span("00000000000000a3", "00000000000000a0", 1, 6, whole),
            _span("00000000000000b1", "00000000000000a3", 1, 2, chat(ask, answer=call)),
            _span("00000000000000c1", "00000000000000a3", 2, 3, tool),
            _span("00000000000000d1", "00000000000000c1", 2.1, 2.9, {}),
            _span("00000000000000b2", "00000000000000a3", 3, 5, chat(ask, call, back, answer=report)),
            _span("00000000000000b0", "00000000000000a0", 0, 1, chat(ask, answer=plan)),
            _span(
                "00000000000000b3",
                "00000000000000a0",
                6,
                7,
                chat(ask, plan, report, answer=said("assistant", text(ANSWER))),
            ),
            _span("00000000000000a0", "", 0, 8, {operation: "invoke_agent", agent: "Manager"}),
        ]
    )


def otel_events() -> list[dict]:
    """The conventions before: messages as events of the span, one export request a line."""

    def event(name: str, at: float, **fields: str) -> dict:
        attributes = [_attribute(key, value) for key, value in fields.items()]
        return {"name": name, "timeUnixNano": str(int((START + at) * 1e9)), "attributes": attributes}

    def choice(at: float, **message: Any) -> dict:
        return event("gen_ai.choice", at, finish_reason="stop", message=json.dumps({"role": "assistant", **message}))

    ask = event("gen_ai.user.message", 0, content=TASK)
    manager = {"gen_ai.operation.name": "chat", "gen_ai.agent.name": "Manager"}
    searcher = {**manager, "gen_ai.agent.name": "Searcher"}
    calls = [function_call(CALL, "search", QUERY)]
    history = event("gen_ai.assistant.message", 2, tool_calls=json.dumps(calls))
    back = event("gen_ai.tool.message", 2, content=FOUND, id=CALL)
    return [
        _request([_span("00000000000000e0", "", 0, 1, manager, [ask, choice(1, content=PLAN)])]),
        _request([_span("00000000000000e1", "", 1, 2, searcher, [ask, choice(2, tool_calls=calls)])]),
        _request([_span("00000000000000e2", "", 2, 4, searcher, [ask, history, back, choice(4, content=REPORT)])]),
        _request([_span("00000000000000e3", "", 4, 5, manager, [ask, choice(5, content=ANSWER)])]),
    ]


def inspect_log() -> dict:
    def event(kind: str, span: str, **fields: Any) -> dict:
        return {
            "event": kind,
            "span_id": span,
            "timestamp": "2020-09-13T12:26:40+00:00",
            "working_start": 0.0,
            **fields,
        }

    def model(span: str, content: str, calls: list | None = None) -> dict:
        message = {"role": "assistant", "source": "generate", "content": content}
        message |= {"tool_calls": calls} if calls else {}
        choices = [{"message": message, "stop_reason": "tool_calls" if calls else "stop"}]
        return event("model", span, model="m", input=[], output={"model": "m", "choices": choices})

    call = {"id": CALL, "function": "search", "arguments": QUERY, "type": "function"}
    events = [
        event("sample_init", "s0", sample={"input": TASK, "target": "78766", "id": "bergen"}, state={}),
        event("span_begin", "s1", id="s1", name="manager", type="agent"),
        model("s1", PLAN),
        event("span_begin", "s2", id="s2", parent_id="s1", name="searcher", type="agent"),
        model("s2", "", [call]),
        event(
            "tool",
            "s2",
            type="function",
            id=CALL,
            function="search",
            arguments=QUERY,
            result=f"attachment://{'0' * 32}",
        ),
        model("s2", REPORT),
        event("span_end", "s2", id="s2"),
        model("s1", ANSWER),
        event("span_end", "s1", id="s1"),
        event("span_begin", "s3", id="s3", name="match", type="scorer"),
        model("s3", "GRADE: I"),
        event("score", "s3", score={"value": "I", "answer": "33766"}, intermediate=False),
    ]
    sample = {"id": "bergen", "epoch": 1, "input": TASK, "target": "78766", "messages": [], "events": events}
    sample |= {"attachments": {"0" * 32: FOUND}, "scores": {"match": {"value": "I"}}}
    facts = {"created": "2020-09-13T12:26:40+00:00", "task": "populations", "model": "m", "dataset": {}, "config": {}}
    return {"version": 2, "status": "success", "eval": facts, "samples": [sample]}
