"""Exact search by cosine: a matrix kept in memory, ties by age, a threshold that belongs to one embedding space."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from reprise.memory.errors import EmbeddingSpaceError, MemoryFault

COMPILED_TOP = 32  # hits up to which one pass that keeps them sorted is the fastest way


@dataclass(frozen=True)
class Hit:
    """A row that was found and its cosine."""

    row: int
    score: float


class Index:
    """Unit vectors, searched exhaustively.

    Args:
        vectors: (n, dim) float; rows are scaled to length 1, a row of zeros is never found.

    Raises:
        EmbeddingSpaceError: not a matrix, or a number that is not finite.
    """

    def __init__(self, vectors: np.ndarray):
        vectors = np.asarray(vectors)
        if vectors.ndim != 2:
            raise EmbeddingSpaceError(f"vectors: shape {vectors.shape}, expected (n, dim)")
        self._rows = np.empty((max(16, len(vectors)), vectors.shape[1]), np.float32)
        self._count = 0
        self.add(vectors)

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> np.ndarray:
        """(n, dim) float32 unit rows; a view."""
        return self._rows[: self._count]

    def add(self, vectors: np.ndarray) -> None:
        """Append rows, (m, dim); amortised, earlier rows are not touched."""
        unit = unit_rows(vectors)
        if unit.shape[1] != self._rows.shape[1]:
            raise EmbeddingSpaceError(f"vectors: dim {unit.shape[1]}, expected {self._rows.shape[1]}")
        total = self._count + len(unit)
        if total > len(self._rows):
            grown = np.empty((max(total, 2 * len(self._rows)), unit.shape[1]), np.float32)
            grown[: self._count] = self.rows
            self._rows = grown
        self._rows[self._count : total] = unit
        self._count = total

    def search(self, queries: np.ndarray, k: int, threshold: float = -1.0) -> list[list[Hit]]:
        """The k rows of largest cosine for each query, best first, equal ones in the order they were added.

        Args:
            queries: (m, dim) float.
            k: at least 0; more than there are rows is fine.
            threshold: least cosine, inclusive, compared in float32.

        Returns:
            a list of hits for each query; empty, with a warning, for a query of zeros or with a number that is not
            finite.

        Raises:
            MemoryFault: k < 0 or a threshold that is no number.
            EmbeddingSpaceError: queries of another dim.
        """
        if k < 0:
            raise MemoryFault(f"k={k}: expected at least 0")
        if not np.isfinite(threshold):
            raise MemoryFault(f"threshold={threshold}: expected a finite cosine")
        queries = np.asarray(queries, np.float32)
        if queries.ndim != 2 or queries.shape[1] != self._rows.shape[1]:
            raise EmbeddingSpaceError(f"queries: shape {queries.shape}, expected (m, {self._rows.shape[1]})")
        usable = np.isfinite(queries).all(1) & queries.any(1)
        if not usable.all():
            warnings.warn(f"{np.count_nonzero(~usable)} queries without a direction found nothing", stacklevel=2)
        if k == 0 or not self._count:
            return [[] for _ in queries]
        unit, limit = unit_rows(np.where(usable[:, None], queries, 0)), np.float32(threshold)
        if len(unit) == 1 and k <= COMPILED_TOP and (one_pass := _compiled()):
            found = [_hits(*one_pass(self.rows, unit[0], k, limit))]
        else:
            found = (_best(row, k, limit) for row in unit @ self.rows.T)
        return [hits if ok else [] for hits, ok in zip(found, usable, strict=True)]


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows scaled to length 1 in float32; rows of zeros stay zero.

    Raises:
        EmbeddingSpaceError: a number that is not finite; the message has its row.
    """
    vectors = np.asarray(vectors, np.float32)
    bad = ~np.isfinite(vectors).all(1)
    if bad.any():
        raise EmbeddingSpaceError(f"vectors[{int(bad.argmax())}]: expected finite numbers")
    # through the largest component, so that no square overflows or vanishes
    largest = np.abs(vectors).max(1, keepdims=True, initial=0)
    scaled = vectors / np.where(largest > 0, largest, 1)
    length = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    return scaled / np.where(length > 0, length, 1)


def calibrate(
    related: Sequence[float], unrelated: Sequence[float], false_positives: float = 0.05
) -> tuple[float, float]:
    """The smallest threshold that lets at most a given share of unrelated pairs through, and the share of related kept.

    A threshold holds for one embedding space only: the paper's .6 and .9 belong to its embedder.

    Args:
        related: cosines of pairs that belong together.
        unrelated: cosines of pairs that do not; with fewer than 1 / false_positives none is let through.
        false_positives: largest share of unrelated pairs at or above the threshold, in [0, 1).

    Returns:
        (threshold, share of related pairs at or above it).
    """
    if not 0 <= false_positives < 1:
        raise MemoryFault(f"false_positives={false_positives}: expected a share in [0, 1)")
    other = np.sort(np.asarray(unrelated, np.float64))
    if not len(other) or not len(related):
        raise MemoryFault(f"related={len(related)}, unrelated={len(other)} pairs: expected some of both")
    allowed = int(len(other) * false_positives)
    threshold = float(np.nextafter(other[len(other) - allowed - 1], np.inf))
    return threshold, float(np.mean(np.asarray(related) >= threshold))


def _hits(rows: np.ndarray, scores: np.ndarray) -> list[Hit]:
    return [Hit(int(row), float(score)) for row, score in zip(rows, scores, strict=True)]


@lru_cache(maxsize=1)
def _compiled():
    """`reprise.memory.one_pass.search` where numba is installed, else None."""
    return importlib.import_module("reprise.memory.one_pass").search if importlib.util.find_spec("numba") else None


def _best(scores: np.ndarray, k: int, threshold: np.float32) -> list[Hit]:
    if k < scores.size:
        # everything at least as good as the k-th, so that ties at the edge are decided by age and not by chance
        kth = scores[np.argpartition(scores, scores.size - k)[scores.size - k]]
        rows = np.flatnonzero(scores >= max(kth, threshold))
    else:
        rows = np.flatnonzero(scores >= threshold)
    rows = rows[np.argsort(-scores[rows], kind="stable")[:k]]
    return _hits(rows, scores[rows])
