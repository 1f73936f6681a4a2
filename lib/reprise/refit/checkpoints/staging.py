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
from reprise.refit.checkpoints.safetensors_file import CheckpointError

STEM_CHARACTERS = 50  # of the output's name, at up to 4 bytes each, so that the temporary name fits into 255 bytes
REPLACED = "replaced"


@contextlib.contextmanager
def staged(
    out: str | os.PathLike, inputs: Iterable[str | os.PathLike], force: bool = False, folder: bool = False
) -> Iterator[Path]:
    """Yield a free path to create a file or folder at; it becomes `out` on a clean exit and is removed on any error.

    Args:
        out: where the result shall be. A link there is replaced itself, never followed.
        inputs: what is read meanwhile; the output may neither be, nor hold, nor lie inside one of them.
        force: replace what is at `out`: a file by a file, and by a folder one that is empty or has safetensors files
            at its own top level, is no repository, and holds neither the working folder nor the user's.
        folder: whether a folder will be created.

    Raises:
        CheckpointError: the output exists or must not be written.
    """
    if not os.fspath(out):
        raise CheckpointError("the path of the output is empty: expected a name")
    asked, out = out, Path(os.path.abspath(out))
    _refuse(out, [Path(path) for path in inputs], force, folder)
    _remove_stale(out)
    room = out.with_name(f"{_stem(out)}{os.getpid()}.partial")
    with _called(asked, room):
        room.mkdir()
        descriptor = os.open(room, os.O_RDONLY)
        try:
            _lock(descriptor)
            yield room / "new"
            _sync_folders(room / "new")
            _move(room, out, force, folder)
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


@contextlib.contextmanager
def _called(asked: str | os.PathLike, room: Path) -> Iterator[None]:
    """Name the output as the user did in what the system says of `room`."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str | os.PathLike) and Path(error.filename).is_relative_to(room):
            error.filename, error.filename2 = os.fspath(asked), None
        raise


def _refuse(out: Path, inputs: list[Path], force: bool, folder: bool) -> None:
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
        _refuse_to_replace(out, folder)


def _refuse_to_replace(out: Path, folder: bool) -> None:
    """Raise CheckpointError if what is at `out` is nothing that `--force` is for."""
    if out.is_symlink():
        return
    if not out.is_dir() and not out.is_file():
        kind = "a device, pipe or socket"
    elif out.is_dir() and not folder:
        kind = "a folder where a file shall be"
    elif out.is_file() and folder:
        kind = "a file where a folder shall be"
    elif out.is_dir() and any(here.is_relative_to(out.resolve()) for here in (Path.cwd(), _home())):
        kind = "a folder that holds the working folder or that of the user"
    elif out.is_dir() and (out / ".git").exists():
        kind = "a folder with a repository"
    elif out.is_dir() and any(out.iterdir()) and not any(path.is_file() for path in out.glob("*.safetensors")):
        kind = "a folder without safetensors files at its top level"
    else:
        return
    raise CheckpointError(f"output {out}: {kind} is not replaced even by --force")


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


def _home() -> Path:
    return Path(os.path.expanduser("~")).resolve()  # Path.home() raises for a user without one


def _move(room: Path, out: Path, force: bool, folder: bool) -> None:
    exists = os.path.lexists(out)
    if exists and not force:
        raise CheckpointError(f"output {out}: appeared meanwhile (--force replaces it)")
    if exists:
        _refuse_to_replace(out, folder)  # it may not be what it was
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
