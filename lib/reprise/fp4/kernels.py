"""Quantise-and-pack and guided rounding in one pass over memory, where a GPU and Triton are at hand.

    quantise   reads x, writes 4 + 8/16 bits a value
    guided     reads x, b + 8/16 bits a value and the token scales, writes s_roll * q_TRACE

`device` chooses: "auto" takes the kernel for tensors on CUDA if Triton can be imported and the torch code elsewhere,
"torch" and "triton" insist. Both give the same bits. With TRITON_INTERPRET=1 set before the first import of triton the
kernels run on a CPU, slowly; that is how they are tested. On a GPU they have not been run.
"""

from __future__ import annotations

import importlib.util

import torch

from reprise.fp4 import nvfp4
from reprise.fp4.e2m1 import check_codes, check_float
from reprise.fp4.errors import Fp4Error, NonFiniteInput, PackedSizeError, ScaleFormatMismatch
from reprise.fp4.fake_quant import Guide, fake_quant
from reprise.fp4.packing import packed_size, unpack_bits
from reprise.fp4.reconstruct import RULES
from reprise.fp4.tensor import SCALES, Fp4Tensor, padded, quantize

DEVICES = ("auto", "torch", "triton")


def quantize_pack(x: torch.Tensor, scale: str = "tensor", device: str = "auto", site="") -> Fp4Tensor:
    """`quantize(x, "nvfp4", scale)`, bit for bit.

    Args:
        x: [..., K], float16, bfloat16 or float32; K a multiple of 16.
        scale: one global scale for the "tensor", or one a "token".
        device: see above.
        site: where x comes from, for errors.

    Raises:
        as `quantize`, and Fp4Error for another device, or for "triton" where it cannot be imported.
    """
    if not _takes_kernel(x, device):
        return quantize(x, "nvfp4", scale, site=site)
    check_float(x)
    if scale not in SCALES:
        raise Fp4Error(f"scale={scale!r}: expected one of {', '.join(SCALES)}")
    x = padded(x, nvfp4.BLOCK, pad=False, site=site).contiguous()
    g = nvfp4.global_scale(x.abs().amax(-1, keepdim=True) if scale == "token" else x.abs().amax())
    bad = torch.zeros(2, dtype=torch.int32, device=x.device)

    from reprise.fp4.triton_kernels import launch_quantize_pack

    packed, byte = launch_quantize_pack(x, g.contiguous(), bad)
    if count := int(bad[0]):
        raise NonFiniteInput(site, count, "NaN or Inf")
    shape = x.shape[:-1]
    return Fp4Tensor(packed.view(*shape, -1), byte.view(*shape, -1), g, tuple(x.shape), "nvfp4")


def guided_values(
    x: torch.Tensor,
    low_bits: torch.Tensor,
    block_scale: torch.Tensor,
    global_scale: torch.Tensor,
    b: int,
    rule: str = "nearest",
    device: str = "auto",
    site="",
) -> torch.Tensor:
    """What `fake_quant` with this guidance returns, bit for bit, straight from the packed record and without gradient.

    Args:
        x: [..., K], activations of the trainer, float16, bfloat16 or float32; K a multiple of 16.
        low_bits: uint8, `pack_bits` of the rollout codes' low b bits, all of x in row-major order.
        block_scale: uint8 [..., K / 16], the rollout's E4M3 bytes.
        global_scale: float32, [] or [..., 1], the rollout's.
        b: bits kept, 1..4.
        rule: of `reconstruct`.
        device: see above.
        site: where x was taken, for errors.

    Returns:
        s_roll * q_TRACE in x's shape and dtype.

    Raises:
        NonFiniteInput: x holds NaN or Inf.
        PackedSizeError: bits of another length than x needs.
        ScaleFormatMismatch: scales of another dtype or shape, a byte that is 0, NaN or negative, or scales that are
            not positive and finite with the global one.
        Fp4Error: another rule or device, or "triton" where it cannot be imported.
    """
    _check_guidance(x, low_bits, block_scale, global_scale, b, rule, site)
    if not _takes_kernel(x, device):
        _check_bytes(block_scale, site)
        scale = nvfp4.decode_scale(block_scale, global_scale)
        return fake_quant(
            x.detach(), Guide(unpack_bits(low_bits, b, x.numel()).view(x.shape), scale, b), rule=rule, site=site
        )
    bad = torch.zeros(2, dtype=torch.int32, device=x.device)

    from reprise.fp4.triton_kernels import launch_guided

    inputs = (x.detach(), low_bits, block_scale, global_scale)
    y = launch_guided(*(tensor.contiguous() for tensor in inputs), b, rule, bad)
    values, scales = bad.tolist()
    if scales:
        _check_bytes(block_scale, site)
        # as fake_quant says it
        raise ScaleFormatMismatch(f"site {site!r}: {scales} scales are not positive or not finite, expected all to be")
    if values:
        raise NonFiniteInput(site, values, "NaN or Inf")
    return y


def _takes_kernel(x: torch.Tensor, device: str) -> bool:
    if device not in DEVICES:
        raise Fp4Error(f"device={device!r}: expected one of {', '.join(DEVICES)}")
    if device == "torch" or (device == "auto" and not x.is_cuda) or x.numel() == 0:
        return False
    found = importlib.util.find_spec("triton") is not None
    if device == "triton" and not found:
        raise Fp4Error("device='triton': it is not installed, expected 'auto' or 'torch'")
    return found


def _check_guidance(x, low_bits, block_scale, global_scale, b, rule, site) -> None:
    """Everything that can be said without reading a value."""
    check_float(x)
    padded(x, nvfp4.BLOCK, pad=False, site=site)
    check_codes(low_bits[:0], b)
    if rule not in RULES:
        raise Fp4Error(f"rule={rule!r}: expected one of {', '.join(RULES)}")
    if low_bits.numel() != packed_size(x.numel(), b):
        raise PackedSizeError(
            f"low_bits: {low_bits.numel()} bytes, expected {packed_size(x.numel(), b)} for x {tuple(x.shape)}, b={b}"
        )
    blocks = (*x.shape[:-1], x.shape[-1] // nvfp4.BLOCK)
    if block_scale.dtype != torch.uint8 or tuple(block_scale.shape) != blocks:
        raise ScaleFormatMismatch(
            f"block_scale: {block_scale.dtype} {tuple(block_scale.shape)}, expected torch.uint8 {blocks}"
        )
    allowed = ((), (*x.shape[:-1], 1))
    if global_scale.dtype != torch.float32 or tuple(global_scale.shape) not in allowed:
        found = f"{global_scale.dtype} {tuple(global_scale.shape)}"
        raise ScaleFormatMismatch(f"global_scale: {found}, expected torch.float32 () or {allowed[1]}")


def _check_bytes(block_scale: torch.Tensor, site) -> None:
    if bool(((block_scale == 0) | (block_scale > nvfp4.LARGEST_BYTE)).any()):
        where = f"site {site!r}: " if site else ""
        raise ScaleFormatMismatch(f"{where}block_scale: a byte is 0, NaN or negative, expected 1..{nvfp4.LARGEST_BYTE}")
