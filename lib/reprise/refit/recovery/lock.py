"""A lock between processes that ends with its holder, whatever ends the holder; and one between threads."""

from __future__ import annotations

import fcntl
import functools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reprise.errors import RepriseError


class LockHeld(RepriseError):
    """Another process, or another object of this one, holds the lock."""


def take(path: str | Path, timeout: float = 0.0) -> int:
    """Descriptor that holds the lock of file `path`, created if missing; `release` it.

    Raises:
        LockHeld: not free within `timeout` seconds.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    give_up = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= give_up:
                os.close(descriptor)
                raise LockHeld(f"{path}: held by another process after timeout={timeout} s") from None
        time.sleep(0.002)


def release(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough: a forked child may hold a copy
    os.close(descriptor)


@contextmanager
def locked(path: str | Path, timeout: float) -> Iterator[None]:
    """Hold the lock of file `path` within the block."""
    descriptor = take(path, timeout)
    try:
        yield
    finally:
        release(descriptor)


def one_at_a_time(method):
    """A method during which no other such method of the same object runs; the object has an RLock `_mutex`."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        with self._mutex:
            return method(self, *args, **kwargs)

    return call
