import json
import random
import subprocess
import sys

import notebooks
import numpy as np
import pytest
from notebooks import SPACE, note, put, subjects

from reprise.durable import Journal, JournalCorrupt
from reprise.durable.faults import Faults, Killed
from reprise.memory.errors import EmbeddingSpaceError, MemoryFault, StaleVersion, UnknownSchema
from reprise.memory.legacy import import_legacy
from reprise.memory.store import Delete, EmbeddingSpace, NoteStore, Put, repair


def test_what_is_committed_is_there_for_the_next_process(tmp_path):
    with NoteStore(tmp_path / "s", SPACE) as store:
        assert store.snapshot().version == 0
        assert store.commit([put(0), put(1)]) == 1
        assert store.commit([Delete(put(0).note.id), put(2)], expected_version=1) == 2
    with NoteStore(tmp_path / "s") as store:
        found = store.snapshot()
        assert (found.version, [each.subject for each in found.notes]) == (2, ["subject 1", "subject 2"])
        assert np.array_equal(found.vectors, np.eye(4)[[1, 2]]) and found.vectors.dtype == np.float32
        assert found.notes[0] == put(1).note
        assert subjects(store, 1) == ["subject 0", "subject 1"] and subjects(store, 0) == []


def test_half_precision_moves_a_cosine_by_less_than_a_thousandth(tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 384))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with NoteStore(tmp_path / "s", EmbeddingSpace("test", "1", 384)) as store:
        store.commit([Put(note(f"{k}"), vector) for k, vector in enumerate(vectors)])
        kept = store.snapshot().vectors
    assert np.abs(kept @ kept.T - vectors @ vectors.T).max() < 1e-3


def test_a_refused_transaction_leaves_the_file_as_it_was(tmp_path):
    with NoteStore(tmp_path / "s", SPACE) as store:
        store.commit([put(0)])
        before = store.path.read_bytes()
        for operations, error, name in [
            ([put(1), Delete("nothing")], MemoryFault, r"operations\[1\].id='nothing'"),
            ([put(1), put(0)], MemoryFault, r"operations\[1\]: note .* is there already"),
            ([Put(note("x"), np.ones(3))], EmbeddingSpaceError, r"shape \(3,\)"),
            ([Put(note("x"), np.full(4, np.nan))], EmbeddingSpaceError, "finite"),
        ]:
            with pytest.raises(error, match=name):
                store.commit(operations)
        with pytest.raises(StaleVersion, match="expected_version=0"):
            store.commit([put(1)], expected_version=0)
        assert store.path.read_bytes() == before


def test_rollback_restores_an_older_version_as_a_new_one(tmp_path):
    with NoteStore(tmp_path / "s", SPACE) as store:
        store.commit([put(0), put(1)])
        old = store.snapshot()
        store.commit([Delete(put(1).note.id), put(2)])
        assert store.rollback_to(1) == 3
        new = store.snapshot()
        assert new.notes == old.notes and np.array_equal(new.vectors, old.vectors)
        with pytest.raises(MemoryFault, match="version=9"):
            store.rollback_to(9)


def test_compaction_keeps_the_notes_and_the_version(tmp_path):
    with NoteStore(tmp_path / "s", SPACE) as store:
        for k in range(20):
            store.commit([put(k), *([Delete(put(k - 1).note.id)] if k else [])])
        before, size = store.snapshot(), store.path.stat().st_size
        store.compact()
        after = store.snapshot()
        assert (after.version, after.notes) == (before.version, before.notes)
        assert store.path.stat().st_size < size / 10
        assert store.commit([put(50)]) == 21
        with pytest.raises(MemoryFault, match="compacted away"):
            store.snapshot(3)


def test_another_space_is_never_mixed_in(tmp_path):
    NoteStore(tmp_path / "s", SPACE).close()
    with pytest.raises(EmbeddingSpaceError, match="reembed"):
        NoteStore(tmp_path / "s", EmbeddingSpace("other", "1", 4))


def test_reembedding_keeps_every_note(tmp_path):
    wider = EmbeddingSpace("wide", "2", 8)
    with NoteStore(tmp_path / "s", SPACE) as store:
        store.commit([put(0), put(1)])
        with store.reembed(tmp_path / "t", lambda texts: np.ones((len(texts), 8)), wider) as other:
            assert other.space == wider and other.snapshot().notes == store.snapshot().notes
        with pytest.raises(MemoryFault, match="does not exist yet"):
            store.reembed(tmp_path / "t", None, wider)


def test_a_store_of_a_newer_schema_can_be_read_and_not_written(tmp_path):
    header = {"schema": "mistake-notebook/9", "version": 0, "more": 1}
    space = dict(model="m", revision="r", dim=4, pooling="mean", normalized=True, tokens=3)
    with Journal(tmp_path / "s") as journal:
        journal.append({**header, "space": space})
    with NoteStore(tmp_path / "s") as store:
        assert store.snapshot().notes == ()
        with pytest.raises(UnknownSchema, match="newer schema"):
            store.commit([put(0)])


def test_a_file_that_is_no_store_is_refused(tmp_path):
    with Journal(tmp_path / "j") as journal:
        journal.append({"op": "put"})
    with pytest.raises(MemoryFault, match="not a store of notes"):
        NoteStore(tmp_path / "j")
    with pytest.raises(MemoryFault, match="no store there"):
        NoteStore(tmp_path / "nothing")


def test_plain_lines_of_the_released_code_come_in_and_bad_ones_are_named(tmp_path):
    good = {"subject": "dates", "guidance": "use ISO dates", "embedding": [1, 0, 0, 0]}
    lines = [good, good, {**good, "embedding": [1, 2]}, {"subject": "x"}, {**good, "subject": ""}]
    text = "\n".join(map(json.dumps, lines)) + "\nnot json\n\n"
    (tmp_path / "kb.jsonl").write_text(text)
    with NoteStore(tmp_path / "s", SPACE) as store:
        added, problems = import_legacy(store, tmp_path / "kb.jsonl")
        assert (added, [problem.split(":")[0] for problem in problems]) == (1, ["line 3", "line 4", "line 5", "line 6"])
        assert store.snapshot().notes[0].guidance.correct_approach == "use ISO dates"
        assert import_legacy(store, tmp_path / "kb.jsonl")[0] == 0


def run(path, fs):
    done = []
    with NoteStore(path, SPACE, fs=fs) as store:
        for work in (
            lambda: store.commit([put(0), put(1)]),
            lambda: store.commit([Delete(put(0).note.id), put(2)]),
            store.compact,
            lambda: store.commit([put(3)]),
        ):
            work()
            done.append(len(done) + 1)
    return done


STATES = [[], ["subject 0", "subject 1"], ["subject 1", "subject 2"], ["subject 1", "subject 2", "subject 3"]]


def test_killed_at_every_step_a_store_holds_a_committed_version(tmp_path):
    whole = Faults(tmp_path)
    run(tmp_path / "whole", whole)
    seen = set()
    for step in range(0, whole.steps, 7):
        path = tmp_path / f"killed{step}"
        with pytest.raises(Killed):
            run(path, Faults(tmp_path, kill_at=step))
        with NoteStore(path, SPACE) as store:
            state = STATES.index(subjects(store))
            seen.add(state)
            assert store.commit([put(9)]) == store.snapshot().version
    assert seen == {0, 1, 2, 3} or seen == {0, 1, 2}


def test_a_full_disk_leaves_what_was_committed(tmp_path):
    fs = Faults(tmp_path)
    with NoteStore(tmp_path / "s", SPACE, fs=fs) as store:
        store.commit([put(0)])
        fs.full_at = fs.written + 300
        with pytest.raises(OSError):
            store.commit([put(k) for k in range(1, 9)])
        assert subjects(store) == ["subject 0"]
        fs.full_at = None
        assert store.commit([put(1)]) == 2


def test_one_flipped_bit_is_found_and_only_its_transaction_is_lost(tmp_path):
    with NoteStore(tmp_path / "s", SPACE) as store:
        for k in range(6):
            store.commit([put(k)])
    intact, rng = (tmp_path / "s").read_bytes(), random.Random(1)
    everything = {f"subject {k}" for k in range(6)}
    for trial in range(40):
        path = tmp_path / f"t{trial}"
        damaged = bytearray(intact)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(JournalCorrupt):
            NoteStore(path, SPACE)
        assert repair(path, SPACE) > 0
        with NoteStore(path, SPACE) as store:
            assert len(everything - set(subjects(store))) <= 1
        assert (tmp_path / f"t{trial}.quarantine").exists()


@pytest.mark.parametrize("writers, transactions", [(4, 10), pytest.param(8, 200, marks=pytest.mark.slow)])
def test_many_writers_lose_nothing(tmp_path, writers, transactions):
    command = [sys.executable, notebooks.__file__, tmp_path / "s"]
    processes = [subprocess.Popen([*map(str, command), str(k), str(transactions)]) for k in range(writers)]
    assert [process.wait() for process in processes] == [0] * writers
    with NoteStore(tmp_path / "s") as store:
        found = store.snapshot()
    assert found.version == len(found.notes) == writers * transactions


@pytest.mark.parametrize("trials", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_random_damage_never_leaves_half_a_transaction(tmp_path, trials):
    """Truncations and flips: a store opens at a committed version, or is refused and repaired to whole transactions."""
    with NoteStore(tmp_path / "s", SPACE) as store:
        for k in range(0, 10, 2):
            store.commit([put(k), put(k + 1)])
    intact, rng = (tmp_path / "s").read_bytes(), random.Random(trials)
    pairs = [{f"subject {k}", f"subject {k + 1}"} for k in range(0, 10, 2)]
    refused = 0
    for _ in range(trials):
        path, damaged = tmp_path / "t", bytearray(intact)
        if rng.random() < 0.5:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            NoteStore(path, SPACE).close()
        except JournalCorrupt:
            refused += 1
            repair(path, SPACE)
            (tmp_path / "t.quarantine").unlink(missing_ok=True)
        with NoteStore(path, SPACE) as store:
            found = set(subjects(store))
        assert all(pair <= found or not pair & found for pair in pairs)
    assert refused > trials / 4
