"""What guidance costs when both sides know the trainer's x: the entropy of the rollout's rounding given x, and a coder.

The trainer can guess nearly everything in a record. Its own x rounds to a low bit, which is the rollout's unless a
rounding boundary lies between the two; that happens to values close to one. Its own blocks have a scale byte, which is
the rollout's or a neighbour; its own largest value has a global scale. So what is coded is

    global scale   equal to the guess or not, and 32 bits where it is not
    scale byte     its difference from the guess: zero or not, sign, size in unary
    low bit        equal to the guess or not, under the distance of z from the nearest rounding boundary

by an adaptive range coder. The low bits are one each (b = 1); the format is NVFP4 with a global scale a token.

x must be the same on both sides, bit for bit: the guesses and contexts are functions of it. A checksum refuses another
x. The trainer has the x of a layer once the guided layers below it have run, so it decodes site by site in the forward
pass. A rollout engine, however, does not have the trainer's x, least of all that of newer weights. By Slepian and Wolf
(1973) the same rate suffices when only the reader knows x, with syndrome codes, which this is not. So what is measured
here is how much there is to save, and that a coder with x on both sides saves it.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from zlib import crc32

import numpy as np
import torch

from reprise.fp4 import nvfp4
from reprise.fp4.e2m1 import check_codes, check_float, e2m1_encode
from reprise.fp4.errors import Fp4Error, ScaleFormatMismatch
from reprise.fp4.guidance_errors import GuidanceMismatch
from reprise.fp4.guided import bracket
from reprise.fp4.range_coder import BitReader, BitWriter
from reprise.fp4.record import SiteGuidance
from reprise.fp4.tensor import check_finite, check_scales

OCTAVES = 16  # contexts of a low bit: 0..15, and after them
_NOT_EQUAL, _WORD, _NOT_ZERO, _SIGN, _MORE = range(OCTAVES, OCTAVES + 5)
_CONTEXTS = OCTAVES + 5
_CHECK = struct.Struct("<I")


class OtherSideInformation(GuidanceMismatch):
    """Guidance decoded with another x than it was encoded with, or a damaged one."""


def distance_octave(z: torch.Tensor) -> torch.Tensor:
    """uint8 context of each value: how near z is to the boundary where rounding to nearest switches.

    With (q-, q+) the bracket of z, ceil(-log2 |(z - q-) / (q+ - q-) - 1/2|) - 1, at most 15; 0 on a value.

    >>> distance_octave(torch.tensor([2.0, 2.1, 2.4, 2.49, 2.5])).tolist()
    [0, 1, 3, 6, 15]
    """
    low, high = bracket(z)
    step = torch.where(high > low, high - low, 1.0)
    position = (z.float().clamp(-6, 6) - low) / step
    off = torch.where(high > low, (position - 0.5).abs(), 0.5)
    exponent = off.view(torch.int32) >> 23  # 126 at 1/2, one less an octave
    return (126 - exponent).clamp(0, OCTAVES - 1).to(torch.uint8)


def conditional_entropy(events: np.ndarray, contexts: np.ndarray) -> float:
    """Bits an event: sum_c n_c H(p_c) / N, with the shares p_c of the data itself.

    Args:
        events: 0/1, any shape.
        contexts: whole numbers from 0, of the same shape.

    >>> round(conditional_entropy(np.array([0, 0, 0, 1]), np.zeros(4, np.uint8)), 4)
    0.8113
    """
    held = np.bincount(contexts.ravel())
    times = np.stack([ones := np.bincount(contexts.ravel(), events.ravel(), held.size), held - ones])
    p = np.divide(times, held, where=held > 0, out=np.ones_like(times))
    return float(-(times * np.log2(p, where=p > 0, out=np.zeros_like(p))).sum() / held.sum())


def flips(x: torch.Tensor, held: SiteGuidance) -> tuple[torch.Tensor, torch.Tensor]:
    """(uint8 1 where the rollout's low bit is not the one that x rounds to, contexts), shaped like x.

    Args:
        x: the trainer's activations, float16, bfloat16 or float32 [tokens, ..., width].
        held: guidance of the site, NVFP4; of its low bits the lowest is used.
    """
    scale = nvfp4.decode_scale(held.block_scale, held.global_scale)
    z = (x.float().unflatten(-1, (-1, nvfp4.BLOCK)) / scale.unsqueeze(-1)).flatten(-2)
    return (held.low_bits ^ e2m1_encode(z)) & 1, distance_octave(z)


def entropies(x: torch.Tensor, held: SiteGuidance) -> dict[str, float]:
    """Bits a value that the low bits, the scale bytes and the global scales carry, given x.

    Shares are those of the data itself. A global scale that is not the guess counts 32 bits. Arguments and errors as
    `encode`.
    """
    _check(x, held, "")
    amax, g = _guess(x)
    other = (held.global_scale != g).numpy().ravel()
    difference = (held.block_scale.int() - nvfp4.block_scale(amax, held.global_scale).int()).numpy().ravel()
    _, times = np.unique(difference, return_counts=True)
    flipped, contexts = flips(x, held)
    scales = float((times * np.log2(difference.size / times)).sum())
    words = other.size * conditional_entropy(other, np.zeros(other.size, np.uint8)) + 32 * int(other.sum())
    return {
        "low bit": conditional_entropy(flipped.numpy(), contexts.numpy()),
        "scale byte": scales / x.numel(),
        "global scale": words / x.numel(),
    }


def encode(x: torch.Tensor, held: SiteGuidance, site="") -> bytes:
    """One site's guidance, for a reader that has the same x.

    Args:
        x: float16, bfloat16 or float32 [tokens, ..., width], finite.
        held: what the rollout left of the site, b = 1 and NVFP4, shaped like x.

    Raises:
        NonFiniteInput: x holds NaN or Inf.
        Fp4Error: guidance of another format or shape, a scale byte 0, or low bits above 1.
    """
    _check(x, held, site)
    writer = BitWriter(_CONTEXTS)
    amax, g = _guess(x)
    other = (held.global_scale != g).numpy().ravel()
    writer.write(other, _NOT_EQUAL)
    writer.write(np.unpackbits(held.global_scale.numpy().ravel()[other].view(np.uint8)), _WORD)
    guess = nvfp4.block_scale(amax, held.global_scale).int()
    difference = (held.block_scale.int() - guess).numpy().ravel()
    writer.write(difference != 0, _NOT_ZERO)
    difference = difference[difference != 0]
    writer.write(difference < 0, _SIGN)
    for size in range(1, np.abs(difference).max(initial=0) + 1):
        writer.write(np.abs(difference[np.abs(difference) >= size]) > size, _MORE)
    flipped, contexts = flips(x, held)
    writer.write(flipped.numpy().ravel(), contexts.numpy().ravel())
    return _CHECK.pack(_checksum(held)) + writer.finish()


def decode(x: torch.Tensor, data: bytes, site="") -> SiteGuidance:
    """The guidance that `encode` was given together with this x.

    Raises:
        OtherSideInformation: x is not the encoder's, or the data is damaged.
        NonFiniteInput: x holds NaN or Inf.
        Fp4Error: x of another dtype, or without whole blocks.
    """
    _check(x, None, site)
    reader = BitReader(data[_CHECK.size :], _CONTEXTS)
    amax, g = _guess(x)
    other = reader.read(_NOT_EQUAL, g.numel()).astype(bool)
    words = np.packbits(reader.read(_WORD, 32 * int(other.sum()))).view(np.float32)
    g = g.masked_scatter(torch.from_numpy(other).view(g.shape), torch.from_numpy(words))
    byte = _read_bytes(reader, nvfp4.block_scale(amax, g))
    if not bool(((g > 0) & g.isfinite()).all()) or not bool(((byte > 0) & (byte <= nvfp4.LARGEST_BYTE)).all()):
        raise OtherSideInformation(f"site {site!r}: no scales, expected the x that was encoded with, bit for bit")
    held = SiteGuidance(torch.zeros(x.shape, dtype=torch.uint8), byte.to(torch.uint8), g)
    own, contexts = flips(x, held)  # against zeros: the bit x rounds to
    flipped = torch.from_numpy(reader.read(contexts.numpy().ravel())).view(x.shape)
    held = replace(held, low_bits=own ^ flipped)
    if data[: _CHECK.size] != _CHECK.pack(_checksum(held)):
        raise OtherSideInformation(f"site {site!r}: checksum, expected the x that was encoded with, bit for bit")
    return held


def _guess(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(amax of blocks, global scales) of x in BF16, in which the rollout holds it."""
    amax = x.bfloat16().float().unflatten(-1, (-1, nvfp4.BLOCK)).abs().amax(-1)
    return amax, nvfp4.global_scale(amax.amax(-1, keepdim=True))


def _read_bytes(reader: BitReader, guess: torch.Tensor) -> torch.Tensor:
    """int32 scale bytes: the guess and the differences that follow in the stream."""
    difference = reader.read(_NOT_ZERO, guess.numel()).astype(np.int32)
    growing = np.flatnonzero(difference)
    negative = growing[reader.read(_SIGN, growing.size).astype(bool)]
    while growing.size and difference[growing[0]] <= nvfp4.LARGEST_BYTE:  # a damaged stream might never end
        growing = growing[reader.read(_MORE, growing.size).astype(bool)]
        difference[growing] += 1
    difference[negative] *= -1
    return guess.int() + torch.from_numpy(difference).view(guess.shape)


def _checksum(held: SiteGuidance) -> int:
    check = 0
    for part in (held.low_bits, held.block_scale, held.global_scale):
        check = crc32(part.contiguous().numpy().tobytes(), check)
    return check


def _check(x: torch.Tensor, held: SiteGuidance | None, site) -> None:
    check_float(x)
    check_finite(x, site)
    if x.dim() == 0 or x.numel() == 0 or x.shape[-1] % nvfp4.BLOCK:
        raise Fp4Error(f"site {site!r}: x {tuple(x.shape)}, expected whole blocks of {nvfp4.BLOCK}")
    if held is None:
        return
    if held.low_bits.shape != x.shape:
        raise Fp4Error(f"site {site!r}: low_bits {tuple(held.low_bits.shape)}, expected {tuple(x.shape)} as x")
    check_codes(held.low_bits, 1)
    check_scales(held.block_scale, held.global_scale, (*x.shape[:-1], x.shape[-1] // nvfp4.BLOCK), "nvfp4")
    if held.global_scale.dim() == 0:
        raise ScaleFormatMismatch(f"site {site!r}: global_scale of a tensor, expected one a token")
    if zeros := int((held.block_scale == 0).sum()):
        raise ScaleFormatMismatch(f"site {site!r}: {zeros} scale bytes are 0, expected 1..{nvfp4.LARGEST_BYTE}")
