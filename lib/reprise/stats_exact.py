"""Exact statistics of small counts: the paired bootstrap's own law, McNemar, and what a printed percentage can mean.

Discordant pairs: of n cases judged under two conditions, b succeed under the first only and c under the second only.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from reprise.stats import StatsError


class PairedLaw(NamedTuple):
    """The bootstrap distribution of a mean paired difference: interval ends and the whole law.

    `values` are the attainable means k/n, ascending, `probability` their bootstrap probabilities (float64, sum 1).
    """

    low: float
    high: float
    values: np.ndarray
    probability: np.ndarray


def exact_paired_bootstrap(n: int, b: int, c: int, confidence: float = 0.95) -> PairedLaw:
    """Law of the bootstrapped mean of n paired binary differences (b of -1, c of +1, the rest 0), without sampling.

    A resampled mean is a sum of n independent steps (-1 with b/n, +1 with c/n) over n: an n-fold convolution. The
    interval is the percentile one; a quantile is the smallest value whose distribution function reaches the level
    (numpy's "inverted_cdf").

    Raises StatsError unless 0 <= b, c, b + c <= n and n >= 1, 0 < confidence < 1.

    >>> law = exact_paired_bootstrap(43, 8, 3)
    >>> round(100 * law.low, 2), round(100 * law.high, 2)
    (-25.58, 2.33)
    """
    _check_pairs(n, b, c)
    if not 0 < confidence < 1:
        raise StatsError(f"confidence={confidence!r}: expected 0 < confidence < 1")
    step = np.array([b, n - b - c, c], dtype=np.float64) / n
    law, power = np.ones(1), n
    while power:
        if power & 1:
            law = np.convolve(law, step)
        power >>= 1
        if power:
            step = np.convolve(step, step)
    values = np.arange(-n, n + 1) / n
    cdf = np.cumsum(law)
    # a level that the sum reaches exactly must not be missed by a rounding error of the sum
    low, high = (values[np.searchsorted(cdf, level - 1e-12)] for level in ((1 - confidence) / 2, (1 + confidence) / 2))
    return PairedLaw(float(low), float(high), values, law)


def mcnemar_exact(b: int, c: int) -> float:
    """Two-sided exact p value of b against c discordant pairs under equal chances; 1 when there are none.

    >>> round(mcnemar_exact(59, 75), 5)
    0.19486
    """
    _check_pairs(b + c + 1, b, c)
    if b == c:
        return 1.0
    tail = sum(math.comb(b + c, i) for i in range(min(b, c) + 1))
    return float(min(Fraction(1), Fraction(2 * tail, 2 ** (b + c))))


def grim(percent: str | Decimal, n: int) -> list[int]:
    """The counts k of n whose percentage rounds to the printed one, to its own number of decimals; [] if it cannot be.

    Both roundings of a tie are accepted. Raises StatsError for a text that is no number, n < 1 or a value outside
    0..100.

    >>> grim("58.0", 132), grim("12.1", 132), grim("37.7", 1968)
    ([], [16], [741, 742])
    """
    try:
        value = Decimal(percent)
    except (ArithmeticError, ValueError, TypeError):
        raise StatsError(f"percent={percent!r}: expected a decimal number as text") from None
    if isinstance(percent, float) or not value.is_finite() or not 0 <= value <= 100:
        raise StatsError(
            f"percent={percent!r}: expected a decimal number from 0 to 100 as text, with the printed digits"
        )
    if n < 1:
        raise StatsError(f"n={n!r}: expected n >= 1")
    exact, half = Fraction(value), Fraction(1, 2 * 10 ** -min(value.as_tuple().exponent, 0))
    first, last = math.ceil((exact - half) * n / 100), math.floor((exact + half) * n / 100)
    return [k for k in range(max(first, 0), min(last, n) + 1)]


def feasible_pairs(n: int, x: int, y: int) -> list[tuple[int, int]]:
    """Every (b, c) compatible with x and y successes of n under two conditions: b - c = x - y, b <= x, c <= n - x.

    >>> feasible_pairs(43, 23, 18)[:2]
    [(5, 0), (6, 1)]
    """
    if not (0 <= x <= n and 0 <= y <= n):
        raise StatsError(f"x={x!r}, y={y!r}: expected counts from 0 to n={n}")
    return [(b, b - x + y) for b in range(max(0, x - y), x + 1) if b - x + y <= n - x]


def majority(successes, repeats: int = 3) -> np.ndarray:
    """Case success by majority over repeats: bool array of shape (cases,) from one of shape (cases, repeats).

    Raises StatsError unless the array has exactly `repeats` columns, an odd number.
    """
    table = np.asarray(successes, dtype=bool)
    if table.ndim != 2 or table.shape[1] != repeats or repeats % 2 == 0:
        raise StatsError(f"successes of shape {table.shape}: expected (cases, {repeats}) with an odd number of repeats")
    return table.sum(axis=1) * 2 > repeats


def _check_pairs(n: int, b: int, c: int) -> None:
    if n < 1 or b < 0 or c < 0 or b + c > n:
        raise StatsError(f"n={n!r}, b={b!r}, c={c!r}: expected 0 <= b, c and b + c <= n")
