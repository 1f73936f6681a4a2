"""Compiled forms of `bit_streams`. Importing it takes numba."""

from __future__ import annotations

import numpy as np
from numba import types

from reprise.refit.exponents.exponent_kernels import compiled

_NUMBERS = types.Array(types.int64, 1, "C", readonly=True)
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)


class CompiledKernels:
    """As `bit_streams.NumpyKernels`."""

    @staticmethod
    def write_fields(values: np.ndarray, widths: np.ndarray) -> np.ndarray:
        data = np.empty(-(-int(widths.sum()) // 8), np.uint8)
        _write_fields(values, widths, data)
        return data

    @staticmethod
    def read_fields(data: np.ndarray, widths: np.ndarray) -> np.ndarray:
        values = np.empty(widths.size, np.int64)
        _read_fields(data, widths, values)
        return values

    @staticmethod
    def write_unary(numbers: np.ndarray) -> np.ndarray:
        data = np.zeros(-(-int(numbers.sum() + numbers.size) // 8), np.uint8)
        _write_unary(numbers, data)
        return data

    @staticmethod
    def read_unary(data: np.ndarray, count: int) -> np.ndarray:
        numbers = np.empty(count, np.int64)
        _read_unary(data, numbers)
        return numbers


@compiled(types.void(_NUMBERS, _NUMBERS, types.uint8[::1]))
def _write_fields(values, widths, data):
    held, bits, at = np.int64(0), np.int64(0), 0  # at most 7 bits and a field
    for i in range(values.size):
        held = held << widths[i] | (values[i] & ((1 << widths[i]) - 1))
        bits += widths[i]
        while bits >= 8:
            bits -= 8
            data[at] = held >> bits
            held &= (1 << bits) - 1
            at += 1
    if bits:
        data[at] = held << (8 - bits)


@compiled(types.void(_BYTES, _NUMBERS, types.int64[::1]))
def _read_fields(data, widths, values):
    held, bits, at = np.int64(0), np.int64(0), 0
    for i in range(values.size):
        while bits < widths[i]:
            held = held << 8 | data[at]
            bits += 8
            at += 1
        bits -= widths[i]
        values[i] = held >> bits
        held &= (1 << bits) - 1


@compiled(types.void(_NUMBERS, types.uint8[::1]))
def _write_unary(numbers, data):
    at = -1
    for i in range(numbers.size):
        at += numbers[i] + 1
        data[at >> 3] |= 128 >> (at & 7)


@compiled(types.void(_BYTES, types.int64[::1]))
def _read_unary(data, numbers):
    """Fill `numbers`, as many as `data` has ones."""
    zeros, i = 0, 0
    for byte in data:
        if byte == 0:
            zeros += 8
            continue
        for bit in range(7, -1, -1):
            if byte >> bit & 1:
                numbers[i] = zeros
                zeros = 0
                i += 1
            else:
                zeros += 1
