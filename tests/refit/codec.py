"""Material of the codec tests: BF16 weights, a perturbation, and payloads forged with a valid digest."""

import struct

import numpy as np

from reprise.refit import Bits
from reprise.refit.digests import digest
from reprise.refit.frame import _PREFIX, FORMAT, MAGIC
from reprise.refit.header import STREAMS, pack_header

OLD = np.array([0x3F80, 0xC000, 0, 0x3CA4, 0x4040, 0x8000, 0x3F00, 0x42C8], "<u2")
NEW = np.array([0x3F80, 0xC002, 0x8000, 0x3CA5, 0x4040, 0x8000, 0x7FC1, 0x42C8], "<u2")


def bits(words, dtype="BF16", shape=None) -> Bits:
    return Bits(dtype, words.shape if shape is None else shape, words)


def to_bf16(values: np.ndarray) -> np.ndarray:
    """uint16 storage of values rounded to BF16, to nearest, ties to even; no NaNs."""
    wide = values.astype(np.float32).view(np.uint32)
    return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype("<u2")


def from_bf16(words: np.ndarray) -> np.ndarray:
    return (words.astype(np.uint32) << 16).view(np.float32)


def perturbed(elements: int, share: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Storage of N(0, .02) BF16 weights, and of the same with a random `share` of them moved by +-1 %."""
    rng = np.random.default_rng(seed)
    old = to_bf16(rng.standard_normal(elements, dtype=np.float32) * np.float32(0.02))
    new = old.copy()
    chosen = np.flatnonzero(rng.random(elements) < share)
    factor = rng.choice(np.array([0.99, 1.01], np.float32), chosen.size)
    new[chosen] = to_bf16(from_bf16(old[chosen]) * factor)
    return old, new


def signed(frame: bytes) -> bytes:
    """`frame` with the digest of its changed bytes, as its author could write it."""
    return frame[:-8] + struct.pack("<Q", digest(frame[:-8]))


def forged(header, raw: dict[str, int], stored: dict[str, bytes]) -> bytes:
    """A frame of `header` whose streams declare `raw` bytes (absent: as stored) and are `stored` as given."""
    sizes = tuple((raw.get(name, len(stored.get(name, b""))), len(stored.get(name, b""))) for name in STREAMS)
    object.__setattr__(header, "streams", sizes)
    plain = pack_header(header)
    body = plain + b"".join(stored.get(name, b"") for name in STREAMS)
    total = len(plain) + sum(size for size, _ in sizes)
    changes = sum(record.count for record in header.records)
    size = _PREFIX.size + len(body) + 8
    return signed(_PREFIX.pack(MAGIC, FORMAT, changes, total, len(plain), len(plain), size) + body + bytes(8))
