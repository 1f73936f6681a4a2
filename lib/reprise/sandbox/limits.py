"""What a job may use, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reprise.errors import RepriseError

MIB = 1 << 20


class SandboxError(RepriseError):
    """A limit that cannot be, or a machine on which no limited process can be started."""


@dataclass(frozen=True)
class Limits:
    """Bounds on one job and all it starts.

    cpu_seconds and wall_seconds bound time, memory the address space of each process in bytes, processes those beside
    the first (threads count), file_bytes the size of each file written, open_files descriptors, output_bytes each of
    the streams it writes. Timeouts on a loaded machine stay rare because the processor's seconds are bounded tightly
    and those of the wall generously.
    """

    cpu_seconds: int = 2
    wall_seconds: float = 15.0
    memory: int = 256 * MIB
    processes: int = 0
    file_bytes: int = 0
    open_files: int = 32
    output_bytes: int = 1 * MIB

    def __post_init__(self):
        for name, least in (("processes", 0), ("file_bytes", 0), ("cpu_seconds", 1), ("memory", 1), ("open_files", 8)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise SandboxError(f"{name}={value!r}: expected an int of at least {least}")
        for name in ("wall_seconds", "output_bytes"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SandboxError(f"{name}={getattr(self, name)!r}: expected a number above 0")


class Ending(StrEnum):
    """How a job ended."""

    EXITED = "exited"  # by itself, with the code it chose
    KILLED = "killed"  # by a signal: a crash, or its share of the processor used up
    TIMEOUT = "timeout"  # the wall clock
    OUTPUT = "output"  # it wrote more than it may
    WORKER = "worker"  # the worker could not run it, twice


@dataclass(frozen=True)
class Finished:
    """A command that ended: `code` is its exit code, or minus the signal that killed it."""

    ending: Ending
    code: int
    stdout: bytes = b""
    stderr: bytes = b""
    cpu_seconds: float = field(default=0.0, compare=False)

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with code 0."""
        return self.ending == Ending.EXITED and self.code == 0


@dataclass(frozen=True)
class Answers:
    """What a program's functions returned: a tuple with one entry a call, or None where nothing usable came back.

    An entry is `(True, value)` or `(False, name of the error)`; `ending` says why `calls` is None.
    """

    ending: Ending
    calls: tuple[tuple[bool, Any], ...] | None
    cpu_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Protections:
    """Which protections are on, and why the others are not.

    nobody: a user of its own that owns nothing. pid: processes of its own, all killed with the first. net: no
    network. ipc: no shared memory with others. mount: every file read-only but those named. calls: where pid or net are
    missing, system calls for sockets and signals are refused instead. Limits, a cleared environment, no capabilities
    and no new privileges are always on.
    """

    on: tuple[str, ...]
    missing: Mapping[str, str]

    def __str__(self) -> str:
        off = "".join(f"; no {name}: {reason}" for name, reason in sorted(self.missing.items()))
        return f"on: {', '.join(self.on) or 'limits only'}{off}"
