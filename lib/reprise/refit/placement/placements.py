"""Where canonical elements lie in a receiver's storage: strided copies and runs, mapped in O(changes).

A loader copies views: canonical element so + sum c_d ss_d goes to storage element po + sum c_d ps_d. Canonical strides
of a view are nested, each larger than everything below it, so the coordinates of an index are its digits in that mixed
radix, and the indices that the view lacks are those whose digits do not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from reprise.errors import RepriseError
from reprise.refit.operations import new_words

COMPILED_FROM = 1 << 18  # changed elements of a delta from which it is worth loading numba


class PlanError(RepriseError):
    """A loader whose placement cannot be proven, or a delta that a plan cannot apply exactly; the cause is named."""


@dataclass(frozen=True)
class View:
    """Strided view of flat elements; offset and strides count elements."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor) -> View:
        """View that a torch tensor takes of its storage."""
        return cls(tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def over(self, flat: np.ndarray) -> np.ndarray:
        """The view of a flat array; it shares memory."""
        strides = [stride * flat.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(flat[self.offset :], self.shape, strides)

    def grid(self) -> np.ndarray:
        """`shape` int64: flat element of each coordinate."""
        index = np.full(self.shape, self.offset, np.int64)
        for axis, (size, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            steps = np.arange(size, dtype=np.int64) * stride
            index += steps.reshape(-1, *[1] * (len(self.shape) - axis - 1))
        return index

    def span(self) -> tuple[int, int] | None:
        """(first, end) if the elements are those of a range, else None."""
        expected = 1
        dims = [(size, stride) for size, stride in zip(self.shape, self.strides, strict=True) if size != 1]
        for size, stride in sorted(dims, key=lambda dim: dim[1]):
            if stride != expected:
                return None
            expected *= size
        return self.offset, self.offset + self.elements


@dataclass(frozen=True)
class StridedCopy:
    """One copy of a loader: canonical view -> view of the target's storage, coordinate by coordinate."""

    target: str
    source: View
    place: View

    @property
    def elements(self) -> int:
        return self.place.elements

    @cached_property
    def dims(self) -> list[tuple[int, int, int]]:
        """(size, canonical stride, storage stride) by falling canonical stride, joined where one continues another."""
        dims = [
            dim for dim in zip(self.place.shape, self.source.strides, self.place.strides, strict=True) if dim[0] != 1
        ]
        joined = []
        for size, stride, step in sorted(dims, key=lambda dim: -dim[1]):
            if joined and stride and joined[-1][1:] == (size * stride, size * step):
                joined[-1] = (joined[-1][0] * size, stride, step)
            else:
                joined.append((size, stride, step))
        return joined

    def within(self, index: np.ndarray) -> slice:
        """The sorted indices between the first and the last element of the source view."""
        last = self.source.offset + sum((size - 1) * stride for size, stride, _ in self.dims)
        return slice(*np.searchsorted(index, [self.source.offset, last + 1]))

    def positions(self, index: np.ndarray) -> tuple[np.ndarray | slice, np.ndarray]:
        """Of sorted canonical indices, those that the copy moves, and where to.

        Returns:
            (entries, at): `index[entries]` lie in the source view, and storage element `at[i]` receives the i-th.
            An element that is copied to several places is returned as often.
        """
        entries = self.within(index)
        rest = index[entries] - self.source.offset
        digits = [dim for dim in self.dims if dim[1] != 0]
        if len(digits) == 1 and digits[0][1] == 1:
            at = rest * digits[0][2] + self.place.offset
        else:
            inside, at = _by_digits(rest, digits, self.place.offset)
            entries, at = np.flatnonzero(inside) + entries.start, at[inside]
        for size, _, step in (dim for dim in self.dims if dim[1] == 0):
            entries = np.tile(np.arange(len(index))[entries] if isinstance(entries, slice) else entries, size)
            at = (at + np.arange(size, dtype=np.int64)[:, None] * step).reshape(-1)
        return entries, at


@dataclass(frozen=True)
class RunCopy:
    """An arbitrary injective placement as runs of canonical indices.

    Index k of run j = [starts[j], starts[j] + lengths[j]) goes to storage element places[j] + (k - starts[j]) steps[j].

    Args:
        starts: [runs] int64, increasing; lengths, places, steps: [runs] int64.
    """

    target: str
    starts: np.ndarray
    lengths: np.ndarray
    places: np.ndarray
    steps: np.ndarray

    @property
    def elements(self) -> int:
        return int(self.lengths.sum())

    @classmethod
    def of(cls, target: str, index: np.ndarray, at: np.ndarray) -> RunCopy:
        """The runs of `index` (int64, strictly increasing) -> `at`."""
        if index.size == 0:
            return cls(target, *np.empty((4, 0), np.int64))
        step = np.diff(at)
        begins = np.ones(index.size, bool)
        begins[1:] = np.diff(index) != 1
        begins[2:] |= step[1:] != step[:-1]  # the element after a jump is a run of its own, which costs little
        starts = np.flatnonzero(begins)
        lengths = np.diff(np.append(starts, index.size))
        steps = np.append(step, 0)[starts]
        return cls(target, index[starts], lengths, at[starts], steps)

    def positions(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `StridedCopy.positions`."""
        run = np.searchsorted(self.starts, index, "right") - 1
        entries = np.flatnonzero(run >= 0)
        run = run[entries]
        within = index[entries] - self.starts[run]
        inside = within < self.lengths[run]
        run, within = run[inside], within[inside]
        return entries[inside], self.places[run] + within * self.steps[run]


def writer(changes: int) -> Callable[..., None]:
    """The function that applies a delta of so many `changes` along a copy.

    It takes (copy, flat, index, words, op) and applies the stored `words` of sorted canonical `index` along `copy` to
    `flat`, the words of its target's storage.
    """
    if changes < COMPILED_FROM:
        return write
    try:
        from reprise.refit.placement.placement_kernels import write as compiled
    except ImportError:  # numba is optional
        return write

    def write_compiled(copy: StridedCopy | RunCopy, flat, index, words, op: str) -> None:
        dims = copy.dims if isinstance(copy, StridedCopy) else []
        if not 1 <= len(dims) <= 2 or dims[-1][1] == 0:
            return write(copy, flat, index, words, op)
        part = copy.within(index)
        rows = dims[0] if len(dims) == 2 else (1, 0, 0)
        compiled(flat, index[part], words[part], op, copy.source.offset, copy.place.offset, rows, dims[-1])

    return write_compiled


def write(copy: StridedCopy | RunCopy, flat: np.ndarray, index: np.ndarray, words: np.ndarray, op: str) -> None:
    entries, at = copy.positions(index)
    flat[at] = words[entries] if op == "overwrite" else new_words(op, flat[at], words[entries])


def _by_digits(rest: np.ndarray, digits: list[tuple[int, int, int]], offset: int) -> tuple[np.ndarray, np.ndarray]:
    inside = np.ones(rest.shape, bool)
    at = np.full(rest.shape, offset, np.int64)
    for size, stride, step in digits:
        coordinate = rest if stride == 1 else rest // stride
        inside &= coordinate < size
        at += coordinate * step
        rest = rest - coordinate * stride
    return inside & (rest == 0), at


def nested(view: View) -> bool:
    """Whether no two coordinates of the view share an element, dimensions of stride 0 (repeats) aside."""
    reach = 0
    dims = [dim for dim in zip(view.strides, view.shape, strict=True) if dim[1] != 1 and dim[0] != 0]
    for stride, size in sorted(dims):
        if stride <= reach:
            return False
        reach += (size - 1) * stride
    return True
