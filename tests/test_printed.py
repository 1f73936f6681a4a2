import doctest
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise import printed
from reprise.errors import RepriseError
from reprise.printed import half_unit, half_up


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(printed).failed == 0


@pytest.mark.parametrize("kind", [Decimal, Fraction])
@pytest.mark.parametrize(
    "value, digits, text",
    [
        ("72.85", 1, "72.9"),
        ("72.849", 1, "72.8"),
        ("73.25", 1, "73.3"),
        ("0.5", 0, "1"),
        ("-0.04", 1, "0.0"),
        ("-2.45", 1, "-2.5"),
        ("11", 1, "11.0"),
        ("5", 2, "5.00"),
    ],
)
def test_ties_go_away_from_zero(kind, value, digits, text):
    assert half_up(kind(value), digits) == text


@given(st.fractions(-1000, 1000), st.integers(0, 4))
def test_rounding_is_to_the_nearest(value, digits):
    text = half_up(value, digits)
    assert abs(Fraction(text) - value) <= half_unit(text) == Fraction(1, 2 * 10**digits)


@pytest.mark.parametrize("text", ["x", "", "inf", None])
def test_a_text_that_is_no_number_is_named(text):
    with pytest.raises(RepriseError, match="^printed="):
        half_unit(text)
