"""The bytes of a journal (`reprise.durable.Journal`): frames, checksums, and telling a torn append from damage.

A file header, then frames; a frame is one transaction of records. Integers are little-endian.

    file header    magic (8 bytes), number of the first record (u64), crc32 of both (u32)
    frame header   mark (u8), records (u32), payload bytes (u32), number of its first record (u64),
                   zero sectors (u32), crc32 of the payload (u32), crc32 of the fields so far (u32), mark (u8)
    payload        per record its kind (u8: 0 bytes, 1 JSON object), its length (u32) and its bytes
"""

from __future__ import annotations

import itertools
import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from reprise.errors import RepriseError

SECTOR = 512  # bytes a disk writes whole
MAX_PAYLOAD = 1 << 30

_MAGIC = b"RPZJNL1\n"
_FILE_HEADER = struct.Struct("<8sQI")
_FRAME_HEADER = struct.Struct("<BIIQIIIB")
_ITEM = struct.Struct("<BI")
_MARK = 0xD7
_BYTES, _JSON = 0, 1

FIRST_FRAME = _FILE_HEADER.size


class Frame(NamedTuple):
    """One transaction: the number of its first record, how many there are, where it ends in the file, its payload."""

    sequence: int
    count: int
    end: int
    payload: bytes


class _Header(NamedTuple):
    mark: int
    count: int
    length: int
    sequence: int
    zero_sectors: int
    payload_crc: int
    crc: int
    last_mark: int


def pack_file_header(first: int) -> bytes:
    """The file header of a journal whose first record has the number `first`."""
    fields = struct.pack("<8sQ", _MAGIC, first)
    return fields + struct.pack("<I", zlib.crc32(fields))


def read_file_header(descriptor: int) -> int | None:
    """The number of the first record, or None where the header is not intact."""
    raw = os.pread(descriptor, _FILE_HEADER.size, 0)
    if len(raw) < _FILE_HEADER.size:
        return None
    magic, first, crc = _FILE_HEADER.unpack(raw)
    return first if magic == _MAGIC and crc == zlib.crc32(raw[:-4]) else None


def pack_values(values: Iterable[bytes | dict]) -> list[bytes]:
    """Records as they lie in a payload; a dict becomes one JSON object (so its keys become strings).

    Raises:
        RepriseError: a value is neither bytes nor a dict of finite JSON values.
    """
    packed = []
    for k, value in enumerate(values):
        if isinstance(value, dict):
            try:
                text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
                kind, raw = _JSON, text.encode()
            except (TypeError, ValueError) as error:
                raise RepriseError(f"record[{k}]: expected a dict that JSON can hold ({error})") from error
        elif isinstance(value, bytes):
            kind, raw = _BYTES, value
        else:
            raise RepriseError(f"record[{k}]={type(value).__name__}: expected bytes or a dict")
        packed.append(_ITEM.pack(kind, len(raw)) + raw)
    return packed


def unpack_values(payload: bytes) -> Iterator[bytes | dict]:
    """Inverse of `pack_values` on a payload whose checksum matched."""
    at = 0
    while at < len(payload):
        kind, length = _ITEM.unpack_from(payload, at)
        at += _ITEM.size + length
        raw = payload[at - length : at]
        yield json.loads(raw) if kind == _JSON else raw


def pack_frame(payload: bytes, count: int, sequence: int, offset: int) -> bytes:
    """One frame of `count` packed records, the first of them numbered `sequence`, to be written at `offset`.

    Raises:
        RepriseError: the transaction is larger than `MAX_PAYLOAD` bytes.
    """
    if len(payload) > MAX_PAYLOAD:
        raise RepriseError(f"transaction={len(payload)} bytes: expected at most {MAX_PAYLOAD}")

    def header(zeros: int) -> bytes:
        fields = struct.pack("<BIIQII", _MARK, count, len(payload), sequence, zeros, zlib.crc32(payload))
        return fields + struct.pack("<IB", zlib.crc32(fields), _MARK)

    # a header begins and ends with a mark, so no part of it is a zero sector, whatever the count in it
    return header(zero_sectors(header(0) + payload, offset)) + payload


def zero_sectors(data: bytes, offset: int) -> int:
    """How many of the sectors that `data` touches, lying at `offset` of the file, it leaves with nothing but zeros."""
    edges = [0, *range(-offset % SECTOR or SECTOR, len(data), SECTOR), len(data)]
    return sum(data.count(0, a, b) == b - a for a, b in itertools.pairwise(edges) if a < b)


def _read_header(raw: bytes) -> _Header | None:
    raw = raw[: _FRAME_HEADER.size]
    if len(raw) < _FRAME_HEADER.size:
        return None
    header = _Header._make(_FRAME_HEADER.unpack(raw))
    return header if header.mark == header.last_mark == _MARK and header.crc == zlib.crc32(raw[:-5]) else None


def read_frame(descriptor: int, offset: int, size: int) -> Frame | None:
    """The frame at `offset` of a file of `size` bytes, or None where no whole, intact frame starts."""
    header = _read_header(os.pread(descriptor, _FRAME_HEADER.size, offset))
    if header is None:
        return None
    start = offset + _FRAME_HEADER.size
    end = start + header.length
    if end > size:
        return None
    payload = os.pread(descriptor, header.length, start)
    return Frame(header.sequence, header.count, end, payload) if zlib.crc32(payload) == header.payload_crc else None


def next_frame(descriptor: int, offset: int, size: int) -> int | None:
    """Where the first intact frame after `offset` starts; None if there is none."""
    tail = os.pread(descriptor, size - offset, offset)
    at = tail.find(_MARK, 1)
    while at >= 0:
        if read_frame(descriptor, offset + at, size):
            return offset + at
        at = tail.find(_MARK, at + 1)
    return None


def is_torn(descriptor: int, offset: int, size: int) -> bool:
    """Whether the bytes from `offset`, where no intact frame starts, are an append that never finished.

    A killed process leaves a frame too short. A power cut leaves, besides, whole sectors that never reached the disk
    and read as zeros; a frame states how many zero sectors it has by nature. Anything else is damage to records that
    were acknowledged. Only the last frame of a file can be torn: each is on the disk before the next one is written.
    """
    tail = os.pread(descriptor, size - offset, offset)
    header = _read_header(tail)
    if header is not None:
        end = _FRAME_HEADER.size + header.length
        return len(tail) < end or (len(tail) == end and zero_sectors(tail, offset) > header.zero_sectors)
    if len(tail) < _FRAME_HEADER.size:
        return True
    return zero_sectors(tail[: _FRAME_HEADER.size], offset) > 0 and next_frame(descriptor, offset, size) is None
