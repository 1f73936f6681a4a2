"""MXFP8 with E4M3 elements: the activations of W4A8, where only weights and the KV cache are MXFP4.

Blocks of 32 and E8M0 scales as in `mxfp4`; the elements are eight bits wide, 8.25 bits a value.

Source: OCP Microscaling Formats (MX) v1.0, section 5.3.1; the W4A8 rows of the paper's MXFP4 table.
"""

from __future__ import annotations

import torch

from reprise.fp4.e2m1 import check_float
from reprise.fp4.mxfp4 import BLOCK, block_scale, decode_scale
from reprise.fp4.nvfp4 import E4M3_MAX
from reprise.fp4.tensor import check_finite, padded


def quantize_e4m3(x: torch.Tensor, mx_mode: str = "floor", pad: bool = False, site="") -> tuple[torch.Tensor, ...]:
    """E4M3 elements and E8M0 bytes of x.

    Args:
        x: [..., K], float16, bfloat16 or float32.
        mx_mode: one of `mxfp4.MODES`.
        pad: fill the last block with zeros; without it K must be a multiple of 32.
        site: where x comes from, for errors.

    Returns:
        (elements, block_scale): float8_e4m3fn [..., K'] and uint8 [..., K'/32], K' the padded K. Rounded to nearest
        even; what exceeds 448 scales saturates.

    Raises:
        NonFiniteInput: x holds NaN or Inf.
        BlockShapeError: K is not a multiple of 32 and pad is off.
        Fp4Error: another dtype or mode.
    """
    check_float(x)
    blocks = padded(x, BLOCK, pad, site).float().unflatten(-1, (-1, BLOCK))
    check_finite(x, site)
    amax = blocks.abs().amax(-1)
    byte = block_scale(amax, mx_mode, "e4m3")
    z = blocks / decode_scale(byte).unsqueeze(-1)
    return z.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).flatten(-2), byte


def fake_quant_e4m3(x: torch.Tensor, mx_mode: str = "floor", site="") -> torch.Tensor:
    """x as MXFP8 would hold it, in its own shape and dtype; a last axis that does not divide is padded meanwhile."""
    elements, byte = quantize_e4m3(x, mx_mode, pad=True, site=site)
    y = elements.float().unflatten(-1, (-1, BLOCK)) * decode_scale(byte).unsqueeze(-1)
    return y.flatten(-2)[..., : x.shape[-1]].to(x.dtype)
