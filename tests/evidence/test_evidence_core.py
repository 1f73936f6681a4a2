"""One chain with one link broken at a time: the code names the link."""

from dataclasses import replace

import pytest
from refund_case import play, refund_data

from reprise.evidence.cases import parse_case
from reprise.evidence.environment import check_replay
from reprise.evidence.errors import CaseError, TrajectoryError
from reprise.evidence.evaluate import evaluate
from reprise.evidence.trajectory import Trajectory
from reprise.evidence.values import norm, same

CASE = parse_case(refund_data())


@pytest.mark.parametrize(
    "broken, codes",
    [
        ({}, []),
        ({"extra": 3}, []),
        ({"read": "C2"}, ["MISSING:a1:duplicate"]),
        ({"read": None}, ["MISSING:a1:duplicate"]),
        ({"confirm": False}, ["MISSING:a2:refunded"]),
        ({"amount": "€49.99"}, ["WRONG_PARAM:a1:amount"]),
        ({"refund_id": "R42"}, ["PROPAGATION:a2:refund_id"]),
    ],
)
def test_the_code_names_the_broken_link(broken, codes):
    trajectory = play(**broken)
    check_replay(CASE, trajectory)
    verdict = evaluate(CASE, trajectory)
    assert [code for _, code in verdict.codes] == codes
    assert verdict.ecs == (not codes)
    assert verdict.gap == any(code.startswith("MISSING") for code in codes)


def test_a_trajectory_survives_json():
    trajectory = play(extra=2)
    assert Trajectory.from_json(trajectory.to_json()) == trajectory


def test_a_run_that_cannot_have_happened_is_refused():
    trajectory = play()
    second = trajectory.steps[1]
    for steps, message in (
        ((trajectory.steps[0], replace(second, seq=3)), "seq=3: expected 2"),
        ((trajectory.steps[0], replace(second, facts=())), "step 2: facts="),
    ):
        with pytest.raises(TrajectoryError, match=message):
            broken = replace(trajectory, steps=steps)
            evaluate(CASE, broken)
            check_replay(CASE, broken)


def test_a_cycle_names_its_actions():
    data = refund_data()
    data["view"]["protocol"] = "v3"
    data["hidden"]["actions"][0]["after"] = ["a2"]
    with pytest.raises(CaseError, match="a1 -> a2 -> a1|a2 -> a1 -> a2"):
        parse_case(data)


@pytest.mark.parametrize(
    "a, b",
    [
        ("49.99", "49.990"), ("$1,234.50", "1234.5"), ("1e3", 1000), (".5", "0.5"), ("1.10", "1.1"),
        ("49.99 USD", "49.99"), (" active ", "active"), ("-$5", "-5"), (49.99, "USD 49.99"), ("€5", "5 EUR"),
        ("2026-01-01T10:00:00Z", "2026-01-01T11:00:00+01:00"), ([1, "2"], ["1", 2.0]), ({"a": 1}, {"a": "1.0"}),
    ],
)  # fmt: skip
def test_the_same_fact(a, b):
    assert same(a, b) and same(b, a)


@pytest.mark.parametrize(
    "a, b",
    [
        ("007", "7"), (True, 1), ("R42", "r42"), ("٣", "3"), ("50%", "50"), ("€49.99", "$49.99"), ("12,34", "1234"),
        ("1e999", 10**999), ("", 0), (".", 0), ("NaN", "nan"), (None, False), ([1], [1, 1]), ("+-5", "-5"),
    ],
)  # fmt: skip
def test_not_the_same_fact(a, b):
    assert not same(a, b) and not same(b, a)


def test_values_that_are_no_values():
    for value, error in ((float("nan"), ValueError), (float("inf"), ValueError), ({1}, TypeError), ({1: 2}, TypeError)):
        with pytest.raises(error):
            norm(value)
