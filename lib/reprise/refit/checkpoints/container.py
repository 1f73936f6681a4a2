"""The `.rdl` file: the delta of one checkpoint against another, written and read front to back.

Version 1, integers little-endian:

    bytes  what
    8      magic 89 52 44 43 0d 0a 1a 0a ("\\x89RDC\\r\\n\\x1a\\n": a copy as text damages it visibly)
    4      format version, u32
    4      zero
    ...    blocks, without gaps, in the order of the manifest
    ...    manifest: ASCII JSON {"folder", "op", "files", "removed"}, see manifest.py
    8      bytes of the manifest, u64
    16     xxh3-128 of everything before it
    8      end "RDC end\\n"

A block is either "delta", frames of the codec (a tensor that OLD holds too, with digests of its OLD and NEW bits; one
frame for every 2^24 bytes of the tensor, under its name and as a flat array), or "whole", one zstd stream (streams.py:
a safetensors prefix, an added or empty tensor in byte planes, another file). A safetensors file is its prefix (length
and header, verbatim) and one block a tensor in the order of its data; names, dtypes, shapes and sizes are those of the
header. Content only: no times, no permissions, no links, no empty folders.

The digests find accidents. They are no signature: who can write the file can write its digests.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import xxhash

from reprise.refit.checkpoints.manifest import DELTA, WHOLE, Block, FileRecord, Manifest
from reprise.refit.checkpoints.safetensors_file import CheckpointError, Entry, parse_header, segments
from reprise.refit.checkpoints.streams import Section, pieces, unpack
from reprise.refit.errors import PayloadError

MAGIC = b"\x89RDC\r\n\x1a\n"
VERSION = 1
PREAMBLE = MAGIC + VERSION.to_bytes(4, "little") + bytes(4)
END = b"RDC end\n"
FOOTER_BYTES = 8 + 16 + len(END)
MAX_MANIFEST_BYTES = 1 << 26  # some millions of tensors

# called with a label and a number of bytes; the returned context yields a function to call with bytes done
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def silent(label: str, nbytes: int) -> AbstractContextManager[Callable[[int], None]]:
    """A Progress that shows nothing."""
    return nullcontext(lambda done: None)


class DeltaWriter:
    """Writes blocks in order, then the manifest; hashes as it goes."""

    def __init__(self, file: BinaryIO):
        self._file, self._hash = file, xxhash.xxh3_128()
        self._write(PREAMBLE)

    def add_whole(self, parts: Iterable[bytes]) -> Block:
        """Append the parts of one compressed stream."""
        return Block(WHOLE, (sum(self._write(part) for part in parts),))

    def add_delta(self, frames: Iterable[bytes]) -> Block:
        """Append the frames of one tensor."""
        return Block(DELTA, tuple(self._write(frame) for frame in frames))

    def finish(self, manifest: Manifest) -> None:
        text = manifest.dump()
        if len(text) > MAX_MANIFEST_BYTES:
            raise CheckpointError(f"manifest of {len(text)} bytes: expected at most {MAX_MANIFEST_BYTES}")
        self._write(text)
        self._write(len(text).to_bytes(8, "little"))
        self._file.write(self._hash.digest() + END)

    def _write(self, part: bytes) -> int:
        self._hash.update(part)
        self._file.write(part)
        return len(part)


class DeltaFile:
    """An `.rdl` file whose digest was verified and whose manifest was checked; a context manager."""

    def __init__(self, path: str | os.PathLike, progress: Progress = silent):
        """
        Raises:
            PayloadError: not an `.rdl` file, another version, truncated, altered or inconsistent.
        """
        if not os.fspath(path):
            raise PayloadError("the path of the delta is empty: expected an .rdl file")
        self.path = Path(path)
        mode = self.path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a pipe would wait for its writer
            raise PayloadError(f"{self.path}: is not a regular file")
        self._file = open(self.path, "rb")
        try:
            self.nbytes = os.fstat(self._file.fileno()).st_size
            self.manifest = self._read_manifest(progress)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> DeltaFile:
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    def files(self) -> Iterator[tuple[FileRecord, list[list[Section]]]]:
        """Every file of NEW with readers for the parts of each of its blocks."""
        at = len(PREAMBLE)
        for record in self.manifest.files:
            blocks = []
            for block in record.blocks:
                begins = [at + before for before in accumulate(block.sizes, initial=0)]
                blocks.append([Section(self._file, *part) for part in zip(begins, block.sizes, strict=False)])
                at = begins[-1]
            yield record, blocks

    def _read_manifest(self, progress: Progress) -> Manifest:
        preamble = self._file.read(len(PREAMBLE))
        if preamble[: len(MAGIC)] != MAGIC:
            raise PayloadError(f"{self.path}: not a delta of checkpoints (.rdl)")
        version = int.from_bytes(preamble[len(MAGIC) : len(MAGIC) + 4], "little")
        if len(preamble) == len(PREAMBLE) and version > VERSION and preamble[-4:] == bytes(4):
            raise PayloadError(f"{self.path}: format version {version}: this release reads {VERSION}")
        body = self.nbytes - FOOTER_BYTES
        if preamble != PREAMBLE or body < len(PREAMBLE):
            raise PayloadError(f"{self.path}: truncated or altered")
        count, digest, end = self._read_footer(body)
        if end != END or digest != self._digest(body + 8, progress) or count > body - len(PREAMBLE):
            raise PayloadError(f"{self.path}: truncated or altered (its digest does not fit)")
        if count > MAX_MANIFEST_BYTES:
            raise PayloadError(f"{self.path}: manifest of {count} bytes: expected at most {MAX_MANIFEST_BYTES}")
        self._file.seek(body - count)
        return Manifest.parse(self._file.read(count), body - count - len(PREAMBLE))

    def _read_footer(self, begin: int) -> tuple[int, bytes, bytes]:
        self._file.seek(begin)
        footer = self._file.read(FOOTER_BYTES)
        return int.from_bytes(footer[:8], "little"), footer[8:24], footer[24:]

    def _digest(self, nbytes: int, progress: Progress) -> bytes:
        self._file.seek(0)
        digest = xxhash.xxh3_128()
        with progress("verify", nbytes) as done:
            for piece in pieces(self._file, nbytes):
                digest.update(piece)
                done(len(piece))
        return digest.digest()


def read_prefix(record: FileRecord, section: Section) -> tuple[bytes, tuple[Entry, ...]]:
    """Verbatim prefix of a WEIGHTS file and its entries, checked against the record.

    Raises:
        PayloadError: a damaged prefix, or one that does not fit the record's size and blocks.
    """
    prefix = b"".join(unpack(section, record.prefix_bytes))
    try:
        entries = parse_header(prefix, record.nbytes - record.prefix_bytes, repr(record.path))
    except CheckpointError as error:
        raise PayloadError(str(error)) from None
    if len(entries) != len(record.blocks) - 1:
        raise PayloadError(f"{record.path!r}: {len(record.blocks) - 1} tensors: its header names {len(entries)}")
    for entry, block in zip(entries, record.blocks[1:], strict=True):
        if block.kind == DELTA and len(block.sizes) != len(segments(entry)):
            raise PayloadError(f"tensor {entry.name!r}: {len(block.sizes)} frames: expected {len(segments(entry))}")
    return prefix, entries
