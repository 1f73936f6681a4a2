"""Propose and verify: thresholds, ties, the analytic rate, and panels that err alone or together."""

from itertools import product
from math import prod

import numpy as np
import pytest

from reprise.audit.errors import AuditError
from reprise.audit.propose_verify import Candidate, Check, admission_rate, admit, threshold
from reprise.audit.trajectory import Trajectory
from reprise.labs.agent_runs import MathEnv, build_corpus
from reprise.labs.agent_runs.chances import ChanceError
from reprise.labs.agent_runs.judges import Panel, truth, vote
from reprise.traces import Turn

RUN = Trajectory("r", tuple(Turn(f"agent {k}", "say", "x") for k in range(8)))
GOOD = Check(True, True, True, True)


def propose(*steps):
    return lambda _: [Candidate(step) for step in steps]


def passes(*steps, confidence=1.0):
    return lambda _, candidate: Check(True, True, True, candidate.step in steps, confidence)


@pytest.mark.parametrize("voters, needed", [(1, 1), (3, 2), (5, 3), (7, 4)])
def test_thresholds(voters, needed):
    assert threshold(voters) == needed


@pytest.mark.parametrize("missing", ["exists", "substantive", "decisive", "earliest"])
def test_all_four_criteria_are_needed(missing):
    assert GOOD.passed
    assert not Check(**{name: name != missing for name in ("exists", "substantive", "decisive", "earliest")}).passed


@pytest.mark.parametrize(
    "p, voters, rate",
    [(0.9, 1, 0.9), (0.9, 3, 0.972), (0.9, 5, 0.99144), (0.6, 1, 0.6), (0.6, 3, 0.648), (0.6, 5, 0.68256)],
)
def test_admission_rates(p, voters, rate):
    assert admission_rate(p, voters) == pytest.approx(rate, abs=5e-6)


def test_four_criteria_compound():
    assert 0.95**4 == pytest.approx(0.8145062, abs=5e-8)
    assert admission_rate(0.95**4) == pytest.approx(0.9095411, abs=5e-8)


@pytest.mark.parametrize("accuracy, ceiling", [(0.8, 0.366), (0.9, 0.727), (0.95, 0.910)])
def test_ceilings(accuracy, ceiling):
    assert admission_rate(accuracy**4) == pytest.approx(ceiling, abs=5e-4)


@pytest.mark.parametrize("voters", [1, 3, 5])
def test_the_rate_is_the_sum_over_all_ballots(voters):
    p = 0.37
    ballots = product((True, False), repeat=voters)
    exact = sum(prod(p if vote else 1 - p for vote in votes) for votes in ballots if sum(votes) > voters / 2)
    assert admission_rate(p, voters) == pytest.approx(exact, abs=1e-15)


def test_two_of_three_verifiers_admit():
    assert admit(RUN, [propose(3)], [passes(3), passes(3), passes()]) == (3, "agent 3", 1, 1)
    assert admit(RUN, [propose(3)], [passes(3), passes(), passes()]) == (None, None, 1, 0)


def test_candidates_are_joined_by_step():
    seen = []

    def verifier(_, candidate):
        seen.append(candidate)
        return GOOD

    proposers = [lambda _: [Candidate(5, 0.2, "a"), Candidate(2, 0.1)], lambda _: [Candidate(5, 0.9, "b")]]
    assert admit(RUN, proposers, [verifier]).proposed == 2
    assert [(c.step, c.reason) for c in seen] == [(2, ""), (5, "b")]


def test_of_several_the_most_confident_then_the_earliest():
    def confident(step):
        return lambda _, candidate: Check(True, True, True, True, 0.9 if candidate.step == step else 0.4)

    assert admit(RUN, [propose(2, 4, 6)], [confident(6)]).step == 6
    assert admit(RUN, [propose(6, 4, 2)], [lambda _, c: GOOD]).step == 2


@pytest.mark.parametrize("count", [0, 2, 4])
def test_an_even_number_of_verifiers_is_refused(count):
    with pytest.raises(AuditError, match=f"^verifiers={count}"):
        admit(RUN, [propose(1)], [passes(1)] * count)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Candidate(1, 1.5), "confidence=1.5"),
        (lambda: Check(True, True, True, True, float("nan")), "confidence=nan"),
        (lambda: admit(RUN, [propose(1, 2, 3, 4)], [passes()]), "^proposer 0: 4 candidates"),
        (lambda: admit(RUN, [propose(1), propose(8)], [passes()]), "^proposer 1: step=8"),
        (lambda: admit(RUN, [propose(True)], [passes()]), "^proposer 0: step=True"),
        (lambda: admission_rate(1.1), "^p=1.1"),
    ],
)
def test_what_is_out_of_range_is_named(make, message):
    with pytest.raises(AuditError, match=message):
        make()


# -- panels ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def labelled():
    corpus = build_corpus(150, seed=21, domains=("math",))
    return corpus.unsafe, [truth(MathEnv(), run) for run in corpus.unsafe]


def test_the_truth_holds_in_full_at_the_decisive_step_only(labelled):
    for known in labelled[1]:
        assert [k for k, criteria in enumerate(known.criteria) if all(criteria)] == [known.step]


def test_judges_that_never_err_label_everything(labelled):
    assert vote(Panel(1.0, 1.0), *labelled, seed=0) == (1.0, 1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("shared", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("accuracy", [0.8, 0.95])
def test_verifiers_pass_the_true_step_at_the_analytic_rate(labelled, accuracy, shared):
    """Of independent verifiers the ceiling; in general, given the common reading each follows it or his own."""
    passed = [vote(Panel(0.7, accuracy, shared), *labelled, seed=seed).true_passed for seed in range(6)]
    own = (1 - shared) * accuracy**4
    wanted = accuracy * admission_rate(shared + own) + (1 - accuracy) * admission_rate(own)
    assert np.mean(passed) == pytest.approx(wanted, abs=0.045)  # three standard errors of 6 x 210 runs


def test_readings_in_common_make_agreement_worth_less(labelled):
    alone, together = (vote(Panel(0.7, 0.9, shared), *labelled, seed=3) for shared in (0.0, 0.9))
    assert alone.precision > 0.98 > 0.9 > together.precision


def test_one_guess_is_as_good_as_the_panel_that_shares_it(labelled):
    together = vote(Panel(0.5, 0.9, 1.0), *labelled, seed=1)
    assert together.majority == together.single
    assert vote(Panel(0.5, 0.9, 0.0), *labelled, seed=1).majority > together.majority


def test_a_panel_names_the_bad_chance():
    with pytest.raises(ChanceError, match="^shared=2"):
        Panel(0.5, 0.5, 2)
