"""Episodes written as the logs that other harnesses leave, and the same logs with one recorded value changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any

import pandas as pd

from reprise.evidence.environment import Environment
from reprise.evidence.errors import TrajectoryError
from reprise.evidence.evaluate import evaluate
from reprise.evidence.logs import from_log
from reprise.evidence.model import Case, Protocol
from reprise.evidence.trajectory import Trajectory
from reprise.labs.evidence_suite import MUTATIONS, mutate, reference
from reprise.traces import mcp, openai_messages


def answers(case: Case, trajectory: Trajectory) -> list[dict[str, Any]]:
    """What the agent saw after each call."""
    environment = Environment(case)
    return [environment.call(step.tool, **step.args) for step in trajectory.steps]


def as_messages(case: Case, trajectory: Trajectory) -> dict[str, Any]:
    """OpenAI chat messages, one call a message."""
    messages: list[dict] = [{"role": "user", "content": case.view.prompt}]
    for step, answer in zip(trajectory.steps, answers(case, trajectory), strict=True):
        function = {"name": step.tool, "arguments": json.dumps(dict(step.args))}
        call = {"id": f"call_{step.seq}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(answer)})
    if trajectory.finished:
        messages.append({"role": "assistant", "content": "Done."})
    return {"case_id": case.view.id, "messages": messages}


def as_mcp(case: Case, trajectory: Trajectory) -> list[dict[str, Any]]:
    """An MCP session; one that never finished stops at a request without an answer."""
    rows: list[dict] = [{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}]
    for step, answer in zip(trajectory.steps, answers(case, trajectory), strict=True):
        call = {"name": step.tool, "arguments": dict(step.args)}
        result = {"content": [{"type": "text", "text": json.dumps(answer)}], "isError": False}
        rows.append({"jsonrpc": "2.0", "id": step.seq, "method": "tools/call", "params": call})
        rows.append({"jsonrpc": "2.0", "id": step.seq, "result": result})
    return rows


WRITERS: dict[str, tuple[Callable, Callable]] = {
    "OpenAI messages": (as_messages, openai_messages.read),
    "MCP session": (as_mcp, mcp.read),
}


def round_trips(cases: Iterable[Case], seed: int = 0) -> pd.DataFrame:
    """Right and faulty episodes, written as logs and read back: columns format, kind, episodes, same_verdict.

    MCP sessions have no last word, so the fault "timeout" is left out for them.
    """
    rows = []
    for case in cases:
        if case.view.protocol is Protocol.LEGACY:
            continue
        kinds = [m.kind for m in MUTATIONS.values() if case.view.protocol in m.protocols]
        for kind in ["none", *kinds]:
            played, run = (case, reference(case)) if kind == "none" else mutate(case, kind, seed)
            expected = evaluate(played, run)
            for name, (write, read) in WRITERS.items():
                if run.finished or name != "MCP session":
                    (log,) = read(write(played, run))
                    rows.append((name, kind, evaluate(played, from_log(played, log)) == expected))
    table = pd.DataFrame(rows, columns=["format", "kind", "same_verdict"])
    grouped = table.groupby(["format", "kind"], sort=False).same_verdict.agg(["size", "sum"]).reset_index()
    return grouped.rename(columns={"size": "episodes", "sum": "same_verdict"})


def tampered(case: Case, trajectory: Trajectory) -> Iterator[tuple[int, str, dict]]:
    """The log with one field of one answer changed, one after another: (call, field, log)."""
    whole = as_messages(case, trajectory)
    for step, answer in zip(trajectory.steps, answers(case, trajectory), strict=True):
        for name in answer:
            log = deepcopy(whole)
            log["messages"][2 * step.seq]["content"] = json.dumps({**answer, name: "something else"})
            yield step.seq, name, log


def tampering_table(cases: Iterable[Case]) -> pd.DataFrame:
    """How many changed answers are refused, and how many of the refusals name the call and the field.

    Columns protocol, changed, refused, named.
    """
    rows = []
    for case in cases:
        if case.view.protocol is Protocol.LEGACY:
            continue
        for seq, name, document in tampered(case, reference(case)):
            (log,) = openai_messages.read(document)
            try:
                from_log(case, log)
                message = ""
            except TrajectoryError as error:
                message = str(error)
            named = message.startswith(f"step {seq} (") and f": {name}=" in message
            rows.append((case.view.protocol.value, bool(message), named))
    table = pd.DataFrame(rows, columns=["protocol", "refused", "named"])
    grouped = table.groupby("protocol", sort=False).agg(changed=("refused", "size"), refused=("refused", "sum"),
                                                       named=("named", "sum"))  # fmt: skip
    return grouped.reset_index()
