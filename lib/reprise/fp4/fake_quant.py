"""Fake quantisation: values as FP4 would hold them, in the dtype they came in, with straight-through gradients.

    forward    y = s_roll * q_TRACE(x / s_roll) with guidance, the nearest representable value in x's own scale without
    backward   dL/dx = dL/dy

The straight-through node is made outside `torch.no_grad()`, in which everything before it is computed. Made inside,
the forward would be just as right and no gradient would reach x.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from reprise.fp4 import mxfp4, nvfp4
from reprise.fp4.e2m1 import check_float, e2m1_decode
from reprise.fp4.errors import BlockShapeError, Fp4Error, ScaleFormatMismatch
from reprise.fp4.guided import guided_values
from reprise.fp4.reconstruct import reconstruct
from reprise.fp4.tensor import check_finite, quantize

_BLOCKS = (nvfp4.BLOCK, mxfp4.BLOCK)


class Guide(NamedTuple):
    """What the rollout rounded to at one site.

    Attributes:
        low_bits: uint8, the low b bits of the rollout's codes, shaped like x.
        scale: float32 [..., width / block], block scale times global or token scale, positive; blocks of 16 or 32.
        b: bits kept, 1..4; with 4 the codes are complete.
    """

    low_bits: torch.Tensor
    scale: torch.Tensor
    b: int


def fake_quant(
    x: torch.Tensor,
    guide: Guide | None = None,
    *,
    rule: str = "nearest",
    fmt: str = "nvfp4",
    scale: str = "token",
    mx_mode: str = "floor",
    site="",
) -> torch.Tensor:
    """x in FP4 and back, differentiable as the identity.

    Args:
        x: activations [..., width], float16, bfloat16 or float32.
        guide: the rollout's codes and scales, which then decide scale and rounding; None rounds to nearest.
        rule: how codes are reconstructed from fewer than four bits, see `reconstruct`.
        fmt, scale, mx_mode: of `quantize`, used without a guide.
        site: where x was taken, for errors.

    Returns:
        a tensor of x's shape and dtype; Inf where a value exceeds that dtype, see `Fp4Tensor.dequantize`, and guided
        values may be a whole gap above x. Under enabled gradients dL/dx equals dL/dy, bit for bit.

    Raises:
        NonFiniteInput: x holds NaN or Inf.
        Fp4Error: another dtype, or a guide of another shape.
        ScaleFormatMismatch: scales that are not float32, positive and finite, or of blocks that neither format has.

    Source: pseudocode of appendix A.1.

    >>> x = torch.tensor([[59.75] * 16], requires_grad=True)
    >>> guide = Guide(torch.full((1, 16), 5, dtype=torch.uint8), torch.tensor([[24.0]]), 4)
    >>> y = fake_quant(x, guide)
    >>> y.sum().backward()
    >>> y[0, 0].item(), x.grad[0, 0].item()
    (72.0, 1.0)
    """
    with torch.no_grad():
        if guide is None:
            y = quantize(x, fmt, scale, mx_mode=mx_mode, site=site).dequantize(x.dtype)
        else:
            y = guided_quant(x, guide, rule, site)[0].to(x.dtype)
    return straight_through(x, y)


def straight_through(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """y forward, the identity to x backward; y itself gets no gradient. Same shape and dtype."""
    if x.shape != y.shape or x.dtype != y.dtype:
        raise Fp4Error(f"y: {y.dtype} {tuple(y.shape)}, expected {x.dtype} {tuple(x.shape)} as x")
    return _StraightThrough.apply(x, y)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return y.view_as(y)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def guided_quant(x: torch.Tensor, guide: Guide, rule: str, site) -> tuple[torch.Tensor, torch.Tensor]:
    """(s_roll * q_TRACE, q_TRACE), float32, shaped like x; arguments and errors as of `fake_quant`, no gradient."""
    block = _check_guide(x, guide, site)
    scale = guide.scale.unsqueeze(-1)
    z = (x.float().unflatten(-1, (-1, block)) / scale).flatten(-2)
    codes = reconstruct(z, guide.low_bits, guide.b, rule, site)
    q = guided_values(z, e2m1_decode(codes))
    return (q.unflatten(-1, (-1, block)) * scale).flatten(-2), q


def _check_guide(x: torch.Tensor, guide: Guide, site) -> int:
    """Values a block, after the checks that the guide belongs to x."""
    check_float(x)
    if guide.low_bits.shape != x.shape:
        raise Fp4Error(f"site {site!r}: low_bits {tuple(guide.low_bits.shape)}, expected {tuple(x.shape)} as x")
    if x.dim() == 0:
        raise BlockShapeError(f"site {site!r}: x has shape (), expected a last axis to divide into blocks")
    shape, found = tuple(x.shape), tuple(guide.scale.shape)
    if found not in [(*shape[:-1], shape[-1] // block) for block in _BLOCKS if shape[-1] % block == 0]:
        raise ScaleFormatMismatch(
            f"site {site!r}: scale {found}, expected {shape[:-1]} and one for every {_BLOCKS[0]} or {_BLOCKS[1]} "
            f"values of width={shape[-1]}"
        )
    if guide.scale.dtype != torch.float32:
        raise ScaleFormatMismatch(f"site {site!r}: scale {guide.scale.dtype}, expected float32")
    if bad := int((~((guide.scale > 0) & guide.scale.isfinite())).sum()):
        raise ScaleFormatMismatch(f"site {site!r}: {bad} scales are not positive or not finite, expected all to be")
    check_finite(x, site)
    return shape[-1] // found[-1] if found[-1] else nvfp4.BLOCK
