"""Fixed-size chunks of a tensor and the xxh3-64 digest of each one's bytes.

The digests of OLD let a receiver refuse a base it does not hold, those of NEW prove the result, and both together
tell after an interrupted apply which chunks are old, new or mixed. xxh3 guards against accidents, not against an
author of payloads: it is no authentication.
"""

from __future__ import annotations

import numpy as np
import xxhash

from reprise.errors import RepriseError

# Two digests cost 128 / (p * CHUNK) bits per changed element: .10 at p = 1 %, against .20 at 2^16. Two BF16 chunks
# are half a MiB, so scan and digests run from the second-level cache.
CHUNK = 1 << 17
MIN_CHUNK, MAX_CHUNK = 1 << 6, 1 << 31

digest = xxhash.xxh3_64_intdigest


def check_chunk(chunk: int) -> int:
    if not MIN_CHUNK <= chunk <= MAX_CHUNK or chunk & (chunk - 1):
        raise RepriseError(f"chunk={chunk}: expected a power of two in [{MIN_CHUNK}, {MAX_CHUNK}] elements")
    return chunk


def chunk_count(elements: int, chunk: int) -> int:
    """Chunks of a tensor of `elements` elements; the last may be short."""
    return -(-elements // chunk)


def chunk_slices(elements: int, chunk: int):
    """Slices of the flat words, chunk after chunk."""
    return (slice(start, min(start + chunk, elements)) for start in range(0, elements, chunk))


def changed_chunks(index: np.ndarray, elements: int, chunk: int) -> np.ndarray:
    """[chunk_count] bool: which chunks hold an element of the sorted int64 `index`."""
    return np.diff(chunk_bounds(index, elements, chunk)) > 0


def chunk_bounds(index: np.ndarray, elements: int, chunk: int) -> np.ndarray:
    """[chunk_count + 1] int64: chunk i holds index[bounds[i]:bounds[i + 1]]."""
    starts = np.arange(chunk_count(elements, chunk) + 1, dtype=np.int64) * chunk
    return np.searchsorted(index, starts)
