"""What a frame says about itself before its streams: identifiers, stream sizes and one record a tensor.

Fields are packed little-endian in the order of the code below; texts are UTF-8 after a 16-bit length. Reading checks
every field, since a header may come from anyone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod

from reprise.refit.bits import DTYPES
from reprise.refit.digests import MAX_CHUNK, MIN_CHUNK, chunk_count
from reprise.refit.errors import PayloadError
from reprise.refit.locations import MAX_RICE_BITS
from reprise.refit.operations import OPERATIONS

# streams of a frame, in order; a record's share of each lies after that of the records before it
STREAMS = ("old digests", "new digests", "gaps", "unary", "remainders", "nibbles", *(f"plane {k}" for k in range(8)))
LOCATIONS = ("gaps", "range", "rice")

MAX_DIMENSIONS = 64
MAX_ELEMENTS = 1 << 62


@dataclass(frozen=True)
class Record:
    """A tensor's line in the header.

    `parameter` is the first index of a range and the remainder's bits of a Rice code; `nibbles` says whether small
    words are packed two a byte.
    """

    name: str
    aliases: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    op: str
    count: int
    chunk: int
    location: str
    parameter: int
    nibbles: bool

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def chunks(self) -> int:
        return chunk_count(self.elements, self.chunk)


@dataclass(frozen=True)
class Header:
    """Everything a frame holds but its streams; `streams` has (bytes decompressed, bytes stored) of each."""

    transfer_id: str
    attempt: int
    producer: str
    payload_id: int
    base_version: int
    target_version: int
    streams: tuple[tuple[int, int], ...]
    records: tuple[Record, ...]


_IDENTIFIERS = struct.Struct("<IQQQ")  # attempt, payload, base version, target version
_STREAM = struct.Struct("<QQ")
_RECORD = struct.Struct("<BBBBBQQ")  # dtype, op, location, nibbles, log2 chunk, count, parameter
_U8, _U16, _U32, _U64 = (struct.Struct(f"<{code}") for code in "BHIQ")


def pack_header(header: Header) -> bytes:
    """Bytes of `header`; PayloadError names an identifier, name or shape that does not fit."""
    dtypes = sorted({record.dtype for record in header.records})
    parts = [_text(header.transfer_id), _text(header.producer)]
    numbers = (header.attempt, header.payload_id, header.base_version, header.target_version)
    parts.append(_numbers(_IDENTIFIERS, "attempt, payload id, versions", *numbers))
    parts += [_STREAM.pack(*sizes) for sizes in header.streams]
    parts += [_U8.pack(len(dtypes)), *map(_text, dtypes), _U32.pack(len(header.records))]
    for record in header.records:
        codes = (dtypes.index(record.dtype), OPERATIONS.index(record.op), LOCATIONS.index(record.location))
        parts += [
            _text(record.name),
            _numbers(_U16, "number of aliases", len(record.aliases)),
            *map(_text, record.aliases),
        ]
        chunk = record.chunk.bit_length() - 1
        parts.append(_RECORD.pack(*codes, record.nibbles, chunk, record.count, record.parameter))
        parts += [_U8.pack(len(record.shape)), *map(_U64.pack, record.shape)]
    return b"".join(parts)


def parse_header(data: bytes) -> Header:
    """The Header in `data`; PayloadError names the field that is malformed."""
    read = _Reader(data)
    transfer_id, producer = read.text(), read.text()
    attempt, payload_id, base_version, target_version = read.numbers(_IDENTIFIERS)
    streams = tuple(read.numbers(_STREAM) for _ in STREAMS)
    dtypes = [read.text() for _ in range(read.number(_U8))]
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise PayloadError(f"dtype={dtype!r}: expected one of {', '.join(DTYPES)}")
    records = tuple(_read_record(read, dtypes) for _ in range(read.number(_U32)))
    read.end()
    names = [name for record in records for name in (record.name, *record.aliases)]
    if len(set(names)) != len(names):
        raise PayloadError("header: a tensor is named twice")
    return Header(transfer_id, attempt, producer, payload_id, base_version, target_version, streams, records)


def _read_record(read: _Reader, dtypes: list[str]) -> Record:
    name = read.text()
    aliases = tuple(read.text() for _ in range(read.number(_U16)))
    dtype, op, location, nibbles, log2_chunk, count, parameter = read.numbers(_RECORD)
    shape = tuple(read.number(_U64) for _ in range(read.number(_U8)))
    elements = prod(shape)
    valid = {
        "dtype": dtype < len(dtypes),
        "op": op < len(OPERATIONS),
        "location": location < len(LOCATIONS),
        "nibbles": nibbles < 2,
        "chunk": MIN_CHUNK <= 1 << log2_chunk <= MAX_CHUNK,
        "dimensions": len(shape) <= MAX_DIMENSIONS,
        "elements": 0 < elements <= MAX_ELEMENTS,
        "count": count <= elements,
    }
    for field, holds in valid.items():
        if not holds:
            raise PayloadError(f"tensor {name!r}: {field} out of range")
    place = LOCATIONS[location]
    most = {"gaps": 0, "range": elements - count if count else -1, "rice": MAX_RICE_BITS if count else -1}[place]
    if parameter > most:
        raise PayloadError(f"tensor {name!r}: {place} parameter {parameter}, expected at most {most}")
    return Record(
        name, aliases, dtypes[dtype], shape, OPERATIONS[op], count, 1 << log2_chunk, place, parameter, bool(nibbles)
    )


def _text(text: str) -> bytes:
    data = text.encode()
    return _numbers(_U16, f"length of {text[:40]!r}", len(data)) + data


def _numbers(layout: struct.Struct, what: str, *values: int) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise PayloadError(f"{what} = {values}: {error}") from None


class _Reader:
    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    def _take(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise PayloadError("header: ends inside a field")
        self._at += size
        return self._data[self._at - size : self._at]

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self._take(layout.size))

    def number(self, layout: struct.Struct) -> int:
        return self.numbers(layout)[0]

    def text(self) -> str:
        try:
            return self._take(self.number(_U16)).decode()
        except UnicodeDecodeError as error:
            raise PayloadError(f"header: {error}") from None

    def end(self) -> None:
        if self._at != len(self._data):
            raise PayloadError("header: trailing bytes")
