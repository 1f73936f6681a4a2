"""What a delta of checkpoints says about itself: its files in order, their sizes and digests, their blocks.

A delta may come from a stranger: `Manifest.parse` accepts exactly what `Manifest.dump` writes, and a name that leaves
the output folder, a repeated name or a length that does not add up is refused before anything is created.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from reprise.refit.checkpoints.checkpoint import check_path
from reprise.refit.checkpoints.safetensors_file import LENGTH_BYTES, MAX_HEADER_BYTES, CheckpointError
from reprise.refit.errors import PayloadError
from reprise.refit.operations import OPERATIONS

MAX_FILE_BYTES = 1 << 60
DELTA, WHOLE = "delta", "whole"  # how a tensor travels
WEIGHTS, OTHER, BASE = "weights", "other", "base"  # how a file travels


@dataclass(frozen=True, slots=True)
class Block:
    """What rebuilds one tensor, prefix or file: DELTA, one codec frame a segment; WHOLE, one compressed stream.

    `sizes` are the bytes of these parts, in order and without gaps.
    """

    kind: str
    sizes: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return sum(self.sizes)


@dataclass(frozen=True)
class FileRecord:
    """One file of NEW.

    Attributes:
        kind: WEIGHTS, a safetensors file: first block its prefix, then one a tensor in the order of its data;
            OTHER, one block with its bytes; BASE, no block: OLD holds the same bytes under the same path.
        path: relative to the checkpoint.
        nbytes, digest: of the rebuilt file; xxh3-128 in hexadecimal.
        prefix_bytes: of a WEIGHTS file, the bytes before its data; else 0.
    """

    kind: str
    path: str
    nbytes: int
    digest: str
    blocks: tuple[Block, ...] = ()
    prefix_bytes: int = 0


@dataclass(frozen=True)
class Manifest:
    """folder: NEW is a folder, not a single file. removed: names of tensors that only OLD holds."""

    folder: bool
    op: str
    files: tuple[FileRecord, ...]
    removed: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Size of NEW."""
        return sum(record.nbytes for record in self.files)

    def dump(self) -> bytes:
        files = [
            [r.kind, r.path, r.nbytes, r.digest, r.prefix_bytes, [[b.kind, *b.sizes] for b in r.blocks]]
            for r in self.files
        ]
        fields = {"folder": self.folder, "op": self.op, "files": files, "removed": list(self.removed)}
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=True).encode()

    @classmethod
    def parse(cls, text: bytes, block_bytes: int) -> Manifest:
        """Inverse of `dump`.

        Args:
            text: JSON.
            block_bytes: size of all blocks together.

        Raises:
            PayloadError: anything `dump` would not write.
        """
        try:
            fields = json.loads(text.decode("ascii"))
        except (ValueError, RecursionError):
            raise PayloadError("manifest: expected JSON") from None
        if not isinstance(fields, dict) or list(fields) != ["folder", "op", "files", "removed"]:
            raise PayloadError("manifest: expected folder, op, files, removed")
        if type(fields["folder"]) is not bool or fields["op"] not in OPERATIONS:
            raise PayloadError(f"manifest: folder and op: expected a truth value and one of {', '.join(OPERATIONS)}")
        if not _texts(fields["removed"]) or not isinstance(fields["files"], list):
            raise PayloadError("manifest: files and removed: expected lists")
        files = tuple(_record(row) for row in fields["files"])
        _check_together(files, fields["folder"], block_bytes)
        return cls(fields["folder"], fields["op"], files, tuple(fields["removed"]))


def _texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _natural(value: object, most: int = MAX_FILE_BYTES) -> bool:
    return type(value) is int and 0 <= value <= most  # bool is an int to isinstance


def _record(row: object) -> FileRecord:
    if not isinstance(row, list) or len(row) != 6 or not _texts([row[0], row[1], row[3]]):
        raise PayloadError("manifest: a file: expected kind, path, size, digest, prefix size and blocks")
    kind, path, nbytes, digest, prefix_bytes, rows = row
    try:
        check_path(path)
    except CheckpointError as error:
        raise PayloadError(f"manifest: {error}") from None
    label = f"manifest: {path!r}"
    if not _natural(nbytes) or not _natural(prefix_bytes, LENGTH_BYTES + MAX_HEADER_BYTES):
        raise PayloadError(f"{label}: a size: expected a whole number up to 2^60, of a header up to 10^8")
    if not re.fullmatch("[0-9a-f]{32}", digest):
        raise PayloadError(f"{label}: digest: expected 32 hexadecimal digits")
    if not isinstance(rows, list):
        raise PayloadError(f"{label}: blocks: expected a list")
    blocks = tuple(_block(row, label) for row in rows)
    shape = {
        WEIGHTS: prefix_bytes >= LENGTH_BYTES and bool(blocks) and blocks[0].kind == WHOLE,
        OTHER: prefix_bytes == 0 and [b.kind for b in blocks] == [WHOLE],
        BASE: prefix_bytes == 0 and not blocks,
    }
    if not shape.get(kind):
        raise PayloadError(f"{label}: kind {kind[:20]!r}: expected {', '.join(shape)} with the blocks of that kind")
    return FileRecord(kind, path, nbytes, digest, blocks, prefix_bytes)


def _block(row: object, label: str) -> Block:
    if not isinstance(row, list) or len(row) < 2 or not all(_natural(size) for size in row[1:]):
        raise PayloadError(f"{label}: a block: expected its kind and sizes")
    if row[0] not in (DELTA, WHOLE) or (row[0] == WHOLE and len(row) != 2):
        raise PayloadError(f"{label}: a block: expected {DELTA!r} with sizes or {WHOLE!r} with one")
    return Block(row[0], tuple(row[1:]))


def _check_together(files: tuple[FileRecord, ...], folder: bool, block_bytes: int) -> None:
    if not folder and [record.kind for record in files] != [WEIGHTS]:
        raise PayloadError("manifest: a single file: expected one safetensors file")
    paths = {record.path for record in files}
    if len(paths) != len(files):
        raise PayloadError("manifest: files: a path occurs twice")
    for path in paths:
        for at in (i for i, character in enumerate(path) if character == "/"):
            if path[:at] in paths:
                raise PayloadError(f"manifest: {path[:at]!r}: is both a file and a folder")
    declared = sum(block.nbytes for record in files for block in record.blocks)
    if declared != block_bytes:
        raise PayloadError(f"manifest: blocks of {declared} bytes: the delta holds {block_bytes}")
