"""What is particular to each format: worked records in, turns out."""

import json

import pytest

from reprise.traces import (
    TraceError,
    autogen,
    inspect_log,
    langgraph,
    openai_messages,
    otel,
    otlp,
    smolagents,
    who_and_when,
)
from reprise.traces.detect import candidates, detect
from reprise.traces.fields import arguments, as_text, parts_text


def said(log):
    return [(turn.role, turn.action, turn.content) for turn in log.turns]


# -- openai --


def test_tool_results_are_matched_by_the_id_of_their_call():
    call = {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
    (log,) = openai_messages.read(
        [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "2"},
            {"role": "tool", "tool_call_id": "b", "content": "?"},
        ]
    )
    assert [turn.action for turn in log.turns] == ["say", "tool:add", "tool:unknown"]
    assert log.turns[0].calls[0].arguments == {"x": 1}
    assert log.meta == {"unmatched_results": [2]}


def test_content_parts_are_joined_and_images_named():
    parts = [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "data:..."}}]
    assert parts_text(parts) == "Look:\n[image_url]"


def test_conversations_are_runs():
    logs = openai_messages.read([{"id": name, "messages": [{"role": "user", "content": name}]} for name in "ab"])
    assert [log.run for log in logs] == ["a", "b"]


def test_the_older_function_call_is_a_call():
    (log,) = openai_messages.read(
        [{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "not json"}}]
    )
    assert log.turns[0].calls[0].arguments == "not json"


@pytest.mark.parametrize(
    "messages, error",
    [
        ([{"role": "user", "content": "a"}, {"role": 3, "content": "b"}], r"\[1\]\.role=3: expected a string"),
        ([{"role": "user", "content": "a"}, {"role": "user"}], r"\[1\]: keys role: expected content or tool_calls"),
        ([{"role": "user", "content": "a"}, "b"], r"\[1\]='b': expected an object"),
        (
            [{"role": "assistant", "content": "a", "tool_calls": [{"function": {}}]}],
            r"\[0\]\.tool_calls\[0\]\.name: missing: expected a string",
        ),
    ],
)
def test_an_error_names_the_place_and_the_field(messages, error):
    with pytest.raises(TraceError, match=error):
        openai_messages.read(messages)


# -- Who&When --


def test_the_recipient_becomes_the_action():
    (log,) = who_and_when.read(
        {"mistake_step": "0", "history": [{"role": "Orchestrator (-> WebSurfer)", "content": "go"}]}
    )
    assert said(log) == [("Orchestrator", "-> WebSurfer", "go")]


def test_the_name_is_the_agent_where_there_is_one():
    (log,) = who_and_when.read({"history": [{"role": "assistant", "name": "Geo_Expert", "content": ""}]})
    assert said(log) == [("Geo_Expert", "say", "")]


# -- AutoGen --


def message(kind, source, content, **fields):
    return {"source": source, "type": kind, "content": content, **fields}


def test_chunks_join_the_message_they_are_pieces_of_and_stay_where_none_follows():
    chunk = "ModelClientStreamingChunkEvent"
    (log,) = autogen.read(
        [
            message(chunk, "A", "Hel"),
            message(chunk, "A", "lo"),
            message("TextMessage", "A", "Hello"),
            message(chunk, "B", "cut "),
            message(chunk, "B", "short"),
            message(chunk, "C", "x"),
        ]
    )
    assert said(log) == [("A", "TextMessage", "Hello"), ("B", chunk, "cut short"), ("C", chunk, "x")]
    assert [each.place for each in log.dropped] == ["[0]", "[1]"]


def test_tool_events_keep_calls_and_results():
    (log,) = autogen.read(
        [
            message("ToolCallRequestEvent", "A", [{"id": "1", "name": "f", "arguments": "{}"}]),
            message("ToolCallExecutionEvent", "A", [{"content": "bad", "name": "f", "call_id": "1", "is_error": True}]),
        ]
    )
    assert log.turns[0].calls[0].name == "f"
    assert log.turns[1].results[0].failed and log.turns[1].results[0].id == "1"


def test_the_task_result_at_the_end_of_a_stream_repeats_it():
    stream = [message("TextMessage", "A", "hi"), {"messages": [message("TextMessage", "A", "hi")], "stop_reason": None}]
    (log,) = autogen.read(stream)
    assert len(log) == 1 and log.dropped[0].place == "[1]"


def test_code_execution_is_read_from_its_result():
    (log,) = autogen.read([{"source": "A", "type": "CodeExecutionEvent", "result": "3"}])
    assert log.turns[0].content == "3"


# -- LangGraph --


def ai(text, **fields):
    return {"type": "ai", "content": text, **fields}


@pytest.mark.parametrize(
    "chunk",
    [
        {"node": {"messages": [ai("hi")]}},
        [[], {"node": {"messages": [ai("hi")]}}],
        [["sub:1"], "updates", {"node": {"messages": [ai("hi")]}}],
        ["updates", {"node": {"messages": [ai("hi")]}}],
        {"type": "updates", "ns": [], "data": {"node": {"messages": [ai("hi")]}}},
        {"event": "updates", "data": {"node": {"messages": [ai("hi")]}}},
        {"node": {"messages": [{"type": "ai", "data": {"content": "hi"}}]}},
        {"node": {"answer": {"lc": 1, "type": "constructor", "id": ["x", "AIMessage"], "kwargs": {"content": "hi"}}}},
    ],
)
def test_a_chunk_is_read_however_it_was_written(chunk):
    assert langgraph.looks_like([chunk])
    (log,) = langgraph.read([chunk])
    assert said(log) == [("node", "ai", "hi")]


def test_a_message_sent_again_is_no_turn_and_an_edited_one_is():
    first, edited = ai("a", id="1"), ai("b", id="1")
    (log,) = langgraph.read([{"n": {"messages": [first]}}, {"n": {"messages": [first]}}, {"n": {"messages": [edited]}}])
    assert [turn.content for turn in log.turns] == ["a", "b"]
    assert len(log.dropped) == 1


def test_interrupts_are_turns_and_other_modes_are_not():
    (log,) = langgraph.read([{"__interrupt__": [{"value": "sure?"}]}, ["values", {"messages": []}]])
    assert log.turns[0].action == "interrupt" and log.dropped[0].reason == "stream mode values: not an update"


def test_any_object_of_objects_is_not_a_graph():
    assert candidates({"config": {"lr": 1}}) == []


# -- smolagents --


def step(number, start=None, end=None, **fields):
    return {"step_number": number, "timing": {"start_time": start, "end_time": end}, "model_output": "", **fields}


def test_steps_of_several_agents_stand_in_the_order_they_ended():
    log = smolagents.read(
        {
            "boss": [{"task": "t"}, step(1, 0.0, 9.0, model_output="call"), step(2, 9.0, 10.0, model_output="end")],
            "inner": [{"task": "u"}, step(1, 1.0, 4.0, model_output="a"), step(2, 4.0, 8.0, model_output="b")],
        }
    )[0]
    assert [turn.content for turn in log.turns] == ["t", "u", "a", "b", "call", "end"]
    assert [turn.raw["depth"] for turn in log.turns] == [0, 1, 1, 1, 0, 0]
    assert [turn.role for turn in log.turns] == ["user", "boss", "inner", "inner", "boss", "boss"]


def test_one_agent_needs_no_times():
    (log,) = smolagents.read([{"task": "t"}, step(1, model_output="a"), step(2, model_output="b")])
    assert [turn.content for turn in log.turns] == ["t", "a", "b"]


def test_several_agents_do():
    with pytest.raises(TraceError, match=r"\.b\[0\]\.timing\.start_time=None: expected seconds"):
        smolagents.read({"a": [step(1, 0.0, 1.0)], "b": [step(1)]})


def test_an_error_is_part_of_the_turn():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    (log,) = smolagents.read([step(1, tool_calls=[call], error={"type": "AgentError", "message": "no such tool"})])
    assert log.turns[0].results[0].failed and "no such tool" in log.turns[0].content


# -- OpenTelemetry --


@pytest.mark.parametrize(
    "value, plain",
    [
        ({"stringValue": "a"}, "a"),
        ({"intValue": "7"}, 7),
        ({"intValue": 7}, 7),
        ({"boolValue": True}, True),
        ({"doubleValue": 0.5}, 0.5),
        ({"arrayValue": {"values": [{"intValue": "1"}, {}]}}, [1, None]),
        ({"kvlistValue": {"values": [{"key": "k", "value": {"stringValue": "v"}}]}}, {"k": "v"}),
        ({}, None),
    ],
)
def test_attribute_values(value, plain):
    assert otlp.value(value, "") == plain


def test_structured_messages_equal_their_json_text():
    parts = [{"role": "assistant", "parts": [{"type": "text", "content": "hi"}]}]

    def any_value(value):
        if isinstance(value, dict):
            return {"kvlistValue": {"values": [{"key": k, "value": any_value(v)} for k, v in value.items()]}}
        if isinstance(value, list):
            return {"arrayValue": {"values": [any_value(v) for v in value]}}
        return {"stringValue": value}

    def read(value):
        attributes = [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}]
        attributes.append({"key": "gen_ai.output.messages", "value": value})
        span = {"traceId": "t", "spanId": "s", "startTimeUnixNano": "0", "endTimeUnixNano": "1"}
        return otel.read({"resourceSpans": [{"scopeSpans": [{"spans": [{**span, "attributes": attributes}]}]}]})[0]

    assert said(read(any_value(parts))) == said(read({"stringValue": json.dumps(parts)})) == [("agent", "chat", "hi")]


def span(id, start, end, operation="chat", **fields):
    attributes = {"gen_ai.operation.name": operation, **fields}
    return {
        "traceId": "t",
        "spanId": id,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }


def export(*spans, records=()):
    document = {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}
    return document | ({"resourceLogs": [{"scopeLogs": [{"logRecords": list(records)}]}]} if records else {})


def test_turns_are_ordered_by_when_they_ended():
    (log,) = otel.read(
        export(
            span("a", 0, 9, **{"gen_ai.agent.name": "slow"}),
            span("b", 1, 2, **{"gen_ai.agent.name": "fast"}),
            span("c", 3, 4, **{"gen_ai.agent.name": "next"}),
        )
    )
    assert [turn.role for turn in log.turns] == ["fast", "next", "slow"]


def test_events_may_come_as_log_records():
    body = {"kvlistValue": {"values": [{"key": "message", "value": {"stringValue": '{"content": "hi"}'}}]}}
    records = [
        {"eventName": "gen_ai.choice", "traceId": "t", "spanId": "a", "body": body},
        {"eventName": "gen_ai.choice", "traceId": "t", "spanId": "gone", "body": body},
        {"body": {"stringValue": "starting"}},
    ]
    (log,) = otel.read(export(span("a", 0, 1), records=records))
    assert said(log) == [("agent", "chat", "hi")]
    assert sorted(log.reasons) == ["event of a span that is not here", "log record without a GenAI event of a span"]


def test_traces_are_runs_and_what_belongs_to_none_is_listed():
    other = {**span("b", 0, 1), "traceId": "u"}
    plain = {**span("c", 0, 1), "traceId": "v", "attributes": []}
    logs = otel.read(export(span("a", 0, 1), other, plain))
    assert [log.run for log in logs] == ["t", "u"]
    assert sum(len(log.dropped) for log in logs) == 1


def test_a_file_without_genai_spans_says_so():
    with pytest.raises(TraceError, match="0 turns: expected 1 to 100000 .1 x span without gen_ai.operation.name."):
        otel.read(export({**span("c", 0, 1), "attributes": []}))


def test_parents_in_a_circle_end():
    a, b = {**span("a", 0, 1), "parentSpanId": "b"}, {**span("b", 0, 2), "parentSpanId": "a"}
    assert len(otel.read(export(a, b))[0]) == 2


# -- inspect --


def test_a_sample_without_events_is_read_from_its_messages():
    sample = {
        "id": 1,
        "epoch": 1,
        "messages": [{"role": "user", "content": "attachment://x"}],
        "attachments": {"x": "hi"},
    }
    (log,) = inspect_log.read({"eval": {}, "samples": [sample]})
    assert said(log) == [("user", "say", "hi")]


def test_epochs_are_runs():
    samples = [{"id": 1, "epoch": k, "messages": [{"role": "user", "content": ""}]} for k in (1, 2)]
    assert [log.run for log in inspect_log.read({"eval": {}, "samples": samples})] == ["1/1", "1/2"]


def test_a_limit_is_a_turn():
    events = [{"event": "sample_limit", "type": "message", "message": "too many"}]
    (log,) = inspect_log.read({"eval": {}, "samples": [{"id": 1, "events": events}]})
    assert said(log) == [("inspect", "limit", "too many")]


# -- which format --


def test_a_log_that_fits_two_formats_is_refused_with_their_names():
    both = [{"role": "user", "content": "hi", "source": "user", "type": "TextMessage"}]
    with pytest.raises(TraceError, match="format: autogen and openai_messages both fit"):
        detect(both)


@pytest.mark.parametrize("nothing", [[], {}, 3, "text", None, [1], [[]], {"a": 1}])
def test_what_fits_none_is_refused_with_all_names(nothing):
    with pytest.raises(TraceError, match="expected a log of who_and_when, aftraj, autogen"):
        detect(nothing)


def test_arguments_and_text():
    assert arguments('{"a": 1}') == {"a": 1} and arguments("[1]") == "[1]" and arguments(None) is None
    assert as_text({"a": [1, None]}) == '{"a": [1, null]}'
