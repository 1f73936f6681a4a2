"""The two kernels in Triton, and their launches. Importing it takes triton; `kernels` decides whether to.

A program works on BLOCKS blocks of 16 values. Scales are decoded and codes are rounded with integer operations on float
bits, as the torch code does, so that both give the same bits. Two things would break that and are kept out: `/`, which
on a GPU is an approximate division (hence `div_rn`), and contraction of a product and a sum into one rounding
(`enable_fp_fusion`).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from reprise.fp4.reconstruct import thresholds

BLOCKS = 64  # 1,024 values a program: our choice, not tuned
WIDTH = 16  # values a block

EXPONENT = tl.constexpr(0x7F800000)
ONE = tl.constexpr(0x3F800000)  # bits of 1.0
HALF_STEPS = tl.constexpr((22 << 23) + 0x400000)  # from bits of 2^E to those of 1.5 * 2^(E + 22)
E4M3_SMALLEST = tl.constexpr(0x3C800000)  # bits of 2^-6, the smallest normal number of E4M3
LARGEST_BYTE = tl.constexpr(0x7E)
EIGHTH_STEPS = tl.constexpr((20 << 23) + 0x400000)


@triton.jit
def _bits(x):
    return x.to(tl.int32, bitcast=True)


@triton.jit
def _float(bits):
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _e4m3_encode(x):
    """Byte of the nearest E4M3 number, ties to even; x float32 in [2^-9, 448]."""
    exponent = tl.maximum(_bits(x) & EXPONENT, E4M3_SMALLEST)
    magic = exponent + EIGHTH_STEPS
    return _bits(x + _float(magic)) - magic + ((exponent - E4M3_SMALLEST) >> 20)


@triton.jit
def _e4m3_decode(byte):
    """float32 of a positive E4M3 byte."""
    normal = _float(((byte >> 3) + 120 << 23) | ((byte & 7) << 20))
    return tl.where(byte < 8, (byte & 7).to(tl.float32) * 0.001953125, normal)


@triton.jit
def _e2m1_encode(z):
    """Code of the nearest E2M1 value, as `e2m1.round_`."""
    magnitude = tl.minimum(tl.abs(z), 6.0)
    exponent = tl.maximum(_bits(magnitude) & EXPONENT, ONE)
    magic = exponent + HALF_STEPS
    steps = _bits(magnitude + _float(magic)) - magic
    return steps + ((exponent - ONE) >> 22) + ((_bits(z) >> 28) & 8)


@triton.jit
def _guided_value(z, code):
    """The end of z's bracket nearer to the value of `code`, as `guided.guided_values`."""
    magnitude = tl.minimum(tl.abs(z), 6.0)
    exponent = tl.maximum(_bits(magnitude) & EXPONENT, ONE)
    step = _float(exponent) * 0.5
    position = magnitude * (_float(0x7F000000 - exponent) * 2.0)  # over step, exactly: 2^-E times 2
    near, far = tl.floor(position) * step, tl.ceil(position) * step
    fraction = ((code & 1) << 22) | (((code >> 1) & 3) + 126 << 23)
    rolled = tl.where((code & 6) == 0, (code & 1).to(tl.float32) * 0.5, _float(fraction))
    opposite = ((_bits(z) >> 28) & 8) != (code & 8)
    value = tl.minimum(tl.maximum(tl.where(opposite, -rolled, rolled), near), far)
    return _float((_bits(value) & 0x7FFFFFFF) | (_bits(z) & -0x80000000))


@triton.jit
def _bfloat16(x):
    """Bits of x rounded to the nearest bfloat16, ties to even; triton's own cast truncates under its interpreter."""
    bits = _bits(x)
    return bits + 0x7FFF + ((bits >> 16) & 1) >> 16


@triton.jit
def _quantize_pack(x_at, g_at, packed_at, scale_at, bad_at, blocks, blocks_a_scale, BLOCKS: tl.constexpr):
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block < blocks
    pair = tl.arange(0, 8)[None, :]
    at = block[:, None].to(tl.int64) * 8 + pair
    even = tl.load(x_at + 2 * at, mask=inside[:, None], other=0.0).to(tl.float32)
    odd = tl.load(x_at + 2 * at + 1, mask=inside[:, None], other=0.0).to(tl.float32)
    strange = ((_bits(even) & EXPONENT) == EXPONENT).to(tl.int32) + ((_bits(odd) & EXPONENT) == EXPONENT).to(tl.int32)
    count = tl.sum(tl.sum(strange, 1), 0)
    tl.atomic_add(bad_at, count, mask=count > 0)
    g = tl.load(g_at + block // blocks_a_scale, mask=inside, other=1.0)
    largest = tl.maximum(tl.max(tl.abs(even), 1), tl.max(tl.abs(odd), 1))
    wanted = tl.minimum(tl.maximum(tl.div_rn(largest, g * 6.0), 0.001953125), 448.0)
    byte = _e4m3_encode(wanted)
    s = (_e4m3_decode(byte) * g)[:, None]
    low, high = _e2m1_encode(tl.div_rn(even, s)), _e2m1_encode(tl.div_rn(odd, s))
    tl.store(scale_at + block, byte.to(tl.uint8), mask=inside)
    tl.store(packed_at + at, (low | (high << 4)).to(tl.uint8), mask=inside[:, None])


@triton.jit
def _guided(x_at, bits_at, scale_at, g_at, threshold_at, y_at, bad_at, blocks, blocks_a_scale,
            B: tl.constexpr, STEPS: tl.constexpr, BF16: tl.constexpr, BLOCKS: tl.constexpr):  # fmt: skip
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block < blocks
    at = block[:, None].to(tl.int64) * 16 + tl.arange(0, 16)[None, :]
    x = tl.load(x_at + at, mask=inside[:, None], other=0.0).to(tl.float32)
    strange = ((_bits(x) & EXPONENT) == EXPONENT).to(tl.int32)
    count = tl.sum(tl.sum(strange, 1), 0)
    tl.atomic_add(bad_at, count, mask=count > 0)
    g = tl.load(g_at + block // blocks_a_scale, mask=inside, other=1.0)
    byte = tl.load(scale_at + block, mask=inside, other=1).to(tl.int32)
    scale = _e4m3_decode(byte) * g
    positive = (byte > 0) & (byte <= LARGEST_BYTE) & (_bits(scale) > 0) & (_bits(scale) < EXPONENT)
    unusable = tl.sum((~positive).to(tl.int32), 0)
    tl.atomic_add(bad_at + 1, unusable, mask=unusable > 0)
    s = scale[:, None]
    z = tl.div_rn(x, s)
    first = B * at
    word = tl.load(bits_at + first // 8, mask=inside[:, None], other=0).to(tl.int32)
    if B == 3:  # the only width at which a code may lie in two bytes
        word |= tl.load(bits_at + (first + 2) // 8, mask=inside[:, None], other=0).to(tl.int32) << 8
    shift = (first % 8).to(tl.int32)
    code = (word >> shift) & ((1 << B) - 1)
    if B < 4:
        low, above = code, tl.zeros_like(code)
        for j in tl.static_range(STEPS):
            above += (tl.abs(z) > tl.load(threshold_at + j * (1 << B) + low)).to(tl.int32)
        code = (low + (above << B)) | ((_bits(z) >> 28) & 8)
    y = _guided_value(z, code) * s
    if BF16:
        y = _bfloat16(y)
    tl.store(y_at + at, y.to(y_at.dtype.element_ty), mask=inside[:, None])


def launch_quantize_pack(x: torch.Tensor, g: torch.Tensor, bad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(packed [values / 2], block scales [values / 16]), uint8, of a contiguous x whose last axis 16 divides.

    Args:
        x: float16, bfloat16 or float32.
        g: float32 contiguous, one global scale for the tensor or for each row of x's last axis.
        bad: int32 [2], zeros; set to the number of values that are not finite, and of scales that are not positive
            and finite. The results are right if both stay 0.
    """
    blocks = x.numel() // WIDTH
    packed = torch.empty(x.numel() // 2, dtype=torch.uint8, device=x.device)
    scales = torch.empty(blocks, dtype=torch.uint8, device=x.device)
    grid = (triton.cdiv(blocks, BLOCKS),)
    _quantize_pack[grid](x, g, packed, scales, bad, blocks, blocks // g.numel(), BLOCKS, enable_fp_fusion=False)
    return packed, scales


def launch_guided(x, low_bits, block_scale, g, b: int, rule: str, bad: torch.Tensor) -> torch.Tensor:
    """s_roll * q_TRACE in x's dtype.

    Args:
        x, g, bad: as in `launch_quantize_pack`.
        low_bits: uint8 bit stream, as `pack_bits(codes, b)`.
        block_scale: uint8 contiguous, one E4M3 byte a block.
        b, rule: of `reconstruct`.
    """
    blocks = x.numel() // WIDTH
    y = torch.empty_like(x)
    table = thresholds(b, rule).to(x.device) if b < 4 else g
    steps = len(table) if b < 4 else 0
    bf16 = x.dtype == torch.bfloat16
    target = y.view(torch.int16) if bf16 else y
    grid = (triton.cdiv(blocks, BLOCKS),)
    _guided[grid](x, low_bits, block_scale, g, table, target, bad, blocks, blocks // g.numel(), b, steps, bf16, BLOCKS,
                  enable_fp_fusion=False)  # fmt: skip
    return y
