"""One run of three agents, written the way each framework logs it.

python -m reprise.labs.audit_examples OUT
"""

from __future__ import annotations

import argparse
import io
import json
import zipfile
from pathlib import Path
from typing import Any

from reprise.durable import atomic_write
from reprise.labs.audit_example_story import (
    ANSWER,
    CALL,
    DIFFERENCE,
    FOUND,
    PLAN,
    QUERY,
    REASON,
    REPORT,
    START,
    SUM,
    TASK,
    function_call,
)
from reprise.labs.audit_example_telemetry import inspect_log, otel_attributes, otel_events


def openai_messages() -> list[dict]:
    return [
        {"role": "user", "content": TASK},
        {"role": "assistant", "name": "Manager", "content": PLAN},
        {
            "role": "assistant",
            "name": "Searcher",
            "content": None,
            "tool_calls": [function_call(CALL, "search", QUERY)],
        },
        {"role": "tool", "tool_call_id": CALL, "content": FOUND},
        {"role": "assistant", "name": "Searcher", "content": [{"type": "text", "text": REPORT}]},
        {"role": "assistant", "name": "Manager", "tool_calls": [function_call("call_2", "calculator", SUM)]},
        {"role": "tool", "tool_call_id": "call_2", "content": DIFFERENCE},
        {"role": "assistant", "name": "Manager", "content": ANSWER},
    ]


def who_and_when() -> dict:
    said = [
        ("human", TASK),
        ("Orchestrator (thought)", PLAN),
        ("Orchestrator (-> WebSurfer)", "Please search for both populations."),
        ("WebSurfer", REPORT),
        ("Orchestrator (-> Assistant)", "Please subtract them."),
        ("Assistant", DIFFERENCE),
        ("Orchestrator (termination condition)", "No agent selected."),
    ]
    labels = {"mistake_agent": "WebSurfer", "mistake_step": "3", "mistake_reason": REASON}
    return {
        "is_correct": False,
        "question": TASK,
        "question_ID": "bergen",
        "ground_truth": "78766",
        "history": [{"content": text, "role": speaker} for speaker, text in said],
        **labels,
    }


def aftraj() -> list[dict]:
    def turn(role: str, content: str, action: str = "", thought: str = "") -> dict:
        return {"role": role, "action": action, "content": content, "thought": thought}

    start = [
        turn("user", TASK),
        turn(
            "Manager",
            "",
            json.dumps([{"name": "search_agent", "arguments": json.dumps({"task": PLAN})}]),
            "Both first.",
        ),
    ]
    searched = [turn("search_agent", "", json.dumps([{"name": "search", "arguments": json.dumps(QUERY)}]))]
    ends = {
        "unsafe": [turn("search_agent", REPORT), turn("Manager", ANSWER)],
        "safe": [
            turn("search_agent", REPORT.replace("238929", "283929")),
            turn("Manager", "78766 more people lived in Bergen."),
        ],
    }
    labels = {"unsafe": (4, "search_agent", REASON, "natural"), "safe": (-1, "", "", "")}
    rows = []
    for kind, end in ends.items():
        turns = [*start, *searched, turn("environment", FOUND), *end]
        step, agent, reason, source = labels[kind]
        rows.append(
            {
                "conv_id": f"bergen_{kind}",
                "domain": "agentic",
                "task": TASK,
                "gold_answer": "78766",
                "num_turns": len(turns),
                "tools": [{"name": "search", "description": "Search the web."}],
                "turns": turns,
                "mistake_step": step,
                "mistake_agent": agent,
                "mistake_reason": reason,
                "unsafe_source": source,
            }
        )
    return rows


def autogen() -> dict:
    def message(kind: str, source: str, content: Any, **fields: Any) -> dict:
        return {"source": source, "models_usage": None, "metadata": {}, "content": content, "type": kind, **fields}

    call = {"id": CALL, "arguments": json.dumps(QUERY), "name": "search"}
    result = {"content": FOUND, "name": "search", "call_id": CALL, "is_error": False}
    chunk = "ModelClientStreamingChunkEvent"
    return {
        "messages": [
            message("TextMessage", "user", TASK),
            message("TextMessage", "Manager", PLAN),
            message("HandoffMessage", "Manager", "Transferred to Searcher.", target="Searcher", context=[]),
            message("ToolCallRequestEvent", "Searcher", [call]),
            message("ToolCallExecutionEvent", "Searcher", [result]),
            message(chunk, "Searcher", REPORT[:20]),
            message(chunk, "Searcher", REPORT[20:]),
            message("TextMessage", "Searcher", REPORT),
            message("TextMessage", "Manager", ANSWER),
            message("StopMessage", "Manager", "TERMINATE"),
        ],
        "stop_reason": "Text 'TERMINATE' mentioned",
    }


def langgraph() -> list[Any]:
    def message(kind: str, id: str, content: str, **fields: Any) -> dict:
        return {"content": content, "additional_kwargs": {}, "response_metadata": {}, "type": kind, "id": id, **fields}

    plan = message("ai", "m1", PLAN, name="manager", tool_calls=[])
    asked = message("ai", "m2", "", tool_calls=[{"name": "search", "args": QUERY, "id": CALL, "type": "tool_call"}])
    found = message("tool", "m3", FOUND, name="search", tool_call_id=CALL, status="success")
    report = message("ai", "m4", REPORT, name="searcher", tool_calls=[])
    return [
        [[], {"manager": {"messages": [message("human", "m0", TASK), plan], "next": "searcher"}}],
        [["searcher:1f"], {"agent": {"messages": [asked]}}],
        [["searcher:1f"], {"tools": {"messages": [found]}}],
        [["searcher:1f"], {"agent": {"messages": [report]}}],
        [[], {"searcher": {"messages": [plan, asked, found, report]}}],
        [[], {"log": None}],
        [[], {"calculator": {"difference": int(DIFFERENCE)}}],
        [[], {"manager": {"messages": [message("ai", "m5", ANSWER, name="manager", tool_calls=[])]}}],
    ]


def smolagents() -> dict:
    def step(number: int, start: float, end: float, output: str, **fields: Any) -> dict:
        timing = {"start_time": START + start, "end_time": START + end, "duration": end - start}
        empty = dict.fromkeys(("model_input_messages", "error", "model_output_message", "code_action", "observations"))
        empty |= {"observations_images": None, "action_output": None, "token_usage": None, "is_final_answer": False}
        return {"step_number": number, "timing": timing, "tool_calls": [], **empty, "model_output": output, **fields}

    def call(name: str, arguments: Any) -> dict:
        return {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": arguments}}

    code = f'search_agent(task="{PLAN}")'
    plan = {"model_input_messages": [], "model_output_message": {"role": "assistant", "content": PLAN}, "plan": PLAN}
    plan |= {"timing": {"start_time": START, "end_time": START + 1, "duration": 1}, "token_usage": None}
    return {
        "manager": [
            {"task": TASK, "task_images": None},
            plan,
            step(1, 1, 6, code, tool_calls=[call("python_interpreter", code)], code_action=code, observations=REPORT),
            step(2, 6, 7, "", tool_calls=[call("final_answer", ANSWER)], is_final_answer=True, action_output=ANSWER),
        ],
        "search_agent": [
            {"task": PLAN, "task_images": None},
            step(1, 2, 3, "", tool_calls=[call("search", QUERY)], observations=FOUND),
            step(2, 3, 5, "", tool_calls=[call("final_answer", REPORT)], is_final_answer=True, action_output=REPORT),
        ],
    }


def eval_file(log: dict) -> bytes:
    """An inspect log in the layout of .eval: a zip of its header and its samples."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        header = {name: value for name, value in log.items() if name != "samples"}
        members = {"header.json": header}
        members |= {f"samples/{sample['id']}_epoch_{sample['epoch']}.json": sample for sample in log["samples"]}
        for name, value in members.items():
            archive.writestr(zipfile.ZipInfo(name), json.dumps(value, indent=1), zipfile.ZIP_DEFLATED)
    return data.getvalue()


def parquet_file(rows: list[dict]) -> bytes:
    """Rows as Parquet."""
    import pyarrow as pa
    from pyarrow import parquet

    data = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), data)
    return data.getvalue()


def files() -> dict[str, bytes]:
    """Every example by file name."""
    whole = {
        "autogen.json": autogen(),
        "openai_messages.json": openai_messages(),
        "otel_attributes.json": otel_attributes(),
        "smolagents.json": smolagents(),
        "who_and_when.json": who_and_when(),
    }
    lines = {"langgraph.jsonl": langgraph(), "otel_events.jsonl": otel_events()}
    found = {name: (json.dumps(value, indent=1) + "\n").encode() for name, value in whole.items()}
    found |= {name: "".join(json.dumps(each) + "\n" for each in value).encode() for name, value in lines.items()}
    return found | {"aftraj.parquet": parquet_file(aftraj()), "inspect.eval": eval_file(inspect_log())}


def main() -> None:
    """Write the examples."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, data in files().items():
        atomic_write(out / name, data)


if __name__ == "__main__":
    main()
