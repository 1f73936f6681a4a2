"""NVFP4, MXFP4 and MXFP8 tensors: bytes worked out by hand, a scalar reference, what must hold, what is refused."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reprise.fp4 import (
    E2M1_VALUES,
    BlockShapeError,
    Fp4Error,
    NonFiniteInput,
    PackedSizeError,
    ScaleFormatMismatch,
    e2m1_encode,
    quantize,
)
from reprise.fp4.mxfp4 import MODES, block_scale
from reprise.fp4.mxfp8 import fake_quant_e4m3, quantize_e4m3

STAIRS = (torch.arange(-16, 16) / 4)[None]  # -4 to 3.75 in steps of 0.25
E4M3 = torch.arange(0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn).double().tolist()


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def nearest(value: float, grid: list[float]) -> int:
    """Index of the entry nearest to value, ties to the even index, by exact distance."""
    return min(range(len(grid)), key=lambda i: (abs(Fraction(value) - Fraction(grid[i])), i % 2))


def reference_nvfp4(row: np.ndarray) -> tuple[list[int], list[int]]:
    """(scale bytes, codes) of one row, value by value in NumPy float32 and exact rounding."""
    f = np.float32
    g = f(np.abs(row).max()) / f(2688)
    scale_bytes, row_codes = [], []
    for block in row.reshape(-1, 16):
        ratio = min(max(np.abs(block).max() / (f(6) * g), f(2**-9)), f(448))
        byte = nearest(float(ratio), E4M3)
        s = f(E4M3[byte]) * g
        scale_bytes.append(byte)
        row_codes += [
            8 * int(np.signbit(z)) + nearest(min(abs(float(z)), 6.0), list(E2M1_VALUES[:8])) for z in block / s
        ]
    return scale_bytes, row_codes


def test_nvfp4_bytes_of_a_staircase():
    q = quantize(STAIRS)
    assert q.block_scale.tolist() == [[126, 125]]
    assert q.packed.tolist() == [[255, 239, 238, 222, 221, 204, 171, 154, 16, 34, 67, 84, 101, 102, 118, 119]]
    assert q.global_scale.item() == np.float32(4) / np.float32(2688)


def test_mxfp4_bytes_of_a_staircase():
    q = quantize(STAIRS, "mxfp4")
    assert q.block_scale.tolist() == [[127]]
    assert q.packed.tolist() == [[238, 222, 221, 204, 204, 171, 170, 137, 0, 33, 34, 67, 68, 84, 85, 102]]
    assert q.global_scale is None


def test_worked_example_of_the_paper_in_a_real_block():
    """Global amax 2688 makes g = 1, a block amax of 144 the scale 24; 60.24 and 59.76 as BF16 are 60.25 and 59.75."""
    x = torch.zeros(2, 32, dtype=torch.bfloat16)
    x[:, 0], x[:, 16] = 2688, 144
    x[:, 17] = torch.tensor([60.24, 59.76])
    q = quantize(x)
    assert (q.global_scale.item(), q.scales()[0].tolist()) == (1.0, [448.0, 24.0])
    assert q.codes()[:, 17].tolist() == [5, 4]
    assert q.dequantize()[:, 17].tolist() == [72.0, 48.0]


@pytest.mark.parametrize("scale", [1e-30, 0.37, 1.0, 2.0**100])
def test_nvfp4_against_a_scalar_reference(scale):
    row = (normal(64) * scale).numpy() * np.repeat(np.float32([1, 1e-2, 1e-4, 1e-6]), 16)
    q = quantize(torch.from_numpy(row)[None])
    assert (q.block_scale[0].tolist(), q.codes()[0].tolist()) == reference_nvfp4(row)


@given(st.floats(width=32, min_value=2.0**-126, max_value=2.0**127))
def test_mx_exponents_by_their_definitions(amax):
    mantissa, exponent = math.frexp(amax)  # amax = mantissa * 2^exponent, 0.5 <= mantissa < 1
    expected = {
        "floor": exponent - 1 - 2,
        "rceil": next(e for e in range(-150, 130) if Fraction(6) * Fraction(2) ** e >= Fraction(amax)),
        "even": math.floor(math.log2(2 * mantissa + 0.25)) + exponent - 1 - 2,
    }
    for mode, e in expected.items():
        assert block_scale(torch.tensor([amax]), mode).item() == min(max(e, -127), 127) + 127


def test_mx_modes_at_their_thresholds():
    top = torch.tensor(
        [6.0, np.nextafter(np.float32(6), np.float32(9)), 7.0, np.nextafter(np.float32(7), np.float32(0))]
    )
    assert block_scale(top, "floor").tolist() == [127, 127, 127, 127]
    assert block_scale(top, "rceil").tolist() == [127, 128, 128, 128]
    assert block_scale(top, "even").tolist() == [127, 127, 128, 127]


@pytest.mark.parametrize("mode", MODES)
def test_rceil_alone_never_saturates(mode):
    x = normal(64, 256)
    q = quantize(x, "mxfp4", mx_mode=mode)
    largest = x.unflatten(-1, (-1, 32)).abs().amax(-1) / q.scales()
    assert bool((largest <= 6).all()) == (mode == "rceil")
    assert float(largest.max()) < {"floor": 8, "rceil": 6.01, "even": 7}[mode]


@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4"])
def test_codes_and_scales_give_the_values(fmt):
    x = normal(3, 5, 64)
    q = quantize(x, fmt)
    spread = q.scales().repeat_interleave(q.block, -1)
    assert torch.equal(q.codes(), e2m1_encode(x / spread))
    table = torch.tensor(E2M1_VALUES)
    assert torch.equal(q.dequantize(), table[q.codes().int()] * spread)
    assert torch.equal(q.dequantize(torch.bfloat16), q.dequantize().bfloat16())


@given(st.integers(-20, 20), st.sampled_from(["nvfp4", "mxfp4"]))
def test_a_power_of_two_moves_scales_only(k, fmt):
    x = normal(2, 64, seed=1)
    plain, moved = quantize(x, fmt), quantize(x * 2.0**k, fmt)
    assert torch.equal(moved.packed, plain.packed)
    assert torch.equal(moved.dequantize(), plain.dequantize() * 2.0**k)


@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4"])
def test_the_sign_is_only_the_sign(fmt):
    x = normal(4, 64)
    assert torch.equal(quantize(-x, fmt).codes(), quantize(x, fmt).codes() ^ 8)


def test_quantising_again_changes_nothing():
    y = quantize(normal(4, 64), "mxfp4", mx_mode="rceil").dequantize()
    for mode in MODES:
        assert torch.equal(quantize(y, "mxfp4", mx_mode=mode).dequantize(), y)


def test_a_token_is_quantised_alike_in_any_company():
    x = normal(6, 64)
    together = quantize(x, scale="token")
    assert together.global_scale.shape == (6, 1)
    for i in range(6):
        alone = quantize(x[i : i + 1], scale="token")
        assert torch.equal(alone.packed[0], together.packed[i]) and torch.equal(alone.scales()[0], together.scales()[i])
    assert not torch.equal(quantize(x).packed, together.packed)


def test_more_than_one_slice_of_blocks(monkeypatch):
    x = normal(7, 64)
    whole = {fmt: quantize(x, fmt) for fmt in ("nvfp4", "mxfp4")}
    monkeypatch.setattr("reprise.fp4.blocks.SLICE", 96)
    for fmt, q in whole.items():
        part = quantize(x, fmt)
        assert torch.equal(part.packed, q.packed) and torch.equal(part.block_scale, q.block_scale)


def test_zeros_stay_zeros_and_keep_their_sign():
    x = torch.tensor([[0.0, -0.0] * 16])
    for fmt, byte in (("nvfp4", 1), ("mxfp4", 0)):
        q = quantize(x, fmt)
        assert q.codes().tolist() == [[0, 8] * 16]
        assert set(q.block_scale.flatten().tolist()) == {byte}
        assert torch.equal(q.dequantize().view(torch.int32), x.view(torch.int32))
    assert quantize(x).global_scale.item() == 1.0


@pytest.mark.parametrize("amax", [1e-45, 1e-38, 2.0**-117, 3e38])
def test_scales_at_the_ends_of_float32_are_neither_zero_nor_infinite(amax):
    x = torch.zeros(1, 32)
    x[0, 0], x[0, 17] = amax, amax * 2.0**-20
    for fmt in ("nvfp4", "mxfp4"):
        q = quantize(x, fmt)
        scales = q.scales()
        assert bool(((scales > 0) & scales.isfinite()).all()), fmt
        assert bool(q.dequantize().isfinite().all())
    assert float(quantize(x).scales().min()) >= 2.0**-126


def test_a_last_axis_that_does_not_divide():
    x = normal(3, 37)
    with pytest.raises(BlockShapeError, match=r"^x.shape\[-1\]=37: expected a multiple of 16, or pad=True$"):
        quantize(x)
    q = quantize(x, pad=True)
    whole = quantize(torch.nn.functional.pad(x, (0, 11)))
    assert (q.shape, q.packed.shape, q.block_scale.shape) == ((3, 37), (3, 24), (3, 3))
    assert torch.equal(q.dequantize(), whole.dequantize()[:, :37]) and torch.equal(q.codes(), whole.codes()[:, :37])


def test_empty_tensors_and_no_axis():
    assert quantize(torch.zeros(0, 32), scale="token").dequantize().shape == (0, 32)
    assert quantize(torch.zeros(2, 0), "mxfp4").dequantize().shape == (2, 0)
    with pytest.raises(BlockShapeError, match=r"^x has shape \(\)"):
        quantize(torch.tensor(1.0))


@pytest.mark.parametrize("bad, count", [([float("inf")], 1), ([float("nan"), -float("inf")], 2)])
@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4"])
def test_nan_and_inf_are_refused_with_site_and_count(bad, count, fmt):
    x = normal(2, 32)
    x[1, : len(bad)] = torch.tensor(bad)
    for call in (lambda: quantize(x, fmt, site=(7, "v")), lambda: quantize_e4m3(x, site=(7, "v"))):
        with pytest.raises(NonFiniteInput, match=rf"^site \(7, 'v'\): {count} values are NaN or Inf"):
            call()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"fmt": "int4"}, "^fmt='int4': expected one of nvfp4, mxfp4"),
        ({"scale": "row"}, "^scale='row': expected one of tensor, token"),
        ({"fmt": "mxfp4", "mx_mode": "ceil"}, "^mx_mode='ceil': expected one of floor, rceil, even"),
        ({"x": torch.zeros(2, 32, dtype=torch.float64)}, "^dtype=torch.float64"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(Fp4Error, match=message):
        quantize(**{"x": torch.ones(2, 32)} | change)


@pytest.mark.parametrize(
    "fmt, change, error, message",
    [
        ("nvfp4", {"fmt": "mxfp4"}, PackedSizeError, None),
        ("nvfp4", {"global_scale": None}, ScaleFormatMismatch, "^global_scale: None, expected torch.float32"),
        ("nvfp4", {"global_scale": torch.tensor(0.0)}, ScaleFormatMismatch, "^global_scale: not positive"),
        (
            "nvfp4",
            {"block_scale": torch.full((2, 3), 127, dtype=torch.uint8)},
            ScaleFormatMismatch,
            "byte 127, expected 0..126",
        ),
        (
            "nvfp4",
            {"block_scale": torch.zeros(2, 2, dtype=torch.uint8)},
            ScaleFormatMismatch,
            r"expected torch.uint8 \(2, 3\)",
        ),
        (
            "nvfp4",
            {"packed": torch.zeros(2, 16, dtype=torch.uint8)},
            PackedSizeError,
            r"^packed: .*expected torch.uint8 \(2, 24\)",
        ),
        ("mxfp4", {"global_scale": torch.tensor(1.0)}, ScaleFormatMismatch, "^global_scale: given, expected None"),
        (
            "mxfp4",
            {"block_scale": torch.full((2, 2), 255, dtype=torch.uint8)},
            ScaleFormatMismatch,
            "byte 255, expected 0..254",
        ),
    ],
)
def test_scales_of_another_format_are_refused(fmt, change, error, message):
    q = quantize(normal(2, 48), fmt, pad=True)
    with pytest.raises(error, match=message):
        dataclasses.replace(q, **change)


def test_compiled_gives_the_same_bits(monkeypatch):
    """Without a compiler here: the function that is compiled, run eagerly."""
    monkeypatch.setattr("reprise.fp4.compiled._compile", lambda function: function)
    x = normal(8, 96).bfloat16()
    for fmt, scale, mode in [
        ("nvfp4", "tensor", "floor"),
        ("nvfp4", "token", "floor"),
        *(("mxfp4", "tensor", m) for m in MODES),
    ]:
        plain, fused = quantize(x, fmt, scale, mode), quantize(x, fmt, scale, mode, compiled=True)
        assert torch.equal(plain.packed, fused.packed) and torch.equal(plain.block_scale, fused.block_scale)


@pytest.mark.slow
def test_compiled_for_real_gives_the_same_bits():
    x = normal(64, 1024).bfloat16()
    for fmt in ("nvfp4", "mxfp4"):
        plain, fused = quantize(x, fmt), quantize(x, fmt, compiled=True)
        assert torch.equal(plain.packed, fused.packed) and torch.equal(plain.block_scale, fused.block_scale)


def test_w4a8_activations_are_e4m3_with_power_of_two_scales():
    x = torch.zeros(1, 64)
    x[0, :3] = torch.tensor([448.0, 449.0, -0.3])
    x[0, 32:35] = torch.tensor([1.0, 1.0625, 2.0**-12])
    elements, byte = quantize_e4m3(x)
    assert byte.tolist() == [[127, 119]]  # 449 < 512 shares the binade of 448; 1 = 256 * 2^-8
    assert fake_quant_e4m3(x)[0, [0, 1, 32, 33, 34]].tolist() == [448.0, 448.0, 1.0, 1.0, 2.0**-12]
    assert elements.dtype == torch.float8_e4m3fn


def test_w4a8_relative_error_is_that_of_three_mantissa_bits():
    x = normal(16, 50)
    y = fake_quant_e4m3(x, "rceil")
    scale = 2.0 ** (quantize_e4m3(x, "rceil", pad=True)[1].double() - 127)
    floor = scale.repeat_interleave(32, -1)[:, :50] * 2.0**-10  # half the smallest E4M3 step
    assert y.shape == x.shape and y.dtype == x.dtype
    assert bool(((y - x).abs() <= torch.maximum(x.abs() / 16, floor)).all())


def test_a_mode_that_is_none_is_refused_also_where_it_would_not_matter():
    for x, fmt in ((torch.zeros(1, 16), "nvfp4"), (torch.zeros(0, 32), "mxfp4")):
        with pytest.raises(Fp4Error, match="mx_mode='round'"):
            quantize(x, fmt, mx_mode="round")


def test_a_tensor_without_a_last_axis_or_with_an_endless_scale_is_none():
    q = quantize(torch.ones(2, 16))
    for shape in ((), (2, -16), (2, 16.0), ("2", 16)):
        with pytest.raises(PackedSizeError, match="shape=.*expected"):
            dataclasses.replace(q, shape=shape)
    with pytest.raises(ScaleFormatMismatch, match="global_scale: not positive or not finite"):
        dataclasses.replace(q, global_scale=torch.tensor(math.inf))
