"""Codes of b = 1..4 bits as a little-endian bit stream: bit j of code i is bit b*i + j of the stream.

For b = 4 the first code is in the low nibble, as every library stores FP4. Eight codes make b bytes; they are read as
one 64-bit word and folded together, two lanes at a time, so the same three steps serve every b.
"""

from __future__ import annotations

import torch

from reprise.fp4.e2m1 import check_codes
from reprise.fp4.errors import PackedSizeError

_GROUP = 8  # codes in a 64-bit word


def pack_bits(codes: torch.Tensor, b: int) -> torch.Tensor:
    """Bit stream of the codes in row-major order.

    Args:
        codes: uint8, any shape, each below 2^b.
        b: bits a code, 1..4.

    Returns:
        uint8 [ceil(b * codes.numel() / 8)]; the unused bits of the last byte are zero. The number of codes is not
        stored.

    Raises:
        CodeRangeError: codes of another dtype, a code that needs more bits, or another b.

    >>> pack_bits(torch.arange(16, dtype=torch.uint8), 4).tolist()
    [16, 50, 84, 118, 152, 186, 220, 254]
    """
    check_codes(codes, b)
    n = codes.numel()
    flat = codes.reshape(-1)
    if n % _GROUP:
        flat = torch.nn.functional.pad(flat, (0, -n % _GROUP))
    flat = flat.contiguous()
    if flat.storage_offset() % _GROUP:  # a word must begin at a whole word of the storage
        flat = flat.clone()
    return fold_words(flat.view(torch.int64), b)[: packed_size(n, b)]


def unpack_bits(buf: torch.Tensor, b: int, n: int) -> torch.Tensor:
    """The `n` codes of a bit stream, as uint8 [n].

    Raises:
        CodeRangeError: another b, or a buffer that is not uint8.
        PackedSizeError: a negative n, a buffer of another length than n codes need, or bits set after the last code.
    """
    check_codes(buf.reshape(-1)[:0], b)
    if n < 0 or buf.numel() != packed_size(n, b):
        raise PackedSizeError(f"buf: {buf.numel()} bytes, expected {packed_size(max(n, 0), b)} for n={n} codes, b={b}")
    used = b * n % 8
    if used and int(buf.reshape(-1)[-1]) >> used:
        raise PackedSizeError(f"buf[{buf.numel() - 1}]: bits after the last of n={n} codes, expected zeros")
    groups = -(-n // _GROUP)
    flat = buf.reshape(-1)
    if flat.numel() != groups * b:
        flat = torch.nn.functional.pad(flat, (0, groups * b - flat.numel()))
    return _spread_words(flat.contiguous(), b)[:n]


def packed_size(n: int, b: int) -> int:
    """Bytes of `n` codes of `b` bits."""
    return -(-b * n // 8)


def fold_words(words: torch.Tensor, b: int) -> torch.Tensor:
    """Bytes [len * b] of int64 words that hold eight codes each, one a byte, all below 2^b and unchecked."""
    for lane in (8, 16, 32):
        kept = lane // 8 * b  # bits in use in each lane
        words = (words | words >> lane - kept) & _lanes(2 * lane, 2 * kept)
    # a narrowing cast keeps the low bytes; there is none to three bytes
    if b == 3:
        return words.view(torch.uint8).reshape(-1, 8)[:, :3].reshape(-1)
    return words.to({1: torch.uint8, 2: torch.int16, 4: torch.int32}[b]).view(torch.uint8)


def _spread_words(flat: torch.Tensor, b: int) -> torch.Tensor:
    """Inverse of `fold_words`: eight codes, one a byte, from every b bytes."""
    words = flat.new_zeros(len(flat) // b, 8)
    words[:, :b] = flat.reshape(-1, b)
    words = words.reshape(-1).view(torch.int64)
    for lane in (32, 16, 8):
        kept = lane // 8 * b
        words = (words | words << lane - kept) & _lanes(lane, kept)
    return words.view(torch.uint8)


def _lanes(width: int, kept: int) -> int:
    """64-bit mask with the low `kept` bits of every lane of `width` bits set, as a signed integer."""
    mask = sum(((1 << kept) - 1) << at for at in range(0, 64, width))
    return mask - (1 << 64) if mask >> 63 else mask
