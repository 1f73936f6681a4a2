"""A delta in parts: payloads of bounded size, and the whole chunks that a damaged receiver needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from reprise.refit.bits import as_bits, word_dtype
from reprise.refit.delta import Delta, TensorDelta

Damage = tuple[tuple[str, int], ...]  # (tensor, chunk) pairs


def split(delta: Delta, nbytes: int) -> list[Delta]:
    """`delta` as payloads 0, 1, ... of whole tensors, a new one before the dense bytes exceed `nbytes`.

    The same tensors and the same `nbytes` give the same payloads, so that a retry numbers them alike.
    """
    groups, held = [[]], 0
    for record in delta.tensors:
        size = record.elements * word_dtype(record.dtype).itemsize
        if groups[-1] and held + size > nbytes:
            groups.append([])
            held = 0
        groups[-1].append(record)
        held += size
    return [replace(delta, tensors=tuple(group), payload_id=k) for k, group in enumerate(groups)]


def repair(delta: Delta, new: Mapping, damaged: Iterable[tuple[str, int]]) -> Delta:
    """The whole new chunks of a receiver that holds `delta` everywhere else.

    Args:
        delta: what was applied, from `diff_bits` or `decode`.
        new: name -> tensor of the target version.
        damaged: (tensor, chunk) pairs of `Outcome.damaged`.

    Returns:
        a Delta of the same payload with op "overwrite" and one record a damaged tensor. Its old digests are the new
        ones of `delta` but for the damaged chunks, so that "nothing else changes" is what it says and proves.
    """
    chunks: dict[str, list[int]] = {}
    for name, chunk in sorted(damaged):
        chunks.setdefault(name, []).append(chunk)
    records = (record for record in delta.tensors if record.name in chunks)
    return replace(delta, tensors=tuple(_whole(r, as_bits(new[r.name]).words, chunks[r.name]) for r in records))


def _whole(record: TensorDelta, words: np.ndarray, chunks: list[int]) -> TensorDelta:
    starts = [chunk * record.chunk for chunk in chunks]
    index = np.concatenate([np.arange(a, min(a + record.chunk, words.size), dtype=np.int64) for a in starts])
    old_digests = record.new_digests.copy()
    old_digests[chunks] = record.old_digests[chunks]
    return replace(record, index=index, op="overwrite", words=words[index], old_digests=old_digests, old=None)
