"""Receivers that die in the middle of an in-place update, by a real SIGKILL or by a power cut, and what mends them.

One interrupted state, three retries:

    xor         XOR the changes in again, as a retry that remembers nothing would: the placebo
    overwrite   write every changed element, whatever is there: the paper's rule
    resume      by the two digests of each chunk: skip the new ones, XOR the old ones, rewrite the torn ones whole
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reprise.durable.faults import Faults
from reprise.errors import RepriseError
from reprise.refit.apply import NEW, OLD, OTHER, chunk_states
from reprise.refit.bits import Bits
from reprise.refit.delta import Delta, diff_bits
from reprise.refit.digests import changed_chunks, chunk_slices
from reprise.refit.operations import new_words
from reprise.refit.recovery.attempt import Attempt
from reprise.refit.recovery.commit_log import CommitConflict, FileCommitLog, signature
from reprise.refit.recovery.parts import repair
from reprise.refit.recovery.resident import ResidentStore

SHARE = 0.03  # NeMo-DCR's lower stress setting
# (name, elements), and the elements of a chunk: 128 chunks of 32 KiB, the last one short
TENSORS, CHUNK = (("embed", 64 << 14), ("attention", 16 << 14), ("experts", 47 << 14), ("norm", 1000)), 1 << 14
# smaller for power cuts, whose every state is built in memory: 66 chunks of 1 KiB, a few sectors each
CUT_TENSORS, CUT_CHUNK = (("attention", 16 << 9), ("experts", 48 << 9), ("norm", 1000)), 1 << 9

FIRST = Attempt(1, 1, 0, 1, "xor")
RETRY = Attempt(1, 2, 0, 1, "overwrite")

Words = dict[str, np.ndarray]


class World(NamedTuple):
    """OLD and NEW weights and the change between them."""

    old: dict[str, Bits]
    new: dict[str, Bits]
    delta: Delta


def world(seed: int, tensors: Sequence[tuple[str, int]] = TENSORS, chunk: int = CHUNK) -> World:
    """Uniform draws of BF16 bits, NaNs, infinities and both zeros among them, of which 3 % become other ones.

    Args:
        seed: of bits and changes.
        tensors: (name, elements) pairs.
        chunk: elements a digest chunk.
    """
    rng = np.random.default_rng(seed)
    old, new = {}, {}
    for name, elements in tensors:
        before = rng.integers(1 << 16, size=elements, dtype="<u2")
        masks = rng.integers(1, 1 << 16, size=elements, dtype="<u2")
        after = np.where(rng.random(elements) < SHARE, before ^ masks, before)
        old[name], new[name] = Bits("BF16", (elements,), before), Bits("BF16", (elements,), after)
    return World(old, new, diff_bits(old, new, chunk, **FIRST.transfer))


def kills(seed: int, count: int) -> list[dict]:
    """Kill `count` receivers, each by SIGKILL at a random byte of its update, and retry in three ways.

    The byte is uniform between the first changed one and the last, so that something is done and something is left.
    Every receiver is a forked process with a store of its own.

    Returns:
        one row a kill: kill (its number), byte (of the `bytes` that the update writes), and the columns of `retries`.
    """
    w, rng, rows = world(seed), random.Random(seed), []
    changed, size = changed_bytes(w)
    with tempfile.TemporaryDirectory() as scratch:
        begun = _begun(Path(scratch) / "begun", w)
        for number in range(count):
            byte = rng.randrange(int(changed[0]) + 1, int(changed[-1]) + 1)
            victim = Path(shutil.copytree(begun, Path(scratch) / "victim"))
            die(victim, w, byte)
            rows.append({"kill": number, "byte": byte, "bytes": size, **retries(victim, w)})
            shutil.rmtree(victim)
    return rows


def states_after_kill(w: World, share: float) -> np.ndarray:
    """Kill one receiver after `share` of its update, in [0, 1], and look at its changing chunks.

    Returns:
        [chunks] int8: OLD, NEW or OTHER, in the order in which the update writes them.
    """
    changed, size = changed_bytes(w)
    byte = min(max(round(share * size), int(changed[0]) + 1), int(changed[-1]))
    with tempfile.TemporaryDirectory() as scratch:
        victim = _begun(Path(scratch) / "victim", w)
        die(victim, w, byte)
        held = _words(victim)
        return np.concatenate([_changing_states(held[record.name], record) for record in w.delta.tensors])


def power_cuts(seed: int, count: int) -> list[dict]:
    """Update a store, and look at `count` states in which the disk may be if the power fails before the sync.

    Any sector written since the last sync may be lost, alone. The first two states are those in which none and all
    are on the disk, the others are drawn; `count` is at least 2.

    Returns:
        one row a state: cut (its number) and the columns of `retries`.
    """
    w, rows = world(seed, CUT_TENSORS, CUT_CHUNK), []
    with tempfile.TemporaryDirectory() as scratch:
        begun = _begun(Path(scratch) / "begun", w)
        fs = Faults(begun)
        with ResidentStore(begun, fs=fs) as store:
            store.apply(w.delta.with_op("xor"))
        # the sync of the weights is the first one of an update, so these are all states before it
        for number, cut in enumerate(itertools.islice(fs.power_cuts(limit=count, seed=seed), count)):
            victim = cut.restore(Path(scratch) / "victim")
            rows.append({"cut": number, **retries(victim, w)})
            shutil.rmtree(victim)
    return rows


def retries(victim: Path, w: World) -> dict:
    """What the interrupted store in folder `victim` holds, and what it holds after each retry.

    Returns:
        mixed: the bits are neither OLD nor NEW. old, new, torn: changing chunks in that state, of `chunks`.
        exact_xor, exact_overwrite, exact_resume: whether the bits are NEW after this retry; the third one is made
        twice, within the attempt that was interrupted and as a new one.
        rewritten: chunks that the third one, as a new attempt, rewrote whole.
    """
    held = _words(victim)
    states = np.concatenate([_changing_states(held[r.name], r) for r in w.delta.tensors])
    row = {"mixed": not _equal(held, w.old) and not _equal(held, w.new), "chunks": states.size}
    row |= {name: int((states == state).sum()) for name, state in (("old", OLD), ("new", NEW), ("torn", OTHER))}
    for op in ("xor", "overwrite"):
        row[f"exact_{op}"] = _equal(blindly(held, w, op), w.new)
    # a receiver that restarts may be sent the attempt that was interrupted once more, or a new one
    again = Path(shutil.copytree(victim, victim.with_name("again")))
    resume(again, w, FIRST)
    rewritten = resume(victim, w, RETRY)
    exact = all(_equal(_words(folder), w.new) for folder in (again, victim))
    shutil.rmtree(again)
    return row | {"exact_resume": exact, "rewritten": rewritten}


def blindly(held: Words, w: World, op: str) -> Words:
    """The bits after writing all changes by `op`, whatever `held` is."""
    held = {name: words.copy() for name, words in held.items()}
    for record in w.delta.with_op(op).tensors:
        words = held[record.name]
        words[record.index] = new_words(op, words[record.index], record.words)
    return held


def resume(folder: Path, w: World, attempt: Attempt) -> int:
    """Finish the update of the store by chunk states; returns the number of chunks rewritten whole."""
    with ResidentStore(folder) as store:
        store.begin(attempt)
        delta = replace(w.delta, **attempt.transfer)
        outcome = store.resume(delta.with_op("xor"))
        if outcome.damaged:
            store.resume(repair(delta, w.new, outcome.damaged))
        store.commit(attempt)
        return len(outcome.damaged)


def changed_bytes(w: World) -> tuple[np.ndarray, int]:
    """(positions of the changed bytes in what an update writes, which is the changing chunks in order; its length)."""
    parts = []
    for record in w.delta.tensors:
        difference = (w.old[record.name].words ^ w.new[record.name].words).view(np.uint8)
        pieces = (difference[2 * part.start : 2 * part.stop] for part in chunk_slices(record.elements, record.chunk))
        parts += [piece for piece in pieces if piece.any()]
    stream = np.concatenate(parts)
    return np.flatnonzero(stream), stream.size


def die(folder: Path, w: World, byte: int) -> None:
    """Fork a process that applies the XOR payload to the store and kills itself after `byte` bytes of weights.

    Raises:
        RepriseError: it ended in another way than by SIGKILL.
    """
    delta = w.delta.with_op("xor")
    child = os.fork()
    if child == 0:
        try:
            ResidentStore(folder, fs=Faults(folder, kill_at=byte, sigkill=True)).apply(delta)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
        raise RepriseError(f"byte={byte}: the receiver ended with status {status}, expected SIGKILL")


def races(processes: int, rounds: int) -> list[dict]:
    """Let `processes` coordinators commit the next version at once, `rounds` times.

    Returns:
        one row a round: round, winners (processes whose exchange succeeded), losers (whose exchange was refused),
        version (in the record afterwards).
    """
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        log = FileCommitLog.create(Path(scratch) / "commit")
        for number in range(rounds):
            codes = _race(log, processes)
            winners, losers = codes.count(0), codes.count(LOST)
            rows.append({"round": number, "winners": winners, "losers": losers, "version": log.read().version})
    return rows


LOST = 3  # exit status


def _race(log: FileCommitLog, processes: int) -> list[int]:
    gate, opener = os.pipe()
    children = []
    expected = log.read()
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(opener)
                own = FileCommitLog(log.path)
                os.read(gate, 1)  # returns when the parent closes its end
                own.compare_and_set(expected, expected.committed, signature())
                code = 0
            except CommitConflict:
                code = LOST
            finally:
                os._exit(code)
        children.append(child)
    os.close(gate)
    os.close(opener)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _begun(folder: Path, w: World) -> Path:
    with ResidentStore.create(folder, w.old) as store:
        store.begin(FIRST)
    return folder


def _words(folder: Path) -> Words:
    with ResidentStore(folder) as store:
        return {name: bits.words.copy() for name, bits in store.tensors().items()}


def _changing_states(words: np.ndarray, record) -> np.ndarray:
    changing = changed_chunks(record.index, record.elements, record.chunk)
    return chunk_states(Bits(record.dtype, record.shape, words), record)[changing]


def _equal(held: Words, expected: dict[str, Bits]) -> bool:
    return all(np.array_equal(held[name], bits.words) for name, bits in expected.items())
