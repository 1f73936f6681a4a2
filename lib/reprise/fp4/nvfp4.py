"""Scales of NVFP4: blocks of 16 values share an E4M3 byte, all of them a float32 global scale.

    g = amax / (6 * 448)          over the tensor, or over each token's vector
    b = E4M3(amax of the block / (6 g))       rounded to nearest even, between 2^-9 and 448
    s = b g,  z = x / s

The global scale of a token, our choice for activations, keys and values, keeps its codes independent of the batch it
comes in. 4 + 8/16 = 4.5 bits a value, and 32/K more for one global scale a token of K values.

Source: NVIDIA, Pretraining Large Language Models with NVFP4 (arXiv:2509.25149).
"""

from __future__ import annotations

import torch

from reprise.fp4.e2m1 import E2M1_MAX

BLOCK = 16
E4M3_MAX = 448.0
E4M3_TINY = 2.0**-9  # the smallest E4M3 value that is not zero
# the smallest global scale whose smallest product with a byte is still a normal float32 (our choice)
GLOBAL_MIN = 2.0**-117
LARGEST_BYTE = 0x7E  # 448; 0x7F is NaN, and 0x80 on are negative


def global_scale(amax: torch.Tensor) -> torch.Tensor:
    """float32 global scale for the largest magnitude of a tensor or token; 1 where that is 0."""
    amax = amax.float()
    return torch.where(amax > 0, (amax / (E2M1_MAX * E4M3_MAX)).clamp(min=GLOBAL_MIN), 1.0)


def block_scale(amax: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """E4M3 bytes, as uint8.

    Args:
        amax: largest magnitude of each block, float32; a block of zeros gets byte 1.
        g: global scale, broadcastable to amax.
    """
    return (amax / (E2M1_MAX * g)).clamp(E4M3_TINY, E4M3_MAX).to(torch.float8_e4m3fn).view(torch.uint8)


def decode_scale(byte: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """float32 scale s of each block from its byte and the global scale."""
    return byte.view(torch.float8_e4m3fn).float() * g
