"""Faults for tests of code that writes files: a kill at any byte, a power cut, a full disk, a flipped bit.

`Faults` takes the place of `reprise.durable.REAL`. It writes real files below one folder, so the code under test may
read them in any way it likes, and keeps the history of every change.

Kill. `kill_at=n` ends the process after n steps. A step is one byte written, or one creation, truncation, fsync,
rename or removal, so the range of `steps` covers every byte and every moment between two operations:

>>> import tempfile
>>> from pathlib import Path
>>> from reprise.durable import atomic_write
>>> with tempfile.TemporaryDirectory() as folder:
...     target, seen = Path(folder) / "state", set()
...     dry = Faults(folder)
...     atomic_write(target, b"old", fs=dry)
...     for n in range(dry.steps):
...         try:
...             atomic_write(target, b"new", fs=Faults(folder, kill_at=n))
...         except Killed:
...             seen.add(target.read_bytes())
...             _ = target.write_bytes(b"old")
...     sorted(seen)
[b'new', b'old']

Power cut. A write reaches the disk at the fsync of its file, a name at the fsync of its folder. Until then each
sector written, each change of length and each change of a name may be on the disk or not, independently of the
others; a sector is never half there. `power_cuts` goes through what the disk may hold at any moment:

>>> with tempfile.TemporaryDirectory() as folder:
...     fs, target = Faults(folder), Path(folder) / "state"
...     atomic_write(target, b"old", fs=fs)
...     acknowledged = fs.steps
...     atomic_write(target, b"new", fs=fs)
...     sorted({cut.files.get("state") for cut in fs.power_cuts() if cut.steps >= acknowledged})
[b'new', b'old']

Full disk: `full_at=n` lets n bytes through, then writes fail with ENOSPC. Not modelled: files written through mmap or
past the `FS` (SQLite), renames between folders, several threads at once.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import random
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from reprise.durable.files import FS
from reprise.durable.format import SECTOR

__all__ = ["Faults", "Killed", "PowerCut", "bit_flips"]


class Killed(BaseException):
    """The simulated process is dead: whatever it still tries to do to a file raises this again."""


class _Change(NamedTuple):
    """One entry of the history. `where` is a file's number or a folder; a barrier makes what came before it durable."""

    step: int
    where: int | str
    barrier: bool = False
    write: tuple[int, bytes] | None = None  # offset, bytes within one sector
    grow: int | None = None
    cut: int | None = None
    names: dict[str, int | None] | None = None


@dataclass(frozen=True)
class PowerCut:
    """What the disk may hold if the power fails after `steps` steps: relative path -> bytes."""

    steps: int
    files: dict[str, bytes]

    def restore(self, folder: str | Path) -> Path:
        """Write the files below `folder`, which must be new or empty; returns it."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"folder={folder}: expected a new or an empty one")
        for name, data in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return folder


class Faults(FS):
    """An `FS` over the real files below `root` that fails as it is told; the module's docstring shows how.

    Args:
        root: the folder. Files already there count as on the disk.
        kill_at: steps after which the process dies, or None. Set it to None to go on as the next process would.
        sigkill: die by a real SIGKILL, for a test in a subprocess; otherwise raise `Killed`.
        full_at: bytes that can be written until the disk is full, or None. May be changed.

    Attributes:
        steps: steps done so far.
        written: bytes written so far.
    """

    def __init__(
        self, root: str | Path, *, kill_at: int | None = None, sigkill: bool = False, full_at: int | None = None
    ):
        self.root = os.path.realpath(root)
        self.kill_at, self.sigkill, self.full_at = kill_at, sigkill, full_at
        self.steps = self.written = 0
        self._history: list[_Change] = []
        self._names: dict[str, int] = {}  # what each path names now
        self._first_names: dict[str, int] = {}  # and what it named when it was first seen
        self._first_bytes: dict[int, bytes] = {}
        self._numbers = itertools.count()

    def open(self, path: str | Path, mode: str) -> io.FileIO:
        name = self._look_up(path)
        exists = name in self._names
        if mode.strip("b") == "r" or (mode[0] == "r" and not exists) or (mode[0] == "x" and exists):
            return io.FileIO(path, mode)  # changes nothing, or raises
        if not exists:
            self._step()
            number = next(self._numbers)
            self._record(os.path.dirname(name), names={name: number})
            self._names[name] = number
        elif mode[0] == "w":
            self._step()
            self._record(self._names[name], cut=0)
        return _File(self, self._names[name], path, mode)

    def fsync(self, file: io.FileIO) -> None:
        self._step()
        self._record(file.number, barrier=True)

    def replace(self, source: str | Path, target: str | Path) -> None:
        a, b = self._look_up(source), self._look_up(target)
        if os.path.dirname(a) != os.path.dirname(b):
            raise ValueError(f"rename from {a} to {b}: expected the same folder")
        self._step()
        os.replace(source, target)
        number = self._names.pop(a)
        self._names[b] = number
        self._record(os.path.dirname(a), names={a: None, b: number})

    def unlink(self, path: str | Path) -> None:
        name = self._look_up(path)
        self._step()
        os.unlink(path)
        del self._names[name]
        self._record(os.path.dirname(name), names={name: None})

    def fsync_dir(self, folder: str | Path) -> None:
        self._step()
        self._record(os.path.realpath(folder), barrier=True)

    def power_cuts(self, *, limit: int = 4096, seed: int = 0) -> Iterator[PowerCut]:
        """Every state of the disk that a power cut during the history can leave.

        A state that is possible at several moments comes once for the latest stretch between two barriers in which it
        is, since more has been acknowledged then.

        Args:
            limit: at most so many subsets of the unsynced changes per barrier; beyond it they are drawn with `seed`,
                and none and all of them always come.
        """
        rng = random.Random(seed)
        durable, pending = [], []  # positions in the history
        for k, change in enumerate([*self._history, _Change(self.steps + 1, "", barrier=True)]):
            if not change.barrier:
                pending.append(k)
                continue
            for kept in _subsets(pending, limit, rng):
                yield PowerCut(change.step - 1, self._files(self._history[j] for j in sorted([*durable, *kept])))
            durable += [j for j in pending if self._history[j].where == change.where]
            pending = [j for j in pending if self._history[j].where != change.where]

    def _files(self, changes: Iterable[_Change]) -> dict[str, bytes]:
        names: dict[str, int | None] = dict(self._first_names)
        data = {number: bytearray(raw) for number, raw in self._first_bytes.items()}
        for change in changes:
            if change.names is not None:
                names |= change.names
                continue
            content = data.setdefault(change.where, bytearray())
            if change.cut is not None:
                del content[change.cut :]
            elif change.grow is not None:
                content.extend(bytes(max(0, change.grow - len(content))))
            else:
                offset, piece = change.write
                content.extend(bytes(max(0, offset - len(content))))
                content[offset : offset + len(piece)] = piece
        return {
            os.path.relpath(name, self.root): bytes(data.get(number, b""))
            for name, number in names.items()
            if number is not None
        }

    def _write(self, file: _File, data: bytes) -> int:
        self._alive()
        room = len(data) if self.full_at is None else min(len(data), self.full_at - self.written)
        if data and room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = room if self.kill_at is None else min(room, self.kill_at - self.steps)
        size = os.fstat(file.fileno()).st_size
        offset = size if "a" in file.mode else file.tell()
        io.FileIO.write(file, data[:count])
        self.steps += count
        self.written += count
        edges = [0, *range(-offset % SECTOR or SECTOR, count, SECTOR), count]
        for a, b in itertools.pairwise(edges):
            self._record(file.number, write=(offset + a, data[a:b]))
        if offset + count > size:
            self._record(file.number, grow=offset + count)
        if count < room:
            self._die()
        return count

    def _truncate(self, file: _File, size: int) -> None:
        self._step()
        before = os.fstat(file.fileno()).st_size
        io.FileIO.truncate(file, size)
        self._record(file.number, **({"cut": size} if size < before else {"grow": size}))

    def _look_up(self, path: str | Path) -> str:
        name = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if os.path.commonpath([name, self.root]) != self.root:
            raise ValueError(f"{name}: expected a file below root={self.root}")
        if name not in self._names and os.path.isfile(name):
            number = next(self._numbers)
            self._names[name] = self._first_names[name] = number
            self._first_bytes[number] = Path(name).read_bytes()
        return name

    def _record(self, where: int | str, **what) -> None:
        self._history.append(_Change(self.steps, where, **what))

    def _step(self) -> None:
        self._alive()
        self.steps += 1

    def _alive(self) -> None:
        if self.kill_at is not None and self.steps >= self.kill_at:
            self._die()

    def _die(self) -> None:
        if self.sigkill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise Killed(f"killed after {self.steps} steps")


class _File(io.FileIO):
    """What `Faults.open` returns: `number` outlives renames, as an inode does."""

    def __init__(self, faults: Faults, number: int, path: str | Path, mode: str):
        super().__init__(path, mode)
        self.faults, self.number = faults, number

    def write(self, data) -> int:
        return self.faults._write(self, bytes(data))

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        self.faults._truncate(self, size)
        return size


def _subsets(items: list[int], limit: int, rng: random.Random) -> Iterator[list[int]]:
    if 1 << len(items) <= limit:
        yield from (list(itertools.compress(items, keep)) for keep in itertools.product((0, 1), repeat=len(items)))
        return
    yield []
    yield items
    yield from ([item for item in items if rng.random() < 0.5] for _ in range(limit - 2))


def bit_flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each bit's position and `data` with that one bit flipped."""
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(flipped)
