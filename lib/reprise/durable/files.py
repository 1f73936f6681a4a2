"""Atomic replacement of a file, and the operations through which everything in this package changes the disk."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class FS:
    """The operations that change files. `open` returns an unbuffered binary file: `write` may be short."""

    def open(self, path: str | Path, mode: str) -> io.FileIO:
        return io.FileIO(path, mode)

    def fsync(self, file: io.FileIO) -> None:
        os.fsync(file.fileno())

    def replace(self, source: str | Path, target: str | Path) -> None:
        os.replace(source, target)

    def unlink(self, path: str | Path) -> None:
        os.unlink(path)

    def fsync_dir(self, folder: str | Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


REAL = FS()
_attempts = itertools.count()


def _temporary(path: Path, fs: FS) -> tuple[Path, io.FileIO]:
    # beside the target: a rename across file systems is not atomic
    while True:
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_attempts)}.tmp")
        with suppress(FileExistsError):  # left by a killed process that had our number
            return temporary, fs.open(temporary, "xb")


@contextmanager
def atomic_writer(path: str | Path, *, fs: FS = REAL) -> Iterator[io.BufferedWriter]:
    """A binary file that replaces `path` when the block ends cleanly, and vanishes when it raises.

    Args:
        path: the target, in a folder that exists; through a symbolic link its target is replaced. An existing file
            keeps its permission bits.
        fs: where changes go.

    Yields:
        a buffered, seekable binary file open for writing.

    Raises:
        OSError: a write, fsync or rename failed (disk full, no such folder); `path` is as it was and no temporary
            file is left. Only when the last step fails, the fsync of the folder, is the new file already in place.
    """
    path = Path(os.path.realpath(path))
    temporary, raw = _temporary(path, fs)
    file = io.BufferedWriter(raw, 1 << 20)
    try:
        try:
            with suppress(FileNotFoundError):
                os.fchmod(raw.fileno(), path.stat().st_mode & 0o7777)
            yield file
            file.flush()
            fs.fsync(raw)
        finally:
            file.close()
        fs.replace(temporary, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        with suppress(FileNotFoundError):
            fs.unlink(temporary)
        raise
    fs.fsync_dir(path.parent)


def atomic_write(path: str | Path, data: bytes | Iterable[bytes], *, fs: FS = REAL) -> None:
    """Replace `path` by `data` (bytes, or pieces written in turn); see `atomic_writer`."""
    pieces = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
    with atomic_writer(path, fs=fs) as file:
        for piece in pieces:
            file.write(piece)
