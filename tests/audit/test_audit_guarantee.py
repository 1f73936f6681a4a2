"""Thresholds and bets that bound false alarms over whole runs: worked values, every order, every path, refusals."""

from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product
from math import comb, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.audit.errors import AuditError
from reprise.audit.guarantee import (
    calibrate,
    calibrate_by,
    calibrate_per_look,
    compounded,
    conformal_rank,
    first_alarm,
    run_maxima,
)
from reprise.audit.martingale import Bet, Null, log_evidence

ALPHAS = (0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.34, 0.5, 0.9)


# -- the run maximum ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "runs, alpha, rank",
    [
        (99, 0.05, 95),
        (19, 0.05, 19),
        (18, 0.05, 19),
        (9, 0.3, 7),
        (9, 0.1, 9),
        (1, 0.5, 1),
        (4, 0.4, 3),
        (1999, 0.05, 1900),
    ],
)
def test_ranks_match_hand_values(runs, alpha, rank):
    assert conformal_rank(runs, alpha) == rank


@pytest.mark.parametrize("runs", [1, 2, 7, 19, 99, 400])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_rank_is_the_smallest_that_keeps_the_promise_in_exact_arithmetic(runs, alpha):
    allowed = Fraction(str(alpha))
    kept = [r for r in range(1, runs + 2) if Fraction(runs + 1 - r, runs + 1) <= allowed]
    assert conformal_rank(runs, alpha) == kept[0]


@pytest.mark.parametrize("runs", [1, 5, 20, 60])
@pytest.mark.parametrize("alpha, confidence", [(0.05, 0.9), (0.1, 0.95), (0.3, 0.5)])
def test_the_rank_with_confidence_is_the_smallest_by_the_binomial_sum(runs, alpha, confidence):
    p = 1 - alpha
    tail = [sum(comb(runs, i) * p**i * (1 - p) ** (runs - i) for i in range(r, runs + 1)) for r in range(1, runs + 2)]
    expected = next(r for r, t in enumerate(tail, start=1) if t <= 1 - confidence)
    assert conformal_rank(runs, alpha, confidence) == expected


@pytest.mark.parametrize("runs", [1, 2, 3, 4])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_in_every_order_of_maxima_ties_included_the_last_run_alarms_at_most_as_promised(runs, alpha):
    for pattern in combinations_with_replacement(range(runs + 1), runs + 1):
        orders = list(permutations(pattern))
        alarms = sum(order[-1] > calibrate([[x] for x in order[:-1]], alpha).value for order in orders)
        share = Fraction(alarms, len(orders))
        assert share <= Fraction(str(alpha))
        if len(set(pattern)) == runs + 1:  # without ties the printed mean is exact
            assert float(share) == pytest.approx(calibrate([[x] for x in pattern[:-1]], alpha).mean)


runs_of_scores = st.lists(st.lists(st.integers(-5, 5), min_size=1, max_size=4), min_size=1, max_size=12)


@given(runs_of_scores, st.sampled_from(ALPHAS))
def test_the_share_of_calibration_runs_above_the_threshold_is_bounded(runs, alpha):
    found = calibrate(runs, alpha)
    assert sum(max(run) > found.value for run in runs) <= found.runs - found.rank or found.value == inf
    assert calibrate(runs, min(0.9, alpha * 2)).value <= found.value


@given(runs_of_scores, st.sampled_from(ALPHAS))
def test_a_strictly_increasing_change_of_scores_changes_no_alarm(runs, alpha):
    changed = [[np.arctan(x) for x in run] for run in runs]
    before, after = calibrate(runs, alpha).value, calibrate(changed, alpha).value
    assert [first_alarm(run, before) for run in runs] == [first_alarm(run, after) for run in changed]


def test_by_group_and_per_look():
    runs = [[0.1], [0.2, 0.9], [0.3], [0.4]]
    by = calibrate_by(["a", "b", "a", "b"], runs, 0.5)
    assert by["a"].value == 0.3 and by["b"].value == 0.9 and by["a"].runs == 2
    look = calibrate_per_look(runs, 0.2)  # 5 looks: rank 6 - floor(1.2) = 5
    assert look.value == 0.9 and look.runs == 5
    with pytest.raises(AuditError, match="^groups: 1 labels: expected 4"):
        calibrate_by(["a"], runs, 0.5)


def test_the_false_alarm_rate_over_calibration_sets_follows_its_beta_law():
    rng = np.random.default_rng(0)
    runs, sets = 39, 4000
    maxima = np.sort(rng.random((sets, runs)), axis=1)  # of uniform maxima the rate is 1 - threshold
    threshold = calibrate([[x] for x in maxima[0]], 0.1)
    found = 1 - maxima[:, threshold.rank - 1]
    assert found.mean() == pytest.approx(threshold.mean, abs=0.003) and threshold.mean == 0.1
    for level in (0.1, 0.5, 0.9):
        assert (found <= threshold.quantile(level)).mean() == pytest.approx(level, abs=0.025)


@pytest.mark.parametrize("looks", [1, 4, 12])
def test_calibrated_on_looks_the_rate_compounds_and_on_runs_it_does_not(looks):
    rng = np.random.default_rng(looks)
    calibration, fresh = rng.standard_normal((4000, looks)), rng.standard_normal((4000, looks))
    per_look, whole = calibrate_per_look(calibration, 0.05), calibrate(calibration, 0.05)
    rates = [(fresh.max(1) > each.value).mean() for each in (per_look, whole)]
    assert rates[0] == pytest.approx(compounded(0.05, looks), abs=0.03)
    assert rates[1] == pytest.approx(0.05, abs=0.015)


def test_first_alarm_and_maxima():
    assert first_alarm([1, 3, 2, 3], 2) == 1 and first_alarm([1, 2], 2) is None and first_alarm([1], inf) is None
    assert run_maxima([[1.0, 4.0], [-inf], [inf, 0]]).tolist() == [4.0, -inf, inf]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: calibrate([], 0.1), r"^runs=\[\]"),
        (lambda: calibrate([[1.0], []], 0.1), r"^runs\[1\]: shape \(0,\)"),
        (lambda: calibrate([[1.0, float("nan")]], 0.1), r"^runs\[0\]\[1\]=nan"),
        (lambda: calibrate([[1.0]], 0.0), "^alpha=0.0"),
        (lambda: calibrate([[1.0]], float("nan")), "^alpha=nan"),
        (lambda: calibrate([[1.0]], 0.1, 1.0), "^confidence=1.0"),
        (lambda: conformal_rank(0, 0.1), "^runs=0"),
        (lambda: compounded(1.1, 3), "^rate=1.1"),
        (lambda: calibrate([[1.0]], 0.5).quantile(1.0), "^level=1.0"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(AuditError, match=message):
        call()


# -- bets --------------------------------------------------------------------------------------------------------------

GAME = Bet((0, 0.25, 0.5, 1), (2.4, 0.8, 0.4))


def by_definition(p, bet, hazard):
    """The sum over starting turns as it is printed."""
    out = []
    for k in range(len(p)):
        gains = [float(bet(np.array([x]))[0]) for x in p[: k + 1]]
        started = sum(hazard * (1 - hazard) ** j * np.prod(gains[j:]) for j in range(k + 1))
        out.append(started + (1 - hazard) ** (k + 1))
    return np.array(out)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.floats(0.01, 0.99))
def test_evidence_is_the_printed_sum(steps, hazard):
    p = np.array(steps) / 20
    assert np.exp(log_evidence(p, GAME, hazard)) == pytest.approx(by_definition(p, GAME, hazard), rel=1e-9)


def test_evidence_by_hand():
    # start at turn 0: .5 * 2.4 * .8, at turn 1: .25 * .8, later: .25
    assert np.exp(log_evidence([0.2, 0.3], GAME, 0.5)) == pytest.approx([1.2 + 0.5, 0.96 + 0.2 + 0.25])


@pytest.mark.parametrize("alpha", [0.5, 0.25, 0.1])
@pytest.mark.parametrize("hazard", [0.1, 0.6])
def test_over_every_path_evidence_has_mean_one_and_rarely_grows(alpha, hazard):
    grid = np.arange(1, 5) / 4
    paths = np.array([np.exp(log_evidence(path, GAME, hazard)) for path in product(grid, repeat=5)])
    assert paths.mean(axis=0) == pytest.approx(np.ones(5))
    assert (paths.max(axis=1) >= 1 / alpha).mean() <= alpha


def test_p_values_by_hand_and_unseen_contexts_give_no_evidence():
    null = Null.fit([[3.0, 1.0], [2.0, 9.0]], [["a", "a"], ["a", "b"]])
    assert null.p_values([2.0, 3.5, 0.0], "aaa") == pytest.approx([3 / 4, 1 / 4, 1])
    assert null.p_values([1e9, float("nan"), 9.0], "cab") == pytest.approx([1, 1, 1])


def test_p_values_of_exchangeable_scores_are_no_smaller_than_uniform():
    for pattern in combinations_with_replacement(range(4), 4):
        orders = list(permutations(pattern))
        p = [Null.fit([list(order[:3])], ["xxx"]).p_values([order[3]], "x")[0] for order in orders]
        for level in (1 / 4, 1 / 2, 3 / 4):
            assert np.mean(np.array(p) <= level + 1e-12) <= level + 1e-12


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=50), st.floats(1e-4, 0.5), st.floats(0.01, 1))
def test_a_fitted_bet_is_one(p, finest, floor):
    bet = Bet.fit(p, finest, floor)  # the constructor checks order and integral
    assert float(np.array(bet.heights) @ np.diff(bet.edges)) == pytest.approx(1)
    assert min(bet.heights) >= floor * 0.999


def test_a_fitted_bet_follows_the_errors():
    bet = Bet.fit([0.001] * 9 + [0.5], 0.01, 0.1)
    assert bet(np.array([0.005]))[0] > 70 and bet(np.array([0.9]))[0] < 0.3
    assert set(np.round(Bet.fit(np.linspace(0.01, 1, 100), 0.25).heights, 6)) == {1.0}


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Bet((0, 0.5, 1), (1.5, 0.6)), r"^heights=\(1.5, 0.6\): integral 1.05"),
        (lambda: Bet((0, 0.5, 1), (0.5, 1.5)), "^heights=.*non-increasing"),
        (lambda: Bet((0, 1), (1, 0)), "^edges="),
        (lambda: Bet((0.1, 1), (1,)), "^edges="),
        (lambda: Bet.fit([], 0.1), "^p: 0 values"),
        (lambda: Bet.fit([0.0], 0.1), "^p: 1 values"),
        (lambda: Bet.fit([0.5], 1.0), "^finest=1.0"),
        (lambda: log_evidence([0.5], GAME, 0.0), "^hazard=0.0"),
        (lambda: log_evidence([0.5, 0.0], GAME, 0.1), "^p=0.0"),
        (lambda: Null.fit([[1.0]], [["a", "b"]]), r"^contexts\[0\]: 2 labels: expected 1"),
        (lambda: Null.fit([[float("nan")]], [["a"]]), r"^runs\[0\]: a score is nan"),
    ],
)
def test_bets_that_bound_nothing_are_refused(call, message):
    with pytest.raises(AuditError, match=message):
        call()


def test_a_bet_that_never_bets_never_alarms():
    flat = Bet((0, 1), (1,))
    assert np.exp(log_evidence(np.full(30, 1e-3), flat, 0.2)) == pytest.approx(np.ones(30))
    ruined = log_evidence([1.0, 0.001], Bet((0, 0.01, 1), (100, 0)), 0.1)
    assert ruined[0] == pytest.approx(log(0.9)) and ruined[1] == pytest.approx(log(0.09 * 100 + 0.81))
