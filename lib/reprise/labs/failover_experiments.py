"""Two coordinators at once: an old one that is only slow, and the one that took over, in every order of their actions.

The old one does its first i actions; the new one takes over and does j; the old one wakes up and goes on until it ends
or is refused; the new one ends. The world is one source, two receivers and a commit record, all real and on disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reprise.durable import FS
from reprise.errors import RepriseError
from reprise.refit.bits import Bits
from reprise.refit.recovery.baseline import FileBaseline
from reprise.refit.recovery.commit_log import Commit, FileCommitLog, pack_record
from reprise.refit.recovery.coordinator import RefitCoordinator
from reprise.refit.recovery.fingerprint import fingerprint
from reprise.refit.recovery.resident import ResidentStore

CHUNK = 64
TENSORS = (("embed", 300), ("expert", 200))
RECEIVERS = ("near", "far")


# hundreds of schedules of some fifty atomic replacements each, none of which has to survive the power
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Unsynced(FS):
    """A disk that skips every sync."""

    def fsync(self, file) -> None:
        pass

    def fsync_dir(self, folder) -> None:
        pass


class BlindLog(FileCommitLog):
    """The placebo: a record that anyone overwrites."""

    def compare_and_set(self, expected: Commit, new: Commit, writer: str) -> None:
        self.path.write_bytes(pack_record(new, writer))


class World(NamedTuple):
    """One source, its receivers and the commit record."""

    log: FileCommitLog
    baseline: FileBaseline
    receivers: dict[str, ResidentStore]

    def coordinator(self) -> RefitCoordinator:
        # two tensors of at most 600 bytes: a payload each
        return RefitCoordinator.take_over(self.log, self.baseline, dict(self.receivers), payload_bytes=600)

    def close(self) -> None:
        for store in (self.baseline.store, *self.receivers.values()):
            store.close()


def weights(seed: int) -> dict[str, Bits]:
    """A version of the tensors: uniform draws of BF16 bits of which, but for seed 0, a tenth differs from seed 0's."""
    base, own = np.random.default_rng(0), np.random.default_rng(seed)
    held = {}
    for name, elements in TENSORS:
        words = base.integers(1 << 16, size=elements, dtype="<u2")
        if seed:
            words = np.where(own.random(elements) < 0.1, own.integers(1 << 16, size=elements, dtype="<u2"), words)
        held[name] = Bits("BF16", (elements,), words)
    return held


def build(folder: Path, fs: FS, log: type[FileCommitLog] = FileCommitLog) -> World:
    """Version 0, weights(0), everywhere below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    stores = {name: ResidentStore.create(folder / name, weights(0), fs=fs) for name in ("source", *RECEIVERS)}
    baseline = FileBaseline(stores.pop("source"), fs=fs, chunk=CHUNK)
    return World(log.create(folder / "commit", fs=fs), baseline, stores)


def failovers(*, blind: bool = False, same: bool = True, every: int = 1) -> list[dict]:
    """Run every schedule (i, j).

    Args:
        blind: a commit record without comparison, the placebo.
        same: the new coordinator brings the same weights, as one whose trainer still has them; else others, as one
            whose trainer restarted.
        every: take each `every`-th schedule only.

    Returns:
        one row a schedule: old_actions i, new_actions j, old_outcome ("committed" or "fenced"), commits (exchanges
        to a next version that succeeded), version (in the record), consistent (the record counts every commit once,
        and the baseline and all receivers hold the bits of the last one).
    """
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        counts = range(_actions(Path(scratch) / "count") + 1)
        schedules = [(i, j) for i in counts for j in counts][::every]
        return [
            _schedule(Path(scratch) / f"{i}-{j}", i, j, BlindLog if blind else FileCommitLog, weights(1 if same else 2))
            for i, j in schedules
        ]


def _actions(folder: Path) -> int:
    world = build(folder, Unsynced())
    count = sum(1 for _ in world.coordinator().steps(weights(1)))
    world.close()
    return count


def _schedule(folder: Path, i: int, j: int, log: type[FileCommitLog], new: dict[str, Bits]) -> dict:
    world = build(folder, Unsynced(), log)
    old, commits = world.coordinator().steps(weights(1)), []
    _run(islice(old, i), commits, 1)
    successor = world.coordinator().steps(new)
    _run(islice(successor, j), commits, 2)
    outcome = _run(old, commits, 1)
    _run(successor, commits, 2)
    version = world.log.read().version
    expected = fingerprint({1: weights(1), 2: new}[commits[-1]])
    held = [store.fingerprint() for store in (world.baseline.store, *world.receivers.values())]
    told = [store.status().version for store in (world.baseline.store, *world.receivers.values())]
    world.close()
    return {
        "old_actions": i,
        "new_actions": j,
        "old_outcome": outcome,
        "commits": len(commits),
        "version": version,
        "consistent": version == len(commits) and set(held) == {expected} and set(told) == {version},
    }


def _run(actions: Iterator[str], commits: list[int], who: int) -> str:
    """Do `actions`, and note in `commits` who committed."""
    try:
        for action in actions:
            if action == "committed":
                commits.append(who)
    except RepriseError:
        return "fenced"
    return "committed" if who in commits else "pending"
