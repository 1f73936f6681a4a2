"""An adaptive binary range coder: bits in, each with a context that the reader knows too, and near their entropy out.

In a context that has seen n0 zeros and n1 ones, the next bit is a one with probability (n1 + 1/2) / (n0 + n1 + 1)
(Krichevsky and Trofimov, 1981). No table is sent: learning a context costs about log2(n) / 2 bits. An interval of 32
bits is divided in proportion, in whole numbers only, so that writer and reader agree on every machine. A plain loop,
about a microsecond a bit.
"""

from __future__ import annotations

from itertools import repeat

import numpy as np

_WORD, _BYTE = 32, 24
_TOTAL = 1 << 22  # counts are halved there, so that every share of an interval of 2^24 has room


class BitWriter:
    """Collects bits under contexts 0..contexts - 1.

    >>> writer = BitWriter(1)
    >>> writer.write(np.zeros(1000, np.uint8))
    >>> data = writer.finish()
    >>> len(data), int(BitReader(data, 1).read(count=1000).sum())
    (1, 0)
    """

    def __init__(self, contexts: int):
        self._zeros, self._totals = [1] * contexts, [2] * contexts  # in halves
        self._low, self._width, self._out = 0, 1 << _WORD, bytearray()

    def write(self, bits: np.ndarray, contexts: np.ndarray | int = 0) -> None:
        """Append 0/1 `bits`, each under its own of `contexts` or all under one."""
        zeros, totals, low, width = self._zeros, self._totals, self._low, self._width
        for bit, c in zip(bits.tolist(), _each(contexts), strict=False):
            split = width * zeros[c] // totals[c]
            if bit:
                low += split
                width -= split
            else:
                width = split
                zeros[c] += 2
            totals[c] += 2
            if totals[c] >= _TOTAL:
                _halve(zeros, totals, c)
            while width < 1 << _BYTE:
                low, width = self._shift(low), width << 8
        self._low, self._width = low, width

    def finish(self) -> bytes:
        """All that was written; trailing zero bytes are left out, the reader supplies them."""
        # the interval is at least 2^24 wide, so some number in it has three zero bytes at its end
        self._shift(self._low + self._width - 1)
        return bytes(self._out).rstrip(b"\0")

    def _shift(self, low: int) -> int:
        """Move the highest byte of `low` out, and its carry into what is out already."""
        if low >> _WORD:
            at = len(self._out) - 1
            while self._out[at] == 255:
                self._out[at] = 0
                at -= 1
            self._out[at] += 1
        self._out.append(low >> _BYTE & 255)
        return low << 8 & (1 << _WORD) - 1


class BitReader:
    """The bits of a BitWriter, read in the order and under the contexts of writing."""

    def __init__(self, data: bytes, contexts: int):
        self._zeros, self._totals = [1] * contexts, [2] * contexts
        self._data, self._width = data, 1 << _WORD
        self._at = _WORD // 8
        self._value = int.from_bytes(data[: self._at].ljust(self._at, b"\0"), "big")

    def read(self, contexts: np.ndarray | int = 0, count: int | None = None) -> np.ndarray:
        """uint8 bits, one a context, or `count` bits under one context."""
        zeros, totals, value, width, at = self._zeros, self._totals, self._value, self._width, self._at
        bits = bytearray(len(contexts) if count is None else count)
        for i, c in zip(range(len(bits)), _each(contexts), strict=False):
            split = width * zeros[c] // totals[c]
            if value < split:
                width = split
                zeros[c] += 2
            else:
                value -= split
                width -= split
                bits[i] = 1
            totals[c] += 2
            if totals[c] >= _TOTAL:
                _halve(zeros, totals, c)
            while width < 1 << _BYTE:
                value = value << 8 | (self._data[at] if at < len(self._data) else 0)
                width, at = width << 8, at + 1
        self._value, self._width, self._at = value, width, at
        return np.frombuffer(bits, np.uint8)


def _each(contexts):
    return repeat(contexts) if isinstance(contexts, int) else contexts.tolist()


def _halve(zeros: list[int], totals: list[int], c: int) -> None:
    zeros[c] = max(zeros[c] // 2, 1)
    totals[c] = max(totals[c] // 2, zeros[c] + 1)
