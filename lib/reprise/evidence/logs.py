"""A log of an agent as a trajectory of a case: its tool calls are made again, and what was recorded must come out.

A result that the case's world does not give is refused, so that a verdict never rests on facts that nobody observed.

    from_log(case, log)          one run, as `reprise.traces.read_log` gives it
    load_runs(path, cases)       every run of a file, each with its case

Source: SafeActBench, evidence ledger and deterministic verification. How logs are mapped to calls is ours.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reprise.evidence.environment import Environment
from reprise.evidence.errors import TrajectoryError
from reprise.evidence.model import Case, Protocol
from reprise.evidence.trajectory import Trajectory
from reprise.evidence.values import norm, same
from reprise.traces import Log, read_logs
from reprise.traces.turns import ToolCall, ToolResult

FINISH = ("finish", "submit")
"""Tools that end an episode, where the case has none of that name."""
SHOWN = 80  # characters of a value in an error


@dataclass(frozen=True, slots=True)
class Exchange:
    """A call, its answer (None where the log has none), and the number of the turn that asked for it."""

    call: ToolCall
    result: ToolResult | None
    turn: int


@dataclass(frozen=True)
class Run:
    """One run of a log file. `failed` counts calls that the harness refused before they reached a tool."""

    name: str
    case: Case
    trajectory: Trajectory
    failed: int = 0


def load_runs(path: str | Path, cases: Iterable[Case], case_id: str | None = None, format: str = "auto") -> list[Run]:
    """Every run of a log file, replayed in its case.

    Args:
        path, format: as in `reprise.traces.read_logs`.
        cases: those that a log may belong to.
        case_id: the case of every run; None: the one that the log names.

    Raises:
        TraceError: the file cannot be read.  TrajectoryError: no such case, or a run that the case's world does not
            give; the message names the run, the step, the field, its value and what was expected.
    """
    known = {case.view.id: case for case in cases}
    runs = []
    for number, log in enumerate(read_logs(path, format)):
        name = log.run or f"{Path(path).stem}{f'/{number}' if number else ''}"
        try:
            case = case_of(log, known, case_id)
            trajectory, failed = _replayed(case, log)
        except TrajectoryError as error:
            raise TrajectoryError(f"{name}: {error}") from None
        runs.append(Run(name, case, trajectory, failed))
    return runs


def case_of(log: Log, cases: Mapping[str, Case], case_id: str | None = None) -> Case:
    """The case a log belongs to: `case_id`, else what the log says under case_id, else the one that its run is named
    after.

    Raises TrajectoryError when there is none.
    """
    inner = log.meta.get("metadata")
    said = (case_id, log.meta.get("case_id"), inner.get("case_id") if isinstance(inner, Mapping) else None)
    given = next((each for each in said if each is not None), None)
    names = [given] if given is not None else [log.run, log.run.rsplit("/", 1)[0]]
    for name in names:
        if isinstance(name, str) and name in cases:
            return cases[name]
    few = ", ".join(sorted(cases)[:8]) + (", ..." if len(cases) > 8 else "")
    raise TrajectoryError(f"case_id={names[0]!r}: expected one of {few}")


def from_log(case: Case, log: Log) -> Trajectory:
    """The trajectory of a run, once every recorded answer came out again.

    Calls of one message keep a common `turn`. The episode is finished when the agent's last turn asks for no tool,
    calls one of FINISH, or, in an MCP session, when every call is answered. Calls beyond the step budget leave it
    unfinished. For a static judgement the decision is the last text.

    Raises TrajectoryError naming the step and field where the log and the case's world disagree.
    """
    return _replayed(case, log)[0]


def _replayed(case: Case, log: Log) -> tuple[Trajectory, int]:
    environment = Environment(case)
    if case.view.protocol is Protocol.LEGACY:
        return environment.decide(_decision(log)), 0
    made, finished, failed, turns = [], ended(log), 0, []
    for exchange in exchanges(log):
        call = exchange.call
        if call.name in FINISH and call.name not in case.view.tool:
            finished = True
            break
        if exchange.result is not None and exchange.result.failed and _object(exchange.result.content) is None:
            failed += 1
            continue
        if len(made) >= case.view.step_budget:
            finished = False
            break
        made.append(call)
        where = f"step {len(made)} ({call.name})"
        if not isinstance(call.arguments, Mapping) or not _is_value(call.arguments):
            raise TrajectoryError(f"{where}: arguments={_shown(call.arguments)}: expected a JSON object")
        _compare(where, environment.call(call.name, **call.arguments), exchange.result)
        turns.append(exchange.turn)
    # the budget counts the end as well, as the environment does
    finished = finished and len(made) < case.view.step_budget
    trajectory = environment.finish() if finished else environment.trajectory()
    steps = tuple(replace(step, turn=turn) for step, turn in zip(trajectory.steps, turns, strict=True))
    return replace(trajectory, steps=steps), failed


def exchanges(log: Log) -> Iterator[Exchange]:
    """Calls with their answers, in the order of the answers; unanswered ones where the log goes on.

    Answers are found by id, without ids by tool name in order. A call that the log repeats beside its answer, as
    inspect does, is one call. A call made while another waited had not seen that one's answer: they share a turn.

    Raises TrajectoryError for an answer to no call, or a second one to the same.
    """
    waiting: deque[tuple[ToolCall, int]] = deque()
    for number, turn in enumerate(log.turns):
        if log.format == "openai_messages" and not turn.results:  # an answer precedes the agent's next message
            while waiting:
                call, asked = waiting.popleft()
                yield Exchange(call, None, asked)
        group = waiting[-1][1] if waiting else number
        if not any(_answers(result, call) for result in turn.results for call, _ in waiting):
            waiting.extend((call, group) for call in turn.calls)
        for result in turn.results:
            found = next((each for each in waiting if _answers(result, each[0])), None)
            if found is None:
                label = f"id {result.id!r}" if result.id else result.name
                raise TrajectoryError(f"turn {number}: answer to {label}: expected a call that waits for it")
            waiting.remove(found)
            yield Exchange(found[0], result, found[1])
    for call, number in waiting:
        yield Exchange(call, None, number)


def ended(log: Log) -> bool:
    """Whether the agent stopped by itself."""
    if log.format == "mcp":
        return sum(len(turn.calls) for turn in log.turns) == sum(len(turn.results) for turn in log.turns)
    last = log.turns[-1]
    return not last.calls and not last.results and last.role not in ("user", "system", "inspect")


def _answers(result: ToolResult, call: ToolCall) -> bool:
    return result.id == call.id if result.id or call.id else result.name in (call.name, "unknown")


def _compare(where: str, ours: Mapping[str, Any], result: ToolResult | None) -> None:
    if result is None:
        raise TrajectoryError(f"{where}: result: missing: expected the tool's answer")
    theirs = _object(result.content)
    if theirs is None or not _is_value(theirs):
        raise TrajectoryError(f"{where}: result={_shown(result.content)}: expected a JSON object")
    for name in (*ours, *(name for name in theirs if name not in ours)):
        if name not in theirs:
            raise TrajectoryError(f"{where}: {name}: missing: expected {_shown(ours[name])} on replay")
        if name not in ours:
            raise TrajectoryError(f"{where}: {name}={_shown(theirs[name])}: expected no such field on replay")
        if not same(ours[name], theirs[name]):
            raise TrajectoryError(f"{where}: {name}={_shown(theirs[name])}: expected {_shown(ours[name])} on replay")


def _object(text: str) -> dict | None:
    def refuse(name: str):
        raise ValueError(name)

    try:
        found = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_value(value: Any) -> bool:
    """Whether it can be compared: finite numbers, not nested without end."""
    try:
        norm(value)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def _decision(log: Log) -> str:
    last = next((turn for turn in reversed(log.turns) if turn.role not in ("user", "system", "inspect")), None)
    text = last.content if last else ""
    decision = (_object(text) or {}).get("decision", text)
    return decision if isinstance(decision, str) else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
