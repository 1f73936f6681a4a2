"""The formats' arithmetic fused by torch.compile: bit for bit the eager results on a CPU.

A first call compiles, which takes seconds to a minute and a C++ compiler; so does each new shape. The arithmetic is
written once more because a fused loop favours other steps: comparisons cost nothing in registers, while looking at a
float's bits makes the generated code leave the vector unit. On other devices the eager form runs.
"""

from __future__ import annotations

from functools import cache

import torch

from reprise.fp4.blocks import block_scales, encode_blocks
from reprise.fp4.e2m1 import E2M1_MAX
from reprise.fp4.guided import guided_values
from reprise.fp4.packing import fold_words


def encode_blocks_compiled(blocks: torch.Tensor, fmt: str, g: torch.Tensor | None, mx_mode: str):
    """As `blocks.encode_blocks`."""
    if blocks.device.type != "cpu" or blocks.numel() == 0:
        return encode_blocks(blocks, fmt, g, mx_mode)
    return _compile(_encode)(blocks, fmt, g, mx_mode)


def guided_values_compiled(z: torch.Tensor, roll_values: torch.Tensor) -> torch.Tensor:
    """As `guided.guided_values`."""
    if z.device.type != "cpu":
        return guided_values(z, roll_values)
    return _compile(guided_values)(z, roll_values)


def compare_code(z: torch.Tensor) -> torch.Tensor:
    """float32 codes 0..15 of float32 z without NaN; the rounding of `e2m1.round_` with its constant M picked by
    comparison, and the code of the rounded magnitude r as min(2r, r + 2, r/2 + 4).

    r is an E2M1 value, so nothing but a + M is rounded. The sign comes from copysign, which sees -0.
    """
    a = z.abs().clamp(max=E2M1_MAX)
    magic = torch.where(a < 2, 2.0**22, torch.where(a < 4, 2.0**23, 2.0**24))
    r = (a + magic) - magic
    magnitude = torch.minimum(torch.minimum(2 * r, r + 2), r / 2 + 4)
    return magnitude + (4 - torch.copysign(torch.full_like(z, 4), z))


def _encode(blocks, fmt, g, mx_mode):
    x = blocks.float()
    byte, scale = block_scales(x.abs().amax(1), fmt, g, mx_mode)
    codes = compare_code(x / scale[:, None]).to(torch.uint8)
    return fold_words(codes.reshape(-1).view(torch.int64), 4).reshape(len(blocks), -1), byte


@cache
def _compile(function):
    return torch.compile(function, dynamic=False)
