"""What changed between two versions of the same tensors: comparison and its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from reprise.refit.bits import Bits, as_bits, storage_key, word_dtype
from reprise.refit.digests import CHUNK, check_chunk, chunk_count, chunk_slices, digest
from reprise.refit.errors import PayloadError, RefitSchemaError
from reprise.refit.operations import check_operation, new_words, stored_words


@dataclass(frozen=True)
class TensorDelta:
    """The changed elements of one tensor and what proves its two versions.

    Args:
        name: canonical name; "" for a single array.
        dtype: safetensors dtype name.
        shape: shape of the tensor.
        index: [n] int64 flat row-major indices, strictly increasing.
        op: operation whose stored words `words` are.
        words: [n] unsigned words of the dtype's width.
        old_digests, new_digests: [chunks] uint64 xxh3-64 of the bytes of each chunk.
        chunk: elements a chunk, a power of two.
        aliases: other names of the same storage (tied tensors).
        old: [n] old words at `index`; only a fresh diff has them.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    index: np.ndarray
    op: str
    words: np.ndarray
    old_digests: np.ndarray
    new_digests: np.ndarray
    chunk: int = CHUNK
    aliases: tuple[str, ...] = ()
    old: np.ndarray | None = None

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def with_op(self, op: str) -> TensorDelta:
        """The same change stored by another operation.

        Raises:
            PayloadError: the old words it takes are not at hand (a decoded delta).
        """
        if check_operation(op) == self.op:
            return self
        if self.old is None:
            raise PayloadError(
                f"op={op!r}: tensor {self.name!r} is decoded as {self.op!r} and its old words are not known"
            )
        new = new_words(self.op, self.old, self.words)
        return replace(self, op=op, words=stored_words(op, self.old, new))

    def check(self) -> None:
        """Raise PayloadError unless index, words and digests fit each other and the shape."""
        chunks = chunk_count(self.elements, check_chunk(self.chunk))
        if self.words.dtype != word_dtype(self.dtype) or self.words.shape != self.index.shape:
            raise PayloadError(
                f"tensor {self.name!r}: {self.words.dtype}{self.words.shape} words for {self.index.shape} indices"
            )
        for digests in (self.old_digests, self.new_digests):
            if digests.shape != (chunks,):
                raise PayloadError(f"tensor {self.name!r}: digests of shape {digests.shape}, expected {chunks} chunks")
        if self.index.size == 0:
            return
        if self.index[0] < 0 or self.index[-1] >= self.elements:
            raise PayloadError(f"tensor {self.name!r}: index out of range, expected 0 <= index < {self.elements}")
        if not (self.index[1:] > self.index[:-1]).all():
            raise PayloadError(f"tensor {self.name!r}: indices do not increase")


@dataclass(frozen=True)
class Delta:
    """Changes of several tensors from one version to the next, and which transfer they belong to.

    Args:
        tensors: one record a tensor; tensors without elements have none.
        base_version, target_version: version the target holds before and after.
        transfer_id, attempt: which transfer this is part of, and which try of it.
        producer: who made it, for instance a trainer rank.
        payload_id: number of this payload within the attempt; receivers drop a second copy by it.
    """

    tensors: tuple[TensorDelta, ...]
    base_version: int = 0
    target_version: int = 1
    transfer_id: str = ""
    attempt: int = 0
    producer: str = ""
    payload_id: int = 0

    @property
    def changed(self) -> int:
        """Number of changed elements."""
        return sum(record.index.size for record in self.tensors)

    def with_op(self, op: str) -> Delta:
        """The same changes, all stored by one operation; errors as `TensorDelta.with_op`."""
        return replace(self, tensors=tuple(record.with_op(op) for record in self.tensors))


@dataclass(frozen=True)
class Pair:
    """OLD and NEW storage of one tensor."""

    name: str
    aliases: tuple[str, ...]
    old: Bits
    new: Bits

    @property
    def dtype(self) -> str:
        return self.new.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.new.shape

    @property
    def elements(self) -> int:
        return self.new.words.size


def pairs(old, new) -> Iterator[Pair]:
    """OLD and NEW of every tensor that has elements, converted one at a time.

    Two names of dictionaries are tied if they share storage in OLD and in NEW; the first is canonical. Names of other
    mappings, which may load on access, are never tied.

    Raises:
        RefitSchemaError: a name that is no text or on one side only, another shape or another dtype; named.
    """
    if not isinstance(old, Mapping):
        old, new = {"": old}, {"": new}
    if not isinstance(new, Mapping) or old.keys() != new.keys():
        name, side = _lonely_name(old, new)
        raise RefitSchemaError(f"tensor {name!r}: only in {side}, expected the same names in OLD and NEW")
    for name in old:
        if not isinstance(name, str):
            raise RefitSchemaError(f"tensor {name!r}: a name of type {type(name).__name__}, expected text")
    for name, aliases in _canonical_names(old, new).items():
        pair = Pair(name, aliases, as_bits(old[name]), as_bits(new[name]))
        for field in ("dtype", "shape"):
            before, after = getattr(pair.old, field), getattr(pair.new, field)
            if before != after:
                raise RefitSchemaError(f"tensor {name!r}: {field} {before} in OLD, {after} in NEW")
        if pair.old.words.size:
            yield pair


def diff_bits(old, new, chunk: int = CHUNK, **transfer) -> Delta:
    """Elements whose storage differs, by bits and not by value.

    Args:
        old, new: an array, tensor or Bits each, or a mapping from name to these each.
        chunk: elements a digest chunk.
        transfer: Delta's versions and identifiers.

    Returns:
        A Delta with op "overwrite" that keeps the old words, so that `encode` can store it by any operation.

    Raises:
        RefitSchemaError: a missing name, a changed shape or a changed dtype; named.
    """
    check_chunk(chunk)
    return Delta(tuple(_diff(pair, chunk) for pair in pairs(old, new)), **transfer)


def _diff(pair: Pair, chunk: int) -> TensorDelta:
    old, new = pair.old.words, pair.new.words
    found, old_digests, new_digests = [], [], []
    for part in chunk_slices(old.size, chunk):
        changed = np.flatnonzero(old[part] != new[part])
        found.append(changed + part.start)
        old_digests.append(digest(old[part]))
        new_digests.append(digest(new[part]) if changed.size else old_digests[-1])
    index = np.concatenate(found)
    return TensorDelta(
        pair.name,
        pair.dtype,
        pair.shape,
        index,
        "overwrite",
        new[index],
        np.array(old_digests, np.uint64),
        np.array(new_digests, np.uint64),
        chunk,
        pair.aliases,
        old[index],
    )


def _lonely_name(old, new) -> tuple[str, str]:
    if not isinstance(new, Mapping):
        return next(iter(old), ""), "OLD"
    for name in old:
        if name not in new:
            return name, "OLD"
    return next(name for name in new if name not in old), "NEW"


def _canonical_names(old: Mapping, new: Mapping) -> dict[str, tuple[str, ...]]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return dict.fromkeys(old, ())
    first, aliases = {}, {}
    for name in old:
        key = (storage_key(old[name]), storage_key(new[name]))
        name_of_storage = name if None in key else first.setdefault(key, name)
        if name_of_storage == name:
            aliases[name] = ()
        else:
            aliases[name_of_storage] += (name,)
    return aliases
