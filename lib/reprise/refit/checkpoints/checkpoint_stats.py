"""What changed between two checkpoints, and what is inside a delta: the numbers behind `stats` and `inspect`."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from reprise.refit.checkpoints.checkpoint import Checkpoint, Located
from reprise.refit.checkpoints.checkpoint_apply import decode_frame
from reprise.refit.checkpoints.checkpoint_diff import pair, removed
from reprise.refit.checkpoints.container import DeltaFile, Progress, read_prefix, silent
from reprise.refit.checkpoints.manifest import BASE, DELTA, WEIGHTS, Block
from reprise.refit.checkpoints.safetensors_file import SEGMENT_BYTES, Entry, bits, segments
from reprise.refit.checkpoints.streams import Section
from reprise.refit.operations import OPERATIONS
from reprise.refit.sparsity import entropy_bound

PART = 1 << 20  # elements compared at a time


@dataclass(frozen=True)
class TensorChange:
    """One tensor that both checkpoints hold.

    Attributes:
        name, dtype, elements: of the tensor; elements of packed sub-byte dtypes count as bytes.
        changed: elements whose bits differ.
        bound_bits: operation -> entropy bound of all its changes together, in bits, segment by segment.
        distance: [65] number of changed elements by bit length of |new - old| as integers (units in the last place
            for floats of one sign): 1 at [1], 2-3 at [2], 4-7 at [3] ...
    """

    name: str
    dtype: str
    elements: int
    changed: int
    bound_bits: dict[str, float]
    distance: np.ndarray


@dataclass(frozen=True)
class CheckpointStats:
    """Changes of the tensors that both hold, names of those that only one holds, and bytes of NEW's tensors."""

    tensors: tuple[TensorChange, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    tensor_bytes: int


@dataclass(frozen=True)
class BlockInfo:
    """One tensor of a delta: how it travels, elements, changed elements (None if whole) and bytes of its block."""

    path: str
    name: str
    dtype: str
    kind: str
    elements: int
    changed: int | None
    nbytes: int


@dataclass(frozen=True)
class DeltaInfo:
    """Contents of a delta. other_files: path -> bytes of its block, 0 where OLD's is taken over."""

    op: str
    folder: bool
    new_bytes: int
    delta_bytes: int
    tensors: tuple[BlockInfo, ...]
    removed: tuple[str, ...]
    other_files: dict[str, int]


def checkpoint_stats(old: str | os.PathLike, new: str | os.PathLike, progress: Progress = silent) -> CheckpointStats:
    """Compare two checkpoints bit by bit.

    Raises:
        CheckpointError, RefitSchemaError: as in `diff_checkpoints`.
    """
    base, target = Checkpoint.open(old), Checkpoint.open(new)
    bases, changes, tensor_bytes = pair(base, target), [], sum(t.entry.nbytes for t in target.tensors())
    buffers = np.empty((2, SEGMENT_BYTES), np.uint8)
    with progress("compare", tensor_bytes) as done:
        for tensor in target.tensors():
            found = bases[tensor.path, tensor.entry.name]
            if found is not None:
                changes.append(_change(found, tensor, buffers))
            done(tensor.entry.nbytes)
    base.check_unchanged()
    target.check_unchanged()
    added = tuple(name for (_, name), found in bases.items() if found is None)
    return CheckpointStats(tuple(changes), added, removed(base, bases), tensor_bytes)


def _change(old: Located, new: Located, buffers: np.ndarray) -> TensorChange:
    elements, distance, bounds = 0, np.zeros(65, np.int64), dict.fromkeys(OPERATIONS, 0.0)
    for parts in zip(segments(old.entry), segments(new.entry), strict=True):
        sides = zip(parts, (old, new), buffers, strict=True)
        before, after = (bits(part, side.file.read(part, buffer)) for part, side, buffer in sides)
        counts = change_distance(before.words, after.words)
        elements, distance, changed = elements + after.words.size, distance + counts, int(counts.sum())
        for op in OPERATIONS if changed else ():
            bounds[op] += changed * entropy_bound(before, after, op)
    return TensorChange(new.entry.name, new.entry.dtype, elements, int(distance.sum()), bounds, distance)


def change_distance(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """[65] int64: changed words by bit length of |new - old|, both flat and of one unsigned dtype.

    >>> change_distance(np.array([5, 5, 5], np.uint16), np.array([5, 4, 8], np.uint16))[:4]
    array([0, 1, 1, 0])
    """
    counts = np.zeros(65, np.int64)
    for start in range(0, old.size, PART):
        a, b = old[start : start + PART], new[start : start + PART]
        differs = a != b
        a, b = a[differs], b[differs]
        counts += np.bincount(_bit_length(np.maximum(a, b) - np.minimum(a, b)), minlength=65)
    return counts


def _bit_length(words: np.ndarray) -> np.ndarray:
    length, words = np.zeros(words.size, np.int64), words.astype(np.uint64)
    for step in (32, 16, 8, 4, 2, 1):  # halve the range in which the highest set bit lies
        high = words >> np.uint64(step)
        large = high != 0
        length += step * large
        words = np.where(large, high, words)
    return length + (words != 0)


def delta_info(delta: str | os.PathLike, progress: Progress = silent) -> DeltaInfo:
    """Verify a delta and list its contents; every frame is decoded, no base is needed.

    Raises:
        PayloadError: the delta is truncated, altered or malformed.
    """
    with DeltaFile(delta, progress) as file:
        tensors, others = [], {}
        with progress("read", file.nbytes) as done:
            for record, blocks in file.files():
                if record.kind == WEIGHTS:
                    _, entries = read_prefix(record, blocks[0][0])
                    rows = zip(entries, record.blocks[1:], blocks[1:], strict=True)
                    tensors += [_block_info(record.path, *row) for row in rows]
                else:
                    others[record.path] = 0 if record.kind == BASE else record.blocks[0].nbytes
                done(sum(block.nbytes for block in record.blocks))
        m = file.manifest
        return DeltaInfo(m.op, m.folder, m.nbytes, file.nbytes, tuple(tensors), m.removed, others)


def _block_info(path: str, entry: Entry, block: Block, parts: list[Section]) -> BlockInfo:
    elements, changed = entry.nbytes // entry.word_bytes, None
    if block.kind == DELTA:
        changed = sum(decode_frame(*part).changed for part in zip(segments(entry), parts, strict=True))
    return BlockInfo(path, entry.name, entry.dtype, block.kind, elements, changed, block.nbytes)
