"""The container of a payload: a header and byte streams, each of declared size, under one digest.

    prefix   magic, format, changed elements, bytes decompressed, header decompressed and stored, whole frame
    header   header.py, zstd
    streams  in the order of header.STREAMS
    digest   xxh3-64 of all bytes before it

Header and streams are zstd frames, or stored as they are where zstd would not shrink them. No pickle, no code: sizes
are declared, and checked against Limits and each other before anything of that size is allocated. The digest is
against accidents; who may send payloads is for the transport to decide.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import numpy as np
import xxhash
import zstandard

from reprise.refit.digests import digest
from reprise.refit.errors import PayloadError
from reprise.refit.header import STREAMS, Header, pack_header, parse_header

MAGIC = b"\x89RDL\r\n\x1a\n"  # not text, and a transfer that rewrites line ends shows at once
FORMAT = 1
_PREFIX = struct.Struct("<8sIQQIIQ")
_DIGEST = struct.Struct("<Q")


@dataclass(frozen=True)
class Limits:
    """What a receiver is ready to hold of one payload.

    Args:
        frame_bytes: the payload as it arrives.
        header_bytes: its header after decompression, about 60 bytes a tensor.
        raw_bytes: header and streams after decompression, about two bytes a changed BF16 element. No ratio to
            frame_bytes is asked for: where all elements change alike, an honest payload shrinks a thousandfold.
        changes: changed elements, each of which becomes an int64 index.
    """

    frame_bytes: int = 1 << 30
    header_bytes: int = 1 << 24
    raw_bytes: int = 1 << 27
    changes: int = 1 << 26


DEFAULT_LIMITS = Limits()


def write_frame(header: Header, streams: dict[str, bytes], compressor: zstandard.ZstdCompressor) -> bytes:
    """The frame of `header`, whose stream sizes are filled in here, and one byte string a name of STREAMS.

    `streams` is emptied, so that no stream is held both as it was and compressed for longer than it takes.
    """
    sizes, stored = [], []
    for name in STREAMS:
        raw = len(streams[name])
        stored.append(shrink(streams.pop(name), compressor))
        sizes.append((raw, len(stored[-1])))
    plain = pack_header(replace(header, streams=tuple(sizes)))
    small = shrink(plain, compressor)
    raw_bytes = len(plain) + sum(raw for raw, _ in sizes)
    frame_bytes = _PREFIX.size + len(small) + sum(map(len, stored)) + _DIGEST.size
    changes = sum(record.count for record in header.records)
    parts = [_PREFIX.pack(MAGIC, FORMAT, changes, raw_bytes, len(plain), len(small), frame_bytes), small, *stored]
    running = xxhash.xxh3_64()
    for part in parts:
        running.update(part)
    return b"".join([*parts, _DIGEST.pack(running.intdigest())])


def open_frame(data, limits: Limits) -> tuple[Header, memoryview]:
    """(header, stored streams) of a frame whose digest and sizes hold.

    Raises:
        PayloadError: what `payload.decode` names, as far as prefix, digest and header go.
    """
    try:
        data = memoryview(data).cast("B")
    except TypeError:
        raise PayloadError(f"payload: {type(data).__name__}, expected bytes") from None
    if len(data) < _PREFIX.size + _DIGEST.size:
        raise PayloadError(f"payload: {len(data)} bytes, expected at least {_PREFIX.size + _DIGEST.size}")
    magic, version, changes, raw_bytes, header_raw, header_stored, frame_bytes = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise PayloadError(f"magic: {magic!r}, expected {MAGIC!r}")
    if version != FORMAT:
        raise PayloadError(f"format: {version}, expected {FORMAT}")
    if frame_bytes != len(data):
        raise PayloadError(f"payload: {len(data)} bytes, declares {frame_bytes}")
    for field, value, limit in (
        ("frame_bytes", frame_bytes, limits.frame_bytes),
        ("header_bytes", header_raw, limits.header_bytes),
        ("raw_bytes", raw_bytes, limits.raw_bytes),
        ("changes", changes, limits.changes),
    ):
        if value > limit:
            raise PayloadError(f"{field}: declares {value}, limit is {limit}")
    if digest(data[: -_DIGEST.size]) != _DIGEST.unpack_from(data, len(data) - _DIGEST.size)[0]:
        raise PayloadError("digest: the payload is damaged")
    body = data[_PREFIX.size : -_DIGEST.size]
    if header_stored > len(body):
        raise PayloadError(f"header: declares {header_stored} bytes of {len(body)}")
    header = parse_header(bytes(expand(body[:header_stored], header_raw, "header")))
    _check_sizes(header, changes, raw_bytes - header_raw, len(body) - header_stored)
    return header, body[header_stored:]


def read_streams(header: Header, body: memoryview) -> dict[str, np.ndarray]:
    """uint8 array of each of STREAMS; their sizes together are within the limits that `open_frame` checked."""
    streams, at = {}, 0
    for name, (raw, stored) in zip(STREAMS, header.streams, strict=True):
        streams[name] = np.frombuffer(expand(body[at : at + stored], raw, name), np.uint8)
        at += stored
    return streams


def shrink(data: bytes, compressor: zstandard.ZstdCompressor) -> bytes:
    """`data` as a zstd frame, or as it is where that is no larger."""
    small = compressor.compress(data) if data else b""
    return small if len(small) < len(data) else data


def expand(stored: memoryview, raw: int, what: str) -> bytes | memoryview:
    """Inverse of `shrink`; allocates `raw` bytes and no more, PayloadError if `stored` does not hold exactly that."""
    if len(stored) >= raw:
        if len(stored) > raw:
            raise PayloadError(f"{what}: {len(stored)} bytes stored, expected at most {raw}")
        return stored
    try:
        # the size in the frame decides what zstd allocates, whatever max_output_size says
        if zstandard.frame_content_size(stored) != raw:
            raise PayloadError(f"{what}: does not declare {raw} bytes")
        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=raw, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise PayloadError(f"{what}: {error}") from None


def _check_sizes(header: Header, changes: int, raw_bytes: int, stored_bytes: int) -> None:
    declared = {
        "changes": (changes, sum(record.count for record in header.records)),
        "raw_bytes": (raw_bytes, sum(raw for raw, _ in header.streams)),
        "stored bytes": (stored_bytes, sum(stored for _, stored in header.streams)),
    }
    for what, (value, total) in declared.items():
        if value != total:
            raise PayloadError(f"{what}: prefix declares {value}, header {total}")
