"""Tensor storage as unsigned words: what is compared, sent and written.

Weights are never compared as floats: +0 and -0 are different storage, and a NaN equals itself only as bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from reprise.refit.errors import RefitSchemaError

# safetensors dtype name -> bytes of one element; a complex64 is one 64-bit word
DTYPES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E4M3FNUZ": 1,
    "F8_E5M2FNUZ": 1,
    "F8_E8M0": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
    "C64": 8,
}

# dtype names of NumPy, ml_dtypes and torch (without its prefix) -> safetensors name
NATIVE = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
}


def word_dtype(dtype: str) -> np.dtype:
    """Little-endian unsigned NumPy dtype that holds one element of safetensors dtype `dtype`.

    Raises:
        RefitSchemaError: an unknown dtype, named.
    """
    if dtype not in DTYPES:
        raise RefitSchemaError(f"dtype={dtype!r}: expected one of {', '.join(DTYPES)}")
    return np.dtype(f"<u{DTYPES[dtype]}")


@dataclass(frozen=True)
class Bits:
    """Storage of one tensor.

    Args:
        dtype: safetensors dtype name, a key of DTYPES.
        shape: shape of the tensor; () for a 0-d tensor, which has one word.
        words: [prod(shape)] unsigned little-endian words of the dtype's width, row-major, contiguous.

    Raises:
        RefitSchemaError: unknown dtype, or words of another width, layout or count.
    """

    dtype: str
    shape: tuple[int, ...]
    words: np.ndarray

    def __post_init__(self):
        expected = word_dtype(self.dtype)
        words = self.words
        if words.dtype != expected or words.ndim != 1 or not words.flags.c_contiguous:
            raise RefitSchemaError(
                f"words: {words.dtype} of shape {words.shape}, expected flat contiguous {expected} for {self.dtype}"
            )
        if words.size != prod(self.shape):
            raise RefitSchemaError(f"words: {words.size} elements, expected {prod(self.shape)} for shape {self.shape}")


def as_bits(x) -> Bits:
    """Storage of a Bits, a NumPy array or a torch tensor, shared where it is contiguous and on the CPU.

    Non-contiguous tensors are brought to row-major order, tensors of other devices copied to the CPU.

    Raises:
        RefitSchemaError: a dtype without a safetensors name, or storage that is no strided array.
    """
    if isinstance(x, Bits):
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise RefitSchemaError("masked array: expected a plain one, a delta has no place for the mask")
    if isinstance(x, np.ndarray):
        return _array_bits(x)
    if is_torch(x):
        return _tensor_bits(x)
    raise RefitSchemaError(f"{type(x).__name__}: expected Bits, a NumPy array or a torch tensor")


def writable_bits(x) -> tuple[Bits, Callable[[], None]]:
    """Storage of `x` to be written, and the call that carries what was written back into `x`.

    Returns:
        (bits, commit). Contiguous CPU storage is shared and commit has nothing left to move; otherwise `bits` is a
        row-major copy which commit copies back.

    Raises:
        RefitSchemaError: read-only storage, or elements that share memory (an expanded tensor).
    """
    bits = as_bits(x)
    if isinstance(x, Bits):
        if not x.words.flags.writeable:
            raise RefitSchemaError("words: read-only, expected writable storage")
        return bits, _nothing
    if isinstance(x, np.ndarray):
        if not x.flags.writeable:
            raise RefitSchemaError("array: read-only, expected writable storage")
        _refuse_expanded(x.shape, x.strides)
        if np.shares_memory(x, bits.words):
            return bits, _nothing
        return bits, lambda: np.copyto(x.view(bits.words.dtype), bits.words.reshape(x.shape))
    _refuse_expanded(x.shape, x.stride())
    if x.is_conj() or x.is_neg():
        raise RefitSchemaError("tensor: a lazily conjugated or negated view, expected plain storage")
    return bits, lambda: _commit_tensor(x, bits)


def storage_key(x) -> tuple | None:
    """Identity of the memory behind `x`: equal for tied tensors, None for storage without an address."""
    if isinstance(x, Bits):
        x = x.words
    if isinstance(x, np.ndarray):
        return (x.ctypes.data, x.shape, x.strides, x.dtype.name) if x.size else None
    if not _has_address(x) or x.numel() == 0:
        return None
    return (str(x.device), x.data_ptr(), tuple(x.shape), tuple(x.stride()), str(x.dtype))


def address_view(x) -> tuple[str, np.ndarray] | None:
    """(device, array at the addresses of `x`) to compare places with; never to be read. None as of `storage_key`."""
    if isinstance(x, Bits):
        x = x.words
    if isinstance(x, np.ndarray):
        return ("cpu", x) if x.size else None
    if not _has_address(x) or x.numel() == 0:
        return None
    nbytes = x.element_size()
    strides = tuple(nbytes * stride for stride in x.stride())
    place = {"version": 3, "typestr": f"|V{nbytes}", "data": (x.data_ptr(), True)}
    return str(x.device), np.asarray(_Place(place | {"shape": tuple(x.shape), "strides": strides}))


class _Place:
    def __init__(self, interface: dict):
        self.__array_interface__ = interface


def _has_address(x) -> bool:
    return is_torch(x) and x.layout == sys.modules["torch"].strided and not x.is_meta


def is_torch(x) -> bool:
    # a tensor cannot exist before torch is imported, so this never imports it
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _array_bits(x: np.ndarray) -> Bits:
    if x.dtype.name not in NATIVE or x.dtype != x.dtype.newbyteorder("<"):
        raise RefitSchemaError(f"dtype={x.dtype.str} ({x.dtype.name}): expected a little-endian {', '.join(NATIVE)}")
    dtype = NATIVE[x.dtype.name]
    return Bits(dtype, x.shape, np.ascontiguousarray(x).reshape(-1).view(word_dtype(dtype)))


def _tensor_bits(x) -> Bits:
    import torch

    native = str(x.dtype).removeprefix("torch.")
    if native not in NATIVE:
        raise RefitSchemaError(f"dtype={x.dtype}: expected one of {', '.join(NATIVE)}")
    if x.layout != torch.strided or x.is_meta:
        raise RefitSchemaError(f"tensor: layout {x.layout} on {x.device}, expected strided storage")
    dtype = NATIVE[native]
    flat = x.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return Bits(dtype, tuple(x.shape), flat.view(_torch_word(x)).numpy().view(word_dtype(dtype)))


def _torch_word(x):
    import torch

    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]


def _commit_tensor(x, bits: Bits) -> None:
    import torch

    word = _torch_word(x)
    if bits.words.size and bits.words.ctypes.data != x.data_ptr():
        held = torch.from_numpy(bits.words).view(word).reshape(x.shape)
        x.detach().view(word).copy_(held)  # as integers: a float copy may quiet a NaN
    torch.autograd.graph.increment_version(x)  # a saved activation of the old weights must not be used


def _refuse_expanded(shape, strides) -> None:
    if any(size > 1 and stride == 0 for size, stride in zip(shape, strides, strict=True)):
        raise RefitSchemaError(f"strides={tuple(strides)}: elements share memory, expected one address each")


def _nothing() -> None:
    pass
