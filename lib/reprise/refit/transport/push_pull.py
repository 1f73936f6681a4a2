"""Deltas of checkpoints through an object store: pushed by one side, pulled and applied by any number of others."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reprise.refit.checkpoints.checkpoint_apply import apply_checkpoint
from reprise.refit.checkpoints.checkpoint_diff import DiffSummary, diff_checkpoints
from reprise.refit.checkpoints.container import Progress, silent
from reprise.refit.transport.bundle import Manifest, read_manifest, read_parts, write_bundle
from reprise.refit.transport.common import ManifestError, TransportError
from reprise.refit.transport.places import Place

PREFIX = "delta"
ABOUT = {"kind": "checkpoint delta"}
PIECE = 1 << 26  # bytes an object; a few of them are in memory at once


def push_checkpoint(
    old: str | os.PathLike,
    new: str | os.PathLike,
    place: Place,
    op: str = "add",
    level: int = 1,
    force: bool = False,
    progress: Progress = silent,
) -> DiffSummary:
    """Put the delta that turns checkpoint `old` into `new` into `place`, where it appears whole or not at all.

    Args:
        force: replace a delta that is there.

    Raises:
        AlreadyThere: `place` holds another delta.
        others: as `diff_checkpoints`, and UnreachableError.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "delta.rdl")
        done = diff_checkpoints(old, new, path, op, level, progress=progress)
        with progress("push", done.delta_bytes) as count:
            write_bundle(place, PREFIX, ABOUT, _counted(_pieces(path), count), replace=force)
    return done


def pull_checkpoint(
    old: str | os.PathLike, place: Place, out: str | os.PathLike, force: bool = False, progress: Progress = silent
) -> int:
    """Write to `out` the checkpoint that the delta in `place` makes of `old`; returns its bytes.

    Raises:
        ManifestError: there is no delta, or it is not whole.
        others: as `apply_checkpoint`, and UnreachableError.
    """
    manifest = _manifest(place)
    parent = Path(os.path.abspath(out)).parent
    if not parent.is_dir():
        raise TransportError(f"output {out}: its folder does not exist")
    with tempfile.TemporaryDirectory(dir=parent, prefix=".pull-") as folder:
        free = shutil.disk_usage(folder).free
        if manifest.nbytes > free:
            raise TransportError(f"delta of {manifest.nbytes} bytes: {free} bytes are free at {parent}")
        path = Path(folder, "delta.rdl")
        with open(path, "xb") as file, progress("pull", manifest.nbytes) as count:
            for piece in _counted(read_parts(place, PREFIX, manifest), count):
                file.write(piece)
        return apply_checkpoint(old, path, out, force, progress)


def _manifest(place: Place) -> Manifest:
    manifest = read_manifest(place, PREFIX)
    if manifest is None:
        raise ManifestError(f"{place.name}: no delta there")
    if manifest.about != ABOUT:
        raise ManifestError(f"{place.name}: holds {str(manifest.about)[:80]}, expected {ABOUT}")
    return manifest


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            yield piece


def _counted(pieces: Iterator[bytes], count) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        count(len(piece))
