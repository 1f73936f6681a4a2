"""Intervals and agreement for small samples: Wilson, Cohen's kappa, paired and cluster bootstrap, paired t.

Proportions stay proportions (0.729, not 72.9), and every interval is two-sided. The bootstraps draw from their own
generator, so that the same seed gives the same interval whatever ran before.
"""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from reprise.errors import RepriseError

# resampled rows held at once, in numbers: 64 MB of float64
BLOCK = 8_000_000


class StatsError(RepriseError):
    """An argument for which the statistic is not defined; the message names it."""


class Interval(NamedTuple):
    """A point estimate with the two ends of its interval."""

    estimate: float
    low: float
    high: float


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval for a binomial proportion.

    With p = successes / trials and z the normal quantile of (1 + confidence) / 2,

        (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n),   n = trials.

    Unlike p ± z·se it stays inside [0, 1] and is usable at p = 0 and p = 1.

    Args:
        successes: number of successes, 0 <= successes <= trials.
        trials: number of independent trials, at least 1.
        confidence: two-sided level in (0, 1).

    Returns:
        (lower, upper) as proportions, not percentages.

    Raises:
        StatsError: an argument is outside its range; the message names it.

    Source: E. B. Wilson, JASA 22 (1927) 209-212.

    >>> low, high = wilson_interval(164, 225)
    >>> round(low, 3), round(high, 3)
    (0.667, 0.783)
    """
    if trials < 1:
        raise StatsError(f"trials={trials}: expected at least 1")
    if not 0 <= successes <= trials:
        raise StatsError(f"successes={successes}: expected 0 <= successes <= trials={trials}")
    _level(confidence)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    p, n = successes / trials, trials
    centre = p + z * z / (2 * n)
    half_width = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # at 0 and n successes rounding would leave the unit interval by an ulp
    return max(0.0, (centre - half_width) / scale), min(1.0, (centre + half_width) / scale)


def cohen_kappa(a, b=None) -> float:
    """Agreement of two annotators beyond chance.

        kappa = (p_o - p_e) / (1 - p_e),   p_o = Σ_k n_kk / n,   p_e = Σ_k n_k. n_.k / n²

    Args:
        a: labels of the first annotator, one an item; or, without `b`, the square table of counts n_kl
            (items the first calls k and the second calls l).
        b: labels of the second annotator, as many as `a`.

    Returns:
        1 for full agreement, 0 for the agreement of independent annotators, below 0 for less than that.

    Raises:
        StatsError: no items, lengths differ, the table is not square or holds something else than counts, or both
            annotators use one and the same label only, where kappa is 0/0.

    Source: J. Cohen, Educational and Psychological Measurement 20 (1960) 37-46.

    >>> round(cohen_kappa([[20, 5], [10, 15]]), 12)
    0.4
    """
    table = _counts(a) if b is None else _cross_table(a, b)
    n = table.sum()
    if n == 0:
        raise StatsError("table: no items: expected at least one")
    observed = np.trace(table) / n
    expected = float(table.sum(axis=1) @ table.sum(axis=0)) / n**2
    if expected == 1:
        raise StatsError("table: both annotators use one label only: kappa is not defined")
    return float((observed - expected) / (1 - expected))


def paired_t_interval(x, y=None, confidence: float = 0.95) -> Interval:
    """Mean of the differences x - y with its Student-t interval, mean ± t(n-1) s / sqrt(n).

    Args:
        x: one number an independent unit (a seed, a rubric set), at least 2.
        y: the same units under the other condition; None when `x` already holds differences.
        confidence: two-sided level in (0, 1).

    Raises:
        StatsError: fewer than 2 units, lengths differ, or a number is not finite.

    >>> mean, low, high = paired_t_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> round(low, 4), round(high, 4)
    (1.0368, 4.9632)
    """
    difference = _difference(x, y)
    _level(confidence)
    if len(difference) < 2:
        raise StatsError(f"x: {len(difference)} units: expected at least 2")
    mean = float(difference.mean())
    half_width = student_quantile(len(difference) - 1, confidence) * float(difference.std(ddof=1))
    half_width /= sqrt(len(difference))
    return Interval(mean, mean - half_width, mean + half_width)


def student_quantile(degrees: float, confidence: float = 0.95) -> float:
    """t with P(|T| <= t) = confidence under Student's distribution with so many degrees of freedom.

    Raises:
        StatsError: no positive number of degrees, or confidence is outside (0, 1).

    >>> round(student_quantile(4), 4)
    2.7764
    """
    from scipy.special import stdtrit

    if not degrees > 0:
        raise StatsError(f"degrees={degrees}: expected more than 0")
    return float(stdtrit(degrees, (1 + _level(confidence)) / 2))


def paired_bootstrap(x, y, n: int = 10_000, seed: int = 0, cluster=None, confidence: float = 0.95) -> Interval:
    """Mean of the paired differences x - y with its percentile bootstrap interval.

    Args:
        x, y: numbers of the same units under two conditions.
        n: resamples.
        seed: of the resampling alone.
        cluster: one label a unit; whole clusters are drawn (rollouts that share a prompt are not independent).
            None draws units.
        confidence: two-sided level in (0, 1).

    Raises:
        StatsError: lengths differ, nothing to draw from, or a number is not finite.

    Source: B. Efron and R. Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    difference = _difference(x, y)
    return ratio_bootstrap(difference, np.ones(len(difference)), n, seed, cluster, confidence)


def ratio_bootstrap(
    numerator, denominator, n: int = 10_000, seed: int = 0, cluster=None, confidence: float = 0.95
) -> Interval:
    """Σ numerator / Σ denominator with its percentile bootstrap interval; a mean where the denominator is 1.

    Numerator and denominator of a unit are drawn together. A resample whose denominators sum to 0 has no ratio and is
    left out.

    Args:
        numerator, denominator: one number a unit.
        n: resamples.
        seed: of the resampling alone.
        cluster: one label a unit; whole clusters are drawn. None draws units.
        confidence: two-sided level in (0, 1).

    Raises:
        StatsError: lengths differ, nothing to draw from, a number is not finite, or the denominators sum to 0, in the
            data or in every resample.
    """
    a, b = _numbers(numerator, "numerator"), _numbers(denominator, "denominator")
    if len(a) != len(b):
        raise StatsError(f"denominator: {len(b)} units: expected {len(a)}, as numerator has")
    if not len(a):
        raise StatsError("numerator: no units: expected at least 1")
    if n < 1:
        raise StatsError(f"n={n}: expected at least 1 resample")
    _level(confidence)
    if b.sum() == 0:
        raise StatsError("denominator: sums to 0: the ratio is not defined")
    sums = np.stack([a, b], axis=1)
    if cluster is not None:
        sums = _by_cluster(sums, cluster)
    drawn = resampled_sums(sums, n, seed)
    drawn = drawn[drawn[:, 1] != 0]
    if not len(drawn):
        raise StatsError(f"n={n}: no resample has a ratio: expected more of them, or fewer denominators of 0")
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(a.sum() / b.sum()), float(low), float(high))


def resampled_sums(sums: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Column sums of `n` resamples with replacement of the rows of `sums`.

    Args:
        sums: [units, columns] numbers.

    Returns:
        [n, columns]: as many rows drawn in each resample as there are units.
    """
    rng = np.random.default_rng(seed)
    units = len(sums)
    block = max(1, BLOCK // units)
    drawn = []
    for start in range(0, n, block):
        picks = rng.integers(0, units, size=(min(block, n - start), units))
        # how often each unit was drawn turns every sum into a matrix product
        times = np.zeros(picks.shape)
        np.add.at(times, (np.arange(len(picks))[:, None], picks), 1.0)
        drawn.append(times @ sums)
    return np.concatenate(drawn)


def _level(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise StatsError(f"confidence={confidence}: expected a level in (0, 1)")
    return confidence


def _numbers(values, name: str) -> np.ndarray:
    try:
        values = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise StatsError(f"{name}: expected a flat sequence of numbers") from None
    if values.ndim != 1:
        raise StatsError(f"{name}: shape {values.shape}: expected a flat sequence")
    if not np.isfinite(values).all():
        raise StatsError(f"{name}[{int(np.argmin(np.isfinite(values)))}]: expected a finite number")
    return values


def _difference(x, y) -> np.ndarray:
    x = _numbers(x, "x")
    if y is None:
        return x
    y = _numbers(y, "y")
    if len(x) != len(y):
        raise StatsError(f"y: {len(y)} units: expected {len(x)}, as x has")
    return x - y


def _by_cluster(sums: np.ndarray, cluster) -> np.ndarray:
    """Sums of the units of each cluster; clusters in the order of their labels' first appearance."""
    labels = list(cluster)
    if len(labels) != len(sums):
        raise StatsError(f"cluster: {len(labels)} labels: expected {len(sums)}, one a unit")
    place: dict = {}
    index = np.array([place.setdefault(label, len(place)) for label in labels])
    out = np.zeros((len(place), sums.shape[1]))
    np.add.at(out, index, sums)
    return out


def _counts(table) -> np.ndarray:
    table = np.asarray(table, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise StatsError(f"table: shape {table.shape}: expected a square table of counts")
    if not (np.isfinite(table) & (table >= 0) & (table == np.floor(table))).all():
        raise StatsError("table: expected counts, whole numbers of at least 0")
    return table


def _cross_table(a, b) -> np.ndarray:
    a, b = list(a), list(b)
    if len(a) != len(b):
        raise StatsError(f"b: {len(b)} labels: expected {len(a)}, as a has")
    place: dict = {}
    for label in (*a, *b):
        place.setdefault(label, len(place))
    table = np.zeros((len(place), len(place)))
    np.add.at(table, ([place[label] for label in a], [place[label] for label in b]), 1.0)
    return table
