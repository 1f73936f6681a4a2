"""Blocks to packed codes and scale bytes, the arithmetic that both formats share.

A slice of blocks is turned on its side, so that value k of every block stands in row k. A block's amax is then the
maximum over rows, its scale one element of a row-wise division, and packing combines rows: nothing runs along an axis
of 16. Slices are small enough to stay in the cache, and inside one every step overwrites what it no longer needs.
"""

from __future__ import annotations

import torch

from reprise.fp4 import mxfp4, nvfp4
from reprise.fp4.e2m1 import round_

BLOCK = {"nvfp4": nvfp4.BLOCK, "mxfp4": mxfp4.BLOCK}  # values a scale byte
# values in a slice: 512 kB as float32, and as much again for two temporaries
SLICE = 1 << 17


def encode_blocks(blocks: torch.Tensor, fmt: str, g: torch.Tensor | None, mx_mode: str):
    """Packed codes and scale bytes of blocks.

    Args:
        blocks: [n, B], a float dtype, finite; B = 16 for "nvfp4", 32 for "mxfp4".
        fmt: "nvfp4" or "mxfp4".
        g: global scale of each block, float32 [n], for "nvfp4".
        mx_mode: one of `mxfp4.MODES`, for "mxfp4".

    Returns:
        (packed uint8 [n, B / 2], bytes uint8 [n]).
    """
    n, width = blocks.shape
    packed = torch.empty(n, width // 8, dtype=torch.int32, device=blocks.device)
    byte = torch.empty(n, dtype=torch.uint8, device=blocks.device)
    at_once = SLICE // width if blocks.device.type == "cpu" else max(n, 1)
    for start in range(0, n, at_once):
        part = slice(start, start + at_once)
        rows = blocks[part].t().to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        byte[part], scale = block_scales(rows.abs().amax(0), fmt, None if g is None else g[part], mx_mode)
        packed[part] = _fold(round_(rows.div_(scale))).t()
    return packed.view(torch.uint8), byte


def block_scales(amax: torch.Tensor, fmt: str, g: torch.Tensor | None, mx_mode: str):
    """(uint8 byte, float32 scale) of each block from its largest magnitude, float32 [n]."""
    if fmt == "nvfp4":
        byte = nvfp4.block_scale(amax, g)
        return byte, nvfp4.decode_scale(byte, g)
    byte = mxfp4.block_scale(amax, mx_mode)
    return byte, mxfp4.decode_scale(byte)


def _fold(codes: torch.Tensor) -> torch.Tensor:
    """int32 [B / 8, m] words of eight codes each, the first in the lowest bits, from int32 [B, m] codes."""
    for width in (4, 8, 16):
        codes = codes[1::2].bitwise_left_shift_(width).bitwise_or_(codes[0::2])
    return codes
