"""Who sends an element, and the refusal of one that nobody sends, or that two send differently.

Replicas of a shard hold the same bits, so one of them is enough: a hash of the tensor's name picks it, the same on
every rank and in every run, without a message. Source: NeMo-DCR, change detection and ownership; the hash is our
choice, since the paper only asks for a stable one (Python's own is salted).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from reprise.errors import RepriseError
from reprise.refit.delta import Delta, TensorDelta


class OwnershipError(RepriseError):
    """An element without an owner, with two, or with replicas that hold different bits; tensor and index are named."""


@dataclass(frozen=True)
class Part:
    """What one rank holds of a canonical tensor.

    Args:
        source: the rank, for messages.
        index: [n] int64 canonical flat indices.
        words: [n] unsigned stored words.
    """

    source: str
    index: np.ndarray
    words: np.ndarray


def owner(name: str, group_size: int) -> int:
    """Position, in a group of ranks that hold the same elements, of the one that sends them.

        blake2b(name as UTF-8, 8 bytes), little-endian, mod group_size

    Raises:
        OwnershipError: an empty group.

    >>> [owner("model.norm.weight", n) for n in (1, 2, 7)]
    [0, 0, 6]
    """
    if group_size < 1:
        raise OwnershipError(f"group_size={group_size}: expected at least 1 rank for tensor {name!r}")
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") % group_size


def assemble(name: str, elements: int, parts: Iterable[Part]) -> np.ndarray:
    """[elements] words of a canonical tensor from parts that may overlap.

    Raises:
        OwnershipError: an element that no part holds, or that two parts hold with different bits.
    """
    words = covered = None
    for part in parts:
        if words is None:
            words, covered = np.zeros(elements, part.words.dtype), np.zeros(elements, bool)
        _check_range(name, elements, part.source, part.index)
        differs = covered[part.index] & (words[part.index] != part.words)
        words[part.index], covered[part.index] = part.words, True
        differs |= words[part.index] != part.words  # a part that names an element twice
        if differs.any():
            k = int(part.index[differs.argmax()])
            raise OwnershipError(f"tensor {name!r}: element {k} of {part.source} differs from that of another part")
    if words is None:
        raise OwnershipError(f"tensor {name!r}: no part holds it")
    _check_covered(name, covered)
    return words


def union(deltas: Iterable[Delta]) -> Delta:
    """The payloads of all owners as one delta; versions and identifiers are those of the first.

    Records of one tensor are merged. They need the same operation, and a merged record proves no bits, like its parts.

    Raises:
        OwnershipError: two payloads change one element, or describe a tensor differently.
    """
    deltas, found = list(deltas), {}
    for delta in deltas:
        for record in delta.tensors:
            found.setdefault(record.name, []).append(record)
    return replace(deltas[0], tensors=tuple(map(_merge, found.values())))


def _merge(records: list[TensorDelta]) -> TensorDelta:
    first = records[0]
    if len(records) == 1:
        return first
    for record in records[1:]:
        for field in ("dtype", "shape", "op", "chunk"):
            if getattr(record, field) != getattr(first, field):
                values = f"{getattr(first, field)} and {getattr(record, field)}"
                raise OwnershipError(f"tensor {first.name!r}: {field} {values} in two payloads")
    index = np.concatenate([record.index for record in records])
    order = np.argsort(index, kind="stable")
    twice = np.flatnonzero(np.diff(index[order]) == 0)
    if twice.size:
        raise OwnershipError(f"tensor {first.name!r}: element {index[order][twice[0]]} is changed by two payloads")
    words = np.concatenate([record.words for record in records])[order]
    olds = [record.old for record in records]
    old = None if any(part is None for part in olds) else np.concatenate(olds)[order]
    return replace(first, index=index[order], words=words, old=old)


def _check_range(name: str, elements: int, rank: str, index: np.ndarray) -> None:
    if index.size and not (0 <= index.min() and index.max() < elements):
        raise OwnershipError(f"tensor {name!r}: {rank} holds an element outside 0 <= index < {elements}")


def _check_covered(name: str, covered: np.ndarray) -> None:
    if not covered.all():
        raise OwnershipError(f"tensor {name!r}: element {int(covered.argmin())} has no owner")
