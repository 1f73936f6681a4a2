import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.audit.errors import AuditError
from reprise.audit.prompt import render_verdict
from reprise.audit.reward import RewardConfig, compute_score, response_reward, step_kernel, trl_reward, verdict_reward
from reprise.audit.verdict import SAFE, alarm, invalid
from reprise.rewards import RewardInputError

STEPS = st.integers(0, 30)
AGENTS = st.sampled_from(["A", "B"])


@pytest.mark.parametrize(
    "said, step, agent, expected",
    [
        (alarm(3, "A"), 3, "A", 1.0),
        (alarm(4, "A"), 3, "A", 0.8032653299),
        (alarm(2, "B"), 3, "A", 0.3032653299),
        (alarm(5, "A"), 3, "A", 0.5676676416),
        (alarm(3, "A (-> B)"), 3, "A (-> C)", 1.0),
        (alarm(3), 3, "A", 0.5),
        (SAFE, 3, "A", -1.0),
        (alarm(3, "A"), None, None, -1.0),
        (SAFE, None, None, 1.0),
        (invalid("cut"), None, None, -1.0),
        (invalid("cut"), 3, "A", -1.0),
    ],
)
def test_rewards_of_worked_verdicts(said, step, agent, expected):
    assert verdict_reward(said, step, agent) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    "sigma, expected",
    [
        (1, [1, 0.60653066, 0.13533528, 0.01110900, 0.00033546]),
        (2, [1, 0.88249690, 0.60653066, 0.32465247, 0.13533528]),
    ],
)
def test_the_kernel_by_distance(sigma, expected):
    assert [step_kernel(7 + d, 7, sigma) for d in range(5)] == pytest.approx(expected, abs=1e-8)
    assert [step_kernel(7 - d, 7, sigma) for d in range(5)] == pytest.approx(expected, abs=1e-8)


def test_another_agent_earns_its_part_and_bad_format_its_price():
    config = RewardConfig(sigma=2, step_weight=0.75, agent_weight=0.25, wrong_agent=0.2, format_penalty=0.3)
    assert verdict_reward(alarm(3, "B"), 3, "A", config) == pytest.approx(0.75 + 0.25 * 0.2)
    assert verdict_reward(invalid("cut"), 3, "A", config) == -0.3


@given(STEPS, STEPS, AGENTS, AGENTS)
def test_any_alarm_on_an_unsafe_prefix_beats_a_miss(said, step, agent, true_agent):
    reward = verdict_reward(alarm(said, agent), step, true_agent)
    assert -1 < 0 <= reward <= 1
    assert (reward == 1) == (said == step and agent == true_agent)


@given(STEPS, STEPS, STEPS)
def test_nearer_steps_earn_more(a, b, step):
    nearer, farther = sorted([a, b], key=lambda k: abs(k - step))
    assert verdict_reward(alarm(nearer, "A"), step, "A") >= verdict_reward(alarm(farther, "A"), step, "A")


@pytest.mark.parametrize(
    "response, last, expected",
    [
        (render_verdict(alarm(1, "B", "r")), 2, 1.0),
        (render_verdict(alarm(1, "B", "r")), 0, -1.0),  # turn 1 is not visible yet
        (render_verdict(alarm(1, "C", "r")), 2, -1.0),  # nobody of that name
        ('<think></think><answer>{"answer": 1.0, "agent": "B", "reason": "r"}</answer>', 2, -1.0),
        ("", 2, -1.0),
    ],
)
def test_the_gate_is_the_parser(response, last, expected):
    assert response_reward(response, last, {"A", "B"}, 1, "B") == pytest.approx(expected)


@pytest.mark.parametrize(
    "options, name",
    [
        ({"sigma": 0}, "sigma=0"),
        ({"sigma": math.inf}, "sigma=inf"),
        ({"step_weight": 0.7}, "step_weight=0.7, agent_weight=0.5"),
        ({"step_weight": 1.5, "agent_weight": -0.5}, "step_weight=1.5"),
        ({"wrong_agent": 1.1}, "wrong_agent"),
        ({"format_penalty": -1}, "format_penalty"),
    ],
)
def test_weights_outside_their_range_are_named(options, name):
    with pytest.raises(AuditError, match=f"^{name}"):
        RewardConfig(**options)


@pytest.mark.parametrize(
    "step, agent, name", [(True, "A", "step=True"), (-1, "A", "step=-1"), (None, "A", "agent='A'")]
)
def test_a_label_that_is_none_is_named(step, agent, name):
    with pytest.raises(AuditError, match=f"^{name}"):
        verdict_reward(SAFE, step, agent)


def test_trl_calls_it_with_columns():
    texts = [render_verdict(alarm(1, "B", "r")), [{"role": "assistant", "content": render_verdict(SAFE)}], "no verdict"]
    columns = {
        "last": [2, 1, 1],
        "roles": [["A", "B"]] * 3,
        "decisive_step": [1, None, 1.0],  # a table column with a hole is one of floats
        "decisive_agent": ["B", None, "B"],
        "trainer_state": None,
    }
    assert trl_reward(prompts=["q"] * 3, completions=texts, completion_ids=[[]] * 3, **columns) == [1.0, 1.0, -1.0]
    columns["decisive_step"] = np.array([1, math.nan, 1])
    assert trl_reward(["q"] * 3, texts, None, **columns) == [1.0, 1.0, -1.0]


@pytest.mark.parametrize("columns, name", [({"last": [1]}, "'roles': missing"), ({"last": []}, "'last': 0 entries")])
def test_trl_columns_that_lack_are_named(columns, name):
    with pytest.raises(AuditError, match=f"^column {name}"):
        trl_reward(["q"], [""], None, **columns)


@pytest.mark.parametrize("encode", [lambda x: x, json.dumps, lambda x: np.array(x, dtype=object)])
def test_verl_calls_it_with_a_ground_truth(encode):
    truth, shown = encode({"step": 1, "agent": "B"}), encode({"last": 2, "roles": ["A", "B"]})
    said = render_verdict(alarm(1, "B", "r"))
    assert compute_score("aftraj", said, truth, shown) == 1.0
    assert compute_score(data_source="x", solution_str=said, ground_truth={"step": None}, extra_info=shown) == -1.0


def test_verl_fields_that_lack_are_named():
    with pytest.raises(AuditError, match="^ground_truth: no 'step'"):
        compute_score("x", "", {}, {"last": 1, "roles": []})
    with pytest.raises(AuditError, match="^extra_info: no 'roles'"):
        compute_score("x", "", {"step": None}, {"last": 1})
    with pytest.raises(RewardInputError, match="^ground_truth: a text that is no JSON"):
        compute_score("x", "", "{", {"last": 1, "roles": []})
    with pytest.raises(RewardInputError, match="^completion: int"):
        trl_reward(["q"], [3], None, last=[0], roles=[["A"]], decisive_step=[None], decisive_agent=[None])
