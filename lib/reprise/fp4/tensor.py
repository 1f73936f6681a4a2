"""Tensors in NVFP4 and MXFP4.

>>> x = torch.arange(-16, 16) / 4
>>> q = quantize(x)
>>> q.block_scale.tolist(), q.packed.tolist()[:4]
([126, 125], [255, 239, 238, 222])
>>> q.dequantize()[:4].tolist()
[-4.0, -4.0, -4.0, -2.6666667461395264]
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from reprise.fp4 import mxfp4, nvfp4
from reprise.fp4.blocks import encode_blocks
from reprise.fp4.compiled import encode_blocks_compiled
from reprise.fp4.e2m1 import check_float, e2m1_decode
from reprise.fp4.errors import BlockShapeError, Fp4Error, NonFiniteInput, PackedSizeError, ScaleFormatMismatch
from reprise.fp4.packing import unpack_bits

FORMATS = {"nvfp4": nvfp4, "mxfp4": mxfp4}
SCALES = ("tensor", "token")


@dataclass(frozen=True)
class Fp4Tensor:
    """A quantised tensor: E2M1 codes and the scales they are multiples of.

    Args:
        packed: uint8 [..., K' / 2], two codes a byte, the first in the low nibble; K' is K padded to whole blocks.
        block_scale: uint8 [..., K' / block], E4M3 bytes for NVFP4, E8M0 for MXFP4.
        global_scale: NVFP4: float32, [] for the tensor or [..., 1] for each token. MXFP4: None.
        shape: (..., K), of the tensor that was quantised.
        fmt: "nvfp4" or "mxfp4".

    Raises:
        ScaleFormatMismatch: scales of another dtype, shape or format, or bytes that are NaN or negative.
        PackedSizeError: codes of another shape or dtype, or a shape that is none of a tensor with a last axis.
    """

    packed: torch.Tensor
    block_scale: torch.Tensor
    global_scale: torch.Tensor | None
    shape: tuple[int, ...]
    fmt: str

    def __post_init__(self):
        if not self.shape or any(type(size) is not int or size < 0 for size in self.shape):
            raise PackedSizeError(f"shape={self.shape!r}: expected (..., K), whole numbers from 0")
        leading, blocks = tuple(self.shape[:-1]), -(-self.shape[-1] // self.block)
        expected = (*leading, blocks * self.block // 2)
        if self.packed.dtype != torch.uint8 or tuple(self.packed.shape) != expected:
            raise PackedSizeError(f"packed: {_is(self.packed)}, expected torch.uint8 {expected}")
        check_scales(self.block_scale, self.global_scale, (*leading, blocks), self.fmt)

    @property
    def block(self) -> int:
        """Values that share a block scale."""
        return _format(self.fmt).BLOCK

    def codes(self) -> torch.Tensor:
        """uint8 codes 0..15, [..., K]."""
        flat = unpack_bits(self.packed, 4, 2 * self.packed.numel())
        return flat.reshape(*self.shape[:-1], 2 * self.packed.shape[-1])[..., : self.shape[-1]]

    def scales(self) -> torch.Tensor:
        """float32 [..., K' / block]: what a block's E2M1 values are multiplied by, global scale included."""
        if self.fmt == "nvfp4":
            return nvfp4.decode_scale(self.block_scale, self.global_scale)
        return mxfp4.decode_scale(self.block_scale)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """[..., K] values: code times scale in float32, then `dtype`.

        Where MXFP4 rounds its scale up ("rceil", "even"), a finite x near the largest number of `dtype` can come back
        as Inf: 65504 becomes 4 * 2^14, which float16 does not have.
        """
        flat = e2m1_decode(unpack_bits(self.packed, 4, 2 * self.packed.numel()))
        values = flat.reshape(*self.block_scale.shape, self.block) * self.scales().unsqueeze(-1)
        return values.flatten(-2)[..., : self.shape[-1]].to(dtype)


def quantize(
    x: torch.Tensor,
    fmt: str = "nvfp4",
    scale: str = "tensor",
    mx_mode: str = "floor",
    pad: bool = False,
    site="",
    compiled: bool = False,
) -> Fp4Tensor:
    """x in FP4, rounded to nearest even in its own scale.

    Args:
        x: [..., K], float16, bfloat16 or float32; computed in float32.
        fmt: "nvfp4" (blocks of 16) or "mxfp4" (blocks of 32).
        scale: whether NVFP4's global scale is one for the "tensor" or for each "token", a vector along the last axis.
            MXFP4 has none.
        mx_mode: how MXFP4 takes a block's exponent, one of `mxfp4.MODES`.
        pad: fill the last block with zeros; without it K must be a multiple of the block.
        site: where x comes from, for errors.
        compiled: fuse the work with torch.compile, see `compiled`; same bits, and seconds for the first call.

    Raises:
        NonFiniteInput: x holds NaN or Inf; names site and count.
        BlockShapeError: x has no axis, or K is not a multiple of the block and pad is off.
        Fp4Error: another dtype, fmt, scale or mode.
    """
    check_float(x)
    block = _format(fmt).BLOCK
    if scale not in SCALES:
        raise Fp4Error(f"scale={scale!r}: expected one of {', '.join(SCALES)}")
    if mx_mode not in mxfp4.MODES:
        raise Fp4Error(f"mx_mode={mx_mode!r}: expected one of {', '.join(mxfp4.MODES)}")
    whole = padded(x, block, pad, site)
    check_finite(x, site)
    leading, blocks = whole.shape[:-1], whole.shape[-1] // block
    g = _global(x, scale) if fmt == "nvfp4" else None
    each = None if g is None else g.expand(*leading, 1).repeat_interleave(blocks, -1).reshape(-1)
    encode = encode_blocks_compiled if compiled else encode_blocks
    packed, byte = encode(whole.reshape(-1, block), fmt, each, mx_mode)
    return Fp4Tensor(
        packed.reshape(*leading, blocks * block // 2), byte.reshape(*leading, blocks), g, tuple(x.shape), fmt
    )


def padded(x: torch.Tensor, block: int, pad: bool, site="") -> torch.Tensor:
    """x with its last axis a whole number of blocks.

    Raises:
        BlockShapeError: it is none and pad is off, or x has no axis.
    """
    if x.dim() == 0:
        raise BlockShapeError(f"{_at(site)}x has shape (): expected a last axis to divide into blocks")
    missing = -x.shape[-1] % block
    if missing and not pad:
        raise BlockShapeError(f"{_at(site)}x.shape[-1]={x.shape[-1]}: expected a multiple of {block}, or pad=True")
    return torch.nn.functional.pad(x.detach(), (0, missing)) if missing else x.detach()


def check_finite(x: torch.Tensor, site) -> None:
    """Raises NonFiniteInput, with the count, where x holds NaN or Inf: its amax would be no scale."""
    if x.numel() == 0:
        return
    low, high = x.detach().aminmax()  # hands a NaN on
    if not bool(low.isfinite() & high.isfinite()):
        raise NonFiniteInput(site, int((~x.isfinite()).sum()), "NaN or Inf")


def check_scales(
    block_scale: torch.Tensor, global_scale: torch.Tensor | None, shape: tuple[int, ...], fmt: str
) -> None:
    """Refuse scales that are not those of a tensor in `fmt` with blocks of shape `shape`.

    Raises:
        ScaleFormatMismatch: another dtype or shape, a byte that is NaN or negative, or a global scale that is missing,
            not positive and finite, or there for MXFP4.
    """
    if block_scale.dtype != torch.uint8 or tuple(block_scale.shape) != shape:
        raise ScaleFormatMismatch(f"block_scale: {_is(block_scale)}, expected torch.uint8 {shape} for {fmt}")
    largest = _format(fmt).LARGEST_BYTE
    if block_scale.numel() and int(block_scale.amax()) > largest:
        raise ScaleFormatMismatch(f"block_scale: byte {int(block_scale.amax())}, expected 0..{largest} for {fmt}")
    if fmt == "mxfp4":
        if global_scale is not None:
            raise ScaleFormatMismatch("global_scale: given, expected None for mxfp4")
        return
    allowed = ((), (*shape[:-1], 1))
    if global_scale is None or global_scale.dtype != torch.float32 or tuple(global_scale.shape) not in allowed:
        raise ScaleFormatMismatch(f"global_scale: {_is(global_scale)}, expected torch.float32 () or {allowed[1]}")
    if not bool(((global_scale > 0) & global_scale.isfinite()).all()):
        raise ScaleFormatMismatch("global_scale: not positive or not finite, expected finite numbers above 0")


def _global(x: torch.Tensor, scale: str) -> torch.Tensor:
    if x.numel() == 0:
        return torch.ones((*x.shape[:-1], 1) if scale == "token" else (), device=x.device)
    magnitude = x.detach().abs()
    return nvfp4.global_scale(magnitude.amax(-1, keepdim=True) if scale == "token" else magnitude.amax())


def _format(fmt: str):
    if fmt not in FORMATS:
        raise Fp4Error(f"fmt={fmt!r}: expected one of {', '.join(FORMATS)}")
    return FORMATS[fmt]


def _at(site) -> str:
    return f"site {site!r}: " if site else ""


def _is(tensor: torch.Tensor | None) -> str:
    return "None" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
