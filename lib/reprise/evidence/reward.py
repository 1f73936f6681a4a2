"""Exact case success as a reward: the calls of a completion are made again in the case's world and judged there.

    reward = ECS - read_cost * information calls

Paid for the whole chain, an agent gains nothing by acting before it has looked, nor by stopping early.

Source: SafeActBench, exact case success; its use as a reward is ours.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reprise.evidence.cases import parse_case
from reprise.evidence.environment import Environment
from reprise.evidence.errors import EvidenceError
from reprise.evidence.evaluate import evaluate
from reprise.evidence.model import Case, Protocol
from reprise.rewards import json_object, response_text

_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
Call = tuple[str, Mapping[str, Any]]


def ecs_reward(case: Case, calls: Iterable[Call], decision: str = "", read_cost: float = 0.0) -> float:
    """ECS of an episode, less what its reads cost.

    Args:
        case: the task with its hidden half.
        calls: (tool, arguments) in order, made in a fresh world; those beyond the step budget make a timeout.
        decision: the answer to a legacy case, which has no calls.
        read_cost: for each information call that was answered.

    Returns:
        a number of at most 1.

    Raises:
        EvidenceError: `read_cost` is negative or not finite.
    """
    if not 0 <= read_cost < math.inf:
        raise EvidenceError(f"read_cost={read_cost}: expected a number of at least 0")
    environment = Environment(case)
    if case.view.protocol is Protocol.LEGACY:
        return float(evaluate(case, environment.decide(decision)).ecs)
    calls = list(calls)
    for tool, args in calls[: case.view.step_budget]:
        environment.call(tool, **args)
    in_time = len(calls) < case.view.step_budget
    verdict = evaluate(case, environment.finish() if in_time else environment.trajectory())
    return float(verdict.ecs) - read_cost * verdict.reads


def tool_calls(completion: Any) -> list[Call]:
    """The calls of a completion: `tool_calls` of messages as in the OpenAI API, or <tool_call> {"name", "arguments"}
    </tool_call> in a text. A call that cannot be read is one of an unknown tool: it changes nothing, but counts among
    the calls, on whose number the ids that actions return depend.

    >>> tool_calls('<tool_call>{"name": "read_charge", "arguments": {"charge_id": "C1"}}</tool_call>')
    [('read_charge', {'charge_id': 'C1'})]
    """
    if not isinstance(completion, str) and completion is not None:
        found = [
            call.get("function", call) if isinstance(call, Mapping) else {}
            for turn in completion
            if isinstance(turn, Mapping) and turn.get("role", "assistant") == "assistant"
            for call in turn.get("tool_calls") or ()
        ]
        if found:
            return [_call(each) for each in found]
    return [_call(text) for text in _TAGGED.findall(response_text(completion))]


def trl_reward(prompts: Sequence, completions: Sequence, completion_ids: Sequence | None = None, **columns) -> list:
    """A reward function for TRL's GRPOTrainer.

    Args:
        prompts, completion_ids: not read.
        completions: texts, or conversations with tool calls.
        columns: of the data set, one entry a completion: `case`, a case as an object or its JSON text.

    Returns:
        (completions,) rewards without a cost of reads.

    Raises:
        EvidenceError: the column is missing or has another length, or holds no case.
    """
    if len(columns.get("case", ())) != len(completions):
        found = f"{len(columns['case'])} entries" if "case" in columns else "missing"
        raise EvidenceError(f"column 'case': {found}: expected {len(completions)}, one a completion")
    return [_score(json_object(case, "case"), each) for each, case in zip(completions, columns["case"], strict=True)]


def compute_score(
    data_source: Any = None, solution_str: str = "", ground_truth: Any = None, extra_info: Any = None, **kwargs
) -> float:
    """verl's reward function.

    Args:
        data_source, extra_info, kwargs: not read.
        solution_str: the response, with calls as in `tool_calls`.
        ground_truth: a case as an object or its JSON text.

    Raises:
        EvidenceError: `ground_truth` holds no case.
    """
    return _score(json_object(ground_truth, "ground_truth"), solution_str)


def _score(data: Mapping[str, Any], completion: Any) -> float:
    case = parse_case(data)
    if case.view.protocol is Protocol.LEGACY:
        return ecs_reward(case, (), response_text(completion))
    return ecs_reward(case, tool_calls(completion))


def _call(said: Any) -> Call:
    try:
        said = json.loads(said) if isinstance(said, str) else said
        args = said.get("arguments") or {}
        args = json.loads(args) if isinstance(args, str) else args
        return str(said["name"]), {str(name): value for name, value in args.items()}
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return "unreadable", {}
