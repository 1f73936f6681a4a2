"""smolagents: the steps of `agent.memory.get_full_steps()` (or get_succinct_steps), for one agent or several.

The library writes no file. Of one agent, dump the list; of a manager and its agents, an object that names them:

    json.dump({a.name or "manager": a.memory.get_full_steps() for a in (agent, *agent.managed_agents.values())}, file)

A managed agent's memory is reset when it is called again, so that it holds its last run only; a step callback that
appends to one list keeps them all. Steps of several agents are put in the order in which they ended: the inner steps
stand before the outer step that called them, and both are kept. `raw["depth"]` counts the steps around one.
Source: huggingface/smolagents, memory.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprise.traces.errors import TraceError
from reprise.traces.fields import as_text, function_calls, get, joined, parts_text, records, shown
from reprise.traces.log import Dropped, Log
from reprise.traces.turns import ToolResult, Turn

NAME = "smolagents"
STEPS = ({"step_number", "timing"}, {"plan", "timing"}, {"task"}, {"system_prompt"}, {"output"})


def looks_like(document: Any) -> bool:
    """Whether the first step of the list, or of every agent's list, is one of smolagents' kinds."""
    if isinstance(document, Mapping):
        return bool(document) and all(isinstance(steps, list) and looks_like(steps) for steps in document.values())
    first = document[0] if isinstance(document, list) and document else None
    if not isinstance(first, Mapping):
        return False
    return STEPS[0] <= set(first) or STEPS[1] <= set(first) or _only(first) is not None


def read(document: Any) -> list[Log]:
    """The one run.

    Raises:
        TraceError: a step of no kind, or, among several agents, one without times.
    """
    agents = document if isinstance(document, Mapping) else {"agent": document}
    manager, nested = next(iter(agents)), len(agents) > 1
    dropped, timed, turns = [], [], []
    for order, (agent, steps) in enumerate(agents.items()):
        place = f".{agent}" if isinstance(document, Mapping) else ""
        times = _times(records(steps, place), place, nested)
        timed += [(*times[k], order, k, agent, step, f"{place}[{k}]") for k, step in enumerate(steps)]
    spans = [(start, end, order) for start, end, order, _, _, step, _ in timed if "step_number" in step]
    # ends first; an inner task starts with the inner run, and the outer agent stands first where times are equal
    for start, end, order, _, agent, step, place in sorted(timed, key=lambda each: each[1:4]):
        depth = 0
        if nested:
            depth = sum(s <= start and end <= e and (s, e) != (start, end) and o != order for s, e, o in spans)
        if "system_prompt" in step:
            dropped.append(Dropped(place, "system prompt: no turn of the run"))
        else:
            turns.append(_turn(step, place, agent, manager if depth else "user", depth))
    return [Log(tuple(turns), tuple(dropped), NAME, "", {"agents": list(agents)})]


def _turn(step: Mapping, place: str, agent: str, asker: str, depth: int) -> Turn:
    raw = {**step, "depth": depth}
    if "task" in step:
        return Turn(asker, "task", get(step, "task", str, place), raw)
    if "plan" in step:
        return Turn(agent, "plan", get(step, "plan", str, place), raw)
    if "step_number" not in step:
        if "output" not in step:
            get(step, "step_number", int, place)
        return Turn(agent, "final_answer", as_text(step["output"]), raw)
    calls = function_calls(step.get("tool_calls"), f"{place}.tool_calls")
    error = get(step, "error", Mapping, place, default=None)
    seen = get(step, "observations", str, place, default="")
    failure = as_text(error.get("message")) if error else ""
    action = "final_answer" if step.get("is_final_answer") else calls[0].name if calls else "say"
    answer = "" if step.get("action_output") is None else as_text(step["action_output"])
    # a step runs all its calls and logs one observation: it is the result of the last of them
    results = (ToolResult(calls[-1].name, joined(seen, failure), calls[-1].id, bool(error)),) if calls else ()
    text = joined(parts_text(step.get("model_output")), *_asked(step, calls), seen, failure)
    return Turn(agent, action, joined(text, answer if answer not in text else ""), raw, calls, results)


def _asked(step: Mapping, calls) -> list[str]:
    """The calls as text, where the model's own output is not there or does not show them."""
    said = parts_text(step.get("model_output"))
    return [text for call in calls if (text := as_text(call.arguments)) and text not in said]


def _times(steps: list[Mapping], place: str, needed: bool) -> list[tuple[float, float]]:
    """(start, end) of each step of one agent in seconds, ends in the list's order.

    A kind without times takes the start of the next step that has one (a task), or the last end (a final answer).
    """
    own = [_timing(step, f"{place}[{k}]", needed) for k, step in enumerate(steps)]
    following, after = None, []
    for start, _ in reversed(own):
        after.append(following)
        following = following if start is None else start
    filled, reached = [], float("-inf")
    for (start, end), following in zip(own, reversed(after), strict=True):
        if end is None:
            start = end = reached if following is None else following
        reached = max(reached, end)
        filled.append((start, reached))
    return filled


def _timing(step: Mapping, place: str, needed: bool) -> tuple[float | None, float | None]:
    if "timing" not in step and _only(step) is None:
        raise TraceError(f"{place}: keys {', '.join(sorted(map(str, step)))[:120]}: expected a step of smolagents")
    timing = get(step, "timing", Mapping, place, default={})
    for name in ("start_time", "end_time"):
        value = timing.get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool) and value == value
        if not number and (value is not None or (needed and "timing" in step)):
            raise TraceError(f"{place}.timing.{name}={shown(value)}: expected seconds")
    start, end = timing.get("start_time"), timing.get("end_time")
    return (start, end) if start is not None and end is not None else (None, None)


def _only(step: Mapping) -> str | None:
    """The kind of a step without a time: its one telling key."""
    if isinstance(step.get("task"), str) and set(step) <= {"task", "task_images"}:
        return "task"
    if set(step) == {"system_prompt"} or set(step) == {"output"}:
        return next(iter(step))
    return None
