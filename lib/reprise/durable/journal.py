"""An append-only file of records shared by processes and threads; `reprise.durable` states what it guarantees."""

from __future__ import annotations

import fcntl
import io
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from reprise.durable import format as fmt
from reprise.durable.files import FS, REAL, atomic_write, atomic_writer
from reprise.errors import RepriseError


class JournalCorrupt(RepriseError):
    """Bytes of a journal are neither a record nor an append that was cut short.

    Attributes:
        offset: where the first bad frame starts, in bytes from the start of the file.
    """

    def __init__(self, path: Path, offset: int):
        expected = "a record whose checksum matches" if offset else "the header of a journal"
        super().__init__(f"{path}: damaged at byte {offset}: expected {expected}; salvage() sets the damage aside")
        self.offset = offset


class JournalLocked(RepriseError):
    """Another process or thread held the journal's lock for the whole timeout."""


class Record(NamedTuple):
    """One committed record: its number, rising through the file, and what was appended."""

    sequence: int
    value: bytes | dict


def _write_all(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


class Journal:
    """Records appended by any number of processes and threads, each on the disk when `append` returns.

    Args:
        path: the journal, created if missing; a lock file `<path>.lock` stands beside it.
        fs: where changes go.
        timeout: seconds to wait for the lock.

    Raises:
        JournalCorrupt: damage that no interrupted append explains.
        JournalLocked: the lock was not free within `timeout`.
        OSError: the disk is full or failing; nothing of the call's records remains readable where undoing worked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Journal(folder + "/notes.journal") as journal:
    ...     _ = journal.append({"note": "first"})
    ...     _ = journal.append_many([b"both", b"or neither"])
    ...     [record.value for record in journal]
    [{'note': 'first'}, b'both', b'or neither']
    """

    def __init__(self, path: str | Path, *, fs: FS = REAL, timeout: float = 30.0):
        self.path = Path(os.path.realpath(path))
        self._fs, self._timeout = fs, timeout
        self._mutex, self._depth = threading.RLock(), 0
        self._file: io.FileIO | None = None
        self._end = self._next = 0
        with self.exclusive():
            pass

    def append(self, value: bytes | dict) -> int:
        """Add one record; returns its number once it is on the disk."""
        return self.append_many([value])[0]

    def append_many(self, values: Iterable[bytes | dict]) -> range:
        """Add records as one transaction: after a crash all of them are there or none. Returns their numbers."""
        packed = fmt.pack_values(values)
        with self.exclusive():
            numbers = range(self._next, self._next + len(packed))
            if packed:
                self._add(fmt.pack_frame(b"".join(packed), len(packed), self._next, self._end))
                self._next += len(packed)
        return numbers

    def __iter__(self) -> Iterator[Record]:
        """Records committed so far, in order. Later appends and compactions do not disturb the iteration."""
        with self.exclusive():
            descriptor, end = os.dup(self._file.fileno()), self._end
        try:
            yield from _records(self.path, descriptor, end)
        finally:
            os.close(descriptor)

    def compact(self, fold: Callable[[list[Record]], Iterable[bytes | dict]]) -> None:
        """Replace all records by `fold(records)`, which get new numbers; other writers wait, a crash leaves old or new.

        Args:
            fold: called with the committed records, under the lock.
        """
        with self.exclusive():
            packed = fmt.pack_values(fold(list(self)))
            frames = ((item, 1, self._next + k) for k, item in enumerate(packed))
            _rewrite(self.path, self._next, frames, self._fs)
            self._catch_up()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the journal's lock, so that what is read stays true until something is appended. May be nested.

        Raises:
            JournalLocked: not free within the journal's timeout.
        """
        if not self._mutex.acquire(timeout=self._timeout):
            raise JournalLocked(f"{self.path}: still locked by another thread after timeout={self._timeout} s")
        try:
            if self._depth:
                yield
                return
            with _locked(self.path, self._timeout):
                self._depth = 1
                try:
                    self._catch_up()
                    yield
                finally:
                    self._depth = 0
        finally:
            self._mutex.release()

    def _catch_up(self) -> None:
        """Read what others appended, drop a torn tail, and leave the file synced up to `_end`."""
        if not self.path.exists():
            atomic_write(self.path, fmt.pack_file_header(0), fs=self._fs)
        if self._file is None or not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path)):
            self.close()
            self._file, self._end = self._fs.open(self.path, "r+b"), 0
            # the process that created or compacted the journal may have been killed before it did this
            self._fs.fsync_dir(self.path.parent)
        descriptor = self._file.fileno()
        size = os.fstat(descriptor).st_size
        if self._end and size == self._end:
            return
        end, following = self._end, self._next
        if end == 0 or size < end:
            end, following = fmt.FIRST_FRAME, fmt.read_file_header(descriptor)
            if following is None:
                raise JournalCorrupt(self.path, 0)
        while frame := fmt.read_frame(descriptor, end, size):
            if frame.sequence < following:
                raise JournalCorrupt(self.path, end)
            end, following = frame.end, frame.sequence + frame.count
        if end < size:
            if not fmt.is_torn(descriptor, end, size):
                raise JournalCorrupt(self.path, end)
            self._file.truncate(end)
        # a killed writer may have left an intact frame that is not on the disk yet; were ours added to it, a power
        # cut could lose the former and keep the latter
        self._fs.fsync(self._file)
        self._end, self._next = end, following

    def _add(self, frame: bytes) -> None:
        try:
            self._file.seek(self._end)
            _write_all(self._file, frame)
            self._fs.fsync(self._file)
        except OSError as error:
            error.filename = error.filename or str(self.path)
            # what failed may be half there; where undoing it fails too, the scan that `_end = 0` forces does it
            end, self._end = self._end, 0
            with suppress(OSError):
                self._file.truncate(end)
                self._fs.fsync(self._file)
            raise
        self._end += len(frame)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc) -> None:
        self.close()


@contextmanager
def _locked(path: Path, timeout: float) -> Iterator[None]:
    # a file of its own, since compaction replaces the journal; opened each time, since threads share what a
    # descriptor has locked
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        give_up, pause = time.monotonic() + timeout, 0.001
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    raise JournalLocked(f"{path}: still locked by another process after timeout={timeout} s") from None
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough: a forked child may hold a copy
    finally:
        os.close(descriptor)


def _records(path: Path, descriptor: int, end: int) -> Iterator[Record]:
    at = fmt.FIRST_FRAME
    while at < end:
        frame = fmt.read_frame(descriptor, at, end)
        if frame is None:
            raise JournalCorrupt(path, at)
        yield from itertools.starmap(Record, enumerate(fmt.unpack_values(frame.payload), frame.sequence))
        at = frame.end


def _rewrite(path: Path, first: int, frames: Iterable[tuple[bytes, int, int]], fs: FS) -> None:
    with atomic_writer(path, fs=fs) as file:
        file.write(fmt.pack_file_header(first))
        for payload, count, sequence in frames:
            file.write(fmt.pack_frame(payload, count, sequence, file.tell()))


def salvage(path: str | Path, *, fs: FS = REAL, timeout: float = 30.0) -> int:
    """Move the damaged parts of a journal to the journal `<path>.quarantine` and keep every intact record.

    Kept records keep their numbers, so a gap shows where something is missing. Nothing happens to an intact journal.

    Returns:
        how many bytes were set aside.
    """
    path = Path(os.path.realpath(path))
    with _locked(path, timeout), open(path, "rb") as file:
        descriptor, size = file.fileno(), path.stat().st_size
        first, kept, damaged = fmt.read_file_header(descriptor), [], []
        at, following = (0, 0) if first is None else (fmt.FIRST_FRAME, first)
        while at < size:
            frame = fmt.read_frame(descriptor, at, size)
            if frame and frame.sequence >= following:
                kept.append((frame.payload, frame.count, frame.sequence))
                at, following = frame.end, frame.sequence + frame.count
            else:
                end = fmt.next_frame(descriptor, at, size) or size
                damaged.append(os.pread(descriptor, end - at, at))
                at = end
        if damaged:
            with Journal(f"{path}.quarantine", fs=fs, timeout=timeout) as quarantine:
                quarantine.append_many(damaged)
        if damaged or first is None:  # an empty file has nothing to set aside, and no header either
            if first is None:
                first = kept[0][2] if kept else 0
            _rewrite(path, first, kept, fs)
    return sum(map(len, damaged))
