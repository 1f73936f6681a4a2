"""Changes of a trainer's shard as changes of the canonical tensor, without assembling it.

Where a shard is a block of rows or columns, the canonical place of its element follows from its own by an affine map:

    rows from i0 on,    width w:  local (i, y) -> k = (i0 + i) w + y
    columns from y0 on, width w:  local (i, y) -> k = i w + (y0 + y)

A gated MLP keeps gate and up in one shard, which is two such maps. Everything else is residual: it is converted,
assembled from all ranks' parts and compared with the version sent before. Since one rank's change may show in elements
that another converts, all ranks convert a tensor as soon as one of them has a reason to.

Source: NeMo-DCR, direct projection and residual conversion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from reprise.refit.bits import Bits
from reprise.refit.delta import TensorDelta, diff_bits
from reprise.refit.digests import MAX_CHUNK, MIN_CHUNK, chunk_count
from reprise.refit.placement.ownership import OwnershipError, Part, assemble

UNPROVEN = 0  # digest of bits that the sender does not hold: no target matches it


@dataclass(frozen=True)
class AffineMap:
    """Elements of a shard -> elements of the canonical tensor `name`.

    Element `start` + j of the flat shard, with j the row-major index of coordinates c in `shape`, is canonical element

        k = offset + sum over d of c_d strides_d

    Args:
        name: canonical tensor.
        canonical_shape: its shape.
        start: first element of the flat shard that the map covers.
        shape: shape of the covered block.
        offset, strides: canonical index of coordinates 0, and its step in each of them.
    """

    name: str
    canonical_shape: tuple[int, ...]
    start: int
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def canonical(self, local) -> np.ndarray:
        """int64 canonical indices of flat shard indices, start <= local < start + elements.

        >>> int(row_map("w", (64, 128), 16, 8).canonical(3 * 128 + 5))
        2437
        """
        rest = np.asarray(local, np.int64) - self.start
        (_, outermost), *inner = self._joined
        index = np.full(rest.shape, self.offset, np.int64)
        for size, stride in reversed(inner):
            above = rest // size  # and no divmod, which NumPy does one by one
            index += (rest - above * size) * stride
            rest = above
        return index + rest * outermost

    @cached_property
    def _joined(self) -> list[tuple[int, int]]:
        """(size, stride) from the outermost on; neighbours that continue each other are one."""
        joined = [(1, 1)]
        for size, stride in zip(self.shape, self.strides, strict=True):
            if joined[-1] == (1, 1) or joined[-1][1] == size * stride:
                joined[-1] = (joined[-1][0] * size, stride)
            else:
                joined.append((size, stride))
        return joined

    def part(self, words: np.ndarray, source: str = "") -> Part:
        """The covered block of the shard's flat `words` in canonical coordinates."""
        covered = slice(self.start, self.start + self.elements)
        return Part(source, self.canonical(np.arange(covered.start, covered.stop)), words[covered])


def replicated_map(name: str, shape: tuple[int, ...]) -> AffineMap:
    """The shard is the canonical tensor."""
    return block_map(name, shape, 0, 0, shape[0]) if shape else AffineMap(name, (), 0, (), 0, ())


def row_map(name: str, shape: tuple[int, ...], first: int, count: int) -> AffineMap:
    """The shard is `count` rows from row `first` on."""
    return block_map(name, shape, 0, first, count)


def column_map(name: str, shape: tuple[int, ...], first: int, count: int) -> AffineMap:
    """The shard is `count` columns from column `first` on."""
    return block_map(name, shape, 1, first, count)


def gated_maps(gate: str, up: str, shape: tuple[int, int], first: int, count: int) -> tuple[AffineMap, AffineMap]:
    """The shard is `count` rows of `gate` above the same rows of `up`, two canonical tensors of one shape."""
    above = block_map(gate, shape, 0, first, count)
    return above, replace(above, name=up, start=above.elements)


def block_map(name: str, shape: tuple[int, ...], axis: int, first: int, count: int) -> AffineMap:
    """The shard is the block first <= coordinate < first + count of one axis.

    Raises:
        OwnershipError: the block leaves the tensor.
    """
    if not 0 <= axis < len(shape) or not 0 <= first <= first + count <= shape[axis]:
        raise OwnershipError(f"tensor {name!r}: block {first} + {count} of axis {axis}, expected one within {shape}")
    strides = tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
    block = (*shape[:axis], count, *shape[axis + 1 :])
    return AffineMap(name, tuple(shape), 0, block, first * strides[axis], strides)


def project(maps: Iterable[AffineMap], tracker: Bits, shard: Bits) -> list[TensorDelta]:
    """Records of what changed in a shard since `tracker`, its version sent last, in canonical coordinates.

    A map that covers its canonical tensor gives digests of it. Any other record proves nothing, since no rank holds the
    whole chunks: its digests are UNPROVEN, which `apply_` refuses and a copy plan does not look at.
    """
    changed, records = None, []
    for each in maps:
        covered = slice(each.start, each.start + each.elements)
        if each.elements == prod(each.canonical_shape):
            before, after = (Bits(b.dtype, each.canonical_shape, b.words[covered]) for b in (tracker, shard))
            records += diff_bits({each.name: before}, {each.name: after}).tensors
            continue
        if changed is None:
            changed = np.flatnonzero(tracker.words != shard.words)
        low, high = np.searchsorted(changed, [covered.start, covered.stop])
        local = changed[low:high]
        index = each.canonical(local)
        if not (index[1:] > index[:-1]).all():
            order = np.argsort(index)
            index, local = index[order], local[order]
        words = tracker.words[local], shard.words[local]
        records.append(part_record(each.name, shard.dtype, each.canonical_shape, index, *words))
    return records


def part_record(name: str, dtype: str, shape: tuple[int, ...], index, old, new) -> TensorDelta:
    """Record of changed elements whose sender does not hold the whole tensor; it proves nothing.

    Args:
        index: int64, strictly increasing canonical indices.
        old, new: their words.
    """
    elements = prod(shape)
    chunk = min(MAX_CHUNK, max(MIN_CHUNK, 1 << (elements - 1).bit_length()))
    digests = np.full(chunk_count(elements, chunk), UNPROVEN, np.uint64)
    return TensorDelta(name, dtype, shape, index, "overwrite", new, digests, digests, chunk, (), old)


@dataclass(frozen=True)
class Residual:
    """A canonical tensor that is converted whole.

    Args:
        name: canonical tensor.
        depends: local tensors whose change may change it, shared scale factors among them.
    """

    name: str
    depends: frozenset[str]


def residual_flags(residuals: Sequence[Residual], changed: Collection[str]) -> np.ndarray:
    """[residuals] bool: which depend on one of the local tensors that `changed` on this rank.

    All ranks convert the logical or of their flags, an all-reduce, so that they convert the same tensors.
    """
    return np.array([not each.depends.isdisjoint(changed) for each in residuals], bool)


def residual_record(name: str, baseline: Bits, parts: Iterable[Part]) -> tuple[TensorDelta, Bits]:
    """(record of what changed in a residual tensor, its new bits, which are the next baseline).

    Args:
        baseline: its version sent last.
        parts: what each rank converted.

    Raises:
        OwnershipError: the parts leave an element out or disagree in its bits.
    """
    words = assemble(name, baseline.words.size, parts)
    new = Bits(baseline.dtype, baseline.shape, words.astype(baseline.words.dtype, copy=False))
    (record,) = diff_bits({name: baseline}, {name: new}).tensors
    return record, new
