"""Byte strings in a store that appear together or not at all.

    part-000000-<xxh3>   each string, under its number and digest
    manifest.json        sizes and digests of all parts, written last and by whoever comes first

A part without a manifest is not seen by anyone. Since its name holds its digest, two writers at one prefix write the
same part or different ones, never one over the other, and the manifest that wins lists whole parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import xxhash

from reprise.refit.transport.common import ManifestError, UnreachableError, bounded_map, tried
from reprise.refit.transport.places import Place

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_BYTES = 1 << 24
PART_BYTES = 1 << 30
WINDOW = 4  # parts in memory
_DIGEST = re.compile("[0-9a-f]{32}")


class AlreadyThere(ManifestError):
    """Another bundle has been completed at this prefix."""


@dataclass(frozen=True)
class Part:
    """bytes: its length. digest: its xxh3-128 in hexadecimal, against accidents."""

    nbytes: int
    digest: str

    @classmethod
    def of(cls, data: bytes) -> Part:
        return cls(len(data), xxhash.xxh3_128_hexdigest(data))


@dataclass(frozen=True)
class Manifest:
    """about: what the bundle is, flat JSON. parts: in order."""

    about: dict
    parts: tuple[Part, ...]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)


def pack_manifest(manifest: Manifest) -> bytes:
    parts = [[part.nbytes, part.digest] for part in manifest.parts]
    text = json.dumps({"format": FORMAT, "about": manifest.about, "parts": parts}, sort_keys=True)
    return json.dumps({"manifest": text, "digest": xxhash.xxh3_128_hexdigest(text.encode())}).encode()


def parse_manifest(raw: bytes, limit: int = PART_BYTES) -> Manifest:
    """The manifest in `raw`; ManifestError if it is incomplete, altered, or lists a part above `limit` bytes."""
    outer = _object(raw, {"manifest": str, "digest": str})
    if xxhash.xxh3_128_hexdigest(outer["manifest"].encode(errors="surrogatepass")) != outer["digest"]:
        raise ManifestError("manifest: damaged, its digest does not hold")
    inner = _object(outer["manifest"], {"format": int, "about": dict, "parts": list})
    if inner["format"] != FORMAT:
        raise ManifestError(f"manifest: format={inner['format']}, expected {FORMAT}")
    parts = []
    for number, part in enumerate(inner["parts"]):
        if not (isinstance(part, list) and len(part) == 2 and type(part[0]) is int and isinstance(part[1], str)):
            raise ManifestError(f"manifest: part {number} is {str(part)[:80]}, expected [bytes, digest]")
        if not 0 <= part[0] <= limit or not _DIGEST.fullmatch(part[1]):
            raise ManifestError(f"manifest: part {number} is {str(part)[:80]}, expected at most {limit} bytes")
        parts.append(Part(*part))
    return Manifest(inner["about"], tuple(parts))


def write_bundle(
    place: Place, prefix: str, about: dict, parts: Iterable[bytes], *, window: int = WINDOW, replace: bool = False
) -> Manifest:
    """Write `parts` as they come, `window` at a time, and then the manifest.

    Args:
        about: flat JSON that readers compare.
        replace: write the manifest even where there is one; its readers then get either.

    Raises:
        AlreadyThere: a bundle is complete at `prefix`, and it is another one.
        UnreachableError: the store failed several times; nothing is visible, or all of it.
    """

    def upload(numbered: tuple[int, bytes]) -> Part:
        part = Part.of(numbered[1])
        tried(lambda: place.put(f"{prefix}/{part_key(numbered[0], part)}", numbered[1]))
        return part

    manifest = Manifest(about, tuple(bounded_map(upload, enumerate(parts), window)))
    raw, key = pack_manifest(manifest), f"{prefix}/{MANIFEST}"
    if replace:
        tried(lambda: place.put(key, raw))
    elif not tried(lambda: place.create(key, raw)) and tried(lambda: place.get(key, MANIFEST_BYTES)) != raw:
        # the same bytes are there if it was ours whose answer was lost
        raise AlreadyThere(f"{place.name}/{key}: exists, expected nothing there")
    return manifest


def read_manifest(place: Place, prefix: str, limit: int = PART_BYTES) -> Manifest | None:
    """The manifest at `prefix`, None while there is none; errors as `parse_manifest` and UnreachableError."""
    raw = tried(lambda: place.get(f"{prefix}/{MANIFEST}", MANIFEST_BYTES))
    return None if raw is None else parse_manifest(raw, limit)


def read_parts(place: Place, prefix: str, manifest: Manifest, *, window: int = WINDOW) -> Iterator[bytes]:
    """The parts in order, each whole and as listed, at most `window` of them in memory.

    Raises:
        ManifestError: a part is missing or another one, and stays so.
        UnreachableError: the store failed several times.
    """

    def download(numbered: tuple[int, Part]) -> bytes:
        number, part = numbered
        try:
            return tried(lambda: _whole(place, f"{prefix}/{part_key(number, part)}", part))
        except _NotWhole as error:
            raise ManifestError(str(error)) from None

    yield from bounded_map(download, enumerate(manifest.parts), window)


def part_key(number: int, part: Part) -> str:
    return f"part-{number:06d}-{part.digest}"


class _NotWhole(UnreachableError):
    """What arrived is not the part: worth another try, in case it was cut on the way."""


def _whole(place: Place, key: str, part: Part) -> bytes:
    data = place.get(key, part.nbytes)
    if data is None or Part.of(data) != part:
        found = "missing" if data is None else f"{len(data)} bytes of another digest"
        raise _NotWhole(f"{place.name}/{key}: {found}, expected {part.nbytes} bytes as listed")
    return data


def _object(raw: bytes | str, fields: dict[str, type]) -> dict:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or set(found) != set(fields):
        raise ManifestError(f"manifest: {raw[:80]!r}, expected a JSON object of {', '.join(fields)}")
    for name, kind in fields.items():
        if type(found[name]) is not kind:
            raise ManifestError(f"manifest: {name}={str(found[name])[:80]}, expected {kind.__name__}")
    return found
