"""Other libraries' FP4 quantisers behind one signature, to compare codes and scale bytes with.

    quantiser(z, "e2m1")  -> uint8 codes of z float32 [n]
    quantiser(x, "nvfp4") -> (uint8 codes [rows, K], uint8 E4M3 bytes [rows, K / 16]), x bfloat16 or float32 [rows, K]
    quantiser(x, "mxfp4") -> (uint8 codes [rows, K], uint8 E8M0 bytes [rows, K / 32])

A format that a library does not have raises NotImplementedError. NVFP4's global scale comes from the amax of x, by the
library's own rule. Each function calls the library's own code for the CPU, without a compiled or GPU path. fouroversix
is missing: it has no wheel, and its source distribution did not build here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from reprise.fp4 import unpack_bits
from reprise.labs import peers

Quantiser = Callable[[torch.Tensor, str], torch.Tensor | tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Peer:
    """One library in one configuration.

    Args:
        name: library, and configuration where it has several.
        module: name for `reprise.labs.peers`.
        version: the version whose behaviour the tests describe.
        quantise: as in the heading of this file.
        formats: those it has.
        most_rows: rows of 1024 values that it quantises in about a second, for the one that takes blocks one by one.
    """

    name: str
    module: str
    version: str
    quantise: Quantiser
    formats: tuple[str, ...]
    most_rows: int = 1 << 20

    @property
    def unavailable(self) -> str | None:
        """Why it cannot be used here, or None."""
        return peers.available(self.module)


def ml_dtypes(x: torch.Tensor, fmt: str):
    """The NumPy dtype float4_e2m1fn."""
    _only(fmt, "e2m1")
    dtype = peers.load("ml_dtypes").float4_e2m1fn
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(x.numpy().astype(dtype).view(np.uint8))


def gfloat(x: torch.Tensor, fmt: str):
    """Float formats in plain Python; whole arrays for elements, one block at a time for MXFP4."""
    _only(fmt, "e2m1", "mxfp4")
    library, formats = peers.load("gfloat"), peers.load("gfloat.formats")
    if fmt == "e2m1":
        info = formats.format_info_ocp_e2m1
        rounded = library.round_ndarray(info, x.double().numpy(), sat=True)
        return torch.from_numpy(library.encode_ndarray(info, rounded).astype(np.uint8))
    block_format = formats.format_info_mxfp4_e2m1
    codes, bytes_ = [], []
    for block in x.double().numpy().reshape(-1, 32):
        scale = library.compute_scale_amax(block_format.etype.emax, block)
        byte, *rest = library.encode_block(block_format, scale, block / scale)
        bytes_.append(byte)
        codes.append(rest)
    return _bytes(codes, x.shape), _bytes(bytes_, (*x.shape[:-1], -1))


def torchao(x: torch.Tensor, fmt: str):
    """`f32_to_f4_unpacked`, `nvfp4_quantize` with a global scale, `to_mx` with its default scaling, FLOOR."""
    if fmt == "e2m1":
        return peers.load("torchao.prototype.mx_formats.kernels").f32_to_f4_unpacked(x)
    if fmt == "nvfp4":
        library = peers.load("torchao.prototype.mx_formats.nvfp4_tensor")
        scale = library.per_tensor_amax_to_scale(x.abs().amax())
        byte, packed = library.nvfp4_quantize(x, 16, scale)
        return _codes(packed, x.shape), byte.view(torch.uint8)
    return _torchao_mx(x, fmt, "FLOOR")


def torchao_rceil(x: torch.Tensor, fmt: str):
    """`to_mx` with RCEIL."""
    return _torchao_mx(x, fmt, "RCEIL")


def torchao_even(x: torch.Tensor, fmt: str):
    """`to_mx` with EVEN."""
    return _torchao_mx(x, fmt, "EVEN")


def modelopt(x: torch.Tensor, fmt: str):
    """`NVFP4QTensor` (its `_cast_fp4` for elements) and `MXFP4QTensor`."""
    if fmt == "mxfp4":
        library = peers.load("modelopt.torch.quantization.qtensor.mxfp4_tensor").MXFP4QTensor
        quantised, byte = library.quantize(x, 32)
        return _codes(quantised._quantized_data, x.shape), byte.reshape(*x.shape[:-1], -1)
    library = peers.load("modelopt.torch.quantization.qtensor.nvfp4_tensor").NVFP4QTensor
    if fmt == "e2m1":
        return library._cast_fp4(x.clone())  # it takes absolute values in place
    quantised, byte, _ = library.quantize(x, 16)
    return _codes(quantised._quantized_data, x.shape), byte.view(torch.uint8).reshape(*x.shape[:-1], -1)


def modelopt_mx(x: torch.Tensor, fmt: str):
    """The element cast inside `MXFP4QTensor`, seen through blocks that hold a 6 and so get the scale 1."""
    _only(fmt, "e2m1")
    values = torch.nn.functional.pad(x.clamp(-6, 6), (0, -x.numel() % 31)).reshape(-1, 31)
    blocks = torch.nn.functional.pad(values, (0, 1), value=6.0)
    codes, byte = modelopt(blocks, "mxfp4")
    assert bool((byte == 127).all())
    return codes[:, :31].reshape(-1)[: x.numel()]


def compressed_tensors(x: torch.Tensor, fmt: str):
    """What its NVFP4 and MXFP4 compressors do on a CPU, with scales from `calculate_qparams`."""
    utils = peers.load("compressed_tensors.quantization.utils")
    helpers = peers.load("compressed_tensors.compressors.nvfp4.helpers")
    if fmt == "e2m1":
        rounded = utils.cast_to_fp4(torch.nn.functional.pad(x, (0, x.numel() % 2)))
        return unpack_bits(helpers.pack_fp4_to_uint8(rounded[None])[0], 4, rounded.numel())[: x.numel()]
    block = 16 if fmt == "nvfp4" else 32
    x = x.float()  # in BF16 it would divide and round in BF16
    low, high = x.unflatten(-1, (-1, block)).aminmax(dim=-1)
    whole = utils.generate_gparam(x.amin(), x.amax()) if fmt == "nvfp4" else None
    scale, _ = utils.calculate_qparams(low, high, _scheme(block), global_scale=whole)
    packed = helpers.quantize_and_pack_fp4(x, scale, global_scale=whole, group_size=block)
    if fmt == "nvfp4":
        return _codes(packed, x.shape), scale.to(torch.float8_e4m3fn).view(torch.uint8)
    to_byte = peers.load("compressed_tensors.compressors.mx_utils").compress_mx_scale
    return _codes(packed, x.shape), to_byte(scale, torch.uint8)


PEERS = (
    Peer("ml_dtypes", "ml_dtypes", "0.6.0", ml_dtypes, ("e2m1",)),
    Peer("gfloat", "gfloat", "0.5.2", gfloat, ("e2m1", "mxfp4"), 4),
    Peer("torchao", "torchao", "0.18.0", torchao, ("e2m1", "nvfp4", "mxfp4")),
    Peer("torchao RCEIL", "torchao", "0.18.0", torchao_rceil, ("mxfp4",)),
    Peer("torchao EVEN", "torchao", "0.18.0", torchao_even, ("mxfp4",)),
    Peer("compressed-tensors", "compressed_tensors", "0.20.1", compressed_tensors, ("e2m1", "nvfp4", "mxfp4")),
    Peer("modelopt", "modelopt", "0.47.0", modelopt, ("e2m1", "nvfp4", "mxfp4")),
    Peer("modelopt MX cast", "modelopt", "0.47.0", modelopt_mx, ("e2m1",)),
)


def _torchao_mx(x: torch.Tensor, fmt: str, mode: str):
    _only(fmt, "mxfp4")
    library = peers.load("torchao.prototype.mx_formats.mx_tensor")
    modes = peers.load("torchao.prototype.mx_formats.config").ScaleCalculationMode
    byte, packed = library.to_mx(x, torch.float4_e2m1fn_x2, 32, modes[mode])
    return _codes(packed, x.shape), byte.view(torch.uint8)


def _scheme(block: int):
    """Quantisation arguments of compressed-tensors' presets NVFP4 (blocks of 16) and MXFP4 (blocks of 32)."""
    args = peers.load("compressed_tensors.quantization").QuantizationArgs
    dtype, strategy = (torch.float8_e4m3fn, "tensor_group") if block == 16 else (torch.uint8, "group")
    return args(num_bits=4, type="float", strategy=strategy, group_size=block, scale_dtype=dtype)


def _codes(packed: torch.Tensor, shape) -> torch.Tensor:
    return unpack_bits(packed.reshape(-1).view(torch.uint8), 4, 2 * packed.numel()).reshape(shape)


def _bytes(values: list, shape) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8).reshape(shape)


def _only(fmt: str, *formats: str) -> None:
    if fmt not in formats:
        raise NotImplementedError(fmt)
