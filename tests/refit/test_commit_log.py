"""The commit record: one exchange wins, whoever tries, whatever fails."""

import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from recovery import MemoryObjectStore
from recovery import memory as memory

from reprise.durable import FS
from reprise.durable.faults import Faults, Killed
from reprise.labs.failover_experiments import Unsynced
from reprise.labs.kill_experiments import races
from reprise.refit.recovery import commit_log
from reprise.refit.recovery.commit_log import (
    Commit,
    CommitConflict,
    CommitLogError,
    FileCommitLog,
    ObjectCommitLog,
    PreconditionFailed,
    parse_record,
    signature,
)
from reprise.refit.recovery.lock import LockHeld, locked

START = Commit(5, 2)
ME, OTHER = "me", "other"
KEY = "refit/commit"


@pytest.fixture(params=["file", "object"])
def logs(request, memory):
    """A function that opens the same record once more, as another process would."""
    if request.param == "file":
        FileCommitLog.create(memory / "commit", START, fs=Unsynced())
        return lambda: FileCommitLog(memory / "commit", fs=Unsynced())
    store = MemoryObjectStore()
    ObjectCommitLog.create(store, KEY, START)
    return lambda: ObjectCommitLog(store, KEY)


# -- right values ------------------------------------------------------------------------------------------------------


def test_a_commit_raises_the_version_and_a_takeover_the_generation(logs):
    log = logs()
    log.compare_and_set(Commit(5, 2), Commit(6, 2), ME)
    log.compare_and_set(Commit(6, 2), Commit(6, 3), ME)
    assert log.read() == logs().read() == Commit(6, 3)


@pytest.mark.parametrize("expected", [Commit(5, 1), Commit(5, 3), Commit(4, 2), Commit(6, 2)])
@pytest.mark.parametrize("step", ["committed", "taken_over"])
def test_any_other_record_than_the_expected_one_is_a_conflict(logs, expected, step):
    log = logs()
    with pytest.raises(CommitConflict) as caught:
        log.compare_and_set(expected, getattr(expected, step), ME)
    assert caught.value.found == log.read() == START


@pytest.mark.parametrize("new", [Commit(5, 2), Commit(7, 2), Commit(6, 3), Commit(5, 4), Commit(4, 2), Commit(5, 1)])
def test_only_the_two_exchanges_exist(logs, new):
    with pytest.raises(CommitLogError, match="expected the next version or the next generation"):
        logs().compare_and_set(START, new, ME)


def test_an_old_coordinator_of_any_generation_fails(logs):
    old, current = logs(), logs()
    for generation in range(2, 6):
        current.compare_and_set(Commit(5, generation), Commit(5, generation + 1), ME)
    for generation in range(2, 6):
        with pytest.raises(CommitConflict):
            old.compare_and_set(Commit(5, generation), Commit(6, generation), ME)
    assert old.read() == Commit(5, 6)


def test_the_same_exchange_again_is_the_same_exchange_but_not_for_another(logs):
    log, other = logs(), logs()
    log.compare_and_set(START, START.committed, ME)
    log.compare_and_set(START, START.committed, ME)
    with pytest.raises(CommitConflict):
        other.compare_and_set(START, START.committed, OTHER)
    assert log.read() == START.committed


def test_a_record_is_created_once(memory, logs):
    FileCommitLog.create(memory / "other", fs=Unsynced())
    store = MemoryObjectStore()
    ObjectCommitLog.create(store, KEY)
    for create in (lambda: FileCommitLog.create(memory / "other"), lambda: ObjectCommitLog.create(store, KEY)):
        with pytest.raises(CommitLogError, match="expected no commit record"):
            create()
    for missing in (FileCommitLog(memory / "missing"), ObjectCommitLog(store, "missing")):
        with pytest.raises(CommitLogError, match="none, expected one"):
            missing.read()


@given(st.binary(max_size=80))
@example(b"[" * 9999)
@example(b'{"version": 1, "generation": 2}')
@example(b'{"version": -1, "generation": 2, "writer": ""}')
@example(b'{"version": 1, "generation": true, "writer": ""}')
@example(b'{"version": 1, "generation": 2, "writer": 3}')
@example(b'{"version": 1, "generation": 2, "writer": "", "more": 0}')
def test_a_malformed_record_is_refused(raw):
    with pytest.raises(CommitLogError):
        parse_record(raw)


# -- races -------------------------------------------------------------------------------------------------------------


def test_of_eight_racing_processes_exactly_one_wins():
    assert [(row["winners"], row["losers"], row["version"]) for row in races(8, 4)] == [(1, 7, v) for v in (1, 2, 3, 4)]


def test_of_eight_racing_threads_exactly_one_wins(logs):
    for k in range(10):
        expected, barrier, won = Commit(5 + k, 2), threading.Barrier(8), []

        def race(log, expected=expected, barrier=barrier, won=won):
            barrier.wait()
            try:
                log.compare_and_set(expected, expected.committed, signature())
                won.append(log)
            except CommitConflict:
                pass

        threads = [threading.Thread(target=race, args=(logs(),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1


def test_the_race_is_lost_without_the_comparison(memory, monkeypatch):
    # broken on purpose: with the check switched off everybody wins
    monkeypatch.setattr(commit_log, "check_exchange", lambda *args: None)
    assert races(8, 1)[0]["winners"] == 8


# -- crashes -----------------------------------------------------------------------------------------------------------


def test_a_kill_at_any_byte_leaves_the_old_record_or_the_new_one(memory):
    folder = memory / "log"
    folder.mkdir()
    seen = []
    for n in range(200):
        (folder / "commit").unlink(missing_ok=True)
        FileCommitLog.create(folder / "commit", START, fs=Unsynced())
        try:
            FileCommitLog(folder / "commit", fs=Faults(folder, kill_at=n)).compare_and_set(START, START.committed, ME)
            break
        except Killed:
            after = FileCommitLog(folder / "commit", fs=Unsynced())
            seen.append(after.read())
            after.compare_and_set(seen[-1], seen[-1].taken_over, ME)  # the lock died with its holder
    assert len(seen) == n > 40 and seen == sorted(seen, key=lambda c: c.version) and set(seen) == {START, Commit(6, 2)}


def test_a_power_cut_after_the_exchange_finds_it_done(memory):
    folder = memory / "log"
    folder.mkdir()
    FileCommitLog.create(folder / "commit", START, fs=Unsynced())
    fs = Faults(folder)
    FileCommitLog(folder / "commit", fs=fs).compare_and_set(START, START.committed, ME)
    done, seen = fs.steps, set()
    for k, cut in enumerate(fs.power_cuts()):
        held = FileCommitLog(cut.restore(memory / f"cut{k}") / "commit", fs=Unsynced()).read()
        assert held == START.committed or cut.steps < done
        seen.add(held)
    assert seen == {START, START.committed}


def test_what_was_read_survives_a_power_cut(memory):
    folder = memory / "log"
    folder.mkdir()
    FileCommitLog.create(folder / "commit", START, fs=Unsynced())
    fs = Faults(folder)
    dry = Faults(folder)
    FileCommitLog(folder / "commit", fs=dry).compare_and_set(START, START.committed, ME)
    (folder / "commit").unlink()
    FileCommitLog.create(folder / "commit", START, fs=Unsynced())
    fs.kill_at = dry.steps - 1  # renamed, its folder not synced
    with pytest.raises(Killed):
        FileCommitLog(folder / "commit", fs=fs).compare_and_set(START, START.committed, ME)
    fs.kill_at = None
    assert FileCommitLog(folder / "commit", fs=fs).read() == START.committed
    for k, cut in enumerate(fs.power_cuts()):
        if cut.steps >= fs.steps:
            assert FileCommitLog(cut.restore(memory / f"cut{k}") / "commit", fs=Unsynced()).read() == START.committed


def test_a_held_lock_is_waited_for_and_named(memory):
    FileCommitLog.create(memory / "commit", START)
    with locked(memory / "commit.lock", 0.0), pytest.raises(LockHeld, match="commit.lock"):
        FileCommitLog(memory / "commit", timeout=0.01).read()


# -- answers that get lost ---------------------------------------------------------------------------------------------


class OnceFailingSync(FS):
    """The sync of a folder fails once, after the rename."""

    failed = False

    def fsync_dir(self, folder):
        if not self.failed:
            self.failed = True
            raise OSError(5, "Input/output error")


def test_an_exchange_whose_sync_failed_is_done_by_the_same_call_again(memory):
    FileCommitLog.create(memory / "commit", START)
    log = FileCommitLog(memory / "commit", fs=OnceFailingSync())
    with pytest.raises(OSError):
        log.compare_and_set(START, START.committed, ME)
    log.compare_and_set(START, START.committed, ME)
    assert log.read() == START.committed


class LossyStore(MemoryObjectStore):
    """Puts of which the answer is lost: "after" it was done, "before", or "late", done when the next one arrives."""

    def __init__(self):
        super().__init__()
        self.lose, self.on_the_way = None, []

    def put(self, key, data, *, if_match):
        for late in self.on_the_way:
            try:
                super().put(*late[:2], if_match=late[2])
            except PreconditionFailed:
                pass
        self.on_the_way.clear()
        lose, self.lose = self.lose, None
        if lose == "late":
            self.on_the_way.append((key, data, if_match))
        elif lose != "before":
            super().put(key, data, if_match=if_match)
        if lose:
            raise TimeoutError(f"{key}: no answer")


@pytest.mark.parametrize("lose", ["before", "after", "late"])
@pytest.mark.parametrize("step", ["committed", "taken_over"])
def test_an_exchange_whose_answer_was_lost_is_settled_by_the_same_call_again(lose, step):
    store = LossyStore()
    log, new = ObjectCommitLog.create(store, KEY, START), getattr(START, step)
    store.lose = lose
    with pytest.raises(OSError):
        log.compare_and_set(START, new, ME)
    log.compare_and_set(START, new, ME)
    assert log.read() == new


@pytest.mark.parametrize("lose", ["before", "after", "late"])
def test_of_two_takeovers_with_a_lost_answer_one_wins(lose):
    store = LossyStore()
    mine, rival = ObjectCommitLog.create(store, KEY, START), ObjectCommitLog(store, KEY)
    store.lose = lose
    won = 0
    with pytest.raises(OSError):
        mine.compare_and_set(START, START.taken_over, ME)
    for log, writer in ((rival, OTHER), (mine, ME)):
        try:
            log.compare_and_set(START, START.taken_over, writer)
            won += 1
        except CommitConflict:
            pass
    assert won == 1 and mine.read() == START.taken_over


def test_a_late_put_of_a_fenced_coordinator_changes_nothing():
    store = LossyStore()
    old, new = ObjectCommitLog.create(store, KEY, START), ObjectCommitLog(store, KEY)
    store.lose = "late"
    with pytest.raises(OSError):
        old.compare_and_set(START, START.committed, ME)
    held, store.on_the_way = store.on_the_way, []
    new.compare_and_set(START, START.taken_over, OTHER)
    store.on_the_way = held  # arrives only now
    new.compare_and_set(START.taken_over, START.taken_over.committed, OTHER)
    assert new.read() == Commit(6, 3) and not store.on_the_way
