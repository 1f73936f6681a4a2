"""Guided rounding: worked values, the definition spelled out in fractions, every code and BF16 value."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reprise.fp4.e2m1 import E2M1_VALUES, e2m1_decode, e2m1_encode
from reprise.fp4.errors import CodeRangeError, Fp4Error, NonFiniteInput
from reprise.fp4.guided import bracket, guided_round, guided_values

CODES = torch.arange(16, dtype=torch.uint8)
normal = st.floats(-8, 8, width=32)
code = st.integers(0, 15)


def every_pair():
    """Each finite BF16 value with each code."""
    z = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    z = z[z.isfinite()]
    return z.repeat_interleave(16), CODES.repeat(len(z))


def one(z, roll):
    return int(guided_round(torch.tensor([z], dtype=torch.float32), torch.tensor([roll], dtype=torch.uint8)))


def argmin_by_definition(z, roll):
    """The bracket from the list of values, both ends with z's sign, the nearer end by exact distance; as a code."""
    sign = -1 if np.signbit(z) else 1
    a = min(abs(Fraction(z)), Fraction(6))
    low = max(k for k in range(8) if E2M1_VALUES[k] <= a)
    high = min(k for k in range(8) if E2M1_VALUES[k] >= a)
    target = Fraction(E2M1_VALUES[roll])
    distance = {k: abs(sign * Fraction(E2M1_VALUES[k]) - target) for k in (low, high)}
    assert low == high or distance[low] != distance[high]
    return min(distance, key=distance.get) + (8 if sign < 0 else 0)


@pytest.mark.parametrize(
    "z, low, high",
    [
        (4.3, 4.0, 6.0),
        (-0.3, -0.5, -0.0),
        (0.0, 0.0, 0.0),
        (1.5, 1.5, 1.5),
        (-2.2, -3.0, -2.0),
        (6.5, 6.0, 6.0),
        (float("-inf"), -6.0, -6.0),
        (1e-30, 0.0, 0.5),
        (3.9999998, 3.0, 4.0),
        (2.0000002, 2.0, 3.0),
    ],
)
def test_bracket(z, low, high):
    ends = [float(end) for end in bracket(torch.tensor([z]))]
    assert ends == [low, high]
    assert [np.signbit(end) for end in ends] == [np.signbit(z)] * 2


@pytest.mark.parametrize(
    "z, roll, expected",
    [
        (2.49, 5, 5),  # 59.76 / 24, guided to the 3 of 60.24 / 24
        (0.3, 9, 0),  # rollout -0.5: the end nearer zero
        (-0.3, 7, 8),  # rollout 6: -0
        (1.0, 7, 2),  # on a value, whatever the rollout says
        (6.5, 6, 7),  # beyond 6 the bracket is 6
        (4.3, 5, 6),  # rollout below the bracket
        (4.3, 7, 7),
        (-4.3, 15, 15),
        (-0.0, 3, 8),
        (0.0, 8, 0),  # the sign of z also at zero
    ],
)
def test_guided_round_worked_values(z, roll, expected):
    assert one(z, roll) == expected


def test_example_dequantises_to_the_rollouts_72():
    z = torch.tensor([59.76, 59.75]) / 24
    rolled = e2m1_encode(torch.tensor([60.24, 60.25]) / 24)
    assert (24 * e2m1_decode(guided_round(z, rolled))).tolist() == [72, 72]
    assert (24 * e2m1_decode(e2m1_encode(z))).tolist() == [48, 48]


@given(normal, code)
def test_closed_form_is_the_argmin(z, roll):
    assert one(z, roll) == argmin_by_definition(z, roll)


@pytest.mark.parametrize("scale", [1.0, 24.0, 1 / 3, 1e-3, 2.0**-20, 2688.0])
def test_never_farther_than_nearest_and_equal_to_the_argmin(scale):
    """Every finite BF16 activation with every code: 6,266,880 triples over the scales."""
    x, roll = every_pair()
    z, roll = x.float() / scale, e2m1_decode(roll)
    low, high = bracket(z)
    guided, nearest = guided_values(z, roll), e2m1_decode(e2m1_encode(z))
    away = (guided - roll).abs()
    to_low, to_high = (low - roll).abs(), (high - roll).abs()
    assert len(z) == 65_280 * 16
    assert torch.equal(away, torch.minimum(to_low, to_high))
    assert bool(((low == high) | (to_low != to_high)).all())  # no ties
    assert bool((away <= (nearest - roll).abs()).all())
    assert int((away < (nearest - roll).abs()).sum()) > 10_000
    saturated = z.clamp(-6, 6)
    assert bool((low <= saturated).all()) and bool((saturated <= high).all())


def test_codes_and_values_say_the_same_for_every_bf16():
    z, roll = every_pair()
    by_value = guided_values(z.float(), e2m1_decode(roll))
    codes = guided_round(z, roll)
    assert torch.equal(e2m1_decode(codes).view(torch.int32), by_value.view(torch.int32))
    assert torch.equal(codes, e2m1_encode(by_value))
    assert torch.equal(codes >> 3, torch.signbit(z).to(torch.uint8))


@given(normal, code)
def test_symmetry_idempotence_and_agreement_with_nearest(z, roll):
    assert one(-z, roll ^ 8) == one(z, roll) ^ 8
    assert one(E2M1_VALUES[roll], roll) == roll
    nearest = int(e2m1_encode(torch.tensor([z], dtype=torch.float32)))
    assert one(z, nearest) == nearest


@given(normal)
def test_monotone_in_the_rollout(z):
    order = [*range(15, 7, -1), *range(8)]  # codes by value
    guided = [E2M1_VALUES[one(z, roll)] for roll in order]
    assert guided == sorted(guided)


@given(st.lists(normal, min_size=1, max_size=20), st.integers(-20, 20), st.randoms(use_true_random=False))
def test_scaling_by_a_power_of_two_changes_no_code(zs, power, random):
    z = torch.tensor(zs, dtype=torch.float32)
    z[z.abs() < 2.0**-60] = 0
    roll = torch.tensor([random.randrange(16) for _ in zs], dtype=torch.uint8)
    scale = 2.0**power
    assert torch.equal(guided_round((z * scale) / scale, roll), guided_round(z, roll))


def test_shapes_and_dtypes():
    z = torch.linspace(-7, 7, 24).reshape(2, 3, 4)
    roll = torch.full((2, 3, 4), 3, dtype=torch.uint8)
    assert guided_round(z, roll).shape == (2, 3, 4)
    assert torch.equal(guided_round(z.bfloat16(), roll), guided_round(z.bfloat16().float(), roll))
    assert guided_round(z[:0], roll[:0]).shape == (0, 3, 4)
    transposed = guided_round(z.transpose(0, 2), roll.transpose(0, 2))
    assert torch.equal(transposed, guided_round(z, roll).transpose(0, 2))


def test_refusals_name_the_site():
    roll = torch.zeros(3, dtype=torch.uint8)
    with pytest.raises(NonFiniteInput, match="h.*1 values are NaN"):
        guided_round(torch.tensor([1.0, float("nan"), 2.0]), roll, site=(3, "h"))
    with pytest.raises(Fp4Error, match="float64"):
        guided_round(torch.zeros(3, dtype=torch.float64), roll)
    with pytest.raises(Fp4Error, match=r"x.*z \(2,\), expected \(3,\)"):
        guided_round(torch.zeros(2), roll, site=(1, "x"))
    with pytest.raises(CodeRangeError):
        guided_round(torch.zeros(3), roll + 16)
    assert bool(guided_values(torch.tensor([float("nan")]), torch.tensor([1.0])).isnan().all())
