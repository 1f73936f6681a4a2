"""The bytes of a guidance file: one trajectory, readable by site and token range.

    prefix   magic, layout version, bytes of the header, bytes of the file, CRC32 of all this and of the header
    header   JSON of the provenance and the sections; then a CRC32 for each block of each section
    body     section after section, and in each, block after block of tokens: the packed low bits of its tokens,
             their scale bytes, their float32 global scales (NVFP4 only)

A section is a site, or the experts that a layer's tokens went to (uint16 a slot). Every token begins at a whole byte,
since a scale covers 16 or 32 values. A block is one contiguous run of bytes with a checksum of its own, so a token
range of a site is read and checked without the rest. CRC32 is against accidents, not against an author who computes it.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod
from zlib import crc32

import numpy as np
import torch

from reprise.fp4.blocks import BLOCK
from reprise.fp4.errors import Fp4Error
from reprise.fp4.guidance_errors import (
    BlockDamaged,
    GuidanceShapeMismatch,
    HeaderDamaged,
    NotGuidance,
    TruncatedGuidance,
    UnsupportedVersion,
)
from reprise.fp4.methods import KINDS
from reprise.fp4.packing import pack_bits, unpack_bits
from reprise.fp4.record import MAX_LAYER, MAX_TOKENS, GuidanceRecord, Provenance, SiteGuidance, check_whole

MAGIC = b"\x89RPGUIDE"
VERSION = 1
BLOCK_TOKENS = 64  # 24 KiB a block at width 2048 and one bit: little to read too much of, and 4 bytes of checksum
ROUTES = "routes"
MAX_HEADER = 1 << 28
MAX_WIDTH = 1 << 24  # values a token of one site
_PREFIX = struct.Struct("<8sIQQI")
PREFIX = _PREFIX.size


@dataclass(frozen=True)
class Section:
    """One site, or one layer's routes; `shape` is that of a token."""

    layer: int
    kind: str
    shape: tuple[int, ...]

    def parts(self, provenance: Provenance) -> tuple[int, ...]:
        """Bytes a token of each part of a block."""
        if self.kind == ROUTES:
            return (2 * self.shape[0],)
        values = prod(self.shape)
        scales = values // BLOCK[provenance.fmt]
        token = 4 * prod(self.shape[:-1]) if provenance.fmt == "nvfp4" else 0
        return values * provenance.b // 8, scales, token


@dataclass(frozen=True)
class Header:
    """Everything but the body.

    Attributes:
        block: tokens a block.
        sections: in the order of the body.
        checksums: uint32 [sections, blocks].
        size: bytes of prefix and header.
    """

    provenance: Provenance
    block: int
    sections: tuple[Section, ...]
    checksums: np.ndarray
    size: int

    @property
    def blocks(self) -> int:
        return -(-self.provenance.tokens // self.block)

    @cached_property
    def starts(self) -> list[int]:
        """Byte at which each section begins, and the end of the file."""
        at = [self.size]
        for section in self.sections:
            at.append(at[-1] + self.provenance.tokens * sum(section.parts(self.provenance)))
        return at

    def byte_range(self, section: int, start: int, stop: int) -> tuple[int, int]:
        """Bytes of the blocks that tokens start..stop lie in."""
        token = sum(self.sections[section].parts(self.provenance))
        first = start // self.block * self.block
        last = min(-(-stop // self.block) * self.block, self.provenance.tokens)
        return self.starts[section] + first * token, self.starts[section] + last * token


def encode(record: GuidanceRecord, block: int = BLOCK_TOKENS) -> bytes:
    """The file of a whole record."""
    provenance = record.provenance
    if record.tokens != provenance.tokens:
        raise GuidanceShapeMismatch(f"record: {record.tokens} tokens, expected tokens={provenance.tokens}, not a slice")
    sections = [Section(layer, kind, tuple(s.low_bits.shape[1:])) for (layer, kind), s in sorted(record.sites.items())]
    sections += [Section(layer, ROUTES, (r.shape[1],)) for layer, r in sorted(record.routes.items())]
    _check(provenance.fmt, block, tuple(sections))
    body, checksums = [], []
    for section in sections:
        for start in range(0, provenance.tokens, block):
            body.append(_block_bytes(record, section, start, min(start + block, provenance.tokens)))
            checksums.append(crc32(body[-1]))
    described = asdict(provenance) | {"block": block, "sections": [[s.layer, s.kind, s.shape] for s in sections]}
    header = json.dumps(described, sort_keys=True, separators=(",", ":")).encode()
    table = np.array(checksums, "<u4").tobytes()
    header = struct.pack("<I", len(header)) + header + table
    size = PREFIX + len(header) + sum(map(len, body))
    start = _PREFIX.pack(MAGIC, VERSION, len(header), size, 0)[:-4]
    return b"".join([start, struct.pack("<I", crc32(header, crc32(start))), header, *body])


def header_bytes(prefix: bytes, size: int, name: str) -> int:
    """Bytes of the header that follows a prefix, once the prefix makes sense for a file of `size` bytes.

    Raises:
        TruncatedGuidance, NotGuidance, UnsupportedVersion, HeaderDamaged: naming the file.
    """
    if len(prefix) != PREFIX:
        raise TruncatedGuidance(f"{name}: {len(prefix)} bytes read, expected {PREFIX}")
    magic, version, header, declared, _ = _PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise NotGuidance(f"{name}: magic {magic!r}, expected {MAGIC!r}")
    if version != VERSION:
        raise UnsupportedVersion(f"{name}: version={version}, expected {VERSION}")
    if declared != size:
        raise TruncatedGuidance(f"{name}: {size} bytes, expected {declared} as declared")
    if not 4 <= header <= min(MAX_HEADER, size - PREFIX):
        raise HeaderDamaged(f"{name}: header of {header} bytes, expected at most {min(MAX_HEADER, size - PREFIX)}")
    return header


def decode_header(prefix: bytes, header: bytes, size: int, name: str) -> Header:
    """The header, checked against its checksum, its bounds and the size of the file.

    Raises:
        HeaderDamaged, TruncatedGuidance: naming the file.
    """
    if crc32(header, crc32(prefix[:-4])) != struct.unpack("<I", prefix[-4:])[0]:
        raise HeaderDamaged(f"{name}: checksum of the header is wrong")
    (length,) = struct.unpack_from("<I", header)
    try:
        described = json.loads(header[4 : 4 + length])
        block = described.pop("block")
        sections = tuple(Section(layer, kind, tuple(shape)) for layer, kind, shape in described.pop("sections"))
        provenance = Provenance(**described | {"layers": tuple(described["layers"])})
        _check(provenance.fmt, block, sections)
        checksums = np.frombuffer(header, "<u4", offset=4 + length)
        read = Header(provenance, block, sections, checksums, PREFIX + len(header))
        if checksums.size != len(sections) * read.blocks or read.starts[-1] != size:
            raise ValueError(f"{checksums.size} checksums, {read.starts[-1]} bytes in all")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HeaderDamaged(f"{name}: header contradicts itself: {error}") from error
    return Header(provenance, block, sections, checksums.reshape(len(sections), read.blocks), read.size)


def decode_tokens(header: Header, index: int, data: bytes, start: int, stop: int, name: str):
    """Tokens start..stop of a section: a SiteGuidance, or int64 routes.

    Args:
        data: the bytes of `header.byte_range`.

    Raises:
        TruncatedGuidance, BlockDamaged: naming the file, the site and the tokens.
    """
    section, provenance, block = header.sections[index], header.provenance, header.block
    parts = section.parts(provenance)
    site = (section.layer, section.kind)
    first = start // block
    begin, end = header.byte_range(index, start, stop)
    if len(data) != end - begin:
        raise TruncatedGuidance(f"{name}: site {site}: {len(data)} bytes read, expected {end - begin}")
    pieces, at = [], 0
    for number in range(first, -(-stop // block)):
        tokens = min(block, provenance.tokens - number * block)
        chunk = data[at : at + tokens * sum(parts)]
        at += len(chunk)
        if crc32(chunk) != header.checksums[index, number]:
            upto = number * block + tokens
            raise BlockDamaged(f"{name}: site {site}, tokens {number * block}..{upto - 1}: checksum is wrong")
        pieces.append(_block_tensors(section, provenance, chunk, tokens))
    joined = [None if part[0] is None else torch.cat(part) for part in zip(*pieces, strict=True)]
    joined = [None if part is None else part[start - first * block : stop - first * block] for part in joined]
    return joined[0] if section.kind == ROUTES else SiteGuidance(*joined)


def _block_bytes(record: GuidanceRecord, section: Section, start: int, stop: int) -> bytes:
    if section.kind == ROUTES:
        chosen = record.routes[section.layer][start:stop]
        if bool((chosen < 0).any()) or bool((chosen >= 1 << 16).any()):
            raise GuidanceShapeMismatch(f"routes[{section.layer}]: expected experts 0..{(1 << 16) - 1}")
        return chosen.cpu().numpy().astype("<u2").tobytes()
    held = record.sites[section.layer, section.kind].rows(start, stop)
    parts = [pack_bits(held.low_bits.contiguous(), record.provenance.b), held.block_scale, held.global_scale]
    return b"".join(part.cpu().contiguous().numpy().tobytes() for part in parts if part is not None)


def _block_tensors(section: Section, provenance: Provenance, chunk: bytes, tokens: int) -> tuple:
    if section.kind == ROUTES:
        return (torch.from_numpy(np.frombuffer(chunk, "<u2").astype(np.int64).reshape(tokens, -1)),)
    bits, scales, _ = section.parts(provenance)
    *rows, width = section.shape
    data = torch.frombuffer(bytearray(chunk), dtype=torch.uint8)
    packed, scale, token = data.tensor_split((tokens * bits, tokens * (bits + scales)))
    low_bits = unpack_bits(packed, provenance.b, tokens * prod(section.shape)).reshape(tokens, *rows, width)
    scale = scale.reshape(tokens, *rows, width // BLOCK[provenance.fmt])
    if provenance.fmt == "mxfp4":
        return low_bits, scale, None
    return low_bits, scale, token.clone().view(torch.float32).reshape(tokens, *rows, 1)


def _check(fmt: str, block: int, sections: tuple[Section, ...]) -> None:
    """Bounds of what a header declares beside its provenance, before anything is computed or allocated by it."""
    check_whole("block", block, 1, MAX_TOKENS)
    for section in sections:
        check_whole("layer", section.layer, 0, MAX_LAYER)
        for size in section.shape:
            check_whole("shape", size, 1, MAX_WIDTH)
        grain, axes = (1, (1,)) if section.kind == ROUTES else (BLOCK[fmt], (1, 2))
        whole = len(section.shape) in axes and section.shape[-1] % grain == 0 and prod(section.shape) <= MAX_WIDTH
        if section.kind not in (*KINDS, ROUTES) or not whole:
            raise Fp4Error(f"section {section}: expected a site in whole blocks of {grain}")
    if len({(section.layer, section.kind) for section in sections}) != len(sections):
        raise Fp4Error("sections: expected each site once")
