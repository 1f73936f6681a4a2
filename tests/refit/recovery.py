"""Material of the recovery tests: two versions of small tensors, the change between them, and copies of stores."""

import hashlib
import shutil
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reprise.durable.faults import Faults
from reprise.labs.failover_experiments import MEMORY
from reprise.refit import Bits, diff_bits
from reprise.refit.recovery.attempt import Attempt
from reprise.refit.recovery.commit_log import PreconditionFailed
from reprise.refit.recovery.parts import repair, split

CHUNK = 64
NAMES = ("a", "b", "none")
FIRST, RETRY = Attempt(1, 1, 0, 1, "xor"), Attempt(1, 2, 0, 1, "overwrite")


def version(seed: int, elements=(300, 70, 0)) -> dict[str, Bits]:
    """Uniform bits of a BF16, an FP32 and an empty tensor; a tenth differs from seed 0's, none in the last chunk."""
    base, own, held = np.random.default_rng(0), np.random.default_rng(seed), {}
    for name, dtype, word, n in zip(NAMES, ("BF16", "F32", "F16"), ("<u2", "<u4", "<u2"), elements, strict=True):
        words = base.integers(1 << 16, size=n, dtype=word)
        chosen = np.flatnonzero(own.random(n) < 0.1) if seed else np.empty(0, int)
        chosen = chosen[chosen < n - n % CHUNK]
        words[chosen] ^= own.integers(1, 1 << 16, size=chosen.size, dtype=word)
        held[name] = Bits(dtype, (n,), words)
    return held


OLD, NEW = version(0), version(1)
DELTA = diff_bits(OLD, NEW, CHUNK, **FIRST.transfer)
DENSE_A = OLD["a"].words.nbytes  # a payload limit that makes one payload a tensor


def payloads(attempt, delta=DELTA, op=None):
    """The payloads of an attempt, a tensor each."""
    return [replace(part.with_op(op or attempt.op), **attempt.transfer) for part in split(delta, DENSE_A)]


class MemoryObjectStore:
    """A `commit_log.ObjectStore` of one process, with S3's tags: the MD5 of the bytes."""

    def __init__(self):
        self._objects: dict[str, bytes] = {}
        self._mutex = threading.Lock()

    def get(self, key):
        with self._mutex:
            return self._tagged(key)

    def put(self, key, data, *, if_match):
        with self._mutex:
            held = self._tagged(key)
            if if_match != (held and held[1]):
                raise PreconditionFailed(f"{key}: tag {held and held[1]}, expected {if_match}")
            self._objects[key] = data

    def _tagged(self, key):
        data = self._objects.get(key)
        return None if data is None else (data, hashlib.md5(data, usedforsecurity=False).hexdigest())


def same(held, expected) -> bool:
    return held.keys() == expected.keys() and all(np.array_equal(held[k].words, expected[k].words) for k in expected)


def finish(store, attempt=RETRY, op="overwrite", new=NEW) -> int:
    """Retry until the store holds `new`; returns the number of chunks that had to be rewritten whole."""
    whole = 0
    store.begin(attempt)
    for delta in payloads(attempt, op=op):
        outcome = store.resume(delta)
        if outcome.damaged:
            whole += len(outcome.damaged)
            assert store.resume(repair(delta, new, outcome.damaged)).status == "applied"
    store.commit(attempt)
    return whole


def copy(folder, to):
    shutil.rmtree(to, ignore_errors=True)
    return shutil.copytree(folder, to)


def steps_of(folder, action) -> int:
    """Steps that `action(fs)` takes in `folder`; see reprise.durable.faults."""
    fs = Faults(folder)
    action(fs)
    return fs.steps


@pytest.fixture
def memory():
    """A folder on a disk in memory, where there is one: sweeps write thousands of files."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)
