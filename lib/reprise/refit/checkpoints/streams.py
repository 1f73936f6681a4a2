"""Blocks of bytes that travel whole: one zstd frame of declared size, written and read in bounded pieces.

Numbers compress better plane by plane (all low bytes, then all high bytes ...): signs and exponents repeat, low
mantissa bytes do not. Planes are formed inside pieces of PIECE bytes, so that neither side holds a tensor.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np
import zstandard

from reprise.refit.errors import PayloadError

PIECE = 1 << 22  # part of the format; a multiple of every word size
MAX_LEVEL = 19  # the highest whose window stays within MAX_WINDOW
MAX_WINDOW = 1 << 23


def pieces(file: BinaryIO, nbytes: int | None = None) -> Iterator[bytes]:
    """The next `nbytes` of `file` (all that is left if None) in pieces of PIECE bytes."""
    while nbytes is None or nbytes > 0:
        piece = file.read(PIECE if nbytes is None else min(PIECE, nbytes))
        if not piece:
            return
        nbytes = None if nbytes is None else nbytes - len(piece)
        yield piece


def pack(parts: Iterable[bytes], nbytes: int, level: int, word_bytes: int = 1) -> Iterator[bytes]:
    """Compress `parts`, `nbytes` in all and cut at multiples of PIECE, into one zstd frame that declares its size.

    Raises:
        zstandard.ZstdError: the parts do not add up to `nbytes`.
    """
    compressor = zstandard.ZstdCompressor(level=level).compressobj(size=nbytes)
    for part in parts:
        yield compressor.compress(_planes(part, word_bytes))
    yield compressor.flush()


def unpack(packed: BinaryIO, nbytes: int, word_bytes: int = 1) -> Iterator[bytes]:
    """Inverse of `pack`, never more than PIECE bytes at a time and never more than `nbytes` in all.

    Raises:
        PayloadError: not one zstd frame of exactly `nbytes`.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
    try:
        with decompressor.stream_reader(packed, read_size=1 << 16, closefd=False) as reader:
            for left in range(nbytes, 0, -PIECE):
                piece = reader.read(min(PIECE, left))
                if len(piece) != min(PIECE, left):
                    raise PayloadError(f"a block ends {left - len(piece)} bytes before its declared {nbytes}")
                yield _unplanes(piece, word_bytes)
            if reader.read(1):
                raise PayloadError(f"a block holds more than its declared {nbytes} bytes")
    except zstandard.ZstdError as error:
        raise PayloadError(f"a damaged block: {error}") from None


def _planes(part: bytes, word_bytes: int) -> bytes:
    if word_bytes == 1:
        return part
    return np.frombuffer(part, np.uint8).reshape(-1, word_bytes).T.tobytes()


def _unplanes(part: bytes, word_bytes: int) -> bytes:
    if word_bytes == 1:
        return part
    return np.frombuffer(part, np.uint8).reshape(word_bytes, -1).T.tobytes()


class Section(io.RawIOBase):
    """The bytes [begin, begin + nbytes) of a file as a file of their own."""

    def __init__(self, file: BinaryIO, begin: int, nbytes: int):
        self._file, self._at, self._left = file, begin, nbytes

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        size = self._left if size < 0 else min(size, self._left)
        self._file.seek(self._at)
        data = self._file.read(size)
        self._at, self._left = self._at + len(data), self._left - len(data)
        return data
