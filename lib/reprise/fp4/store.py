"""Guidance files in a folder or under any fsspec URL, one a trajectory, read by site and token range."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import fsspec

from reprise.durable import atomic_write
from reprise.fp4 import guidance_format as layout
from reprise.fp4.capture import Site
from reprise.fp4.guidance_errors import GuidanceError, HeaderDamaged, MissingTrajectory, NotGuidance, TokenMismatch
from reprise.fp4.record import GuidanceRecord, Provenance, find

SUFFIX = ".guide"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


class GuidanceStore:
    """Records of many trajectories.

    Args:
        url: a folder, or an fsspec URL of one (memory://, s3://, ...).
        options: for the fsspec file system, such as keys.

    Raises:
        GuidanceError: a URL of a kind that fsspec does not know or whose package is missing, or a file.

    >>> store = GuidanceStore("memory://guidance")
    >>> store.trajectories()
    []
    """

    def __init__(self, url: str | Path, **options):
        try:
            self.fs, self.folder = fsspec.core.url_to_fs(str(url), **options)
        except (ValueError, ImportError) as error:
            raise GuidanceError(f"url={str(url)!r}: {error}, expected a folder or an fsspec URL") from error
        self._local = "file" in (self.fs.protocol if isinstance(self.fs.protocol, tuple) else (self.fs.protocol,))
        if self._local and Path(self.folder).is_file():
            raise GuidanceError(f"url={str(url)!r}: a file, expected a folder")

    def trajectories(self) -> list[str]:
        """Identifiers of the records held, sorted."""
        if not self.fs.exists(self.folder):
            return []
        names = (path.rsplit("/", 1)[-1] for path in self.fs.ls(self.folder, detail=False))
        held = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
        return sorted(name for name in held if _NAME.fullmatch(name))

    def write(self, record: GuidanceRecord) -> str:
        """Store a record under its trajectory and return where; one that was there is replaced as a whole.

        Whoever is reading the old one meanwhile gets GuidanceDamaged, never a mixture, and can open it again.
        """
        path, data = self._path(record.provenance.trajectory), layout.encode(record)
        self.fs.makedirs(self.folder, exist_ok=True)
        if self._local:
            atomic_write(Path(path), data)
        else:
            self.fs.pipe_file(path, data)
        return path

    def open(self, trajectory: str) -> GuidanceFile:
        """A record's header, read and checked once, for any number of slices.

        Raises:
            MissingTrajectory: no such record.
            GuidanceDamaged: one of its kinds, naming the file.
        """
        path = self._path(trajectory)
        try:
            found = self.fs.info(path)
        except FileNotFoundError:
            raise MissingTrajectory(f"trajectory {trajectory!r}: no record at {path}") from None
        if found["type"] == "directory" or found["size"] is None:
            raise NotGuidance(f"{path}: {found['type']} of size {found['size']}, expected a file of known size")
        return GuidanceFile(self.fs, path, found["size"], trajectory)

    def read(self, trajectory: str, sites: Collection[Site] | None = None) -> GuidanceRecord:
        """A whole record; see `GuidanceFile.slice`."""
        return self.open(trajectory).slice(sites=sites)

    def slice(self, trajectory: str, start: int, stop: int, sites: Collection[Site] | None = None) -> GuidanceRecord:
        """Tokens start..stop of a record; see `GuidanceFile.slice`."""
        return self.open(trajectory).slice(start, stop, sites)

    def _path(self, trajectory: str) -> str:
        # an identifier becomes a file name, and must not lead out of the folder
        if not isinstance(trajectory, str) or not _NAME.fullmatch(trajectory):
            raise MissingTrajectory(
                f"trajectory {trajectory!r}: expected 1..128 letters, digits, dots, dashes, underscores"
            )
        return f"{self.folder}/{trajectory}{SUFFIX}"


class GuidanceFile:
    """One record, of which the header is in memory."""

    def __init__(self, fs, path: str, size: int, trajectory: str):
        self._fs, self._path = fs, path
        # by name: s3fs has another order of arguments than the interface it implements
        prefix = fs.cat_file(path, start=0, end=min(layout.PREFIX, size))
        stop = layout.PREFIX + layout.header_bytes(prefix, size, path)
        header = fs.cat_file(path, start=layout.PREFIX, end=stop)
        self._header = layout.decode_header(prefix, header, size, path)
        if self.provenance.trajectory != trajectory:
            raise HeaderDamaged(f"{path}: holds trajectory {self.provenance.trajectory!r}, expected {trajectory!r}")

    @property
    def provenance(self) -> Provenance:
        return self._header.provenance

    @property
    def sites(self) -> list[Site]:
        return [(s.layer, s.kind) for s in self._header.sections if s.kind != layout.ROUTES]

    def slice(self, start: int = 0, stop: int | None = None, sites: Collection[Site] | None = None) -> GuidanceRecord:
        """Tokens start..stop of some sites, or of all, with the routes of their layers.

        Reads the blocks these lie in and nothing else, with one request a site.

        Raises:
            TokenMismatch: a range outside the trajectory.
            LayerNotGuided, MissingSite: a site that is not there, by name.
            TruncatedGuidance, BlockDamaged: what was read is not what was written.
        """
        tokens = self.provenance.tokens
        stop = tokens if stop is None else stop
        if not 0 <= start < stop <= tokens:
            raise TokenMismatch(f"{self._path}: tokens {start}..{stop}, expected a range within 0..{tokens}")
        header = self._header
        held = {(s.layer, s.kind): i for i, s in enumerate(header.sections)}
        wanted = self.sites if sites is None else sorted(set(sites))
        indices = [find(self.provenance, held, site) for site in wanted]
        layers = sorted({layer for layer, _ in wanted if (layer, layout.ROUTES) in held})
        indices += [held[layer, layout.ROUTES] for layer in layers]
        begins, ends = zip(*(header.byte_range(i, start, stop) for i in indices), strict=True) if indices else ((), ())
        read = self._fs.cat_ranges([self._path] * len(indices), list(begins), list(ends), on_error="raise")
        parts = [
            layout.decode_tokens(header, i, data, start, stop, self._path)
            for i, data in zip(indices, read, strict=True)
        ]
        sites, routes = parts[: len(wanted)], parts[len(wanted) :]
        return GuidanceRecord(
            self.provenance,
            dict(zip(wanted, sites, strict=True)),
            dict(zip(layers, routes, strict=True)),
            start,
            stop,
        )
