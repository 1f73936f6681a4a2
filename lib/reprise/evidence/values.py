"""When two observed values are the same fact: numbers exactly, money with its currency, identifiers as text.

>>> same("$1,234.50", 1234.5), same("49.99 USD", "49.99"), same("€49.99", "$49.99"), same("007", "7")
(True, True, False, False)

A currency that one side leaves out matches any, so `same` is not transitive and keys with a currency never belong in a
set or a dictionary.

Source: SafeActBench, equivalent numeric representations and wrong-entity controls. Currency, grouping and identifier
rules are our choice; the paper leaves them open.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

UNAVAILABLE = "<unavailable>"
"""The value of a field whose record could not be read: an observation too (negative evidence)."""

# a mark and its code are one currency; codes beyond these are text
CURRENCIES = {"$": "USD", "€": "EUR", "£": "GBP"}
CURRENCIES |= {
    code: code for code in "USD EUR GBP JPY CNY CHF CAD AUD NZD SEK NOK DKK INR KRW BRL MXN PLN SGD HKD ZAR".split()
}
# beyond this a text is an identifier or an attack, not an amount
MAX_DIGITS, MAX_EXPONENT = 60, 60

_UNIT = "|".join(re.escape(mark) for mark in CURRENCIES)
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?)(?:(?P<before>{_UNIT})\s*)?(?P<inner>[+-]?)"
    r"(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)(?P<part>\.[0-9]+)?(?P<exponent>[eE][+-]?[0-9]{1,4})?"
    rf"(?:\s*(?P<after>{_UNIT}))?"
)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)", re.ASCII)

Key = tuple[Any, ...]


def norm(value: Any) -> Key:
    """Type-tagged canonical key of a JSON value: ("num", Fraction, currency or None), ("str", text), ...

    bool and None stay themselves; int, float (through repr) and Decimal become exact fractions; a text that is a
    number, with well-formed thousands commas and an optional currency, is that number, except with a leading zero
    before another digit (an identifier); a date and time with an offset is an instant; lists go elementwise, mappings
    by sorted key.

    Raises ValueError for NaN and infinities, TypeError for anything that is no JSON value.
    """
    if value is None or isinstance(value, bool):
        return ("const", value)
    if isinstance(value, str):
        return _norm_text(value)
    if isinstance(value, int):
        return ("num", Fraction(value), None)
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            raise ValueError(f"value={value!r}: expected a finite number")
        return ("num", Fraction(Decimal(repr(value)) if isinstance(value, float) else value), None)
    if isinstance(value, list | tuple):
        return ("list", tuple(norm(each) for each in value))
    if isinstance(value, Mapping):
        if bad := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"key {bad[0]!r}: expected a text")
        return ("dict", tuple((key, norm(value[key])) for key in sorted(value)))
    raise TypeError(f"value of type {type(value).__name__}: expected a JSON value")


def same(a: Any, b: Any) -> bool:
    """Whether two values state the same fact. Raises as `norm`."""
    return _same(norm(a), norm(b))


def at_most(value: Any, bound: Any) -> bool:
    """Whether value <= bound, both numbers of compatible currency or both instants; False otherwise."""
    a, b = norm(value), norm(bound)
    if a[0] == b[0] == "num":
        return _currency_fits(a, b) and a[1] <= b[1]
    return a[0] == b[0] == "instant" and a[1] <= b[1]


def at_least(value: Any, bound: Any) -> bool:
    """Whether value >= bound; see `at_most`."""
    return at_most(bound, value)


def _same(a: Key, b: Key) -> bool:
    if a[0] != b[0]:
        return False
    if a[0] == "num":
        return a[1] == b[1] and _currency_fits(a, b)
    if a[0] == "list":
        return len(a[1]) == len(b[1]) and all(map(_same, a[1], b[1]))
    if a[0] == "dict":
        return len(a[1]) == len(b[1]) and all(
            x[0] == y[0] and _same(x[1], y[1]) for x, y in zip(a[1], b[1], strict=True)
        )
    # True == 1 in Python; the tags keep numbers and constants apart
    return a[1] == b[1]


def _currency_fits(a: Key, b: Key) -> bool:
    return a[2] is None or b[2] is None or a[2] == b[2]


@lru_cache(maxsize=65536)
def _norm_text(text: str) -> Key:
    text = text.strip()
    if len(text) <= MAX_DIGITS and (found := _NUMBER.fullmatch(text)):
        if (number := _number(found)) is not None:
            return number
    if _INSTANT.fullmatch(text):
        try:
            return ("instant", datetime.fromisoformat(text).astimezone(UTC))
        except (ValueError, OverflowError):
            pass
    return ("str", text)


def _number(found: re.Match[str]) -> Key | None:
    whole, part, exponent = found["whole"], found["part"] or "", found["exponent"] or ""
    marks = [CURRENCIES[mark] for mark in (found["before"], found["after"]) if mark]
    if not (whole or part) or (found["sign"] and found["inner"]) or len(set(marks)) > 1:
        return None
    if (len(whole) > 1 and whole[0] == "0") or (exponent and abs(int(exponent[1:])) > MAX_EXPONENT):
        return None
    value = Fraction(Decimal((whole.replace(",", "") or "0") + part + exponent))
    return ("num", -value if "-" in (found["sign"], found["inner"]) else value, marks[0] if marks else None)
