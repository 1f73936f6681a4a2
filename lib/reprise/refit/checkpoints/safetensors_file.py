"""One safetensors file: a strict reader of its header and of single tensors as unsigned words.

The safetensors library hands out tensors by name; a delta that rebuilds the file byte for byte also needs the header
as it is spelled, the order of the data and tensors of dtypes that NumPy does not have. The format is small:

    8 bytes          header length n, unsigned little-endian
    n bytes          JSON {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {str: str}}
    the rest         data; offsets count from its first byte, without gaps or overlaps

Source: https://github.com/huggingface/safetensors, section "Format", whose limits are kept.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from reprise.errors import RepriseError
from reprise.refit.bits import DTYPES, Bits

MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
LENGTH_BYTES = 8
MAX_DIMENSIONS = 64  # NumPy's limit
SEGMENT_BYTES = 1 << 24  # part of a tensor that is coded at once; a multiple of every word size

# bits of one element; the names are safetensors' own
ELEMENT_BITS = {**{dtype: 8 * nbytes for dtype, nbytes in DTYPES.items()}, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


class CheckpointError(RepriseError):
    """A checkpoint that cannot be read as one; the message names the file and what was expected."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a header: a tensor (or a run of its elements) and the bytes [begin, end) of the data that hold it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin

    @property
    def word_bytes(self) -> int:
        """Bytes of the unsigned word that stands for an element; sub-byte elements are packed, so a word is a byte."""
        return max(1, ELEMENT_BITS[self.dtype] // 8)


def parse_header(prefix: bytes, data_bytes: int, where: str) -> tuple[Entry, ...]:
    """Entries of a header in the order of their data.

    Args:
        prefix: everything before the data: 8 length bytes and the JSON text.
        data_bytes: how many bytes of data follow.
        where: name of the file, for messages.

    Raises:
        CheckpointError: malformed JSON, a repeated name, an unknown dtype, a size that does not fit dtype and shape,
            or data offsets with a gap, an overlap or an end outside the data.
    """
    header = _json_object(prefix, where)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError(f"{where}: __metadata__ of its header: expected text by name")
    entries = sorted((_entry(name, field, where) for name, field in header.items()), key=_data_order)
    expected = 0
    for entry in entries:
        if entry.begin != expected:
            raise CheckpointError(
                f"{where}: tensor {entry.name!r} begins at byte {entry.begin} of the data: expected {expected}, "
                "without gap or overlap"
            )
        expected = entry.end
    if expected != data_bytes:
        raise CheckpointError(f"{where}: {data_bytes} bytes of data: expected {expected}, as its header says")
    return tuple(entries)


def _data_order(entry: Entry) -> tuple[int, int, str]:
    return entry.begin, entry.end, entry.name  # the name orders empty tensors that share an offset


def _json_object(prefix: bytes, where: str) -> dict:
    if len(prefix) < LENGTH_BYTES or int.from_bytes(prefix[:LENGTH_BYTES], "little") != len(prefix) - LENGTH_BYTES:
        raise CheckpointError(f"{where}: its first 8 bytes do not hold the length of its header")
    try:
        header = json.loads(prefix[LENGTH_BYTES:].decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: not a safetensors header: {str(error)[:200]}") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{where}: header: expected a JSON object")
    return header


def _without_repeats(pairs: list[tuple[str, object]]) -> dict:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return unique


def _entry(name: str, field: object, where: str) -> Entry:
    label = f"{where}: tensor {name[:200]!r}"
    if not _encodes(name) or not isinstance(field, dict) or set(field) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{label}: expected dtype, shape and data_offsets under a name in UTF-8")
    dtype, shape, offsets = field["dtype"], field["shape"], field["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ELEMENT_BITS:
        raise CheckpointError(f"{label}: dtype {str(dtype)[:40]!r}: expected one of {', '.join(ELEMENT_BITS)}")
    if not _naturals(shape, MAX_DIMENSIONS) or not _naturals(offsets, 2) or len(offsets) != 2:
        raise CheckpointError(f"{label}: shape and data_offsets: expected lists of whole numbers below 2^63")
    begin, end = offsets
    if 8 * (end - begin) != prod(shape) * ELEMENT_BITS[dtype]:
        raise CheckpointError(f"{label}: {end - begin} bytes: expected the size of {dtype} {shape}")
    return Entry(name, dtype, tuple(shape), begin, end)


def _encodes(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:  # JSON can spell half a surrogate pair
        return False
    return True


def _naturals(values: object, most: int) -> bool:
    # bool is an int to isinstance, not to a header
    return isinstance(values, list) and len(values) <= most and all(type(v) is int and 0 <= v < 1 << 63 for v in values)


@dataclass(frozen=True)
class SafetensorsFile:
    """An opened file: where it is, its verbatim prefix and its entries in the order of their data.

    No descriptor stays open: a tensor is mapped or read when asked for and released with its array, so a checkpoint
    may be larger than memory and have any number of shards.
    """

    path: Path
    prefix: bytes
    entries: tuple[Entry, ...]
    size: int
    modified_ns: int

    @classmethod
    def open(cls, path: Path) -> SafetensorsFile:
        """Read and check the header of `path`.

        Raises:
            CheckpointError: not a safetensors file, or its header and size disagree.
        """
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            length = file.read(LENGTH_BYTES)
            count = int.from_bytes(length, "little")
            if len(length) < LENGTH_BYTES or count > min(MAX_HEADER_BYTES, status.st_size - LENGTH_BYTES):
                raise CheckpointError(
                    f"{path}: not a safetensors file: its first 8 bytes announce a header of {count} bytes, "
                    f"the file has {status.st_size}"
                )
            prefix = length + file.read(count)
        entries = parse_header(prefix, status.st_size - len(prefix), str(path))
        return cls(path, prefix, entries, status.st_size, status.st_mtime_ns)

    def map_bytes(self, entry: Entry) -> np.ndarray:
        """The tensor's bytes as a read-only view of mapped pages."""
        if entry.nbytes == 0:
            return np.empty(0, np.uint8)
        try:
            mapped = np.memmap(self.path, np.uint8, "r", len(self.prefix) + entry.begin, (entry.nbytes,))
        except ValueError:  # mmap: the file ends before the tensor does
            raise self._changed() from None
        return mapped.view(np.ndarray)

    def map(self, entry: Entry) -> np.ndarray:
        """The tensor's words, flat, as a read-only view of mapped pages (a copy where the file is not aligned)."""
        words = self.map_bytes(entry).view(_word(entry))
        return words if words.flags.aligned else words.copy()

    def read(self, entry: Entry, buffer: np.ndarray | None = None) -> np.ndarray:
        """A private copy of the tensor's words, flat: what was verified cannot change underneath.

        Unlike mapped pages it also survives a file that is cut: those raise SIGBUS.

        Args:
            buffer: uint8, at least `entry.nbytes`: memory to use again, which spares the system new pages.
        """
        data = np.empty(entry.nbytes, np.uint8) if buffer is None else buffer[: entry.nbytes]
        left = memoryview(data)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(len(self.prefix) + entry.begin)
            while left and (count := file.readinto(left)):  # at most 2 GiB a call
                left = left[count:]
        if left:
            raise self._changed()
        return data.view(_word(entry))

    def check_unchanged(self) -> None:
        """Raise CheckpointError if the file was written since it was opened."""
        status = self.path.stat()
        if (status.st_size, status.st_mtime_ns) != (self.size, self.modified_ns):
            raise self._changed()

    def _changed(self) -> CheckpointError:
        return CheckpointError(f"{self.path}: changed while it was read")


def _word(entry: Entry) -> np.dtype:
    return np.dtype(f"<u{entry.word_bytes}")


def segments(entry: Entry) -> list[Entry]:
    """`entry` cut into flat runs of at most SEGMENT_BYTES, as the codec takes them; packed elements become bytes."""
    dtype = entry.dtype if entry.dtype in DTYPES else "U8"
    ends = [*range(entry.begin + SEGMENT_BYTES, entry.end, SEGMENT_BYTES), entry.end]
    return [
        Entry(entry.name, dtype, ((end - begin) // entry.word_bytes,), begin, end)
        for begin, end in zip([entry.begin, *ends], ends, strict=False)
        if begin < end
    ]


def bits(segment: Entry, words: np.ndarray) -> Bits:
    """`words` of a segment for the codec."""
    return Bits(segment.dtype, segment.shape, words)
