"""The compiled finder of changes. Importing it takes numba; without it `scan.NumpyFinder` collects the same arrays.

A branch a changed element would be mispredicted each time, which costs more than all the rest. So 64 elements are
compared at once into a bit mask, and the positions of its set bits are written eight at a time, whether there are that
many or not; the next ones overwrite what was too much. At p = 1 % and 5 % the scan then runs at memory speed.
"""

from __future__ import annotations

from functools import lru_cache

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import intrinsic

from reprise.refit.operations import OPERATIONS

AT_ONCE = 8  # positions written a step; 2 and 4 are no faster
ADD, XOR = OPERATIONS.index("add"), OPERATIONS.index("xor")


class CompiledFinder:
    """As `scan.NumpyFinder`; its buffers grow with the changes found."""

    def __init__(self, old: np.ndarray, new: np.ndarray, op: str, chunk: int):
        chunk = min(chunk, old.size)
        self._old, self._new, self._op = old, new, OPERATIONS.index(op)
        self._gather = _compiled(old.dtype.itemsize)
        self._where = np.empty(chunk + AT_ONCE, np.uint32)
        self._before = np.empty(chunk, old.dtype)
        self._gaps, self._words = np.empty(0, np.uint8), np.empty(0, old.dtype)
        self._used = self.count = self._next = 0
        self.first = 0

    def find(self, part: slice) -> bool:
        size, before = part.stop - part.start, self.count
        most = self._old.size  # changes; each has a gap byte, and the escapes skip 255 elements each
        self._words = _with_room(self._words, before, size, most)
        self._gaps = _with_room(
            self._gaps, self._used, size + (part.stop - self._next) // 255 + 1, most + most // 255 + 1
        )
        self.count, self._used, self._next = self._gather(
            self._old,
            self._new,
            part.start,
            part.stop,
            self._next,
            self._op,
            self._where,
            self._before,
            self._gaps,
            self._used,
            self._words,
            before,
        )
        if before == 0 < self.count:
            self.first = part.start + int(self._where[0])
        return self.count > before

    @property
    def last(self) -> int:
        return self._next - 1

    @property
    def gaps(self) -> np.ndarray:
        return self._gaps[: self._used]

    @property
    def words(self) -> np.ndarray:
        return self._words[: self.count]


def _with_room(buffer: np.ndarray, used: int, room: int, most: int) -> np.ndarray:
    """`buffer` with `room` free items, doubled when it must grow but never beyond `most` items."""
    if buffer.size >= min(used + room, most):
        return buffer
    grown = np.empty(min(max(2 * buffer.size, used + room), most), buffer.dtype)
    grown[:used] = buffer[:used]
    return grown


@lru_cache
def _compiled(word_bytes: int):
    word, index = getattr(types, f"uint{8 * word_bytes}"), types.uint64
    # a read-only or unaligned view, as of a mapped file, and any other array fit this one type
    view = types.Array(word, 1, "C", readonly=True, aligned=False)
    scratch, outputs = (types.uint32[::1], word[::1]), (types.uint8[::1], index, word[::1], index)
    signature = types.UniTuple(index, 3)(view, view, index, index, index, index, *scratch, *outputs)
    try:
        return numba.njit(signature, nogil=True, cache=True)(_gather)
    except RuntimeError:  # no folder to keep compiled code in
        return numba.njit(signature, nogil=True)(_gather)


@intrinsic
def _differ(typingctx, old, new, start):
    """uint64 whose bit k tells whether old[start + k] and new[start + k] differ; LLVM makes it a few wide compares."""
    lanes = ir.VectorType(ir.IntType(old.dtype.bitwidth), 64)

    def generate(context, builder, signature, arguments):
        def load(array_type, array):
            data = context.make_array(array_type)(context, builder, array).data
            place = builder.bitcast(builder.gep(data, [arguments[2]]), lanes.as_pointer())
            return builder.load(place, align=1)

        old_lanes, new_lanes = map(load, signature.args[:2], arguments[:2])
        return builder.bitcast(builder.icmp_unsigned("!=", old_lanes, new_lanes), ir.IntType(64))

    return types.uint64(old, new, types.uint64), generate


@intrinsic
def _popcount(typingctx, bits):
    return types.uint64(types.uint64), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])


def _gather(old, new, start, stop, after_last, op, where, before, gaps, used, words, count):
    """Append gap bytes and stored words of the changes in [start, stop); return (count, used, after_last).

    `after_last` follows the last change, so a gap is its distance to the next one. Unsigned throughout, since signed
    indices would be tested for negative values.
    """
    one, lanes, step, escape = np.uint64(1), np.uint64(64), np.uint64(AT_ONCE), np.uint64(255)
    at, found = start, np.uint64(0)
    while at < stop:
        bits = np.uint64(0)
        if at + lanes <= stop:
            bits = _differ(old, new, at)
        else:
            for k in range(stop - at):
                bits |= np.uint64(old[at + k] != new[at + k]) << k
        i, found = found, found + _popcount(bits)
        while i < found:
            for k in range(step):
                where[i + k] = at - start + np.uint64(trailing_zeros(bits))
                bits &= bits - one
            i += step
        at += lanes
    for k in range(found):
        at = start + np.uint64(where[k])
        gap = at - after_last
        while gap >= escape:
            gaps[used] = 255
            used += one
            gap -= escape
        gaps[used] = gap
        used += one
        before[k], words[count + k] = old[at], new[at]
        after_last = at + one
    # as operations.stored_words; storing a result cuts it to the width of a word
    if op == XOR:
        for k in range(found):
            words[count + k] ^= before[k]
    elif op == ADD:
        top = np.uint64(8 * words.itemsize - 1)
        for k in range(found):
            words[count + k] -= before[k]
        for k in range(found):
            words[count + k] = (words[count + k] << one) ^ (np.uint64(0) - (words[count + k] >> top))
    return count + found, used, after_last
