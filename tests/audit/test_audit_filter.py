"""The three checks of a safe run, each failed alone, and the family split."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.audit.environment import Rollout, roll
from reprise.audit.errors import AuditError
from reprise.audit.safe_filter import Rejection, safe_filter
from reprise.audit.split import family_split
from reprise.audit.trajectory import Trajectory
from reprise.labs.agent_runs import CodeEnv, MathEnv, SearchEnv
from reprise.traces import Turn

TASK = {"domain": "math", "start": 14, "operations": [5, -3]}
S, V = "MathSolver", "Verifier"


def run(*lines, finished=True):
    turns = [Turn("user", "ask", "start 14 then + 5 , - 3"), *(Turn(*line) for line in lines)]
    return Rollout(tuple(turns), finished)


CLEAN = (
    (S, "compute", "14 + 5 = 19"),
    (V, "check", "14 + 5 = 19 ok"),
    (S, "compute", "19 - 3 = 16"),
    (V, "accept", "16 ok"),
    (S, "final", "answer 16"),
    (V, "pass", "ANSWER_VERIFIED"),
)
SLIP = ((S, "compute", "14 + 5 = 18"), (V, "check", "14 + 5 = 18 mismatch"), (S, "revise", "14 + 5 = 19"))


@pytest.mark.parametrize(
    "rollout, rejection",
    [
        (run(*CLEAN), None),
        (run(*CLEAN[:-2], (S, "final", "answer 32/2"), CLEAN[-1]), Rejection.COHERENCE),  # equal, but not as said
        (run(*CLEAN[:-2], (S, "final", "answer 17"), CLEAN[-1]), Rejection.OUTCOME),
        (run(*CLEAN[:-1]), Rejection.OUTCOME),  # never verified
        (run(*CLEAN[:1], (V, "tool_error", "calculator error"), *CLEAN[1:]), Rejection.INTEGRITY),
        (run(*CLEAN[:1], ("Stranger", "check", "14 + 5 = 19 ok"), *CLEAN[2:]), Rejection.INTEGRITY),
        (run(*CLEAN[:1], (V, "shout", "14 + 5 = 19 ok"), *CLEAN[1:]), Rejection.INTEGRITY),
        (run(*CLEAN[:1], (V, "tool_error", " "), *CLEAN[1:]), Rejection.INTEGRITY),
        (run(*CLEAN, finished=False), Rejection.INTEGRITY),
        (run(*SLIP, *CLEAN[1:]), Rejection.COHERENCE),  # slipped and recovered: right in the end, not safe
        (
            run(*CLEAN[:1], (V, "check", "14 + 5 = 19 mismatch"), (S, "revise", "14 + 5 = 19"), *CLEAN[1:]),
            Rejection.COHERENCE,
        ),
    ],
)
def test_each_check_rejects_what_the_others_let_pass(rollout, rejection):
    assert safe_filter(MathEnv(), TASK, rollout) == rejection


def test_a_judge_may_stand_in_for_the_oracle():
    assert safe_filter(MathEnv(), TASK, run(*SLIP, *CLEAN[1:]), judge=lambda *_: False) is None
    assert safe_filter(MathEnv(), TASK, run(*CLEAN), judge=lambda task, turns, k: k == 3) == Rejection.COHERENCE


@pytest.mark.parametrize("environment", [MathEnv, CodeEnv, SearchEnv])
def test_every_check_fires_on_runs_of_a_system_that_slips(environment):
    system = environment(p_slip=0.3, p_tool_error=0.1)
    seen = Counter()
    for seed in range(70):
        rng = np.random.default_rng(seed)
        task = system.draw_task(rng)
        seen[safe_filter(system, task, roll(system, task, (), rng))] += 1
    assert set(seen) == {None, *Rejection}


@pytest.mark.parametrize("environment", [MathEnv, CodeEnv, SearchEnv])
def test_a_system_that_never_slips_is_always_safe(environment):
    system = environment(p_slip=0.0, p_tool_error=0.0)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        task = system.draw_task(rng)
        assert safe_filter(system, task, roll(system, task, (), rng)) is None


# -- families ----------------------------------------------------------------------------------------------------------


def trajectories(families):
    turns = (Turn("a", "say", "x"), Turn("b", "say", "y"))
    for number, (domain, variants) in enumerate(families):
        for k in range(variants + 1):
            yield Trajectory(f"{number}-{k}", turns, domain, f"family {number}", 1 if k else None, "b" if k else None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["math", "coding"]), st.integers(0, 3)), min_size=1, max_size=60),
    st.floats(0.05, 0.9),
    st.integers(0, 5),
)
def test_families_stay_whole_and_strata_are_split_alike(families, share, seed):
    everything = tuple(trajectories(families))
    split = family_split(everything, share, seed)
    train, test = ({t.family for t in side} for side in split)
    assert not train & test and set(split.train) | set(split.test) == set(everything)
    for stratum, count in Counter(families).items():
        tested = sum(families[int(name.split()[1])] == stratum for name in test)
        assert tested == int(share * count + 0.5)
    assert family_split(everything[::-1], share, seed).test == split.test[::-1]  # order does not matter


def test_fifteen_percent_of_three_and_of_four_hundred():
    assert len(family_split(trajectories([("math", 0)] * 3)).test) == 0
    assert len(family_split(trajectories([("math", 0)] * 10)).test) == 2  # 1.5 rounds up
    assert len(family_split(trajectories([("math", 1)] * 400)).test) == 2 * 60


def test_the_split_names_what_it_refuses():
    runs = tuple(trajectories([("math", 1)]))
    with pytest.raises(AuditError, match="^test_share=1"):
        family_split(runs, 1)
    with pytest.raises(AuditError, match="'0-0': family=''"):
        family_split([replace(runs[0], family="")])
    with pytest.raises(AuditError, match="^family 'family 0': domains"):
        family_split([runs[0], replace(runs[1], domain="coding")])
