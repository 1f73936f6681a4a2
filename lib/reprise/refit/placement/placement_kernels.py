"""The compiled write of changed words along one strided copy. Importing it takes numba; NumPy writes the same bits.

Indices are sorted, so the row of the view is followed and not divided out. Prefetching the written lines, or reading a
block of old words before the first write, gained nothing.
"""

from __future__ import annotations

from functools import lru_cache

import numba
import numpy as np
from numba import types

from reprise.refit.operations import OPERATIONS

ADD, XOR = OPERATIONS.index("add"), OPERATIONS.index("xor")


def write(flat, index, words, op: str, offset: int, place: int, rows, columns) -> None:
    """Apply `words` to the elements of `flat` that a view of at most two dimensions sends `index` to.

    Args:
        flat: unsigned words of the target's storage; changed in place.
        index: int64 sorted canonical indices between the first and the last element of the view; words: their words.
        offset, place: first element of the view in canonical and in storage elements.
        rows, columns: (size, canonical stride, storage stride) each; the columns of a row end before the next row.
    """
    in_range, in_rows = _compiled(flat.dtype.itemsize)
    operation, (_, stride, step) = OPERATIONS.index(op), columns
    if rows[0] == 1 and stride == 1:
        in_range(flat, index, words, operation, offset, place, step)
    else:
        in_rows(flat, index, words, operation, offset, place, *rows, *columns)


@lru_cache
def _compiled(word_bytes: int):
    word = getattr(types, f"uint{8 * word_bytes}")
    # a read-only view, as of a decoded payload, and any other array fit these types
    index = types.Array(types.int64, 1, "C", readonly=True)
    words = types.Array(word, 1, "C", readonly=True, aligned=False)
    return [_compile(each, types.void(word[::1], index, words, *numbers)) for each, numbers in _KERNELS.items()]


def _compile(function, signature):
    try:
        return numba.njit(signature, nogil=True, cache=True)(function)
    except RuntimeError:  # no folder to keep compiled code in
        return numba.njit(signature, nogil=True)(function)


def _in_range(flat, index, words, op, offset, place, step):
    # a loop each: with few changes a cache line the time is that of its misses, and short loops overlap more of them
    if op == XOR:
        for entry in range(index.size):
            flat[place + (index[entry] - offset) * step] ^= words[entry]
    elif op == ADD:
        for entry in range(index.size):
            flat[place + (index[entry] - offset) * step] += _unzigzag(words[entry])
    else:
        for entry in range(index.size):
            flat[place + (index[entry] - offset) * step] = words[entry]


def _in_rows(flat, index, words, op, offset, place, row_count, row_stride, row_step, count, stride, step):
    row_end = offset + row_stride if row_count > 1 else np.iinfo(np.int64).max
    for entry in range(index.size):
        while index[entry] >= row_end:
            offset, place, row_end = offset + row_stride, place + row_step, row_end + row_stride
        column = index[entry] - offset
        if stride != 1:
            if column % stride != 0:
                continue
            column //= stride
        if column >= count:
            continue
        at = place + column * step
        if op == XOR:
            flat[at] ^= words[entry]
        elif op == ADD:
            flat[at] += _unzigzag(words[entry])
        else:
            flat[at] = words[entry]


@numba.njit(inline="always")
def _unzigzag(word):
    """As `operations.unzigzag`, in 64 bits; storing the sum cuts it to the width of a word."""
    folded = np.uint64(word)
    return (folded >> np.uint64(1)) ^ (np.uint64(0) - (folded & np.uint64(1)))


_KERNELS = {_in_range: [types.int64] * 4, _in_rows: [types.int64] * 9}
