"""Means and straight-line trends of many series at once, from their sums for each cluster and training step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Trends:
    """One entry a series, float64; NaN where it is not defined.

    Attributes:
        responses: in the series.
        mean, mean_low, mean_high: over all its responses.
        growth, growth_low, growth_high: slope of the fitted line times the distance from first to last step; NaN for a
            series of one step.
    """

    responses: np.ndarray
    mean: np.ndarray
    mean_low: np.ndarray
    mean_high: np.ndarray
    growth: np.ndarray
    growth_low: np.ndarray
    growth_high: np.ndarray


def trends(series, cluster, step, n, y, yy, confidence: float = 0.95, growth_confidence: float = 0.95) -> Trends:
    """Means and least-squares slopes with Student-t intervals.

        mean = Σ y / Σ n,    slope = Σ (s - s̄) y / Σ n (s - s̄)²,    s̄ = Σ n s / Σ n

    A series seen in several clusters gets cluster-robust intervals: the variance of a sum is that of its clusters'
    contributions, with G - 1 degrees of freedom. In a single cluster responses of one step are taken for independent,
    and their pooled variance within steps, with Σ (n - 1) degrees of freedom, carries over: that is the sampling error
    of the slope for the policies this run went through, whether or not they lie on a line.

    Responses that happen to agree, and clusters that do, do not show that the next one would: a slope's variance is at
    least what one response in all that differs by the typical value would give, and in several clusters at least what
    independent responses would.

    Args:
        series, cluster, step: [rows] whole numbers; a row holds the responses of one series, cluster and step.
        n, y, yy: [rows] how many responses, the sum of their values and of the squares.
        confidence, growth_confidence: of the intervals of mean and growth.
    """
    series, cluster, step = (np.asarray(each, dtype=np.int64) for each in (series, cluster, step))
    n, y, yy = (np.asarray(each, dtype=np.float64) for each in (n, y, yy))
    size = int(series.max()) + 1

    def total(values):
        return np.bincount(series, values, size)

    responses = total(n)
    mean = total(y) / responses
    away = step - (total(n * step) / responses)[series]
    spread = total(n * away**2)
    first, last = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(first, series, step)
    np.maximum.at(last, series, step)
    slope = _divide(total(away * y), np.where(last > first, spread, 0.0))

    within = np.maximum(total(yy - y**2 / n), 0.0)
    degrees = total(n - 1)
    least = _typical(total(y), total(yy)) ** 2 / responses
    variance = np.maximum(_divide(within, degrees), least)
    mean_variance, slope_variance = variance / responses, _divide(variance, spread)

    pairs, place = np.unique(np.stack([series, cluster]), axis=1, return_inverse=True)
    owner, place = pairs[0], place.ravel()
    clusters = np.bincount(owner, minlength=size)
    residual = y - n * (mean[series] + np.nan_to_num(slope)[series] * away)
    from_mean = np.bincount(place, y - n * mean[series])
    from_line = np.bincount(place, away * residual)
    factor = _divide(clusters.astype(float), clusters - 1.0)
    several = clusters > 1
    robust = factor * np.bincount(owner, from_mean**2, size) / responses**2
    mean_variance = np.where(several, robust, mean_variance)
    robust = _divide(factor * np.bincount(owner, from_line**2, size), spread**2)
    independent = np.fmax(slope_variance, _divide(least, spread))
    slope_variance = np.where(several, np.fmax(robust, independent), slope_variance)
    degrees = np.where(several, clusters - 1, degrees)

    reach = last - first
    half = _quantile(degrees, confidence) * np.sqrt(mean_variance)
    growth, rise = slope * reach, _quantile(degrees, growth_confidence) * np.sqrt(slope_variance) * reach
    return Trends(responses, mean, mean - half, mean + half, growth, growth - rise, growth + rise)


def _typical(y: np.ndarray, yy: np.ndarray) -> np.ndarray:
    """Σ y² / Σ y, the value of a series whose values are 0 and one other; 0 where all are 0."""
    return np.divide(yy, y, out=np.zeros(np.shape(y)), where=y > 0)


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.divide(a, b, out=np.full(np.shape(a), np.nan), where=b > 0)


def _quantile(degrees: np.ndarray, confidence: float) -> np.ndarray:
    from scipy.special import stdtrit

    return np.where(degrees > 0, stdtrit(np.maximum(degrees, 1), (1 + confidence) / 2), np.nan)
