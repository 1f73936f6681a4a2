"""One pass over OLD and NEW, chunk by chunk: gaps, stored words and digests while both chunks are in the cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprise.refit.delta import TensorDelta
from reprise.refit.digests import changed_chunks, chunk_slices, digest
from reprise.refit.locations import ESCAPE, gap_bytes
from reprise.refit.operations import stored_words

COMPILED_FROM = 1 << 18  # elements from which a compiled scan is worth loading numba


@dataclass(frozen=True)
class Scan:
    """The changes of one tensor as a payload needs them.

    Args:
        count: changed elements.
        first, last: their first and last flat index; 0 and -1 if there is none.
        gaps: uint8 gap bytes.
        words: [count] words that the operation stores.
        old_digests: [chunks] uint64.
        new_digests: [changed chunks] uint64; an unchanged chunk keeps its old one.
    """

    count: int
    first: int
    last: int
    gaps: np.ndarray
    words: np.ndarray
    old_digests: np.ndarray
    new_digests: np.ndarray


def scan_record(record: TensorDelta) -> Scan:
    """The Scan of a delta's record."""
    index = record.index
    first, last = (int(index[0]), int(index[-1])) if index.size else (0, -1)
    changed = changed_chunks(index, record.elements, record.chunk)
    return Scan(
        index.size, first, last, gap_bytes(index), record.words, record.old_digests, record.new_digests[changed]
    )


def scan_words(old: np.ndarray, new: np.ndarray, op: str, chunk: int) -> Scan:
    """The Scan of two flat arrays of unsigned words, without the int64 indices in between."""
    finder = _finder(old, new, op, chunk)
    old_digests, new_digests = [], []
    for part in chunk_slices(old.size, chunk):
        changed = finder.find(part)
        old_digests.append(digest(old[part]))
        if changed:
            new_digests.append(digest(new[part]))
    digests = np.array(old_digests, np.uint64), np.array(new_digests, np.uint64)
    return Scan(finder.count, finder.first, finder.last, finder.gaps, finder.words, *digests)


class NumpyFinder:
    """Changes of parts given in order: `count`, `first`, `last`, `gaps` and `words` of a Scan, so far."""

    def __init__(self, old: np.ndarray, new: np.ndarray, op: str):
        self._old, self._new, self._op = old, new, op
        self._gaps, self._words = [np.empty(0, np.uint8)], [old[:0]]
        self.count, self.first, self.last = 0, 0, -1

    def find(self, part: slice) -> bool:
        """Add the changes of a part; tell whether there are any."""
        index = np.flatnonzero(self._old[part] != self._new[part]) + part.start
        if index.size == 0:
            return False
        skipped = int(index[0]) - self.last - 1
        self._gaps += [np.full(skipped // ESCAPE, ESCAPE, np.uint8), gap_bytes(index - index[0] + skipped % ESCAPE)]
        self._words.append(stored_words(self._op, self._old[index], self._new[index]))
        self.first = self.first if self.count else int(index[0])
        self.last = int(index[-1])
        self.count += index.size
        return True

    @property
    def gaps(self) -> np.ndarray:
        return np.concatenate(self._gaps)

    @property
    def words(self) -> np.ndarray:
        return np.concatenate(self._words)


def _finder(old: np.ndarray, new: np.ndarray, op: str, chunk: int):
    if old.size >= COMPILED_FROM:
        try:
            from reprise.refit.kernels import CompiledFinder
        except ImportError:  # numba is optional
            pass
        else:
            return CompiledFinder(old, new, op, chunk)
    return NumpyFinder(old, new, op)
