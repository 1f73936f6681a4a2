"""Exact laws against the values published or computed by other means, and against sampling."""

import numpy as np
import pytest
from scipy import stats

from reprise.stats import StatsError
from reprise.stats_exact import exact_paired_bootstrap, feasible_pairs, grim, majority, mcnemar_exact


@pytest.mark.parametrize(
    "pairs, low, high",
    [
        ((43, 8, 3), -25.58, 2.33),
        ((570, 59, 75), -1.23, 6.84),
        ((43, 5, 0), -20.93, -2.33),
        ((43, 6, 0), -25.58, -4.65),
        ((43, 10, 0), -37.21, -11.63),
        ((43, 17, 0), -53.49, -25.58),
    ],
)
def test_the_exact_interval(pairs, low, high):
    law = exact_paired_bootstrap(*pairs)
    assert (round(100 * law.low, 2), round(100 * law.high, 2)) == (low, high)
    assert law.probability.sum() == pytest.approx(1, abs=1e-12)


def test_the_law_is_that_of_sampling():
    n, b, c = 43, 8, 3
    draws = np.random.default_rng(0).multinomial(n, [b / n, c / n, 1 - (b + c) / n], size=200_000)
    means = (draws[:, 1] - draws[:, 0]) / n
    law = exact_paired_bootstrap(n, b, c)
    sampled = np.array([(np.abs(means - value) < 1e-9).mean() for value in law.values])
    assert np.abs(sampled - law.probability).max() < 0.005


def test_mcnemar_equals_the_binomial_test():
    for b in range(0, 30, 3):
        for c in range(0, 30, 4):
            if b + c:
                assert mcnemar_exact(b, c) == pytest.approx(stats.binomtest(b, b + c).pvalue, abs=1e-12)
    assert mcnemar_exact(0, 0) == 1


def test_grim_is_rounding_read_backwards():
    for n in (7, 132, 570):
        for k in range(n + 1):
            assert k in grim(f"{100 * k / n:.1f}", n)
    assert grim("58.0", 132) == grim("58.0", 396) == grim("68.0", 132) == grim("68.0", 396) == []
    assert grim("34.4", 525) == []
    with pytest.raises(StatsError, match="expected a decimal"):
        grim("12.x", 5)
    with pytest.raises(StatsError, match="as text"):
        grim(12.5, 8)


def test_feasible_pairs_are_all_tables():
    n, x, y = 9, 5, 3
    brute = [(b, c) for b in range(n + 1) for c in range(n + 1) if b - c == x - y and b <= x and c <= n - x]
    assert feasible_pairs(n, x, y) == brute


def test_majority_needs_exactly_three():
    assert majority([[1, 1, 0], [0, 0, 1]]).tolist() == [True, False]
    with pytest.raises(StatsError):
        majority([[1, 1]])
