"""A change coded for a receiver that holds OLD: places and steps by the exponent of each old word.

    prefix   magic, format, dtype, elements, changes, digests of the words of OLD and NEW, bytes of counts and of frame
    counts   what `class_codes` says of each class of OLD
    streams  places and steps
    digest   xxh3-64 of all bytes before it

Unlike a payload (`payload`), a frame makes no sense to a receiver that holds other bits, and decoding reads all of OLD.
No names, versions or attempts: a frame is the content of one transfer, which has these. As in a payload the digests
are against accidents only. Nothing is decompressed, so what decoding takes is bounded by OLD and the frame.
"""

from __future__ import annotations

import struct

import numpy as np

from reprise.refit.bits import Bits, as_bits
from reprise.refit.digests import digest
from reprise.refit.errors import PayloadError, RefitSchemaError, StaleBaseError
from reprise.refit.exponents.class_codes import pack, unpack
from reprise.refit.exponents.exponent_classes import EXPONENTS, exponent_of, partition, population, restore

MAGIC = b"\x89REX\r\n\x1a\n"
FORMAT = 1
_PREFIX = struct.Struct("<8sIIQQQQQQ")
_DIGEST = struct.Struct("<Q")
_DTYPES = tuple(EXPONENTS)


def encode(old, new) -> bytes:
    """The frame that turns `old` into `new`; the same bytes with and without numba.

    Args:
        old, new: arrays, tensors or Bits of one 16-bit dtype and shape; a whole model is its tensors in one.

    Raises:
        RefitSchemaError: another dtype, or two different ones or shapes.
    """
    old, new = as_bits(old), as_bits(new)
    exponent_of(old.dtype)
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        raise RefitSchemaError(f"new: {new.dtype}{new.shape}, expected {old.dtype}{old.shape} as OLD")
    changes = partition(old, new)
    counts, streams = pack(changes)
    prefix = (digest(old.words), digest(new.words), len(counts))
    size = _PREFIX.size + len(counts) + len(streams) + _DIGEST.size
    start = (MAGIC, FORMAT, _DTYPES.index(old.dtype), old.words.size, changes.places.size)
    frame = b"".join([_PREFIX.pack(*start, *prefix, size), counts, streams])
    return frame + _DIGEST.pack(digest(frame))


def decode(data, old) -> Bits:
    """The new bits, in memory of their own.

    Args:
        data: a frame.
        old: what its sender called OLD.

    Raises:
        StaleBaseError: `old` is not what the frame starts from, by dtype, size or digest.
        PayloadError: a damaged frame, or one whose parts contradict each other.
    """
    old, data = as_bits(old), memoryview(data).cast("B")
    changes, new_digest, counts, streams = _open(data, old)
    words = restore(old, unpack(counts, np.frombuffer(streams, np.uint8), population(old), changes))
    if digest(words) != new_digest:
        raise PayloadError("digest: what the frame yields is not what its sender had")
    return Bits(old.dtype, old.shape, words)


def _open(data: memoryview, old: Bits) -> tuple[int, int, bytes, memoryview]:
    """(changes, digest of NEW, counts, streams) of a frame that is intact and starts from `old`."""
    if len(data) < _PREFIX.size + _DIGEST.size:
        raise PayloadError(f"frame: {len(data)} bytes, expected at least {_PREFIX.size + _DIGEST.size}")
    magic, version, dtype, elements, changes, old_digest, new_digest, counts, size = _PREFIX.unpack_from(data)
    if (magic, version) != (MAGIC, FORMAT):
        raise PayloadError(f"magic, format: {magic!r}, {version}, expected {MAGIC!r}, {FORMAT}")
    if size != len(data):
        raise PayloadError(f"frame: {len(data)} bytes, declares {size}")
    if digest(data[: -_DIGEST.size]) != _DIGEST.unpack_from(data, len(data) - _DIGEST.size)[0]:
        raise PayloadError("digest: the frame is damaged")
    if dtype >= len(_DTYPES):
        raise PayloadError(f"dtype: code {dtype}, expected below {len(_DTYPES)}")
    if (_DTYPES[dtype], elements) != (old.dtype, old.words.size):
        raise StaleBaseError(f"old: {old.words.size} of {old.dtype}, expected {elements} of {_DTYPES[dtype]}")
    if digest(old.words) != old_digest:
        raise StaleBaseError("old: not the bits that the frame starts from")
    body = data[_PREFIX.size : -_DIGEST.size]
    if counts > len(body):
        raise PayloadError(f"counts: declares {counts} bytes of {len(body)}")
    return changes, new_digest, bytes(body[:counts]), body[counts:]
