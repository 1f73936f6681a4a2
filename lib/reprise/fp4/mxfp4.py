"""Scales of MXFP4: blocks of 32 values share an E8M0 byte, the power of two 2^(byte - 127); 255 is NaN.

How the exponent follows from amax, the largest magnitude of the block, differs between libraries:

    floor   floor(log2 amax) - 2       the OCP minimum; values up to 8 scales saturate to 6
    rceil   ceil(log2(amax / 6))       nothing saturates
    even    as floor, after rounding amax to two significant bits

All three are the exponent bits of amax after a carry. 4 + 8/32 = 4.25 bits a value.

Source: OCP Microscaling Formats (MX) v1.0, section 6.3, for floor; torchao's names for the other two.
"""

from __future__ import annotations

import torch

from reprise.fp4.errors import Fp4Error

BLOCK = 32
MODES = ("floor", "rceil", "even")
LARGEST_BYTE = 254

# by element type: exponent of its largest value, significand bits of that value, mantissa bits
_E2M1 = (2, 0x400000, 1)  # 6 = 1.5 * 2^2
_E4M3 = (8, 0x600000, 3)  # 448 = 1.75 * 2^8
_ELEMENTS = {"e2m1": _E2M1, "e4m3": _E4M3}


def block_scale(amax: torch.Tensor, mode: str = "floor", element: str = "e2m1") -> torch.Tensor:
    """E8M0 bytes, as uint8, within 0..254.

    Args:
        amax: largest magnitude of each block, float32, finite; a block of zeros gets byte 0.
        mode: one of MODES.
        element: "e2m1", or "e4m3" for MXFP8.

    Raises:
        Fp4Error: another mode.
    """
    exponent = amax.view(torch.int32).add(_carry(mode, element)).bitwise_right_shift_(23)
    return exponent.sub_(_ELEMENTS[element][0]).clamp_(0, LARGEST_BYTE).to(torch.uint8)


def decode_scale(byte: torch.Tensor) -> torch.Tensor:
    """float32 scale of each block; byte 0 is 2^-127, a subnormal float32."""
    return (byte.int() << 23).clamp_(min=0x400000).view(torch.float32)


def _carry(mode: str, element: str) -> int:
    """What to add to the bits of amax so that its exponent field becomes that of the scale, times the largest value.

    rceil goes up a binade if amax exceeds the largest value's significand; even if it rounds up to the next power.
    """
    _, significand, mantissa = _ELEMENTS[element]
    carries = {"floor": 0, "rceil": 0x7FFFFF - significand, "even": 1 << 22 - mantissa}
    if mode not in carries:
        raise Fp4Error(f"mx_mode={mode!r}: expected one of {', '.join(MODES)}")
    return carries[mode]
