"""Printed figures: texts whose digits are their precision, and the exact arithmetic that such texts allow.

Binary floats lose what matters here: 72.85 rounds to 72.9 by the usual rule of a table, and Python's `round(72.85, 1)`
gives 72.8.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

from reprise.errors import RepriseError


def half_up(value: Decimal | Fraction, digits: int = 1) -> str:
    """The value as a table prints it with so many digits after the point, halves away from zero.

    >>> half_up(Decimal("72.85")), half_up(Fraction("-0.25")), half_up(Fraction(2, 3), 2), half_up(Decimal("-0.04"))
    ('72.9', '-0.3', '0.67', '0.0')
    """
    scaled = abs(Fraction(value)) * 10**digits
    units = scaled.numerator // scaled.denominator + (2 * (scaled % 1) >= 1)
    text = Decimal(int(units)).scaleb(-digits).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"-{text}" if value < 0 and units else str(text)


def half_unit(printed: str) -> Fraction:
    """Half a unit of the last digit printed: a figure lies within it of the number it was rounded from.

    Raises:
        RepriseError: a text that is no decimal number.

    >>> [str(half_unit(text)) for text in ("7.5", "50", "-19.88", "1.5e3")]
    ['1/20', '1/2', '1/200', '50']
    """
    try:
        return Fraction(10) ** Decimal(printed).as_tuple().exponent / 2
    except (ArithmeticError, TypeError):
        raise RepriseError(f"printed={printed!r}: expected a decimal number") from None
