"""E2M1 and the bit stream: worked values, every code, every finite BF16."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reprise.fp4 import (
    E2M1_TIES,
    E2M1_VALUES,
    CodeRangeError,
    Fp4Error,
    NonFiniteInput,
    PackedSizeError,
    e2m1_decode,
    e2m1_encode,
    pack_bits,
    unpack_bits,
)
from reprise.fp4.compiled import compare_code
from reprise.labs.fp4_conformance import element_inputs, finite_bf16

MAGNITUDES = [Fraction(value) for value in E2M1_VALUES[:8]]


def nearest_even(z: float) -> int:
    """Code of z by exact rational distance; of two at the same distance the even one."""
    sign = 8 * (np.signbit(z).item())
    a = min(Fraction(abs(z)), MAGNITUDES[-1])
    return sign + min(range(8), key=lambda code: (abs(a - MAGNITUDES[code]), code % 2))


def codes(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8)


def ulps_around(values, ulps: int) -> torch.Tensor:
    bits = torch.tensor(values, dtype=torch.float32).view(torch.int32)
    near = torch.cat([(bits + ulp).view(torch.float32) for ulp in range(-ulps, ulps + 1)])
    return torch.cat([near, -near])


def test_values_of_the_sixteen_codes():
    every = torch.arange(16, dtype=torch.uint8)
    assert e2m1_decode(every).tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
    assert torch.signbit(e2m1_decode(every)).tolist() == [False] * 8 + [True] * 8
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert torch.equal(e2m1_encode(e2m1_decode(every, dtype)), every)


def test_ties_go_to_the_even_code():
    assert e2m1_encode(torch.tensor(E2M1_TIES)).tolist() == [0, 2, 2, 4, 4, 6, 6]
    assert e2m1_encode(-torch.tensor(E2M1_TIES)).tolist() == [8, 10, 10, 12, 12, 14, 14]


def test_saturation_and_signed_zero():
    z = torch.tensor([5.0, 5.0000005, 7.0, 3.4e38, float("inf"), -float("inf"), 0.0, -0.0, -0.1, -1e-45])
    assert e2m1_encode(z).tolist() == [6, 7, 7, 7, 7, 15, 0, 8, 8, 8]


def test_every_value_within_three_ulp_of_a_tie_or_a_value():
    z = ulps_around([*E2M1_TIES, *E2M1_VALUES[1:8]], 3)
    assert e2m1_encode(z).tolist() == [nearest_even(value) for value in z.tolist()]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-8, max_value=8))
def test_any_float32_is_rounded_to_the_nearest(z):
    assert e2m1_encode(torch.tensor([z])).item() == nearest_even(z)


def test_every_finite_bf16_against_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    z = finite_bf16()
    expected = z.float().numpy().astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    assert len(z) == 65_280
    assert torch.equal(e2m1_encode(z), torch.from_numpy(expected))


def test_comparisons_pick_the_same_codes_as_the_bits():
    for z in element_inputs(1 << 16, np.random.default_rng(1)).values():
        assert torch.equal(compare_code(z).to(torch.uint8), e2m1_encode(z))


@pytest.mark.slow
def test_twenty_million_random_float32_against_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(0)
    for _ in range(20):
        bits = rng.integers(0, 1 << 32, 500_000, dtype=np.uint32).view(np.float32)  # every exponent
        z = np.concatenate([bits[np.isfinite(bits)], rng.uniform(-7, 7, 500_000).astype(np.float32)])
        expected = z.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
        assert np.array_equal(e2m1_encode(torch.from_numpy(z)).numpy(), expected)


def test_the_input_is_left_alone_whatever_its_layout():
    z = torch.randn(6, 4)
    before = z.clone()
    assert torch.equal(e2m1_encode(z.t()), e2m1_encode(z).t())
    assert torch.equal(z, before)
    assert e2m1_encode(torch.empty(0, 3)).shape == (0, 3)


def test_nan_is_refused_with_site_and_count():
    z = torch.tensor([1.0, float("nan"), -float("nan")])
    with pytest.raises(NonFiniteInput, match=r"^site \(3, 'x'\): 2 values are NaN, expected finite ones$") as caught:
        e2m1_encode(z, site=(3, "x"))
    assert (caught.value.site, caught.value.count) == ((3, "x"), 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.float8_e4m3fn])
def test_dtypes_that_would_be_rounded_twice_are_refused(dtype):
    with pytest.raises(Fp4Error, match="^dtype=torch"):
        e2m1_encode(torch.ones(2).to(dtype))


@pytest.mark.parametrize(
    "b, packed",
    [
        (4, [16, 50, 84, 118, 152, 186, 220, 254]),
        (3, [136, 198, 250, 136, 198, 250]),
        (2, [228, 228, 228, 228]),
        (1, [170, 170]),
    ],
)
def test_packed_bytes_of_all_codes(b, packed):
    low = torch.arange(16, dtype=torch.uint8) & (1 << b) - 1
    assert pack_bits(low, b).tolist() == packed
    assert torch.equal(unpack_bits(codes(*packed), b, 16), low)


@given(st.integers(1, 4), st.data())
def test_bit_stream_is_little_endian_and_comes_back(b, data):
    values = data.draw(st.lists(st.integers(0, (1 << b) - 1), max_size=40))
    stream = sum(value << b * i for i, value in enumerate(values))
    packed = pack_bits(codes(*values), b)
    assert bytes(packed.tolist()) == stream.to_bytes(-(-b * len(values) // 8), "little")
    assert unpack_bits(packed, b, len(values)).tolist() == values


def test_packing_follows_row_major_order():
    x = torch.arange(8, dtype=torch.uint8).reshape(2, 4)
    assert pack_bits(x.t(), 4).tolist() == [0x40, 0x51, 0x62, 0x73]


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: pack_bits(codes(1, 2, 9), 3), CodeRangeError, r"^codes\[2\]=9: expected 0..7 for b=3$"),
        (lambda: pack_bits(codes(1), 5), CodeRangeError, "^b=5: expected 1, 2, 3 or 4"),
        (lambda: pack_bits(torch.tensor([1]), 4), CodeRangeError, "^codes: torch.int64, expected torch.uint8|uint8"),
        (lambda: e2m1_decode(codes(16)), CodeRangeError, r"^codes\[0\]=16"),
        (lambda: unpack_bits(codes(1, 2), 4, 5), PackedSizeError, "^buf: 2 bytes, expected 3 for n=5"),
        (lambda: unpack_bits(codes(1), 4, -1), PackedSizeError, "^buf: 1 bytes, expected 0"),
        (lambda: unpack_bits(codes(0x21), 4, 1), PackedSizeError, r"^buf\[0\]: bits after the last"),
        (lambda: unpack_bits(codes(1), 0, 2), CodeRangeError, "^b=0"),
    ],
)
def test_bad_codes_widths_and_lengths_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("b", [1, 2, 3, 4])
def test_codes_that_begin_anywhere_in_a_storage_are_packed(b):
    codes = torch.arange(24, dtype=torch.uint8) % (1 << b)
    for start in range(9):
        part = codes[start : start + 16]
        buf = torch.nn.functional.pad(pack_bits(part, b), (start, 0))[start:]
        assert torch.equal(buf, pack_bits(part.clone(), b))
        assert torch.equal(unpack_bits(buf, b, 16), part)


def test_values_are_not_truncated_to_whole_numbers():
    with pytest.raises(Fp4Error, match="dtype=torch.int32"):
        e2m1_decode(torch.tensor([1], dtype=torch.uint8), torch.int32)
