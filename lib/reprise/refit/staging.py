"""An output that appears whole or not at all: built inside a temporary sibling, synced, moved to its name at the end.

The sibling is a folder `.<name>.<pid>.partial`, locked while its process lives. A process that was killed leaves it
behind; the next run with the same output finds it unlocked and removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from reprise.durable import REAL
from reprise.refit.safetensors_file import CheckpointError

STEM_CHARACTERS = 50  # of the output's name, at up to 4 bytes each, so that the temporary name fits into 255 bytes
REPLACED = "replaced"


@contextlib.contextmanager
def staged(out: str | os.PathLike, inputs: Iterable[str | os.PathLike], force: bool = False) -> Iterator[Path]:
    """Yield a free path to create a file or folder at; it becomes `out` on a clean exit and is removed on any error.

    Args:
        out: where the result shall be; with `force` an existing file or checkpoint folder is replaced. A link there
            is replaced itself, never followed.
        inputs: what is read meanwhile; the output may neither be, nor hold, nor lie inside one of them.

    Raises:
        CheckpointError: the output exists or must not be written.
    """
    out = Path(os.path.abspath(out))
    _refuse(out, [Path(path) for path in inputs], force)
    _remove_stale(out)
    room = out.with_name(f"{_stem(out)}{os.getpid()}.partial")
    room.mkdir()
    descriptor = os.open(room, os.O_RDONLY)
    try:
        _lock(descriptor)
        yield room / "new"
        _sync_folders(room / "new")
        _move(room, out, force)
    finally:
        shutil.rmtree(room, ignore_errors=True)
        os.close(descriptor)


@contextlib.contextmanager
def created(path: Path) -> Iterator[BinaryIO]:
    """A new file at `path` open for writing, synced when done; an existing file or link is refused by the system."""
    with open(path, "xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _refuse(out: Path, inputs: list[Path], force: bool) -> None:
    if not out.name or not out.parent.is_dir():
        raise CheckpointError(f"output {out}: its folder does not exist")
    place = out.parent.resolve() / out.name
    for source in inputs:
        real = source.resolve()
        same = os.path.exists(out) and os.path.exists(source) and os.path.samefile(out, source)
        if same or place == real or place == source.parent.resolve() / source.name:
            raise CheckpointError(f"output {out}: is the input {source}: expected another name")
        if real in place.parents or place in real.parents or out.resolve() in real.parents:
            raise CheckpointError(f"output {out}: overlaps with the input {source}: expected a place outside of it")
    if os.path.lexists(out):
        if not force:
            raise CheckpointError(f"output {out}: exists already (--force replaces it)")
        if _is_folder(out) and any(out.iterdir()) and not any(out.rglob("*.safetensors")):
            raise CheckpointError(f"output {out}: a folder without safetensors files is not replaced even by --force")


def _stem(out: Path) -> str:
    if len(out.name) <= STEM_CHARACTERS:
        return f".{out.name}."
    return f".{out.name[:STEM_CHARACTERS]}-{hashlib.blake2b(os.fsencode(out.name), digest_size=4).hexdigest()}."


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by a living process, or a file system without locks: then nothing counts as stale
        return False
    return True


def _remove_stale(out: Path) -> None:
    for room in out.parent.glob(".*.partial"):
        owner = room.name.removeprefix(_stem(out)).removesuffix(".partial")
        if not room.name.startswith(_stem(out)) or not owner.isdecimal() or not _is_folder(room):
            continue
        descriptor = os.open(room, os.O_RDONLY)
        try:
            if _lock(descriptor):
                if os.path.lexists(room / REPLACED) and not os.path.lexists(out):
                    os.rename(room / REPLACED, out)  # killed between the two renames of `_move`
                shutil.rmtree(room, ignore_errors=True)
        finally:
            os.close(descriptor)


def _sync_folders(top: Path) -> None:
    for folder, _, _ in os.walk(top):
        REAL.fsync_dir(folder)


def _move(room: Path, out: Path, force: bool) -> None:
    exists = os.path.lexists(out)
    if exists and not force:
        raise CheckpointError(f"output {out}: appeared meanwhile (--force replaces it)")
    if exists and (_is_folder(out) or _is_folder(room / "new")):
        os.rename(out, room / REPLACED)  # a folder cannot be renamed onto another
        try:
            os.rename(room / "new", out)
        except BaseException:
            os.rename(room / REPLACED, out)
            raise
    else:
        os.replace(room / "new", out)
    REAL.fsync_dir(out.parent)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
