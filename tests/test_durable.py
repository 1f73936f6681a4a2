"""Atomic files and the journal without faults: right values, several writers, refusals. Faults: test_durable_faults."""

import json
import os
import struct
import subprocess
import sys
import threading
import zlib

import journal_workload
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_workload import NoSync, write_transactions

from reprise.durable import Journal, JournalCorrupt, JournalLocked, atomic_write, atomic_writer, salvage
from reprise.durable.format import FIRST_FRAME, zero_sectors
from reprise.errors import RepriseError


def values(path):
    with Journal(path, fs=NoSync()) as journal:
        return [record.value for record in journal]


# -- atomic_write ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"abc", bytes(3 << 20)])
def test_atomic_write_replaces_the_file_and_leaves_nothing_else(tmp_path, data):
    (tmp_path / "f").write_bytes(b"old")
    atomic_write(tmp_path / "f", data)
    assert (tmp_path / "f").read_bytes() == data
    assert os.listdir(tmp_path) == ["f"]


def test_atomic_write_takes_pieces_in_order(tmp_path):
    atomic_write(tmp_path / "f", (b"%d," % k for k in range(5)))
    assert (tmp_path / "f").read_bytes() == b"0,1,2,3,4,"


def test_atomic_writer_is_seekable(tmp_path):
    with atomic_writer(tmp_path / "f") as file:
        file.write(b"....tail")
        file.seek(0)
        file.write(b"head")
        assert file.tell() == 4
    assert (tmp_path / "f").read_bytes() == b"headtail"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_in_the_block_keeps_the_old_file_and_removes_the_temporary(tmp_path, error):
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(error), atomic_writer(tmp_path / "f") as file:
        file.write(b"half of the n")
        raise error
    assert (tmp_path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_permission_bits_and_a_symbolic_link_survive(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    atomic_write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        atomic_write(tmp_path / "nowhere" / "f", b"")


def test_a_folder_in_the_place_of_the_file_leaves_no_temporary(tmp_path):
    (tmp_path / "f").mkdir()
    with pytest.raises(IsADirectoryError):
        atomic_write(tmp_path / "f", b"data")
    assert os.listdir(tmp_path) == ["f"]


# -- the journal -------------------------------------------------------------------------------------------------------


def test_records_come_back_numbered_and_in_order(tmp_path):
    with Journal(tmp_path / "j") as journal:
        assert journal.append(b"a") == 0
        assert journal.append_many([{"k": 1, "text": "é"}, b""]) == range(1, 3)
        assert journal.append_many([]) == range(3, 3)
        assert journal.append({}) == 3
    with Journal(tmp_path / "j") as journal:
        assert [tuple(record) for record in journal] == [(0, b"a"), (1, {"k": 1, "text": "é"}), (2, b""), (3, {})]


def test_the_bytes_on_disk_are_the_documented_ones(tmp_path):
    with Journal(tmp_path / "j") as journal:
        journal.append({"a": 1})
    item = struct.pack("<BI", 1, 7) + b'{"a":1}'
    fields = struct.pack("<BIIQII", 0xD7, 1, len(item), 0, 0, zlib.crc32(item))
    first = b"RPZJNL1\n" + bytes(8)
    frame = fields + struct.pack("<IB", zlib.crc32(fields), 0xD7) + item
    assert (tmp_path / "j").read_bytes() == first + struct.pack("<I", zlib.crc32(first)) + frame


@pytest.mark.parametrize(
    "data, offset, count",
    [
        (bytes(512), 0, 1),
        (bytes(512), 512, 1),
        (bytes(512), 1, 2),  # touches two sectors and leaves both zero
        (bytes(511) + b"x", 0, 0),
        (b"x" + bytes(1535), 0, 2),
        (b"x" * 100 + bytes(100), 412, 1),
        (b"", 7, 0),
    ],
)
def test_zero_sectors_are_counted_where_they_lie(data, offset, count):
    assert zero_sectors(data, offset) == count


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
records = st.binary(max_size=1200) | st.dictionaries(st.text(), json_values, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(records, max_size=4), max_size=6), st.data())
def test_what_is_appended_is_read_whatever_reopens_and_compactions_lie_between(tmp_path_factory, transactions, data):
    path, expected, last = tmp_path_factory.mktemp("journal") / "j", [], -1
    journal = Journal(path, fs=NoSync())
    for transaction in transactions:
        numbers = journal.append_many(transaction)
        expected += transaction
        assert all(number > last for number in numbers)
        last = max(numbers, default=last)
        action = data.draw(st.sampled_from(["go on", "reopen", "compact"]))
        if action == "reopen":
            journal.close()
            journal = Journal(path, fs=NoSync())
        elif action == "compact":
            journal.compact(lambda kept: [record.value for record in kept[1:]])
            expected = expected[1:]
            last = max([last, *(record.sequence for record in journal)])
        read = list(journal)
        assert [record.value for record in read] == expected
        assert [record.sequence for record in read] == sorted({record.sequence for record in read})
    journal.close()


@pytest.mark.parametrize("value", ["text", 3, None, {"x": float("nan")}, {"x": b"bytes"}])
def test_a_record_that_is_neither_bytes_nor_json_is_refused_with_its_transaction(tmp_path, value):
    with Journal(tmp_path / "j") as journal:
        with pytest.raises(RepriseError, match=r"^record\[1\].*expected"):
            journal.append_many([b"fine", value])
        assert list(journal) == []


def test_two_objects_on_one_file_see_each_other(tmp_path):
    with Journal(tmp_path / "j") as one, Journal(tmp_path / "j") as two:
        one.append(b"1")
        assert two.append(b"2") == 1
        two.compact(lambda kept: [record.value + b"'" for record in kept])
        assert one.append(b"3") == 4
        assert [tuple(record) for record in two] == [(2, b"1'"), (3, b"2'"), (4, b"3")]


def test_an_iteration_keeps_the_state_it_began_with(tmp_path):
    with Journal(tmp_path / "j") as journal:
        journal.append_many([b"1", b"2"])
        iteration = iter(journal)
        next(iteration)
        journal.compact(lambda kept: [])
        journal.append(b"3")
        assert [record.value for record in iteration] == [b"2"]
        assert [tuple(record) for record in journal] == [(2, b"3")]


def test_exclusive_makes_reading_and_appending_one_step(tmp_path):
    with Journal(tmp_path / "j") as journal, Journal(tmp_path / "j", timeout=0.02) as other:
        with journal.exclusive():
            with pytest.raises(JournalLocked, match=r"timeout=0\.02 s"):
                other.append(b"late")
            journal.compact(lambda kept: [b"compacted"])
            journal.append(b"after")
        other.append(b"last")
    assert values(tmp_path / "j") == [b"compacted", b"after", b"last"]


def test_a_thread_that_waits_too_long_for_a_shared_object_is_refused(tmp_path):
    refused = []

    def append():
        with pytest.raises(JournalLocked, match="another thread") as caught:
            journal.append(b"")
        refused.append(caught)

    with Journal(tmp_path / "j", timeout=0.02) as journal, journal.exclusive():
        thread = threading.Thread(target=append)
        thread.start()
        thread.join()
    assert len(refused) == 1


# -- several writers ---------------------------------------------------------------------------------------------------


def assert_complete_and_ordered(path, writers, transactions):
    read = values(path)
    for writer in range(writers):
        own = [(value["k"], value["part"]) for value in read if value["writer"] == writer]
        assert own == [(k, part) for k in range(transactions) for part in range(1 + k % 3)]
    for k, value in enumerate(read):  # transactions do not mix
        if value["part"]:
            assert read[k - 1] == value | {"part": value["part"] - 1}


def test_four_processes_lose_nothing_and_stay_in_order(tmp_path):
    command = [sys.executable, journal_workload.__file__, "writes", tmp_path / "j"]
    processes = [subprocess.Popen([*command, str(writer), "30"]) for writer in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert_complete_and_ordered(tmp_path / "j", 4, 30)


def test_four_threads_lose_nothing_and_stay_in_order(tmp_path):
    threads = [threading.Thread(target=write_transactions, args=(tmp_path / "j", w, 20)) for w in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert_complete_and_ordered(tmp_path / "j", 4, 20)


def test_four_threads_may_share_one_object(tmp_path):
    with Journal(tmp_path / "j", fs=NoSync()) as journal:

        def append(writer):
            for k in range(20):
                journal.append({"writer": writer, "k": k, "part": 0})

        threads = [threading.Thread(target=append, args=(w,)) for w in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted((value["writer"], value["k"]) for value in values(tmp_path / "j")) == [
        (w, k) for w in range(4) for k in range(20)
    ]


def test_the_lock_of_a_process_that_dies_is_free(tmp_path):
    program = (
        "import os, signal, sys; from reprise.durable import Journal\n"
        "with Journal(sys.argv[1]).exclusive(): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program, tmp_path / "j"]).returncode == -9
    with Journal(tmp_path / "j", timeout=1) as journal:
        assert journal.append(b"free") == 0


# -- damage ------------------------------------------------------------------------------------------------------------


def damage(path, offset, replacement):
    raw = bytearray(path.read_bytes())
    raw[offset : offset + len(replacement)] = replacement
    path.write_bytes(raw)


@pytest.fixture
def three(tmp_path):
    """A journal of three records, and where their frames start."""
    with Journal(tmp_path / "j", fs=NoSync()) as journal:
        starts = []
        for value in (b"first" * 100, {"second": 2}, b"third" * 300):
            starts.append((tmp_path / "j").stat().st_size)
            journal.append(value)
    assert starts[0] == FIRST_FRAME
    return tmp_path / "j", starts


def test_damage_is_refused_with_its_offset(three):
    path, starts = three
    damage(path, starts[1] + 40, b"?")
    with pytest.raises(JournalCorrupt, match=f"^{path}: damaged at byte {starts[1]}: expected a record") as caught:
        Journal(path)
    assert caught.value.offset == starts[1]


def test_damage_while_the_journal_is_open_is_refused_by_the_next_reading(three):
    path, starts = three
    with Journal(path) as journal:
        with open(path, "r+b") as file:
            file.seek(starts[2] + 50)
            file.write(b"?")
        with pytest.raises(JournalCorrupt, match=f"byte {starts[2]}"):
            list(journal)


def test_a_zeroed_sector_is_not_taken_for_a_torn_append_when_records_follow(three):
    path, starts = three
    damage(path, FIRST_FRAME, bytes(512 - FIRST_FRAME))
    with pytest.raises(JournalCorrupt, match=f"byte {starts[0]}"):
        Journal(path)


@pytest.mark.parametrize("frame, kept", [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])])
def test_salvage_moves_the_damaged_record_aside_and_keeps_the_others(three, frame, kept):
    path, starts = three
    before = path.read_bytes()
    end = [*starts, len(before)][frame + 1]
    damage(path, starts[frame] + 33, b"\0?")
    damaged = path.read_bytes()[starts[frame] : end]
    assert salvage(path) == len(damaged)
    with Journal(path) as journal:
        assert [record.sequence for record in journal] == kept
        assert journal.append(b"next") == kept[-1] + 1
    assert values(f"{path}.quarantine") == [damaged]


def test_salvage_survives_a_damaged_header(three):
    path, starts = three
    expected = values(path)
    damage(path, 3, b"?")
    with pytest.raises(JournalCorrupt, match="byte 0: expected the header of a journal"):
        Journal(path)
    assert salvage(path) == FIRST_FRAME
    assert values(path) == expected


def test_salvage_leaves_an_intact_journal_alone(three):
    path, _ = three
    before = path.read_bytes(), path.stat().st_ino
    assert salvage(path) == 0
    assert (path.read_bytes(), path.stat().st_ino) == before
    assert not path.with_name("j.quarantine").exists()


@pytest.mark.parametrize("content", [b"", b"RPZJNL1", json.dumps({"not": "a journal"}).encode() * 3])
def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path, content):
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(JournalCorrupt, match="byte 0: expected the header of a journal"):
        Journal(tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == content


def test_an_empty_file_becomes_an_empty_journal(tmp_path):
    (tmp_path / "j").write_bytes(b"")
    with pytest.raises(JournalCorrupt, match="expected the header"):
        Journal(tmp_path / "j")
    assert salvage(tmp_path / "j") == 0
    with Journal(tmp_path / "j") as journal:
        assert journal.append({"first": 1}) == 0
