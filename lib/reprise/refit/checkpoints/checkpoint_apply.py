"""Rebuild a checkpoint from its base and a delta, byte for byte or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import xxhash

from reprise.refit.apply import apply_
from reprise.refit.checkpoints.checkpoint import Checkpoint
from reprise.refit.checkpoints.checkpoint_diff import check_same_schema
from reprise.refit.checkpoints.container import DeltaFile, Progress, read_prefix, silent
from reprise.refit.checkpoints.manifest import BASE, DELTA, WEIGHTS, FileRecord
from reprise.refit.checkpoints.safetensors_file import CheckpointError, Entry, bits, segments
from reprise.refit.checkpoints.staging import created, staged
from reprise.refit.checkpoints.streams import Section, pieces, unpack
from reprise.refit.delta import Delta
from reprise.refit.errors import PayloadError, RefitSchemaError, StaleBaseError
from reprise.refit.frame import Limits
from reprise.refit.payload import decode

Done = Callable[[int], None]


def apply_checkpoint(
    old: str | os.PathLike,
    delta: str | os.PathLike,
    out: str | os.PathLike,
    force: bool = False,
    progress: Progress = silent,
) -> int:
    """Write to `out` the checkpoint that `delta` makes of `old`; returns its bytes.

    The delta's digest is verified first, then every tensor of OLD before it is changed, then every finished file;
    only then does `out` appear. Holds one tensor and its changes at a time.

    Raises:
        CheckpointError: OLD cannot be read, or the output must not be written or does not fit on the disk.
        StaleBaseError: OLD holds other bits than the delta's base; the tensor or file is named.
        RefitSchemaError: OLD lacks a tensor or file, or holds it with another dtype or shape.
        PayloadError: the delta is truncated, altered or malformed.
    """
    with DeltaFile(delta, progress) as file:
        base, manifest = Checkpoint.open(old), file.manifest
        with staged(out, [old, delta], force, manifest.folder) as temporary:
            _check_space(temporary.parent, manifest.nbytes)
            with progress("apply", manifest.nbytes) as done:
                for record, blocks in file.files():
                    path = temporary / record.path if manifest.folder else temporary
                    path.parent.mkdir(parents=True, exist_ok=True)
                    _write(path, record, _contents(record, blocks, base), done)
            if manifest.folder:
                temporary.mkdir(exist_ok=True)
    return manifest.nbytes


def _check_space(folder: Path, nbytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if nbytes > free:
        raise CheckpointError(f"output of {nbytes} bytes: {free} bytes are free")


def _write(path: Path, record: FileRecord, parts: Iterator[bytes], done: Done) -> None:
    digest = xxhash.xxh3_128()
    with created(path) as file:
        for part in parts:
            file.write(part)
            digest.update(part)
            done(memoryview(part).nbytes)
    if digest.hexdigest() != record.digest:
        if record.kind == BASE:
            raise StaleBaseError(f"file {record.path!r} of OLD holds other bytes than the base of this delta")
        raise PayloadError(f"file {record.path!r}: rebuilt with another digest than the delta states")


def _contents(record: FileRecord, blocks: list[list[Section]], base: Checkpoint) -> Iterator[bytes]:
    if record.kind == BASE:
        return _base_file(record, base)
    if record.kind == WEIGHTS:
        return _weights(record, blocks, base)
    return unpack(blocks[0][0], record.nbytes)


def _base_file(record: FileRecord, base: Checkpoint) -> Iterator[bytes]:
    if record.path not in base.others:
        raise RefitSchemaError(f"file {record.path!r} is missing in OLD and needed by this delta")
    with open(base.others[record.path], "rb") as file:
        yield from pieces(file, record.nbytes + 1)  # one more than expected, so that a longer file is noticed


def _weights(record: FileRecord, blocks: list[list[Section]], base: Checkpoint) -> Iterator[bytes]:
    prefix, entries = read_prefix(record, blocks[0][0])
    yield prefix
    for entry, block, parts in zip(entries, record.blocks[1:], blocks[1:], strict=True):
        if block.kind == DELTA:
            yield from _changed(record.path, entry, parts, base)
        else:
            yield from unpack(parts[0], entry.nbytes, entry.word_bytes)


def _changed(path: str, entry: Entry, frames: list[Section], base: Checkpoint) -> Iterator[memoryview]:
    """NEW bytes of one tensor, segment by segment."""
    found = base.find(path, entry.name)
    if found is None:
        raise RefitSchemaError(f"tensor {entry.name!r} is missing in OLD and needed by this delta")
    check_same_schema(found.entry, entry)
    for segment, frame in zip(segments(found.entry), frames, strict=True):
        words = found.file.read(segment)
        try:
            apply_({entry.name: bits(segment, words)}, decode_frame(segment, frame))
        except StaleBaseError:
            raise StaleBaseError(f"tensor {entry.name!r} of OLD holds other bits than the base of this delta") from None
        yield memoryview(words).cast("B")


def decode_frame(segment: Entry, frame: Section) -> Delta:
    """The frame of one segment, decoded and checked against what the header says.

    Raises:
        PayloadError: a damaged frame, or one of another tensor.
    """
    delta = decode(frame.read(), Limits(changes=segment.shape[0]))
    held = [(tensor.name, tensor.dtype, tensor.shape, tensor.aliases) for tensor in delta.tensors]
    if held != [(segment.name, segment.dtype, segment.shape, ())]:
        raise PayloadError(f"tensor {segment.name!r}: its frame describes another tensor")
    return delta
