"""Intervals and agreement against values from a pocket calculator, statsmodels and scipy."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers import need

from reprise import stats
from reprise.stats import (
    StatsError,
    cohen_kappa,
    paired_bootstrap,
    paired_t_interval,
    ratio_bootstrap,
    student_quantile,
    wilson_interval,
)

STATSMODELS = "0.15.0"


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(stats).failed == 0


# -- proportions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "successes, trials, low, high",
    [(164, 225, 0.667324, 0.782770), (0, 10, 0.0, 0.277533), (10, 10, 0.722467, 1.0), (165, 180, 0.867070, 0.948850)],
)
def test_wilson_interval_matches_hand_values(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-7)


@given(st.integers(1, 10_000), st.data())
def test_wilson_interval_mirrors_when_success_and_failure_swap(trials, data):
    k = data.draw(st.integers(0, trials))
    low, high = wilson_interval(k, trials)
    assert 0 <= low <= high <= 1
    assert wilson_interval(trials - k, trials) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize("successes, trials", [(0, 1), (7, 31), (31, 31), (9_999, 10_000)])
def test_wilson_interval_agrees_with_scipy(successes, trials):
    from scipy.stats import binomtest

    theirs = binomtest(successes, trials).proportion_ci(0.9, method="wilson")
    assert wilson_interval(successes, trials, 0.9) == pytest.approx((theirs.low, theirs.high))


def test_wilson_interval_agrees_with_statsmodels():
    proportion = need("statsmodels.stats.proportion", STATSMODELS)
    assert wilson_interval(7, 31) == pytest.approx(proportion.proportion_confint(7, 31, method="wilson"))


@pytest.mark.parametrize(
    "kwargs, name",
    [
        (dict(successes=3, trials=2), "successes"),
        (dict(successes=-1, trials=2), "successes"),
        (dict(successes=0, trials=0), "trials"),
        (dict(successes=1, trials=2, confidence=1.0), "confidence"),
    ],
)
def test_wilson_interval_names_the_bad_argument(kwargs, name):
    with pytest.raises(ValueError, match=f"^{name}="):
        wilson_interval(**kwargs)


# -- agreement ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table, kappa",
    [
        ([[20, 5], [10, 15]], 0.4),
        # observed 159/180, expected (50*50 + 40*38 + 90*92)/180^2 = 12300/32400
        ([[45, 3, 2], [4, 30, 6], [1, 5, 84]], 0.811940),
        ([[1, 0], [0, 1]], 1.0),
        ([[0, 1], [1, 0]], -1.0),
        ([[1, 1], [1, 1]], 0.0),
    ],
)
def test_kappa_matches_hand_values(table, kappa):
    assert cohen_kappa(table) == pytest.approx(kappa, abs=5e-7)


def test_kappa_of_labels_is_kappa_of_their_table():
    pairs = [("yes", "yes")] * 20 + [("yes", "no")] * 5 + [("no", "yes")] * 10 + [("no", "no")] * 15
    assert cohen_kappa(*zip(*pairs, strict=True)) == pytest.approx(0.4)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=40))
def test_kappa_is_symmetric_and_blind_to_the_labels(pairs):
    a, b = zip(*pairs, strict=True)
    if len({*a, *b}) == 1:
        with pytest.raises(StatsError, match="one label only"):
            cohen_kappa(a, b)
        return
    kappa = cohen_kappa(a, b)
    assert cohen_kappa(b, a) == pytest.approx(kappa)
    assert cohen_kappa([-x for x in a], [-x for x in b]) == pytest.approx(kappa)
    assert kappa <= 1


def test_kappa_agrees_with_statsmodels():
    theirs = need("statsmodels.stats.inter_rater", STATSMODELS)
    table = np.random.default_rng(0).integers(0, 30, size=(4, 4))
    assert cohen_kappa(table) == pytest.approx(theirs.cohens_kappa(table, return_results=False))


@pytest.mark.parametrize(
    "a, b, message",
    [
        ([[1, 2]], None, "square"),
        ([[1.5, 0], [0, 1]], None, "counts"),
        ([[0, 0], [0, 0]], None, "no items"),
        (["x"], ["x", "y"], "^b: 2 labels: expected 1"),
        (["x", "x"], ["x", "x"], "one label only"),
    ],
)
def test_kappa_refuses(a, b, message):
    with pytest.raises(StatsError, match=message):
        cohen_kappa(a, b)


# -- paired differences ------------------------------------------------------------------------------------------------


def test_t_interval_of_a_hand_example():
    assert paired_t_interval([2, 4, 6, 8, 10], [1, 2, 3, 4, 5]) == pytest.approx((3, 1.036757, 4.963243), abs=5e-7)


def test_t_interval_and_quantile_agree_with_scipy():
    from scipy.stats import t, ttest_rel

    rng = np.random.default_rng(1)
    x, y = rng.normal(1, 2, 7), rng.normal(0, 1, 7)
    theirs = ttest_rel(x, y).confidence_interval(0.9)
    assert paired_t_interval(x, y, 0.9)[1:] == pytest.approx((theirs.low, theirs.high))
    assert student_quantile(2.5, 0.99) == pytest.approx(t.ppf(0.995, 2.5))


def test_paired_bootstrap_agrees_with_scipy():
    from scipy.stats import bootstrap

    rng = np.random.default_rng(2)
    x, y = rng.normal(0.5, 1, 60), rng.normal(0, 1, 60)
    mean, low, high = paired_bootstrap(x, y, 20_000, seed=3)
    theirs = bootstrap((x - y,), np.mean, n_resamples=20_000, method="percentile", rng=4).confidence_interval
    assert mean == pytest.approx((x - y).mean())
    # two sets of 20 000 resamples: quantiles differ by a few standard errors of a quantile, 0.02 se each
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=0.1 * (x - y).std() / np.sqrt(60))


def test_the_exact_distribution_of_a_bootstrap_of_two_units():
    # resamples of (0, 1) have mean 0, 1/2, 1 with probability 1/4, 1/2, 1/4
    means = stats.resampled_sums(np.array([[0.0], [1.0]]), 40_000, seed=0)[:, 0] / 2
    assert sorted(set(means)) == [0, 0.5, 1]
    assert [(means == m).mean() for m in (0, 0.5, 1)] == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_clusters_are_drawn_whole():
    # four prompts of 50 equal rollouts: rows pretend to know 200 numbers, prompts know 4
    values = np.repeat([0.0, 1.0, 2.0, 3.0], 50)
    prompts = np.repeat(["a", "b", "c", "d"], 50)
    rows, whole = (paired_bootstrap(values, np.zeros(200), 4000, 0, by) for by in (None, prompts))
    assert rows.estimate == whole.estimate == 1.5
    assert (rows.high - rows.low) < 0.4 * (whole.high - whole.low)
    each_own = paired_bootstrap(values, np.zeros(200), 4000, 0, np.arange(200))
    assert each_own == rows


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20), st.integers(0, 1000))
def test_bootstrap_is_deterministic_and_brackets_its_range(values, seed):
    zero = np.zeros(len(values))
    first, again = (paired_bootstrap(values, zero, 200, seed) for _ in range(2))
    assert first == again
    slack = 1e-12
    assert min(values) - slack <= first.low <= first.high <= max(values) + slack


def test_a_ratio_of_sums_is_not_a_mean_of_ratios():
    ratio = ratio_bootstrap([1, 0, 9], [1, 1, 18], 500, 0)
    assert ratio.estimate == pytest.approx(0.5)
    assert ratio_bootstrap([1, 0], [1, 0], 500, 0).estimate == 1  # resamples without a case are left out


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: paired_bootstrap([1.0], [1.0, 2.0]), "^y: 2 units: expected 1"),
        (lambda: paired_bootstrap([1.0, np.nan], [1.0, 2.0]), r"^x\[1\]: expected a finite number"),
        (lambda: paired_bootstrap([], []), "no units"),
        (lambda: paired_bootstrap([1.0], [1.0], n=0), "^n=0"),
        (lambda: paired_bootstrap([1.0, 2.0], [0.0, 0.0], cluster=["a"]), "^cluster: 1 labels: expected 2"),
        (lambda: ratio_bootstrap([1.0], [0.0]), "sums to 0"),
        (lambda: ratio_bootstrap([[1.0]], [1.0]), "flat"),
        (lambda: paired_t_interval([1.0]), "1 units: expected at least 2"),
        (lambda: paired_t_interval([1.0, 2.0], confidence=0), "^confidence=0"),
        (lambda: paired_bootstrap(["x"], [1.0]), "^x: expected a flat sequence of numbers"),
        (lambda: paired_bootstrap([1.0, 2.0], [[1.0], [1.0, 2.0]]), "^y: expected a flat sequence of numbers"),
        # seed 6 never draws the one unit that counts
        (lambda: ratio_bootstrap([1.0] + [0.0] * 9, [1.0] + [0.0] * 9, n=1, seed=6), "^n=1: no resample"),
        (lambda: student_quantile(0), "^degrees=0"),
    ],
)
def test_bad_samples_are_named(call, message):
    with pytest.raises(StatsError, match=message):
        call()
