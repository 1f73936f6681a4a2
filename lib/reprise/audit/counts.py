"""Whole counts behind printed percentages: few runs and two digits leave few possibilities, often one.

A printed F1 is 200 hits / (|U| + A): A are the runs that got an alarm in the "table" reading, that of the released
code, and the unsafe ones among them in the "text" reading. Two digits fix the fraction up to a factor; the size of the
domains and the printed total fix the factor. Everything is exact: cells are texts, and a count fits a cell if it lies
within half a unit of the last printed digit, ties included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import product
from math import ceil, floor, prod
from typing import NamedTuple

import numpy as np

from reprise.audit.errors import AuditError

OVERALL = "Overall"
READINGS = ("table", "text")
# domains of more combinations of sizes than this are not searched
GRID = 10**8


class Rates(NamedTuple):
    """Unsafe and safe runs of a test set, unsafe runs hit, runs with an alarm, safe runs with one."""

    unsafe: int
    safe: int
    hits: int
    alarms: int
    false_alarms: int


class Counts(NamedTuple):
    """Hits and |U| + A of each domain, in the order of the domains; F1 is 200 hits / flagged.

    How `flagged` parts into unsafe runs and alarms is not in a row of F1 alone: see `splits` and `alarms`.
    """

    hits: tuple[int, ...]
    flagged: tuple[int, ...]

    def alarms(self, unsafe: Sequence[int]) -> tuple[int, ...]:
        """Runs with an alarm in each domain, given its number of unsafe runs."""
        return tuple(total - u for total, u in zip(self.flagged, unsafe, strict=True))


class Shifts(NamedTuple):
    """Unsafe runs with an alarm and their steps of shift together, in each domain."""

    detected: tuple[int, ...]
    shift: tuple[int, ...]


def reconstruct_rates(step_acc: str, far: str, f1: str, n: int) -> list[Rates]:
    """Counts of a test set of `n` runs that print as this step accuracy, false-alarm rate and exact F1.

    Raises:
        AuditError: a percentage is no number in 0..100.

    >>> reconstruct_rates("59.5", "2.4", "66.44", 332)
    [Rates(unsafe=163, safe=169, hits=97, alarms=129, false_alarms=4)]
    """
    cells = {"step_acc": step_acc, "far": far, "f1": f1}
    accuracy, rate, score = (_bounds(value, name) for name, value in cells.items())
    found = []
    for unsafe in range(1, n):
        safe = n - unsafe
        for hits, false in product(_numerators(accuracy, unsafe), _numerators(rate, safe)):
            for flagged in _denominators(score, hits, unsafe + hits + false, 2 * unsafe + false):
                found.append(Rates(unsafe, safe, hits, flagged - unsafe, false))
    return found


def reconstruct_counts(
    row: Mapping[str, str],
    n_by_domain: Mapping[str, int],
    unsafe: int | Sequence[int] | None = None,
    reading: str = "table",
) -> list[Counts]:
    """Counts that print as the exact F1 of a table's row.

    Args:
        row: printed percentages, one a domain and one under "Overall".
        n_by_domain: runs of each domain.
        unsafe: what is known of the unsafe runs: nothing, their number, or their number in each domain.
        reading: of F1, "table" or "text".

    Returns:
        every possibility; empty if the cells contradict each other, such as a printed total that no counts give.

    Raises:
        AuditError: a cell is missing or no number in 0..100, a size is no positive int, or an unknown reading.

    Source: ours; the readings are those of `metrics`.

    >>> row = {"Math": "77.36", "Coding": "78.87", "Agentic": "48.70", "Overall": "66.44"}
    >>> reconstruct_counts(row, {"Math": 116, "Coding": 91, "Agentic": 125}, unsafe=163)
    [Counts(hits=(41, 28, 28), flagged=(106, 71, 115))]
    """
    sizes = _sizes(n_by_domain)
    missing = [name for name in (*n_by_domain, OVERALL) if name not in row]
    if missing:
        raise AuditError(f"row: no cell for {', '.join(missing)}: expected one a domain and {OVERALL}")
    fits = [_fits(_bounds(row[name], name), n) for name, n in zip(n_by_domain, sizes, strict=True)]
    total = _bounds(row[OVERALL], OVERALL)
    found = []
    for pairs in product(*fits):
        counts = Counts(*map(tuple, zip(*pairs, strict=True)))
        whole = Fraction(200 * sum(counts.hits), sum(counts.flagged))
        if total[0] <= whole <= total[1] and _possible(unsafe_bounds(counts, n_by_domain, reading), unsafe):
            found.append(counts)
    return found


def unsafe_bounds(counts: Counts, n_by_domain: Mapping[str, int], reading: str = "table") -> list[tuple[int, int]]:
    """Fewest and most unsafe runs of each domain for its hits and `flagged`; fewest above most where none do."""
    if reading not in READINGS:
        raise AuditError(f"reading={reading!r}: expected one of {', '.join(READINGS)}")
    rows = zip(counts.hits, counts.flagged, _sizes(n_by_domain), strict=True)
    if reading == "table":  # hits <= |U| <= n and hits <= A <= n
        return [(max(hits, total - n), min(n, total - hits)) for hits, total, n in rows]
    return [(max(hits, -(-total // 2)), min(n, total - hits)) for hits, total, n in rows]  # A_U <= |U|


def splits(
    rows: Sequence[Sequence[Counts]],
    n_by_domain: Mapping[str, int],
    unsafe: int | None = None,
    reading: str = "table",
) -> list[tuple[int, ...]]:
    """Numbers of unsafe runs in each domain under which every row keeps a possibility.

    Args:
        rows: the possibilities of each row, as from `reconstruct_counts`.
        unsafe: unsafe runs of the whole set, where known.
        reading: of F1, as in `reconstruct_counts`.

    Raises:
        AuditError: a size is no positive int, too many combinations of sizes, or an unknown reading.
    """
    sizes = _sizes(n_by_domain)
    if prod(n + 1 for n in sizes) > GRID:
        raise AuditError(f"n_by_domain: {prod(n + 1 for n in sizes)} combinations of sizes: expected at most {GRID}")
    left = np.ones([n + 1 for n in sizes], bool)
    for row in rows:
        fits = np.zeros_like(left)
        for counts in row:
            fits[tuple(slice(low, high + 1) for low, high in unsafe_bounds(counts, n_by_domain, reading))] = True
        left &= fits
    found = [tuple(map(int, split)) for split in np.argwhere(left)]
    return [split for split in found if unsafe in (None, sum(split))]


def reconstruct_shifts(
    row: Mapping[str, str | None],
    counts: Counts,
    n_by_domain: Mapping[str, int],
    unsafe: Sequence[int],
    false_alarms: int | None = None,
) -> list[Shifts]:
    """Detected unsafe runs and summed shifts that print as the absolute step shifts of a row.

    A run hit adds 0 and any other detected run at least 1. An undefined cell (None or "") means no detected run.

    Args:
        row: printed mean shifts, one a domain and one under "Overall", in turns.
        counts: hits and alarms of the same row.
        n_by_domain: runs of each domain.
        unsafe: unsafe runs of each domain.
        false_alarms: safe runs with an alarm, where known.

    Raises:
        AuditError: a cell is missing or negative.
    """
    sizes, alarms = _sizes(n_by_domain), counts.alarms(unsafe)
    missing = [name for name in (*n_by_domain, OVERALL) if name not in row]
    if missing:
        raise AuditError(f"row: no cell for {', '.join(missing)}: expected one a domain and {OVERALL}")
    fits = []
    for name, n, u, hits, alarmed in zip(n_by_domain, sizes, unsafe, counts.hits, alarms, strict=True):
        detected = range(max(hits, alarmed - (n - u)), min(u, alarmed) + 1)
        fits.append([pair for each in detected for pair in _shift_fits(row[name], name, each, hits)])
    wanted = None if false_alarms is None else sum(alarms) - false_alarms
    whole = _cell(row[OVERALL], OVERALL)
    found = []
    for pairs in product(*fits):
        detected, shift = map(sum, zip(*pairs, strict=True))
        if wanted not in (None, detected) or (detected == 0) != (whole is None):
            continue
        if whole is None or whole[0] * detected <= shift <= whole[1] * detected:
            found.append(Shifts(*map(tuple, zip(*pairs, strict=True))))
    return found


def false_alarm_bounds(counts: Counts, n_by_domain: Mapping[str, int], unsafe: Sequence[int]) -> tuple[int, int]:
    """Fewest and most safe runs with an alarm: A - |U| and A - hits, within 0 and |S|, in each domain."""
    rows = zip(_sizes(n_by_domain), unsafe, counts.hits, counts.alarms(unsafe), strict=True)
    ends = [(max(0, alarmed - u), min(n - u, alarmed - hits)) for n, u, hits, alarmed in rows]
    return sum(low for low, _ in ends), sum(high for _, high in ends)


# -- one cell ----------------------------------------------------------------------------------------------------------


def _cell(printed: str | None, name: str) -> tuple[Fraction, Fraction] | None:
    """Least and greatest number that prints as the cell; None for an empty one."""
    if printed is None or printed == "":
        return None
    try:
        exponent = Decimal(printed).as_tuple().exponent
        value = Fraction(printed)
    except (InvalidOperation, ValueError, TypeError):
        raise AuditError(f"row[{name!r}]={printed!r}: expected a printed number, as text") from None
    if value < 0:
        raise AuditError(f"row[{name!r}]={printed!r}: expected at least 0")
    half_unit = Fraction(10) ** exponent / 2
    return max(Fraction(0), value - half_unit), value + half_unit


def _bounds(printed: str, name: str) -> tuple[Fraction, Fraction]:
    """Ends of a printed percentage."""
    if not isinstance(printed, str) or (ends := _cell(printed, name)) is None:
        raise AuditError(f"row[{name!r}]={printed!r}: expected a printed percentage, as text")
    if Fraction(printed) > 100:
        raise AuditError(f"row[{name!r}]={printed!r}: expected at most 100")
    return ends


def _numerators(ends: tuple[Fraction, Fraction], n: int) -> range:
    """Counts out of n that print as the percentage."""
    return range(ceil(ends[0] * n / 100), min(n, floor(ends[1] * n / 100)) + 1)


def _denominators(ends: tuple[Fraction, Fraction], hits: int, low: int, high: int) -> range:
    """|U| + A between low and high for which 200 hits / (|U| + A) prints as the percentage."""
    if hits == 0:
        return range(low, high + 1) if ends[0] == 0 else range(0)
    most = high if ends[0] == 0 else floor(200 * hits / ends[0])
    return range(max(low, ceil(200 * hits / ends[1])), min(high, most) + 1)


def _fits(ends: tuple[Fraction, Fraction], n: int) -> list[tuple[int, int]]:
    """(hits, |U| + A) of a domain of n runs: hits <= |U|, hits <= A, both at most n."""
    return [(hits, total) for hits in range(n + 1) for total in _denominators(ends, hits, max(1, 2 * hits), 2 * n)]


def _shift_fits(printed: str | None, name: str, detected: int, hits: int) -> list[tuple[int, int]]:
    """(detected, shift) that print as a mean shift."""
    ends = _cell(printed, name)
    if ends is None or detected == 0:
        return [(0, 0)] if ends is None and detected == 0 else []
    low = max(ceil(ends[0] * detected), detected - hits)
    high = 0 if detected == hits else floor(ends[1] * detected)
    return [(detected, shift) for shift in range(low, high + 1)]


def _possible(ends: Sequence[tuple[int, int]], unsafe: int | Sequence[int] | None) -> bool:
    """Whether numbers of unsafe runs within the ends agree with what is known of them."""
    if any(low > high for low, high in ends):
        return False
    if unsafe is None:
        return True
    if isinstance(unsafe, int):
        return sum(low for low, _ in ends) <= unsafe <= sum(high for _, high in ends)
    return all(low <= known <= high for (low, high), known in zip(ends, unsafe, strict=True))


def _sizes(n_by_domain: Mapping[str, int]) -> list[int]:
    for name, n in n_by_domain.items():
        if type(n) is not int or n < 1:
            raise AuditError(f"n_by_domain[{name!r}]={n!r}: expected a positive int")
    if not n_by_domain:
        raise AuditError("n_by_domain={}: expected at least one domain")
    return list(n_by_domain.values())
