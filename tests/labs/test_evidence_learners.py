"""Closed forms against enumeration and dynamic programming; learners against closed forms."""

from itertools import product

import numpy as np
import pytest

from reprise.evidence.metrics import Episode, summarize
from reprise.labs.evidence_learners import (
    Move,
    Problem,
    bsr_of_first_bad,
    ecs_pay,
    grid,
    outcome_pay,
    play_policy,
    strategy,
    train,
    train_on_cases,
)
from reprise.labs.evidence_suite import generate_suite

CASES = [case for case in generate_suite(0) if case.view.protocol in ("v0", "v1")]


def enumerated(problem):
    """Expected rewards by going through all 2^K worlds."""
    totals = dict(act=0.0, stop=0.0, read=0.0)
    for bad in product((0, 1), repeat=problem.facts):
        chance = np.prod([problem.bad if b else 1 - problem.bad for b in bad])
        right = not any(bad)
        reads = problem.facts if right else bad.index(1) + 1
        totals["act"] += chance * (1.0 if right else -problem.loss)
        totals["stop"] += chance * (0.0 if right else problem.stop)
        totals["read"] += chance * ((1.0 if right else problem.stop) - problem.cost * reads)
    return totals


def optimum(problem):
    """Value of the best policy of all, by going backwards over the number of facts read."""
    value = 1.0
    for read in range(problem.facts - 1, -1, -1):
        good = (1 - problem.bad) ** (problem.facts - read)
        on = -problem.cost + (1 - problem.bad) * value + problem.bad * problem.stop
        value = max(good - problem.loss * (1 - good), problem.stop * (1 - good), on)
    return value


@pytest.mark.parametrize(
    "problem", [Problem(k, v, c, 2.0, 0.3) for k in (1, 4, 6) for v in (0.1, 0.4) for c in (0.02, 0.3)]
)
def test_closed_forms(problem):
    assert problem.values == pytest.approx(enumerated(problem))


@pytest.mark.parametrize("problem", grid(6, (0.05, 0.1, 0.2, 0.3), (0.01, 0.05, 0.1, 0.25, 0.4)))
def test_no_other_policy_is_better_and_the_boundary_is_one(problem):
    assert optimum(problem) == pytest.approx(max(problem.values.values()))
    assert (problem.best == "read") == (problem.cost < problem.critical_cost)
    assert (problem.best == "read") != (problem.other_side.best == "read")
    if problem.values["act"] > problem.values["stop"]:
        assert problem.critical_cost == pytest.approx(problem.bad * (problem.loss + problem.stop))


@pytest.mark.parametrize(
    "problem, best",
    [
        (Problem(6, 0.05, 0.25, 1.0), "act"),
        (Problem(6, 0.1, 0.25, 3.0), "stop"),
        (Problem(6, 0.1, 0.03, 1.0), "read"),
    ],
)
def test_learners_find_the_regime(problem, best):
    assert problem.best == best
    assert [strategy(train(problem, seed, episodes=20_000)) for seed in (0, 1)] == [best, best]


def pure(move, stop_at_bad=True):
    """Q values of a policy that always makes this move, and stops once a bad fact was seen."""
    policies = {}
    for facts in range(4, 10):
        q = np.zeros((facts + 1, 2, 3))
        q[:, 0, move] = 2.0
        q[:, 0, Move.ACT] += 1.0
        q[:, 1, Move.STOP if stop_at_bad else Move.READ] = 2.0
        q[:, 1, Move.STOP] += 1.0
        policies[facts] = q
    return policies


def judged(policies):
    return summarize(Episode(0, play_policy(case, policies, 0)) for case in CASES)


def test_pure_policies_in_the_real_environment():
    acts, stops, reads, thorough = (
        judged(pure(*how)) for how in ((Move.ACT,), (Move.STOP,), (Move.READ,), (Move.READ, False))
    )
    assert acts.par.percent == 100 and acts.bsr.percent == 0
    assert stops.bsr.percent == 100 and np.isnan(stops.par.percent)
    assert reads.by_protocol["v1"].percent == 100 and reads.par.percent == 0
    assert abs(reads.bsr.percent - bsr_of_first_bad(CASES)) < 10
    assert thorough.by_protocol["v0"].percent == 100 and thorough.bsr.percent == 0


def test_paid_for_the_chain_a_learner_reads_on():
    chain, outcome = (judged(train_on_cases(CASES, pay, 0.05, 0, 1500)) for pay in (ecs_pay, outcome_pay))
    assert chain.by_protocol["v0"].percent > 85 and chain.bsr.percent < 5
    assert outcome.by_protocol["v0"].percent < 50 < outcome.bsr.percent
