"""Process trees: leave nothing running, whatever a notebook started, and know how much memory it held.

A kernel lives in a session of its own and its cells may start processes that outlive it. Two measures together
catch them all: a worker adopts orphans (Linux), so that what a dead kernel left behind is still its descendant; and
the runner remembers every descendant it has seen, so that a worker killed outright is cleaned up after as well.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

# <linux/prctl.h>
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


@dataclass(frozen=True, slots=True)
class Memory:
    """One sample: resident bytes of a process tree, free and total bytes of the machine."""

    used: int = 0
    free: int = 0
    total: int = 0


@dataclass(slots=True)
class Watch:
    """A process and every descendant seen so far; sampled while it runs, swept when it ends."""

    pid: int
    seen: set[psutil.Process] = field(default_factory=set)
    last: Memory = Memory()
    peak: int = 0

    def sample(self) -> None:
        """Look for new descendants and measure the tree."""
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.pid)
            descendants = root.children(recursive=True)
            self.seen.update(descendants)
            used = sum(map(_resident, descendants))
            if used:  # with the kernel gone, the sample before is the one that tells
                machine = psutil.virtual_memory()
                self.last = Memory(used + _resident(root), machine.available, machine.total)
                self.peak = max(self.peak, self.last.used)

    def interrupt(self) -> None:
        """Send SIGINT to the kernels: the children of the watched process."""
        self.sample()
        for process in self.seen:
            with contextlib.suppress(psutil.Error):
                if process.ppid() == self.pid:
                    process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL the watched process and every descendant ever seen."""
        self.sample()
        with contextlib.suppress(psutil.Error):
            kill([psutil.Process(self.pid)])
        self.sweep()

    def sweep(self) -> None:
        """SIGKILL what is left of the descendants."""
        kill(self.seen)


def kill(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL each and wait until all have ended (a process id used again by another program is left alone)."""
    alive = [process for process in processes if not _ended(process)]
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    patience = time.monotonic() + 5  # one stuck in the kernel, on a dead network disk say, ends when it can
    while time.monotonic() < patience and not all(map(_ended, alive)):
        time.sleep(0.01)


def kill_descendants() -> None:
    """SIGKILL every descendant of this process, repeating until none is left to fork another."""
    me = psutil.Process()
    while children := [child for child in me.children(recursive=True) if not _ended(child)]:
        kill(children)


def lead_job(scratch: Path) -> None:
    """Make this forked worker the head of its job.

    A session of its own keeps the terminal's Ctrl-C for the runner, which decides what to stop. On Linux the worker
    adopts its orphaned descendants, and when the runner dies it kills them, removes `scratch`, and ends.
    """

    def end(signum, frame) -> None:
        kill_descendants()
        shutil.rmtree(scratch, ignore_errors=True)
        os._exit(128 + signum)

    runner = os.getppid()
    os.setsid()
    signal.signal(signal.SIGTERM, end)
    if sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != runner:  # it died before the request
            end(signal.SIGTERM, None)


def _ended(process: psutil.Process) -> bool:
    """Whether it runs no more; a zombie has ended, whoever may collect it."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0
