"""The rules a claim can be judged by, as named functions over plain values.

A registry names a rule and gives its numbers; nothing in a registry is ever evaluated. Every rule is a pure function
`rule(claim, got) -> bool` of a claim's fields and the value a notebook computed. A value of the wrong kind raises
`Malformed`, which the judge turns into "does not hold" with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache

from reprise.printed import half_unit

PRINTED_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MIN_SEEDS = 5  # fewer independent runs give an interval too wide to mean much; our choice
EXACT = Context(prec=60)  # every float64 near a printed figure subtracts from it without rounding


class Malformed(ValueError):
    """A value no rule can compare; the text says what it is and what was expected."""


def plain(value):
    """The value as Python numbers, strings, booleans and lists.

    NumPy and torch scalars, arrays and tensors, pandas columns, tuples, fractions and decimals are converted; anything
    else is kept.
    """
    if hasattr(value, "tolist"):
        try:
            value = value.tolist()
        except Exception as error:  # a foreign object may fail in any way; a claim must not hide the others
            raise Malformed(f"{type(value).__name__} without values ({type(error).__name__})") from error
    if isinstance(value, Fraction | Decimal):
        try:
            return int(value) if value == int(value) else float(value)
        except (ArithmeticError, ValueError):
            raise Malformed(f"{type(value).__name__}, not finite") from None
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def number(value) -> int | float:
    """A finite number, or Malformed. Booleans are not numbers here."""
    if value is None:
        raise Malformed("no value")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"{type(value).__name__}, expected a number")
    try:
        finite = math.isfinite(value)
    except OverflowError:
        raise Malformed("integer beyond float64") from None
    if not finite:
        raise Malformed("NaN" if math.isnan(value) else "infinite")
    return value


def equals(claim, got) -> bool:
    """The same boolean, integer, string or list of them; no floats, for which equality promises too much."""
    reported = plain(claim.reported)
    for one, other in _pairs(reported, got):
        if type(one) is not type(other):
            raise Malformed(f"{_kind(other)}, expected {_kind(one)}")
    return reported == got


def rounds_to(claim, got) -> bool:
    """|got - reported| is at most half a unit of the last digit printed, in decimal arithmetic."""
    return all(
        abs(EXACT.subtract(Decimal(repr(number(x))), Decimal(printed))) <= half_unit(printed)
        for printed, x in _pairs(claim.reported, got)
    )


def close(claim, got) -> bool:
    """math.isclose, element by element."""
    return all(
        math.isclose(number(x), float(reported), rel_tol=claim.rtol or 0.0, abs_tol=claim.atol or 0.0)
        for reported, x in _pairs(claim.reported, got)
    )


def less(claim, got) -> bool:
    """got < bound, for each number of a list."""
    return all(number(x) < claim.bound for x in _each(claim, got))


def greater(claim, got) -> bool:
    """got > bound, for each number of a list."""
    return all(number(x) > claim.bound for x in _each(claim, got))


def between(claim, got) -> bool:
    """low <= got <= high, for each number of a list."""
    low, high = claim.bound
    return all(low <= number(x) <= high for x in _each(claim, got))


def order(claim, got) -> bool:
    """got lists the names from best to worst as reported."""
    pairs = _pairs(claim.reported, got)
    if not all(isinstance(name, str) for name in got) or sorted(got) != sorted(claim.reported):
        raise Malformed("other names than reported")
    return all(one == other for one, other in pairs)


def sign(claim, got) -> bool:
    """got is not zero and has the sign reported."""
    return number(got) * math.copysign(1.0, float(claim.reported)) > 0


def interval(claim, got) -> bool:
    """The end of the 95 % Student-t interval over independent seeds lies beyond the bound, not only the mean."""
    if not isinstance(got, list):
        raise Malformed(f"{_kind(got)}, expected one number a seed")
    values = [number(x) for x in got]
    if len(values) < claim.seeds:
        raise Malformed(f"{len(values)} seeds, expected at least {claim.seeds}")
    low, high = student_interval(values)
    return low > claim.bound if claim.side == "greater" else high < claim.bound


RULES = {
    "equals": equals,
    "rounds_to": rounds_to,
    "close": close,
    "less": less,
    "greater": greater,
    "between": between,
    "order": order,
    "sign": sign,
    "interval": interval,
}


def student_interval(values: Sequence[float]) -> tuple[float, float]:
    """Two-sided 95 % interval of the mean, mean ± t(n-1) s / sqrt(n), for n >= 2 independent values.

    >>> low, high = student_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> round(low, 4), round(high, 4)
    (1.0368, 4.9632)
    """
    n = len(values)
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1))
    half_width = student_quantile(n - 1) * deviation / math.sqrt(n)
    return mean - half_width, mean + half_width


@cache
def student_quantile(degrees: int, confidence: float = 0.95) -> float:
    """t with P(|T| <= t) = confidence for an integer number of degrees of freedom, to float64 accuracy.

    >>> round(student_quantile(4), 6)
    2.776445
    """
    low, high = 0.0, 1.0
    while _central_mass(high, degrees) < confidence:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _central_mass(middle, degrees) < confidence else (low, middle)
    return high


def deviation(claim, got) -> float | None:
    """(got - reported) / tolerance of the element farthest off, for the numeric rules; None for the others.

    Within [-1, 1] exactly when `rounds_to` or `close` holds, up to rounding.
    """
    if claim.predicate not in ("rounds_to", "close"):
        return None
    try:
        pairs = [(float(reported), number(x), reported) for reported, x in _pairs(claim.reported, got)]
    except Malformed:
        return None
    return max((_offset(claim, *pair) for pair in pairs), key=abs, default=None)


def _offset(claim, reported: float, x: float, printed) -> float:
    if claim.predicate == "rounds_to":
        return (x - reported) / float(half_unit(printed))
    tolerance = max((claim.rtol or 0.0) * max(abs(x), abs(reported)), claim.atol or 0.0)
    if tolerance == 0:
        return 0.0 if x == reported else math.copysign(math.inf, x - reported)
    return (x - reported) / tolerance


def _central_mass(t: float, degrees: int) -> float:
    """P(|T| <= t). Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3-26.7.4."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    return (angle + sine * total) * 2 / math.pi if odd else sine * total


def _pairs(reported, got) -> list[tuple]:
    """Reported and computed elements side by side; a single value counts as itself, never as a list of one."""
    if isinstance(reported, str | int) or reported is None:
        if isinstance(got, list):
            raise Malformed(f"list of {len(got)}, expected one value")
        return [(reported, got)]
    if not isinstance(got, list):
        raise Malformed(f"{_kind(got)}, expected a list of {len(reported)}")
    if len(got) != len(reported):
        raise Malformed(f"list of {len(got)}, expected {len(reported)}")
    return list(zip(reported, got, strict=True))


def _each(claim, got) -> list:
    """The numbers of a bounded claim: one for one reported, as many as reported for a list."""
    return [x for _, x in _pairs(claim.reported, got)]


def _kind(value) -> str:
    if value is None:
        return "no value"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite"
    return type(value).__name__
