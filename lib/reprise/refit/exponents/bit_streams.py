"""Numbers as bits without padding between them: fields of known widths, and unary.

Bits fill a byte from its highest. Compiled code and NumPy give the same bytes.
"""

from __future__ import annotations

import numpy as np

from reprise.refit.errors import PayloadError
from reprise.refit.locations import one_positions

COMPILED_FROM = 1 << 12  # numbers from which compiled code is worth loading numba
MAX_WIDTH = 30


def write_fields(values: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Packed uint8: the low `widths` bits of each of `values`, highest first.

    Args:
        values: int64; bits above the lowest `widths` are left out.
        widths: int64, at most MAX_WIDTH.
    """
    return _kernels(values.size).write_fields(values, widths)


def read_fields(data: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """int64 values of fields of the int64 `widths`, all of which the packed uint8 hold."""
    return _kernels(widths.size).read_fields(data, widths)


def write_unary(numbers: np.ndarray) -> np.ndarray:
    """Packed uint8: each of the int64 `numbers` as that many zeros and a one."""
    return _kernels(numbers.size).write_unary(numbers)


def read_unary(data: np.ndarray, count: int) -> np.ndarray:
    """[count] int64 numbers from packed uint8.

    Raises:
        PayloadError: another number of them, or bytes after the last.
    """
    held = int(np.bitwise_count(data).sum())
    if held != count:
        raise PayloadError(f"unary: {held} numbers, expected {count}")
    if data.size and not data[-1]:
        raise PayloadError("unary: bytes after the last number")
    return _kernels(count).read_unary(data, count)


class NumpyKernels:
    """The four of them, a bit position at a time."""

    @staticmethod
    def write_fields(values: np.ndarray, widths: np.ndarray) -> np.ndarray:
        ends = np.cumsum(widths)
        bits = np.zeros(ends[-1] if ends.size else 0, bool)
        for k in range(int(widths.max(initial=0))):
            wide = widths > k
            bits[ends[wide] - 1 - k] = values[wide] >> k & 1
        return np.packbits(bits)

    @staticmethod
    def read_fields(data: np.ndarray, widths: np.ndarray) -> np.ndarray:
        # a field lies within five bytes
        first = np.cumsum(widths) - widths
        padded = np.append(data, np.zeros(5, np.uint8))
        window = np.zeros(widths.size, np.int64)
        for offset in range(5):
            window = window << 8 | padded[(first >> 3) + offset]
        return window >> (40 - widths - (first & 7)) & ((1 << widths) - 1)

    @staticmethod
    def write_unary(numbers: np.ndarray) -> np.ndarray:
        ends = np.cumsum(numbers + 1) - 1
        bits = np.zeros(ends[-1] + 1 if ends.size else 0, bool)
        bits[ends] = True
        return np.packbits(bits)

    @staticmethod
    def read_unary(data: np.ndarray, count: int) -> np.ndarray:
        return np.diff(one_positions(data), prepend=-1) - 1


def _kernels(numbers: int):
    if numbers < COMPILED_FROM:
        return NumpyKernels
    try:
        from reprise.refit.exponents.bit_kernels import CompiledKernels
    except ImportError:  # numba is optional
        return NumpyKernels
    return CompiledKernels
