"""Resident weights: an update in place, and what is left of it after a kill or a power cut at any moment."""

import json
import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recovery import CHUNK, DELTA, FIRST, NEW, OLD, RETRY, copy, finish, payloads, same, steps_of, version
from recovery import memory as memory
from safetensors import safe_open

from reprise.durable import FS
from reprise.durable.faults import Faults, Killed
from reprise.labs.failover_experiments import MEMORY, Unsynced
from reprise.refit import Bits, PayloadError, RefitSchemaError, StaleBaseError, diff_bits, encode
from reprise.refit.recovery.attempt import Attempt, FencedError
from reprise.refit.recovery.chunk_plan import plan_chunks
from reprise.refit.recovery.fingerprint import fingerprint
from reprise.refit.recovery.lock import LockHeld
from reprise.refit.recovery.parts import repair, split
from reprise.refit.recovery.resident import ResidentStore
from reprise.refit.recovery.resident_state import ResidentError

NEXT = Attempt(1, 3, 1, 2, "xor")


@pytest.fixture
def store(memory):
    with ResidentStore.create(memory / "store", OLD, fs=Unsynced()) as store:
        yield store


# -- right values ------------------------------------------------------------------------------------------------------


def test_a_chunk_is_skipped_applied_or_overwritten_by_what_it_holds():
    old, new = np.arange(192, dtype="<u2"), np.arange(192, dtype="<u2")
    new[[0, 70, 130]] = 7, 7, 7
    (record,) = diff_bits(old, new, 64).tensors
    held = old.copy()
    held[0] = 7  # chunk 0 is new, chunk 1 old, chunk 2 neither
    held[130] = 99
    xor, overwrite = plan_chunks(record.with_op("xor"), held), plan_chunks(record, held)
    assert [w[0].start for w in xor.writes] == [64] and (xor.skipped, xor.rewritten, xor.damaged) == (1, 0, (2,))
    assert [w[0].start for w in overwrite.writes] == [64, 128] and (overwrite.rewritten, overwrite.damaged) == (1, ())
    held[131] = 99  # an element that does not change is wrong: the changed ones cannot mend the chunk
    assert plan_chunks(record, held).damaged == (2,)


@pytest.mark.parametrize("op", ["xor", "add", "overwrite"])
def test_an_update_turns_the_old_bits_into_the_new_ones(store, op):
    attempt = Attempt(1, 1, 0, 1, op)
    store.begin(attempt)
    outcomes = [store.deliver(encode(delta, None)) for delta in payloads(attempt)]
    assert [(o.status, o.written, o.skipped, o.rewritten) for o in outcomes] == [
        ("applied", 4, 0, 0),
        ("applied", 1, 0, 0),
    ]
    assert store.check(attempt, 2) == fingerprint(NEW)
    store.commit(attempt)
    assert (store.status().version, store.status().attempt) == (1, None)
    assert same(store.tensors(), NEW)


def test_the_file_is_one_that_safetensors_reads(store):
    (path,) = store.folder.glob("*.safetensors")
    with safe_open(path, framework="np") as file:
        assert sorted(file.keys()) == ["a", "b", "none"]
        assert (file.get_tensor("b").view("<u4") == OLD["b"].words).all()


def test_all_dtypes_and_shapes_come_back(memory):
    held = {
        dtype: Bits(dtype, shape, np.arange(n, dtype=f"<u{width}"))
        for dtype, width, shape, n in [
            ("U8", 1, (3,), 3),
            ("C64", 8, (1, 2), 2),
            ("F32", 4, (), 1),
            ("BF16", 2, (5, 1), 5),
        ]
    }
    with ResidentStore.create(memory / "s", held) as store:
        assert same(store.tensors(), held) and {k: b.shape for k, b in store.tensors().items()}["BF16"] == (5, 1)


def test_a_fingerprint_sees_a_name_a_shape_and_the_sign_of_zero():
    zeros, other = np.zeros(4, np.float32), np.zeros(4, np.float32)
    other[2] = -0.0
    prints = {fingerprint(t) for t in ({"x": zeros}, {"y": zeros}, {"x": zeros.reshape(2, 2)}, {"x": other})}
    assert len(prints) == 4
    assert fingerprint({"x": zeros, "y": other}) == fingerprint({"y": other, "x": zeros})


def test_payloads_are_whole_tensors_within_the_limit_and_numbered():
    parts = split(DELTA, OLD["a"].words.nbytes)
    assert [[r.name for r in p.tensors] for p in parts] == [["a"], ["b"]] and [p.payload_id for p in parts] == [0, 1]
    assert [len(p.tensors) for p in split(DELTA, 1 << 20)] == [2]


# -- what is refused or ignored ----------------------------------------------------------------------------------------


def test_duplicates_and_replays_write_nothing(store):
    store.begin(FIRST)
    first, second = payloads(FIRST)
    assert store.apply(second).status == "applied"  # the order does not matter
    assert store.apply(second).status == "duplicate"
    assert store.apply(first).status == "applied"
    store.commit(FIRST)
    assert [store.apply(delta).status for delta in (first, second)] == ["replayed", "replayed"]
    store.begin(NEXT)
    assert store.apply(first).status == "replayed"
    assert same(store.tensors(), NEW)


def test_a_duplicate_is_known_after_a_restart(memory):
    with ResidentStore.create(memory / "s", OLD) as store:
        store.begin(FIRST)
        store.apply(payloads(FIRST)[0])
    with ResidentStore(memory / "s") as store:
        assert store.apply(payloads(FIRST)[0]).status == "duplicate"
        assert store.apply(payloads(FIRST)[1]).status == "applied"
        assert store.check(FIRST, 2) == fingerprint(NEW)


def test_a_stale_base_is_refused_by_number_and_by_bits(memory, store):
    with pytest.raises(StaleBaseError, match="holds version 0"):
        store.begin(NEXT)
    with ResidentStore.create(memory / "other", version(2), fs=Unsynced()) as other:
        other.begin(FIRST)
        for delta in payloads(FIRST):
            with pytest.raises(StaleBaseError, match="does not hold the bits of version 0"):
                other.apply(delta)
        assert same(other.tensors(), version(2))


def test_only_the_open_attempt_is_heard(store):
    with pytest.raises(FencedError):
        store.apply(payloads(FIRST)[0])  # nothing begun
    store.begin(RETRY)
    store.begin(RETRY)
    for attempt in (FIRST, Attempt(1, 3, 0, 1, "xor"), Attempt(2, 2, 0, 1, "xor")):
        with pytest.raises(FencedError, match=f"attempt {attempt.number}: not the open attempt"):
            store.apply(payloads(attempt)[0])
    with pytest.raises(FencedError, match="expected one after 1.2"):
        store.begin(FIRST)
    with pytest.raises(FencedError):
        store.commit(FIRST)
    store.begin(Attempt(2, 1, 0, 1, "overwrite"))
    with pytest.raises(FencedError):
        store.resume(payloads(RETRY)[0])
    with pytest.raises(FencedError, match="dense load of generation 1"):
        store.load(OLD, 0, 1)
    assert same(store.tensors(), OLD)


def test_a_stopped_attempt_stays_stopped_after_a_restart(memory):
    with ResidentStore.create(memory / "s", OLD) as store:
        store.begin(FIRST)
        store.stop_and_wait(FIRST.order)
    with ResidentStore(memory / "s") as store:
        with pytest.raises(FencedError):
            store.apply(payloads(FIRST)[0])
        with pytest.raises(FencedError):
            store.begin(FIRST)
        assert finish(store) == 0 and same(store.tensors(), NEW)


def test_a_missing_payload_is_named(store):
    store.begin(FIRST)
    store.apply(payloads(FIRST)[1])
    with pytest.raises(ResidentError, match=r"payloads \[0\] missing"):
        store.check(FIRST, 2)


def test_a_payload_that_does_not_fit_writes_nothing(store):
    store.begin(FIRST)
    renamed = diff_bits({"z": OLD["a"]}, {"z": NEW["a"]}, CHUNK, **FIRST.transfer)
    reshaped = diff_bits(*({"a": Bits("BF16", (3, 100), v["a"].words)} for v in (OLD, NEW)), CHUNK, **FIRST.transfer)
    twice = diff_bits(*({"a": v["a"], "b": v["b"]} for v in (OLD, NEW)), CHUNK, **FIRST.transfer)
    twice = type(twice)((twice.tensors[0], twice.tensors[0]), **FIRST.transfer)
    for delta, error in ((renamed, PayloadError), (reshaped, RefitSchemaError), (twice, PayloadError)):
        with pytest.raises(error, match="tensor '[az]'"):
            store.apply(delta)
    assert same(store.tensors(), OLD)


def test_a_store_is_open_once_and_free_when_its_process_dies(memory):
    ResidentStore.create(memory / "s", OLD).close()
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        ResidentStore(memory / "s")
        os.write(tell, b"x")
        signal.pause()
    os.read(ready, 1)
    with pytest.raises(LockHeld):
        ResidentStore(memory / "s")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    ResidentStore(memory / "s").close()
    with pytest.raises(ResidentError, match="expected none"):
        ResidentStore.create(memory / "s", OLD)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'"x"', b"[" * 9999])
@pytest.mark.parametrize("where", ["whole", "attempt", "weights", "version"])
def test_a_damaged_state_is_refused(memory, text, where):
    ResidentStore.create(memory / "s", OLD).close()
    path = memory / "s" / "state.json"
    if where == "whole":
        path.write_bytes(text)
    else:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = "../../etc/passwd"
        path.write_text(json.dumps(json.loads(path.read_text()) | {where: value}))
    with pytest.raises(ResidentError, match="state.json: damaged"):
        ResidentStore(memory / "s")


# -- kills -------------------------------------------------------------------------------------------------------------


def begin_and_apply(folder, fs):
    store = ResidentStore(folder, fs=fs)
    try:
        store.begin(FIRST)
        for delta in payloads(FIRST):
            store.apply(delta)
        store.commit(FIRST)
    finally:
        store.close()


def torn(store) -> int:
    plans = [plan_chunks(r, store.tensors()[r.name].words) for r in DELTA.with_op("xor").tensors]
    return sum(len(plan.damaged) for plan in plans)


def test_a_kill_at_any_byte_leaves_at_most_one_torn_chunk_and_every_retry_is_exact(memory):
    ResidentStore.create(memory / "s", OLD).close()
    steps = steps_of(copy(memory / "s", memory / "dry"), lambda fs: begin_and_apply(memory / "dry", fs))
    seen = set()
    for n in range(steps):
        victim = copy(memory / "s", memory / "v")
        with pytest.raises(Killed):
            begin_and_apply(victim, Faults(victim, kill_at=n))
        with ResidentStore(victim, fs=Unsynced()) as store:
            status = store.status()
            count = torn(store)
            assert count <= 1
            if status.version == 1:
                assert same(store.tensors(), NEW)
            elif status.attempt is None:
                assert same(store.tensors(), OLD)
            if status.version == 0:
                op = ("xor", "add", "overwrite")[n % 3]
                assert finish(store, op=op) == (count if op != "overwrite" else 0)
            seen.add((status.version, status.attempt, count))
            assert store.status().version == 1 and same(store.tensors(), NEW)
        assert sorted(os.listdir(victim)) == ["lock", "state.json", "weights-0.safetensors"]
    assert seen == {(0, None, 0), (0, FIRST, 0), (0, FIRST, 1), (1, None, 0)}


def test_the_same_payloads_of_the_same_attempt_finish_it_after_a_kill(memory):
    # a payload that was recorded before its bytes were written would come back as a duplicate, with the old bits
    ResidentStore.create(memory / "s", OLD).close()
    steps = steps_of(copy(memory / "s", memory / "dry"), lambda fs: begin_and_apply(memory / "dry", fs))
    for n in range(0, steps, 11):
        victim = copy(memory / "s", memory / "v")
        with pytest.raises(Killed):
            begin_and_apply(victim, Faults(victim, kill_at=n))
        with ResidentStore(victim, fs=Unsynced()) as store:
            if store.status().version == 0:
                finish(store, FIRST, op="xor")
            assert same(store.tensors(), NEW)


def test_a_retry_may_be_killed_too(memory):
    ResidentStore.create(memory / "s", OLD).close()
    steps = steps_of(copy(memory / "s", memory / "dry"), lambda fs: begin_and_apply(memory / "dry", fs))
    for n in range(steps // 4, steps, steps // 6):
        first = copy(memory / "s", memory / "first")
        with pytest.raises(Killed):
            begin_and_apply(first, Faults(first, kill_at=n))
        for m in range(3, 2 * steps, 53):
            victim = copy(first, memory / "v")
            store = ResidentStore(victim, fs=Faults(victim, kill_at=m))
            try:
                finish(store, op="xor")
            except Killed:
                pass
            finally:
                store.close()
            with ResidentStore(victim, fs=Unsynced()) as store:
                if store.status().version == 0:
                    finish(store, Attempt(1, 3, 0, 1, "overwrite"))
                assert same(store.tensors(), NEW)


def test_xor_once_more_is_never_exact(memory):
    # the placebo: what the digests and the record of applied payloads are for
    ResidentStore.create(memory / "s", OLD).close()
    for n in range(400, 900, 25):
        victim = copy(memory / "s", memory / "v")
        with pytest.raises(Killed):
            begin_and_apply(victim, Faults(victim, kill_at=n))
        with ResidentStore(victim, fs=Unsynced()) as store:
            held = {name: bits.words.copy() for name, bits in store.tensors().items()}
            assert store.status().attempt == FIRST and not same(store.tensors(), OLD)
        for record in DELTA.with_op("xor").tensors:
            held[record.name][record.index] ^= record.words
        assert any(not np.array_equal(held[name], NEW[name].words) for name in held)


def test_a_dense_load_is_old_or_new_after_a_kill_at_any_byte(memory):
    ResidentStore.create(memory / "s", OLD).close()

    def load(folder, fs):
        store = ResidentStore(folder, fs=fs)
        try:
            store.load(NEW, 5, 2)
        finally:
            store.close()

    steps, seen = steps_of(copy(memory / "s", memory / "dry"), lambda fs: load(memory / "dry", fs)), set()
    for n in range(0, steps, 3):
        victim = copy(memory / "s", memory / "v")
        with pytest.raises(Killed):
            load(victim, Faults(victim, kill_at=n))
        with ResidentStore(victim, fs=Unsynced()) as store:
            seen.add(store.status().version)
            assert same(store.tensors(), NEW if store.status().version == 5 else OLD)
        assert len(os.listdir(victim)) == 3
    assert seen == {0, 5}


# -- power cuts --------------------------------------------------------------------------------------------------------


def check_cut(cut, folder, committed_at):
    with ResidentStore(cut.restore(folder), fs=Unsynced()) as store:
        if cut.steps >= committed_at:
            assert store.status().version == 1
        if store.status().version == 0:
            assert store.status().attempt or same(store.tensors(), OLD)
            finish(store, Attempt(9, 1, 0, 1, "overwrite"), op=("xor", "overwrite")[cut.steps % 2])
        assert same(store.tensors(), NEW)


def test_a_power_cut_at_any_moment_loses_nothing_acknowledged_and_the_retry_is_exact(memory):
    ResidentStore.create(memory / "s", OLD).close()
    fs = Faults(memory / "s")
    begin_and_apply(memory / "s", fs)
    for k, cut in enumerate(fs.power_cuts(limit=64)):
        check_cut(cut, memory / f"cut{k}", fs.steps)


class SyncTimes(Faults):
    """Notes the step before each sync of the weights."""

    def __init__(self, root):
        super().__init__(root)
        self.syncs = []

    def fsync(self, file):
        if "weights" in str(file.name):
            self.syncs.append(self.steps)
        super().fsync(file)


@pytest.mark.parametrize("op", ["xor", "overwrite"])
def test_a_power_cut_after_a_kill_and_a_retry_loses_nothing(memory, op):
    # the retry skips chunks that are new only in the page cache: it must sync them all the same
    ResidentStore.create(memory / "s", OLD).close()
    dry = SyncTimes(copy(memory / "s", memory / "dry"))
    begin_and_apply(memory / "dry", dry)
    assert len(dry.syncs) == 2
    for n in (dry.syncs[0] - 150, *dry.syncs):
        folder = copy(memory / "s", memory / "v")
        fs = Faults(folder, kill_at=n)
        with pytest.raises(Killed):
            begin_and_apply(folder, fs)
        fs.kill_at = None
        with ResidentStore(folder, fs=fs) as store:
            assert store.status().attempt == FIRST
            assert torn(store) == (n not in dry.syncs)
            finish(store, op=op)
        for k, cut in enumerate(fs.power_cuts(limit=16)):
            check_cut(cut, memory / f"{n}-{k}", fs.steps)


class FailingSync(FS):
    def fsync(self, file):
        if "weights-0" in str(file.name):
            raise OSError(5, "Input/output error")


def test_after_a_failed_sync_only_a_dense_load_goes_on(memory):
    ResidentStore.create(memory / "s", OLD).close()
    with ResidentStore(memory / "s", fs=FailingSync()) as store:
        store.begin(FIRST)
        with pytest.raises(OSError):
            store.apply(payloads(FIRST)[0])
        store.begin(RETRY)
        with pytest.raises(ResidentError, match="expected a dense load"):
            store.resume(payloads(RETRY)[0])
        store.load(NEW, 1, 1)
        assert same(store.tensors(), NEW) and store.status().attempt is None


# -- damage and other weights ------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 69), st.integers(1, 65535)), max_size=6),
    st.booleans(),
)
def test_any_damage_is_found_and_mended(damage, retried):
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        held = {name: Bits(b.dtype, b.shape, b.words.copy()) for name, b in (NEW if retried else OLD).items()}
        for name, at, mask in damage:
            held[name].words[at] ^= mask
        with ResidentStore.create(Path(folder) / "s", held, fs=Unsynced()) as store:
            finish(store)
            assert same(store.tensors(), NEW)


def test_a_repair_names_whole_chunks_and_proves_the_rest():
    fix = repair(DELTA, NEW, [("b", 1), ("a", 4), ("a", 0)])
    a, b = fix.tensors
    assert (a.op, a.index.tolist()) == ("overwrite", [*range(64), *range(256, 300)])
    assert b.index.tolist() == [*range(64, 70)]
    assert (a.old_digests == a.new_digests).tolist() == [False, True, True, True, True]
    assert (a.words == NEW["a"].words[a.index]).all()


def test_weights_that_were_applied_and_then_replaced_by_others_are_overwritten(memory):
    # the trainer restarted between two attempts and makes other weights of the same version
    with ResidentStore.create(memory / "s", OLD, fs=Unsynced()) as store:
        store.begin(FIRST)
        for delta in payloads(FIRST):
            store.apply(delta)
        other = version(2)
        store.begin(RETRY)
        for delta in payloads(RETRY, diff_bits(OLD, other, CHUNK)):
            outcome = store.resume(delta)
            if outcome.damaged:
                store.resume(repair(delta, other, outcome.damaged))
        assert store.check(RETRY, 2) == fingerprint(other)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 8), max_size=12), st.integers(0, 1500))
def test_any_order_of_messages_with_a_restart_ends_exact(events, kill):
    first, retry = payloads(FIRST), payloads(RETRY)
    actions = [
        lambda s: s.begin(FIRST),
        lambda s: s.begin(RETRY),
        lambda s: s.apply(first[0]),
        lambda s: s.apply(first[1]),
        lambda s: s.resume(retry[0]),
        lambda s: s.resume(retry[1]),
        lambda s: s.apply(retry[0]),
        lambda s: s.stop_and_wait(FIRST.order),
        lambda s: s.deliver(encode(first[0], None)),
    ]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        folder = Path(folder) / "s"
        ResidentStore.create(folder, OLD, fs=Unsynced()).close()
        store = ResidentStore(folder, fs=Faults(folder, kill_at=kill))
        for event in events:
            try:
                actions[event](store)
            except (FencedError, StaleBaseError):
                pass
            except Killed:
                break
        store.close()
        with ResidentStore(folder, fs=Unsynced()) as store:
            finish(store, Attempt(2, 1, 0, 1, "overwrite"), op="xor")
            assert same(store.tensors(), NEW)
