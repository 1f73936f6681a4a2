"""The three readings of the decisive error, on a system small enough to work out by hand and on generated corpora."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from reprise.audit.decisive import decisive_step
from reprise.audit.environment import roll
from reprise.audit.errors import AuditError
from reprise.audit.trajectory import Trajectory
from reprise.labs.agent_runs import CodeEnv, MathEnv, SearchEnv, build_corpus
from reprise.labs.agent_runs.label_check import first_false_turn, first_fatal_turn
from reprise.traces import Turn

ENVIRONMENTS = {"math": MathEnv(), "coding": CodeEnv(), "search": SearchEnv()}


@dataclass(frozen=True)
class Counter:
    """Counts up to task["goal"], a turn each; a turn "-" is wrong; the next turn repairs it while `repairs` last."""

    repairs: int = 0
    domain = "counter"

    def next_turn(self, task, turns, rng):
        if len(turns) == task["goal"]:
            return None
        bad = [k for k, turn in enumerate(turns) if turn.content == "-"]
        if bad and len(turns) - bad[0] <= self.repairs:
            return Turn("a", "repair", "r") if rng.random() < 0.5 else Turn("a", "say", "+")
        return Turn("a", "say", "+")

    def omega(self, task, turns):
        wrong = [turn.content for turn in turns].count("-")
        return len(turns) == task["goal"] and wrong <= any(turn.action == "repair" for turn in turns)

    def locally_wrong(self, task, turns, k):
        return turns[k].content == "-"

    def fix(self, task, turns, k, rng):
        return Turn("a", "say", "+")


def run_of(text, goal=None):
    turns = tuple(Turn("a", "say", mark) for mark in text)
    return Trajectory("r", turns, outcome=False, meta={"task": {"goal": goal or len(text)}})


@pytest.mark.parametrize(
    "text, repairs, flip, no_return, literal",
    [
        ("+++-+++", 0, 3, 3, 1),
        ("+++-+++", 2, 3, 5, 1),  # a repair may still come in the two turns after the fault, in some rollout
        ("-++", 0, 0, 0, None),  # nothing after the first turn is replaced by the literal reading
        ("++-+-+", 0, None, 2, 1),  # two faults: correcting either leaves the other
        ("+", 0, None, 0, None),  # fails by its length alone
    ],
)
def test_readings_by_hand(text, repairs, flip, no_return, literal):
    run = run_of(text, goal=max(len(text), 2))
    environment = Counter(repairs)
    if text == "++-+-+":
        # re-rolling from the first fault does not repeat the second
        flip = 2
    if text == "+":
        run = replace(run, meta={"task": {"goal": 0}})
    assert decisive_step(environment, run, "earliest_flip") == flip
    assert decisive_step(environment, run, "point_of_no_return") == no_return
    assert decisive_step(environment, run, "literal") == literal


def test_a_run_that_succeeded_has_no_decisive_error():
    run = run_of("+++")
    with pytest.raises(AuditError, match="trajectory succeeded"):
        decisive_step(Counter(), run)


@pytest.mark.parametrize(
    "kwargs, message",
    [(dict(mode="first"), "^mode='first'"), (dict(n_rollouts=0), "^n_rollouts=0"), (dict(n_rollouts=True), "^n_roll")],
)
def test_bad_arguments_are_named(kwargs, message):
    with pytest.raises(AuditError, match=message):
        decisive_step(Counter(), run_of("+-+"), **kwargs)


def test_a_run_without_its_task_is_refused():
    with pytest.raises(AuditError, match="no 'task'"):
        decisive_step(Counter(), replace(run_of("+-+"), meta={}))


def test_a_rollout_stops_at_its_budget():
    task, rng = {"goal": 5}, np.random.default_rng(0)
    assert roll(Counter(), task, (), rng, budget=5) == (roll(Counter(), task, (), rng).turns, True)
    stopped = roll(Counter(), task, (), rng, budget=4)
    assert len(stopped.turns) == 4 and not stopped.finished


# -- generated corpora -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpora():
    return [build_corpus(14, seed=seed) for seed in (11, 12)]


def test_labels_agree_with_two_oracles_that_share_no_code_with_them(corpora):
    """Every label, injected or natural: the text's first false turn, and what a believing system shows."""
    for corpus in corpora:
        for run in corpus.unsafe:
            found = first_false_turn(run), first_fatal_turn(ENVIRONMENTS[run.domain], run)
            assert found == (run.decisive_step, run.decisive_step), run.id
            assert run.decisive_agent == run.turns[run.decisive_step].role


def test_safe_runs_are_safe_at_every_prefix_by_both_oracles(corpora):
    for corpus in corpora:
        for run in corpus.safe:
            assert first_false_turn(run) is None and first_fatal_turn(ENVIRONMENTS[run.domain], run) is None, run.id


def test_the_oracles_can_tell(corpora):
    """Moving a label, or planting an error in a safe run's text, is seen."""
    math = next(run for run in corpora[0].safe if run.domain == "math")
    turn = math.turns[1]
    wrong = replace(turn, content=turn.content + "7")
    assert first_false_turn(replace(math, turns=(math.turns[0], wrong, *math.turns[2:]))) == 1


def test_no_return_is_never_before_the_flip(corpora):
    """Without slips for certain, and with them up to the chance that 32 rollouts all fail."""
    for run in corpora[0].unsafe[::3]:
        for environment in (ENVIRONMENTS[run.domain], replace(ENVIRONMENTS[run.domain], p_slip=0.0)):
            flip = decisive_step(environment, run)
            assert flip == run.decisive_step
            assert decisive_step(environment, run, "point_of_no_return", n_rollouts=32) >= flip


def test_the_literal_reading_is_always_the_first_step(corpora):
    assert {decisive_step(ENVIRONMENTS[run.domain], run, "literal", 32) for run in corpora[0].unsafe} == {1}
