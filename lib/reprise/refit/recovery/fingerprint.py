"""One short text that stands for all bits of a set of tensors."""

from __future__ import annotations

from collections.abc import Mapping

import xxhash

from reprise.refit.bits import as_bits


def fingerprint(tensors: Mapping) -> str:
    """xxh3-128, in hexadecimal, of names, dtypes, shapes and storage; the order of the mapping does not matter.

    Two sides that hold the same fingerprint hold the same bits, accidents considered; it is no authentication.
    """
    running = xxhash.xxh3_128()
    for name in sorted(tensors):
        bits = as_bits(tensors[name])
        running.update(f"{name}\0{bits.dtype}{bits.shape}\0".encode())
        running.update(bits.words)
    return running.hexdigest()
