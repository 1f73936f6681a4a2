"""Reconstruction from low bits: worked values, each rule spelled out in fractions, and what one bit cannot do."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reprise.fp4.e2m1 import E2M1_TIES, E2M1_VALUES, e2m1_decode, e2m1_encode
from reprise.fp4.errors import CodeRangeError, Fp4Error, NonFiniteInput
from reprise.fp4.guided import bracket, guided_round, guided_values
from reprise.fp4.reconstruct import RULES, reconstruct

GRID = torch.arange(0, 8 * 64 + 1) / 64  # every threshold of every rule is a multiple of 1/8


def both(z, b, rule="nearest"):
    bits = torch.arange(1 << b, dtype=torch.uint8)
    return e2m1_decode(reconstruct(torch.full((1 << b,), z), bits, b, rule)).tolist()


def by_definition(a, c, b, rule):
    """Magnitude code, from the definition of the rule and nothing else."""
    candidates = [k for k in range(8) if k % (1 << b) == c]
    a = Fraction(a)

    def to_value(k):
        return abs(a - Fraction(E2M1_VALUES[k]))

    def to_cell(k):
        low = Fraction(E2M1_TIES[k - 1]) if k else Fraction(0)
        return max(low - a, 0 if k == 7 else a - Fraction(E2M1_TIES[k]), Fraction(0))

    if rule == "bracket":
        low = max(k for k in range(8) if E2M1_VALUES[k] <= min(a, 6))
        high = min(k for k in range(8) if E2M1_VALUES[k] >= min(a, 6))
        if ends := [k for k in (low, high) if k in candidates]:
            return ends[0]
    distance = to_cell if rule == "cell" else to_value
    return min(candidates, key=lambda k: (distance(k), k))


@pytest.mark.parametrize(
    "z, b, values",
    [
        (4.3, 1, [4, 3]),
        (2.1, 1, [2, 1.5]),
        (2.25, 1, [2, 1.5]),
        (4.5, 1, [4, 3]),
        (6.5, 1, [4, 6]),
        (0.5, 1, [0, 0.5]),
        (4.3, 2, [2, 3, 4, 6]),
        (2.49, 2, [2, 3, 1, 1.5]),
    ],
)
def test_nearest_worked_values(z, b, values):
    assert both(z, b) == values


def test_rules_differ_where_one_bit_leaves_the_bracket():
    assert both(4.3, 1, "nearest") == [4, 3]
    assert both(4.3, 1, "bracket") == [4, 6]
    assert both(4.3, 1, "cell") == [4, 6]
    assert both(4.2, 1, "cell") == [4, 3]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("b", [1, 2, 3])
def test_every_rule_is_its_definition(b, rule):
    for c in range(1 << b):
        codes = reconstruct(GRID, torch.full(GRID.shape, c, dtype=torch.uint8), b, rule)
        assert codes.tolist() == [by_definition(float(a), c, b, rule) for a in GRID]


@given(st.floats(-8, 8, width=32), st.integers(0, 15), st.sampled_from([1, 2, 3]), st.sampled_from(RULES))
def test_bits_match_and_the_sign_is_that_of_z(z, roll, b, rule):
    z = torch.tensor([z], dtype=torch.float32)
    low = torch.tensor([roll & (1 << b) - 1], dtype=torch.uint8)
    code = int(reconstruct(z, low, b, rule))
    assert code & (1 << b) - 1 == int(low)
    assert code >> 3 == int(torch.signbit(z))
    assert code == int(reconstruct(z, low, b, rule))


@pytest.mark.parametrize("b", [1, 2, 3])
def test_bracket_rule_equals_full_guidance_for_ends_of_the_bracket(b):
    z = torch.cat([GRID, -GRID]).repeat_interleave(16)
    roll = torch.arange(16, dtype=torch.uint8).repeat(2 * len(GRID))
    low, high = bracket(z)
    value = e2m1_decode(roll)
    inside = (low <= value) & (value <= high) & (torch.signbit(z) == torch.signbit(value))
    full = guided_round(z, roll)
    guess = guided_round(z, reconstruct(z, roll & (1 << b) - 1, b, "bracket"))
    assert torch.equal(guess[inside], full[inside])
    if b == 1:
        nearest = guided_round(z, reconstruct(z, roll & 1, 1, "nearest"))
        wrong = z[inside & (nearest != full)].abs()
        assert bool((((2 < wrong) & (wrong <= 2.25)) | ((4 < wrong) & (wrong <= 4.5))).all()) and len(wrong) == 2 * 48


def test_four_bits_are_the_rollouts_code_and_three_lose_only_its_sign():
    z = torch.tensor([-1.2] * 16)
    codes = torch.arange(16, dtype=torch.uint8)
    assert torch.equal(reconstruct(z, codes, 4), codes)
    assert torch.equal(reconstruct(z, codes & 7, 3), codes & 7 | 8)


def test_the_guarantee_fails_when_the_rollout_has_the_other_sign():
    z, roll = torch.tensor([0.1]), torch.tensor([9], dtype=torch.uint8)
    rebuilt = guided_values(z, e2m1_decode(reconstruct(z, roll & 1, 1)))
    assert float(rebuilt) == 0.5 and float(e2m1_decode(e2m1_encode(z))) == 0  # distances 1.0 and 0.5 to -0.5


def test_refusals():
    z, bits = torch.zeros(2), torch.tensor([0, 1], dtype=torch.uint8)
    for bad in (0, 5):
        with pytest.raises(CodeRangeError, match=f"b={bad}"):
            reconstruct(z, bits, bad)
    with pytest.raises(Fp4Error, match="rule='closest'"):
        reconstruct(z, bits, 1, "closest")
    with pytest.raises(CodeRangeError, match=r"codes\[1\]=2"):
        reconstruct(z, bits * 2, 1)
    with pytest.raises(NonFiniteInput, match="k"):
        reconstruct(z * float("nan"), bits, 1, site=(0, "k"))
