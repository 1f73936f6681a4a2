"""Stored words as byte streams: nibbles for the small ones, byte planes for the rest.

A step of the optimiser moves a weight by few ulps, so most words of `add` and `xor` are below 15. Two of them share a
byte, whose histogram a Huffman coder meets within .02 bits a change; byte by byte it would lose .6 of 1.9, since no
symbol can cost less than a whole bit. Nibble 15 says that the word follows in the planes: all lowest bytes, then all
second bytes, and so on.
"""

from __future__ import annotations

import numpy as np

ESCAPE = 15


def split(words: np.ndarray) -> tuple[np.ndarray | None, list[np.ndarray]]:
    """(nibbles, planes) of unsigned `words`.

    Returns:
        nibbles: [ceil(n / 2)] uint8, the earlier word in the low half; None if most words are 15 or more, which are
            then cheaper as planes alone.
        planes: one uint8 array a byte of the word, of the words not held by a nibble.
    """
    large = words >= ESCAPE
    count = np.count_nonzero(large)
    if 2 * count > words.size:
        return None, byte_planes(words)
    small = np.minimum(words, ESCAPE).astype(np.uint8)
    nibbles = small[::2].copy()
    nibbles[: words.size // 2] |= small[1::2] << 4
    return nibbles, byte_planes(words[large] if count else words[:0])


def nibble_values(nibbles: np.ndarray, count: int) -> np.ndarray:
    """[count] uint8 values below 16 of packed `nibbles`."""
    values = np.empty(2 * nibbles.size, np.uint8)
    values[::2], values[1::2] = nibbles & 15, nibbles >> 4
    return values[:count]


def join(values: np.ndarray, large: np.ndarray) -> np.ndarray:
    """Words of `large`'s dtype from nibble values and the words of the escaped ones; inverse of `split`."""
    words = values.astype(large.dtype)
    words[values == ESCAPE] = large
    return words


def byte_planes(words: np.ndarray) -> list[np.ndarray]:
    """The k-th bytes of all words, lowest first."""
    return list(words.view(np.uint8).reshape(words.size, words.dtype.itemsize).T)


def from_planes(planes: list[np.ndarray]) -> np.ndarray:
    """Unsigned words of len(planes) bytes; inverse of `byte_planes`."""
    return np.ascontiguousarray(np.stack(planes, axis=1)).view(f"<u{len(planes)}").reshape(-1)
