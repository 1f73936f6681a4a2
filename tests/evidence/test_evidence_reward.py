"""Calls of a completion, replayed and judged."""

import json

import pytest
from refund_case import play, refund_data

from reprise.evidence.cases import parse_case
from reprise.evidence.errors import CaseError, EvidenceError
from reprise.evidence.reward import compute_score, ecs_reward, tool_calls, trl_reward
from reprise.labs.evidence_suite import generate_suite, reference

CASE = parse_case(refund_data())
RIGHT = [(step.tool, dict(step.args)) for step in play().steps]


def tagged(calls):
    return "".join(f"<tool_call>{json.dumps({'name': tool, 'arguments': args})}</tool_call>" for tool, args in calls)


def messages(calls):
    return [
        {"role": "assistant", "tool_calls": [{"function": {"name": tool, "arguments": json.dumps(args)}}]}
        for tool, args in calls
    ]


def test_the_whole_chain_or_nothing():
    assert ecs_reward(CASE, RIGHT) == 1.0
    assert ecs_reward(CASE, RIGHT, read_cost=0.1) == pytest.approx(0.8)
    for left_out in range(len(RIGHT)):
        assert ecs_reward(CASE, RIGHT[:left_out] + RIGHT[left_out + 1 :]) == 0.0


def test_every_reference_earns_one():
    for case in generate_suite(0)[::25]:
        run = reference(case)
        assert ecs_reward(case, [(s.tool, s.args) for s in run.steps], run.decision or "") == 1.0


def test_a_run_that_never_ends_earns_nothing():
    again = [("read_charge", {"charge_id": "C2"})] * CASE.view.step_budget
    assert ecs_reward(CASE, [*RIGHT, *again]) == 0.0


def test_layouts_agree():
    assert tool_calls(tagged(RIGHT)) == tool_calls(messages(RIGHT)) == RIGHT
    assert tool_calls([{"role": "assistant", "content": tagged(RIGHT)}]) == RIGHT
    assert tool_calls("no call") == tool_calls(None) == tool_calls([]) == []


@pytest.mark.parametrize("text", ["{", "[]", '"x"', '{"arguments": {}}', '{"name": "a", "arguments": [1]}', "[" * 9999])
def test_an_unreadable_call_changes_nothing(text):
    assert tool_calls(f"<tool_call>{text}</tool_call>") == [("unreadable", {})]
    assert ecs_reward(CASE, [*RIGHT, ("unreadable", {})]) == 1.0


def test_trainers():
    case = json.dumps(refund_data())
    assert trl_reward(["p"] * 2, [tagged(RIGHT), messages(RIGHT[1:])], case=[case, refund_data()]) == [1.0, 0.0]
    assert compute_score("refunds", tagged(RIGHT), case) == 1.0


def test_refusals():
    with pytest.raises(EvidenceError, match="column 'case': missing: expected 1"):
        trl_reward(["p"], ["x"])
    with pytest.raises(EvidenceError, match="read_cost=-1: expected"):
        ecs_reward(CASE, RIGHT, read_cost=-1)
    with pytest.raises(CaseError):
        compute_score("d", "x", {"view": {}})
