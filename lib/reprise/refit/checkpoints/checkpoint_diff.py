"""Write the delta of two checkpoints, tensor by tensor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xxhash
import zstandard

from reprise.refit.checkpoints.checkpoint import Checkpoint, Located
from reprise.refit.checkpoints.container import DeltaWriter, Progress, silent
from reprise.refit.checkpoints.manifest import BASE, OTHER, WEIGHTS, Block, FileRecord, Manifest
from reprise.refit.checkpoints.safetensors_file import (
    SEGMENT_BYTES,
    CheckpointError,
    Entry,
    SafetensorsFile,
    bits,
    segments,
)
from reprise.refit.checkpoints.staging import created, staged
from reprise.refit.checkpoints.streams import MAX_LEVEL, PIECE, pack, pieces
from reprise.refit.errors import RefitSchemaError
from reprise.refit.operations import check_operation
from reprise.refit.payload import encode_pair


@dataclass(frozen=True)
class DiffSummary:
    """What a delta holds: numbers of tensors, names of added and removed ones, sizes in bytes."""

    tensors: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    other_files: int
    new_bytes: int
    delta_bytes: int


def diff_checkpoints(
    old: str | os.PathLike,
    new: str | os.PathLike,
    out: str | os.PathLike,
    op: str = "add",
    level: int = 1,
    force: bool = False,
    progress: Progress = silent,
) -> DiffSummary:
    """Write to `out` what turns checkpoint `old` into `new` byte for byte.

    Holds a frame, a few pieces and one segment of a tensor of each side at a time.

    Args:
        old, new: safetensors file or folder each.
        out: the `.rdl` file to create; replaced if `force`.
        op: operation of changed words: add, xor or overwrite.
        level: zstd level of everything, 1 to 19.

    Raises:
        CheckpointError: an input that cannot be read, an output that must not be written, or a level out of range.
        RefitSchemaError: a tensor whose dtype or shape differs, named.
    """
    check_operation(op)
    if not 1 <= level <= MAX_LEVEL:
        raise CheckpointError(f"level={level}: expected 1 to {MAX_LEVEL}")
    base, target = Checkpoint.open(old), Checkpoint.open(new)
    bases = pair(base, target)
    with staged(out, [old, new], force) as temporary:
        with created(temporary) as file, progress("diff", target.nbytes) as done:
            buffers = np.empty((2, SEGMENT_BYTES), np.uint8)
            send = _Sender(DeltaWriter(file), base, bases, op, level, done, tuple(buffers))
            records = [send.weights(path, file) for path, file in target.weights.items()]
            records += [send.other(path, file) for path, file in target.others.items()]
            base.check_unchanged(base.others.keys() & target.others.keys())
            target.check_unchanged(target.others)
            send.writer.finish(Manifest(target.is_folder, op, tuple(records), removed(base, bases)))
        delta_bytes = temporary.stat().st_size
    added = tuple(name for (_, name), found in bases.items() if found is None)
    return DiffSummary(len(bases), added, removed(base, bases), len(target.others), target.nbytes, delta_bytes)


def pair(base: Checkpoint, target: Checkpoint) -> dict[tuple[str, str], Located | None]:
    """(path, name) of every tensor of `target` -> its tensor in `base`, None where it was added.

    Raises:
        RefitSchemaError: the two differ in dtype or shape.
    """
    pairs = {}
    for tensor in target.tensors():
        found = base.find(tensor.path, tensor.entry.name)
        if found is not None:
            check_same_schema(found.entry, tensor.entry)
        pairs[tensor.path, tensor.entry.name] = found
    return pairs


def check_same_schema(old: Entry, new: Entry) -> None:
    """Raise RefitSchemaError unless both have one dtype and one shape."""
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        raise RefitSchemaError(
            f"tensor {new.name!r}: {old.dtype} {list(old.shape)} in OLD, {new.dtype} {list(new.shape)} in NEW: "
            "expected the same dtype and shape"
        )


def removed(base: Checkpoint, pairs: dict[tuple[str, str], Located | None]) -> tuple[str, ...]:
    """Names of the tensors of `base` that no tensor of NEW continues."""
    kept = {(found.path, found.entry.name) for found in pairs.values() if found is not None}
    return tuple(t.entry.name for t in base.tensors() if (t.path, t.entry.name) not in kept)


@dataclass(frozen=True)
class _Sender:
    """Appends files of NEW to a delta."""

    writer: DeltaWriter
    base: Checkpoint
    bases: dict[tuple[str, str], Located | None]
    op: str
    level: int
    done: Callable[[int], None]
    buffers: tuple[np.ndarray, np.ndarray]  # a segment of OLD and of NEW

    def weights(self, path: str, file: SafetensorsFile) -> FileRecord:
        digest, prefix = xxhash.xxh3_128(), np.frombuffer(file.prefix, np.uint8)
        blocks = [self._whole(_cut(prefix), prefix.size, digest)]
        for entry in file.entries:
            found = self.bases[path, entry.name]
            if found is None or entry.nbytes == 0:
                blocks.append(self._whole(_pieces(file, entry), entry.nbytes, digest, entry.word_bytes))
            else:
                blocks.append(self.writer.add_delta(self._frames(found, file, entry, digest)))
        return FileRecord(WEIGHTS, path, file.size, digest.hexdigest(), tuple(blocks), prefix.size)

    def other(self, path: str, file: Path) -> FileRecord:
        nbytes, before = file.stat().st_size, self.base.others.get(path)
        if before is not None and before.stat().st_size == nbytes and _digest(before) == (same := _digest(file)):
            self.done(nbytes)
            return FileRecord(BASE, path, nbytes, same)
        digest = xxhash.xxh3_128()
        try:
            with open(file, "rb") as source:
                block = self._whole(pieces(source), nbytes, digest)
        except zstandard.ZstdError:  # it counts what it compresses
            raise CheckpointError(f"{file}: changed while it was read") from None
        return FileRecord(OTHER, path, nbytes, digest.hexdigest(), (block,))

    def _whole(self, parts: Iterator[bytes], nbytes: int, digest: xxhash.xxh3_128, word_bytes: int = 1) -> Block:
        return self.writer.add_whole(pack(self._watched(parts, digest), nbytes, self.level, word_bytes))

    def _watched(self, parts: Iterator[bytes], digest: xxhash.xxh3_128) -> Iterator[bytes]:
        for part in parts:
            digest.update(part)
            self.done(len(part))
            yield part

    def _frames(self, old: Located, file: SafetensorsFile, new: Entry, digest: xxhash.xxh3_128) -> Iterator[bytes]:
        for before, after in zip(segments(old.entry), segments(new), strict=True):
            held, words = old.file.read(before, self.buffers[0]), file.read(after, self.buffers[1])
            digest.update(words)
            sides = bits(before, held), bits(after, words)
            yield encode_pair(*({new.name: side} for side in sides), self.op, self.level)
            self.done(after.nbytes)


def _cut(data: np.ndarray) -> Iterator[bytes]:
    return (data[at : at + PIECE].tobytes() for at in range(0, data.size, PIECE))


def _pieces(file: SafetensorsFile, entry: Entry) -> Iterator[bytes]:
    for begin in range(entry.begin, entry.end, PIECE):
        end = min(begin + PIECE, entry.end)
        yield file.read(replace(entry, dtype="U8", shape=(end - begin,), begin=begin, end=end)).tobytes()


def _digest(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with open(path, "rb") as file:
        for piece in pieces(file):
            digest.update(piece)
    return digest.hexdigest()
