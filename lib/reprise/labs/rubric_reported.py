"""Printed tables checked against themselves: averages, gains and counts recomputed from the printed cells.

Cells are texts, because their digits carry the precision; everything is exact until it is rounded half up, as the
paper's own averages are. A figure recomputed from rounded cells may miss the printed digit although both were right:

    same digit       rounds to the printed figure
    within rounding  does not, but some numbers that print as these cells give the printed figure
    no               no numbers that print as these cells do
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from math import sqrt
from typing import NamedTuple

from reprise.errors import RepriseError
from reprise.printed import half_unit, half_up
from reprise.rubric.build import candidate_count
from reprise.stats import Interval, student_quantile

SAME, WITHIN, NO = "same digit", "within rounding", "no"


class Check(NamedTuple):
    """A printed figure and what its cells give."""

    what: str
    printed: str
    here: str
    verdict: str


def mean(what: str, printed: str, cells: Sequence[str]) -> Check:
    """Check a printed average of printed cells.

    >>> mean("Flat", "70.2", ["69.9", "70.4"])
    Check(what='Flat', printed='70.2', here='70.2', verdict='same digit')
    """
    value = sum(map(Fraction, cells)) / len(cells)
    return _check(what, printed, value, sum(map(half_unit, cells)) / len(cells))


def difference(what: str, printed: str, first: Sequence[str], second: Sequence[str]) -> Check:
    """Check a printed difference of the means of printed cells; of one cell each, of the cells."""
    value = sum(map(Fraction, first)) / len(first) - sum(map(Fraction, second)) / len(second)
    slack = sum(map(half_unit, first)) / len(first) + sum(map(half_unit, second)) / len(second)
    return _check(what, printed, value, slack)


def total(what: str, printed: str, cells: Sequence[str]) -> Check:
    """Check a printed sum of printed cells."""
    return _check(what, printed, sum(map(Fraction, cells)), sum(map(half_unit, cells)))


def share(what: str, printed: str, out_of: int) -> Check:
    """Check that a printed percentage is that of a whole count; `here` is the count."""
    count = half_up(Fraction(printed) * out_of / 100, 0)
    value = 100 * Fraction(count) / out_of
    digits = -Decimal(printed).as_tuple().exponent
    return Check(what, printed, f"{count}/{out_of}", SAME if half_up(value, digits) == printed else NO)


def _check(what: str, printed: str, value: Fraction, slack: Fraction) -> Check:
    here = half_up(value, max(0, -Decimal(printed).as_tuple().exponent))
    if Decimal(here) == Decimal(printed):
        verdict = SAME
    else:
        verdict = WITHIN if abs(value - Fraction(printed)) <= slack + half_unit(printed) else NO
    return Check(what, printed, here, verdict)


def welch_interval(first: tuple[float, float], second: tuple[float, float], runs: int) -> Interval:
    """Difference of two means over independent runs, with Welch's 95 % interval.

    Args:
        first, second: mean and standard deviation over runs.
        runs: behind each of them, at least 2.

    Raises:
        RepriseError: fewer runs, or none of them differ.

    Source: B. L. Welch, Biometrika 34 (1947) 28-35.
    """
    variances = [deviation**2 / runs for _, deviation in (first, second)]
    if not sum(variances) > 0 or runs < 2:
        raise RepriseError(f"runs={runs}, deviations {first[1]}, {second[1]}: expected at least 2 runs that differ")
    degrees = sum(variances) ** 2 / sum(v**2 / (runs - 1) for v in variances)
    estimate = first[0] - second[0]
    half_width = student_quantile(degrees) * sqrt(sum(variances))
    return Interval(estimate, estimate - half_width, estimate + half_width)


def implied_correlation(deviations: Sequence[str], of_mean: str) -> tuple[float, float]:
    """Least and largest mean correlation between benchmarks that their printed standard deviations allow.

        n² sd(mean)² = Σ sd_i² + 2 rho Σ_{i<j} sd_i sd_j        rho the correlation, the same for all pairs

    Args:
        deviations: printed, one a benchmark.
        of_mean: printed, of the average over benchmarks.
    """
    n = len(deviations)
    ends = []
    for sign in (1, -1):
        each = [float(Fraction(text) + sign * half_unit(text)) for text in deviations]
        whole = float(Fraction(of_mean) - sign * half_unit(of_mean))
        squares = sum(x * x for x in each)
        ends.append(((n * whole) ** 2 - squares) / (sum(each) ** 2 - squares))
    return ends[0], ends[1]


def possible_candidates(criteria: int) -> dict[int, list[int]]:
    """Numbers of candidate edges that the role rule can give, by number of foundations; see `candidate_pairs`.

    Source: GEAR, appendix A.

    >>> possible_candidates(4)[2]
    [2, 5, 6]
    """
    found = {}
    for foundations in range(criteria + 1):
        rest = criteria - foundations
        counts = {candidate_count(foundations, rest - triggers, triggers) for triggers in range(rest + 1)}
        found[foundations] = sorted(counts)
    return found
