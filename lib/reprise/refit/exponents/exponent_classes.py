"""A tensor partitioned by the exponents of its OLD words, which a receiver that holds OLD can repeat.

A step of one size moves a small weight by many of its ulps and leaves a large one in its rounding cell, so whether an
element changes depends above all on its old exponent. Within a class of one exponent there is little left to learn
from the old word. Elements keep their order within a class, so an element is its class and its place there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reprise.refit.bits import Bits
from reprise.refit.errors import RefitSchemaError
from reprise.refit.operations import new_words, stored_words

# dtype -> (shift, mask) of the exponent in a word; a dtype without one makes a single class
EXPONENTS = {"BF16": (7, 0xFF), "F16": (10, 0x1F), "U16": (0, 0), "I16": (0, 0)}
CLASSES = 256
COMPILED_FROM = 1 << 16  # elements from which compiled code is worth loading numba


class Changes(NamedTuple):
    """Changed elements of a tensor, class after class.

    Args:
        population: [CLASSES] int64 elements of each class.
        changed: [CLASSES] int64 changed elements of each class.
        places: [n] int64 place of each changed element in its class, increasing within a class.
        words: [n] words that "add" stores for them.
    """

    population: np.ndarray
    changed: np.ndarray
    places: np.ndarray
    words: np.ndarray


def exponent_of(dtype: str) -> tuple[int, int]:
    """(shift, mask) of the exponent in a word of `dtype`; RefitSchemaError where a word has not 16 bits."""
    if dtype not in EXPONENTS:
        raise RefitSchemaError(f"dtype={dtype!r}: expected one of {', '.join(EXPONENTS)}")
    return EXPONENTS[dtype]


def partition(old: Bits, new: Bits) -> Changes:
    """The changes from `old` to `new` by class of the old word."""
    exponent = exponent_of(old.dtype)
    return (_kernels(old) or NumpyKernels).partition(old.words, new.words, *exponent)


def population(old: Bits) -> np.ndarray:
    """[CLASSES] int64 elements of each class of `old`."""
    return (_kernels(old) or NumpyKernels).population(old.words, *exponent_of(old.dtype))


def restore(old: Bits, changes: Changes) -> np.ndarray:
    """The new words: inverse of `partition`. Places must lie within their class and increase."""
    return (_kernels(old) or NumpyKernels).restore(old.words, *exponent_of(old.dtype), changes)


class NumpyKernels:
    """The three passes by a stable sort of the classes, which takes eight bytes an element."""

    @staticmethod
    def partition(old: np.ndarray, new: np.ndarray, shift: int, mask: int) -> Changes:
        held, order = NumpyKernels._order(old, shift, mask)
        at = np.flatnonzero((old != new)[order])
        index = order[at]
        changed = _count(old[index], shift, mask)
        return Changes(held, changed, at - _starts(held, changed), stored_words("add", old[index], new[index]))

    @staticmethod
    def population(old: np.ndarray, shift: int, mask: int) -> np.ndarray:
        return _count(old, shift, mask)

    @staticmethod
    def restore(old: np.ndarray, shift: int, mask: int, changes: Changes) -> np.ndarray:
        held, order = NumpyKernels._order(old, shift, mask)
        index = order[changes.places + _starts(held, changes.changed)]
        new = old.copy()
        new[index] = new_words("add", old[index], changes.words)
        return new

    @staticmethod
    def _order(old: np.ndarray, shift: int, mask: int) -> tuple[np.ndarray, np.ndarray]:
        classes = (old >> shift & mask).astype(np.uint8)
        return _count(old, shift, mask), np.argsort(classes, kind="stable")


def _count(words: np.ndarray, shift: int, mask: int) -> np.ndarray:
    return np.bincount(words >> shift & mask, minlength=CLASSES)


def _starts(held: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Where the class of each changed element begins in the sorted tensor."""
    return np.repeat(np.cumsum(held) - held, changed)


def _kernels(old: Bits):
    if old.words.size < COMPILED_FROM:
        return None
    try:
        from reprise.refit.exponents.exponent_kernels import CompiledKernels
    except ImportError:  # numba is optional
        return None
    return CompiledKernels
