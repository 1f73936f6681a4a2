"""Compiled passes of `exponent_classes`. Importing it takes numba.

Neighbours often share an exponent, and a counter that is loaded right after it was stored costs a round trip through
the store buffer. So elements count in turn into four tables, whose sum is the place.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from reprise.refit.exponents.exponent_classes import CLASSES, Changes

LANES = 4  # a power of two


class CompiledKernels:
    """As `exponent_classes.NumpyKernels`, without its sort."""

    @staticmethod
    def partition(old: np.ndarray, new: np.ndarray, shift: int, mask: int) -> Changes:
        held, changed = np.zeros((LANES, CLASSES), np.int64), np.zeros(CLASSES, np.int64)
        _count_changes(old, new, shift, mask, changed)
        places, words = np.empty(changed.sum(), np.int64), np.empty(changed.sum(), old.dtype)
        _collect(old, new, shift, mask, held, np.cumsum(changed) - changed, places, words)
        return Changes(held.sum(axis=0), changed, places, words)

    @staticmethod
    def population(old: np.ndarray, shift: int, mask: int) -> np.ndarray:
        counts = np.zeros((LANES, CLASSES), np.int64)
        _count(old, shift, mask, counts)
        return counts.sum(axis=0)

    @staticmethod
    def restore(old: np.ndarray, shift: int, mask: int, changes: Changes) -> np.ndarray:
        new = old.copy()
        ends = np.cumsum(changes.changed)
        _scatter(new, shift, mask, ends - changes.changed, ends, changes.places, changes.words)
        return new


def compiled(signature):
    """numba.njit that keeps compiled code where there is a folder for it."""

    def wrap(function):
        try:
            return numba.njit(signature, nogil=True, cache=True)(function)
        except RuntimeError:
            return numba.njit(signature, nogil=True)(function)

    return wrap


# a read-only or unaligned view, as of a mapped file, and any other array fit this one type
_WORDS = types.Array(types.uint16, 1, "C", readonly=True, aligned=False)
_TABLE, _TABLES = types.int64[::1], types.int64[:, ::1]
_LAYOUT = (types.uint16, types.uint16)


@compiled(types.void(_WORDS, *_LAYOUT, _TABLES))
def _count(old, shift, mask, held):
    for i in range(old.size):
        held[i & LANES - 1, old[i] >> shift & mask] += 1


@compiled(types.void(_WORDS, _WORDS, *_LAYOUT, _TABLE))
def _count_changes(old, new, shift, mask, changed):
    for i in range(old.size):
        if old[i] != new[i]:
            changed[old[i] >> shift & mask] += 1


@compiled(types.void(_WORDS, _WORDS, *_LAYOUT, _TABLES, _TABLE, _TABLE, types.uint16[::1]))
def _collect(old, new, shift, mask, held, at, places, words):
    """Write place and stored word of each change where its class stands in the output, which `at` points to."""
    for i in range(old.size):
        exponent = old[i] >> shift & mask
        held[i & LANES - 1, exponent] += 1
        if old[i] != new[i]:
            step = np.uint16(new[i] - old[i])
            place = held[0, exponent] + held[1, exponent] + held[2, exponent] + held[3, exponent] - 1
            places[at[exponent]] = place
            words[at[exponent]] = np.uint16(step << 1) ^ np.uint16(0 - (step >> 15))
            at[exponent] += 1


@compiled(types.void(types.uint16[::1], *_LAYOUT, _TABLE, _TABLE, _TABLE, _WORDS))
def _scatter(words, shift, mask, at, ends, places, stored):
    """Add the stored steps to `words`, whose classes' changes are at[class]:ends[class] of `places` and `stored`."""
    wait = np.empty(CLASSES, np.int64)  # elements of a class before its next change; negative if there is none
    for k in range(CLASSES):
        wait[k] = places[at[k]] if at[k] < ends[k] else -1
    for i in range(words.size):
        exponent = words[i] >> shift & mask
        if wait[exponent] == 0:
            j = at[exponent]
            words[i] += np.uint16(stored[j] >> 1) ^ np.uint16(0 - (stored[j] & 1))
            at[exponent] = j + 1
            wait[exponent] = places[j + 1] - places[j] if j + 1 < ends[exponent] else 0
        wait[exponent] -= 1
