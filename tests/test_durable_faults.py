"""Kills at every byte, power cuts at every operation, full disks and flipped bits.

What must hold after any fault and a reopening: the journal is one of the states that lie between what was
acknowledged and what was in flight, whole transactions in order; an atomically written file is old or new.
"""

import errno
import os
import signal
import subprocess
import sys

import journal_workload
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_workload import LARGE, PARTS, STATES, work

from reprise.durable import Journal, JournalCorrupt, atomic_write, salvage
from reprise.durable.faults import Faults, Killed, bit_flips


def read(path, folder):
    with Journal(path, fs=Faults(folder)) as journal:
        values = [record.value for record in journal]
        journal.append(b"goes on")
        assert [record.value for record in journal] == [*values, b"goes on"]
    return values


def total_steps(folder):
    fs = Faults(folder)
    work(folder / "j", fs, [])
    return fs.steps


# -- the model itself --------------------------------------------------------------------------------------------------


def test_a_kill_leaves_exactly_n_bytes(tmp_path):
    fs = Faults(tmp_path, kill_at=1 + 7)  # the creation and seven bytes
    file = fs.open(tmp_path / "f", "wb")
    with pytest.raises(Killed):
        file.write(b"0123456789")
    assert (tmp_path / "f").read_bytes() == b"0123456"
    for attempt in (lambda: file.write(b"x"), lambda: fs.unlink(tmp_path / "f"), lambda: fs.fsync(file)):
        with pytest.raises(Killed):
            attempt()
    assert (tmp_path / "f").read_bytes() == b"0123456"


def test_what_a_power_cut_may_leave_of_two_sectors_and_a_name(tmp_path):
    (tmp_path / "old").write_bytes(b"on the disk")
    fs = Faults(tmp_path)
    with fs.open(tmp_path / "f", "xb") as file:
        file.write(b"a" * 512 + b"b" * 2)
        fs.fsync_dir(tmp_path)
    cuts = {cut.files.get("f") for cut in fs.power_cuts()}
    assert cuts == {None, b"", b"a" * 512, bytes(512) + b"bb", bytes(514), b"a" * 512 + b"bb", b"a" * 512 + bytes(2)}
    assert all(cut.files.get("old", b"on the disk") == b"on the disk" for cut in fs.power_cuts())
    with fs.open(tmp_path / "f", "r+b") as file:
        fs.fsync(file)
    assert {cut.files.get("f") for cut in fs.power_cuts() if cut.steps == fs.steps} == {b"a" * 512 + b"bb"}


def test_a_rename_may_be_lost_and_an_unsynced_file_may_be_empty_under_its_new_name(tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    fs = Faults(tmp_path)
    with fs.open(tmp_path / "t", "wb") as file:
        file.write(b"new")
        fs.replace(tmp_path / "t", tmp_path / "f")
    names = [cut.files for cut in fs.power_cuts()]
    assert {b"old", b"", bytes(3), b"new"} == {files["f"] for files in names}


def test_a_power_cut_is_restored_into_an_empty_folder_only(tmp_path):
    fs = Faults(tmp_path)
    atomic_write(tmp_path / "f", b"data", fs=fs)
    *_, last = fs.power_cuts()
    assert (last.restore(tmp_path / "cut") / "f").read_bytes() == b"data"
    with pytest.raises(ValueError, match="expected a new or an empty one"):
        last.restore(tmp_path / "cut")


def test_a_path_outside_the_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a file below root="):
        Faults(tmp_path / "root").open(tmp_path / "f", "wb")


# -- kills -------------------------------------------------------------------------------------------------------------


def test_atomic_write_killed_anywhere_leaves_old_or_new(tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    fs = Faults(tmp_path)
    atomic_write(tmp_path / "f", b"the new one", fs=fs)
    seen = []
    for n in range(fs.steps):
        (tmp_path / "f").write_bytes(b"old")
        with pytest.raises(Killed):
            atomic_write(tmp_path / "f", b"the new one", fs=Faults(tmp_path, kill_at=n))
        seen.append((tmp_path / "f").read_bytes())
    assert seen == [b"old"] * (fs.steps - 1) + [b"the new one"]  # only the fsync of the folder comes after the rename


def test_a_journal_killed_at_every_byte_holds_what_was_acknowledged(tmp_path):
    for n in range(total_steps(tmp_path)):
        path, done = tmp_path / f"j{n}", []
        with pytest.raises(Killed):
            work(path, Faults(tmp_path, kill_at=n), done)
        assert read(path, tmp_path) in STATES[len(done) : len(done) + 2], f"killed at step {n}"
        for file in tmp_path.iterdir():
            file.unlink()


@pytest.mark.parametrize("quantile", [0.02, 0.3, 0.7, 0.97])
def test_a_process_that_is_really_killed_leaves_the_same(tmp_path, quantile):
    (tmp_path / "dry").mkdir()
    (tmp_path / "real").mkdir()
    n = int(quantile * total_steps(tmp_path / "dry"))
    command = [sys.executable, journal_workload.__file__, "killed", tmp_path / "real", str(n)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == -signal.SIGKILL, result.stderr
    done = result.stdout.split()
    assert read(tmp_path / "real" / "j", tmp_path / "real") in STATES[len(done) : len(done) + 2]


# -- power cuts --------------------------------------------------------------------------------------------------------


def check_power_cuts(fs, name, done, base, states, limit=512):
    """Reopen every state of the disk; returns how many there were."""
    count = 0
    for count, cut in enumerate(fs.power_cuts(limit=limit), 1):  # noqa: B007
        acknowledged = sum(step <= cut.steps for step in done)
        folder = cut.restore(base / str(count))
        assert read(folder / name, folder) in states[acknowledged : acknowledged + 2], f"after step {cut.steps}"
    return count


def test_a_power_cut_at_any_operation_keeps_what_was_acknowledged(tmp_path):
    fs, done = Faults(tmp_path), []
    work(tmp_path / "j", fs, done)
    assert check_power_cuts(fs, "j", done, tmp_path / "cuts", STATES) > 100


@pytest.mark.parametrize("left_out", ["fsync", "fsync_dir"])
def test_the_power_cuts_notice_a_missing_fsync(tmp_path, left_out):
    fs, done = Faults(tmp_path), []
    setattr(fs, left_out, lambda *_: None)
    work(tmp_path / "j", fs, done)
    with pytest.raises((AssertionError, JournalCorrupt)):
        check_power_cuts(fs, "j", done, tmp_path / "cuts", STATES)


def test_a_power_cut_after_another_writer_was_killed(tmp_path):
    """The second process finds a journal that is whole in the page cache and not on the disk."""
    first, second = PARTS[:4], [lambda journal: journal.append(LARGE[::-1])]
    (tmp_path / "dry").mkdir()
    dry, at = Faults(tmp_path / "dry"), []
    work(tmp_path / "dry" / "j", dry, at, first)
    # around every barrier: the creation, each fsync, the renames
    for n in sorted({step + k for step in [6, 24, *at] for k in (-3, -2, -1)}):
        (base := tmp_path / str(n)).mkdir()
        fs, done = Faults(base, kill_at=n), []
        with pytest.raises(Killed):
            work(base / "j", fs, done, first)
        fs.kill_at = None
        with Journal(base / "j", fs=fs) as journal:
            found = [record.value for record in journal]
        opened = fs.steps
        assert found in STATES[len(done) : len(done) + 2]
        work(base / "j", fs, end := [], second)
        states = [found, [*found, LARGE[::-1]]]
        for k, cut in enumerate(fs.power_cuts(limit=64)):
            if cut.steps >= opened:  # what the second process has read stays, too
                held = read(cut.restore(base / f"cut{k}") / "j", base / f"cut{k}")
                assert held in (states[1:] if cut.steps >= end[0] else states), f"killed at {n}, cut after {cut.steps}"


def test_atomic_write_after_a_power_cut_is_old_or_new(tmp_path):
    (tmp_path / "f").write_bytes(b"old" * 300)
    fs = Faults(tmp_path)
    atomic_write(tmp_path / "f", b"new" * 400, fs=fs)
    end = fs.steps
    seen = {(cut.files["f"], cut.steps == end) for cut in fs.power_cuts()}
    assert seen == {(b"old" * 300, False), (b"new" * 400, False), (b"new" * 400, True)}


# -- full and failing disks --------------------------------------------------------------------------------------------


def test_a_journal_on_a_disk_that_fills_at_any_byte_goes_on_when_there_is_room(tmp_path):
    fs = Faults(tmp_path)
    work(tmp_path / "dry", fs, [])
    for n in range(0, fs.written):
        path, done = tmp_path / f"j{n}", []
        fs = Faults(tmp_path, full_at=n)
        with pytest.raises(OSError, match=rf"No space left.*j{n}'") as caught:
            work(path, fs, done)
        assert caught.value.errno == errno.ENOSPC
        fs.full_at = None
        with Journal(path, fs=fs) as journal:  # nothing of the refused call is left
            assert [record.value for record in journal] == STATES[len(done)]
            journal.append(b"room again")
        assert sorted(os.listdir(tmp_path)) == ["dry", "dry.lock", f"j{n}", f"j{n}.lock"]
        path.unlink()
        path.with_name(f"j{n}.lock").unlink()


def test_the_same_object_goes_on_after_a_full_disk(tmp_path):
    fs = Faults(tmp_path)
    with Journal(tmp_path / "j", fs=fs) as journal:
        journal.append(b"before")
        fs.full_at = fs.written + 50
        with pytest.raises(OSError):
            journal.append(LARGE)
        assert [record.value for record in journal] == [b"before"]
        fs.full_at = None
        assert journal.append(b"after") == 1
    assert read(tmp_path / "j", tmp_path) == [b"before", b"after"]


class FailingFsync(Faults):
    """Its fsyncs fail as long as `failures` lasts."""

    failures = 0

    def fsync(self, file):
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fsync(file)


@pytest.mark.parametrize("failures", [1, 2])  # 2: undoing the append fails as well
def test_an_fsync_that_fails_acknowledges_nothing_and_leaves_no_trap(tmp_path, failures):
    fs, done = FailingFsync(tmp_path), []
    with Journal(tmp_path / "j", fs=fs) as journal:
        journal.append(b"before")
        done.append(fs.steps)
        fs.failures = failures
        with pytest.raises(OSError, match="Input/output error: '.*j'"):
            journal.append(LARGE)
        assert journal.append(b"after") == 1
        done.append(fs.steps)
        assert [record.value for record in journal] == [b"before", b"after"]
    for k, cut in enumerate(fs.power_cuts()):
        if cut.steps >= done[0]:
            held = read(cut.restore(tmp_path / str(k)) / "j", tmp_path / str(k))
            assert held in ([b"before"], [b"before", LARGE], [b"before", b"after"])
            assert cut.steps < done[1] or held == [b"before", b"after"]


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 64 KB."""
    (disk := tmp_path / "disk").mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        pytest.skip(f"no tmpfs to fill: {error}")
    if mounted.returncode:
        pytest.skip(f"no tmpfs to fill: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_atomic_write_on_a_really_full_disk_keeps_the_old_file(small_disk):
    atomic_write(small_disk / "f", b"old")
    with pytest.raises(OSError, match="No space left.*f'"):
        atomic_write(small_disk / "f", bytes(1 << 20))
    assert (small_disk / "f").read_bytes() == b"old"
    assert os.listdir(small_disk) == ["f"]


def test_a_journal_on_a_really_full_disk_keeps_its_records_and_goes_on(small_disk):
    with Journal(small_disk / "j") as journal:
        (small_disk / "ballast").write_bytes(bytes(20_000))
        written = []
        with pytest.raises(OSError, match="No space left"):
            while True:
                journal.append(2 * LARGE)
                written.append(2 * LARGE)
        assert len(written) > 5
        assert [record.value for record in journal] == written
        (small_disk / "ballast").unlink()
        journal.append(b"room again")
        assert [record.value for record in journal] == [*written, b"room again"]


# -- bits --------------------------------------------------------------------------------------------------------------


def test_bit_flips_gives_each_bit_once():
    assert list(bit_flips(b"\x00\xff"))[:2] == [(0, b"\x01\xff"), (1, b"\x02\xff")]
    assert len({flipped for _, flipped in bit_flips(b"\x00\xff")}) == 16


def journal_bytes(folder, steps):
    work(folder / "j", Faults(folder), [], steps)
    return (folder / "j").read_bytes()


def test_every_flipped_bit_of_a_journal_is_refused(tmp_path):
    raw = journal_bytes(tmp_path, [PARTS[0], lambda journal: journal.append_many([{"two": 2}, b"3"])])
    path = tmp_path / "flipped"
    for bit, flipped in bit_flips(raw):
        path.write_bytes(flipped)
        with pytest.raises(JournalCorrupt):
            Journal(path, fs=Faults(tmp_path))
        assert path.read_bytes() == flipped, f"bit {bit}"


def test_a_flipped_bit_among_zero_sectors_is_not_taken_for_a_torn_append(tmp_path):
    raw = journal_bytes(tmp_path, [lambda journal: journal.append(bytes(2000))])
    path = tmp_path / "flipped"
    for bit, flipped in bit_flips(raw):
        if bit < 8 * 60 or bit % 97 == 0:
            path.write_bytes(flipped)
            with pytest.raises(JournalCorrupt):
                Journal(path, fs=Faults(tmp_path))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_salvage_after_any_flip_loses_at_most_the_transaction_it_hit(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("salvage")
    raw = journal_bytes(folder, PARTS[:3])
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    damaged = bytearray(raw)
    damaged[bit // 8] ^= 1 << bit % 8
    (folder / "j").write_bytes(damaged)
    salvage(folder / "j", fs=Faults(folder))
    transactions = [[b"one"], [LARGE], [{"two": 2}, bytes(1100), b"three"]]
    kept = [sum((t for k, t in enumerate(transactions) if k != lost), []) for lost in (None, 0, 1, 2)]
    assert read(folder / "j", folder) in kept


@settings(max_examples=100, deadline=None)
@given(st.integers(0), st.integers(1, 600))
def test_a_journal_cut_anywhere_holds_a_prefix(tmp_path_factory, where, garbage):
    folder = tmp_path_factory.mktemp("cut")
    raw = journal_bytes(folder, PARTS[:3])
    (folder / "j").write_bytes(raw[: 20 + where % (len(raw) - 20)] + bytes(garbage))
    try:
        held = read(folder / "j", folder)
    except JournalCorrupt:  # zeros that no sector boundary explains
        return
    assert held in STATES[:4]
