"""Payloads through a store: whole or not at all, exact, retried a bounded number of times, and never far ahead."""

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import fsspec
import pytest
import xxhash
from checkpoints import contents, small_pair
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from obstore.store import LocalStore, MemoryStore, S3Store
from recovery import DELTA, NEW, OLD, payloads
from recovery import memory as memory
from transport_cases import Recorder, attempt, commit_record, numbered

from reprise.errors import RepriseError
from reprise.labs.failover_experiments import Unsynced
from reprise.labs.object_server import ObjectServer
from reprise.labs.seaweed import OPEN, free_ports
from reprise.labs.transport_faults import interrupted_downloads
from reprise.labs.transport_receiver import store_at
from reprise.labs.wan import Wan
from reprise.refit import encode
from reprise.refit.cli import cli
from reprise.refit.recovery.attempt import FencedError
from reprise.refit.recovery.commit_log import Commit, ObjectCommitLog
from reprise.refit.recovery.fingerprint import fingerprint
from reprise.refit.recovery.resident import ResidentStore
from reprise.refit.transport import common as transport
from reprise.refit.transport.bundle import (
    AlreadyThere,
    Manifest,
    Part,
    pack_manifest,
    parse_manifest,
    read_manifest,
    read_parts,
    write_bundle,
)
from reprise.refit.transport.common import (
    ManifestError,
    ReceiverFailed,
    TransportError,
    TransportTimeout,
    UnreachableError,
    bounded_map,
    tried,
)
from reprise.refit.transport.gate import RequestGate
from reprise.refit.transport.intake import Intake
from reprise.refit.transport.object_commit import ObstoreObjects
from reprise.refit.transport.places import FsspecPlace, ObstorePlace, open_place, request_options
from reprise.refit.transport.push_pull import ABOUT, PREFIX
from reprise.refit.transport.store_transport import StoreTransport, check_name, pack_answer, parse_answer

A, B = attempt(1), attempt(2, "overwrite")
LIMIT = 1 << 20


@pytest.fixture(params=["obstore memory", "obstore local", "fsspec memory", "fsspec local", "S3 in memory"])
def place(request, memory):
    """Every kind of place; none of them has anything in it."""
    if request.param == "S3 in memory":
        with ObjectServer() as server:
            yield store_at(server.port)
    elif request.param == "obstore memory":
        yield ObstorePlace(MemoryStore())
    elif request.param == "obstore local":
        yield open_place(str(memory / "made"))
    elif request.param == "fsspec memory":
        yield open_place("memory://transport-tests")
        fsspec.filesystem("memory").store.clear()
    else:
        yield FsspecPlace(fsspec.filesystem("file"), str(memory / "nested"))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.001)


class Faulty:
    """A place that fails when `plan` says so: (verb, "before" or "after" it was done), one entry a call."""

    name = "faulty"

    def __init__(self, plan=()):
        self.inner, self.plan, self.calls = ObstorePlace(MemoryStore()), list(plan), []

    def _call(self, verb, *args):
        self.calls.append((verb, args[0]))
        when = self.plan.pop(0)[1] if self.plan and self.plan[0][0] == verb else None
        if when == "before":
            raise UnreachableError(f"{verb}: no route")
        result = getattr(self.inner, verb)(*args)
        if when == "after":
            raise UnreachableError(f"{verb}: answer lost")
        return b"cut" if when == "cut" else result

    def get(self, key, limit):
        return self._call("get", key, limit)

    def put(self, key, data):
        return self._call("put", key, data)

    def create(self, key, data):
        return self._call("create", key, data)


# -- places ------------------------------------------------------------------------------------------------------------


def test_a_place_gives_back_what_it_got_and_creates_once(place):
    assert place.get("a/b", LIMIT) is None
    place.put("a/b", b"one")
    place.put("a/b", b"two")
    assert not place.create("a/b", b"three") and place.get("a/b", 3) == b"two"
    assert place.create("a/c", b"") and place.get("a/c", 0) == b""
    with pytest.raises(TransportError, match="at most 2"):
        place.get("a/b", 2)


def test_urls_lead_to_folders_and_file_systems(memory):
    open_place(f"file://{memory}/x").put("k", b"1")
    assert open_place(f"{memory}/x").get("k", 9) == (memory / "x" / "k").read_bytes() == b"1"
    for url in ("nosuch://place", "s3://"):
        with pytest.raises(TransportError, match=url):
            open_place(url).get("k", 1)


def test_a_store_that_is_not_there_is_unreachable_in_time():
    nobody = S3Store(endpoint=f"http://127.0.0.1:{free_ports(1)[0]}", **request_options(1), **OPEN)
    start = time.monotonic()
    for call in (lambda p: p.get("k", 1), lambda p: p.put("k", b""), lambda p: p.create("k", b"")):
        with pytest.raises(UnreachableError):
            call(ObstorePlace(nobody))
    with pytest.raises(OSError):
        ObstoreObjects(nobody).get("k")
    assert time.monotonic() - start < 20


# -- bounded work ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2, 5])
def test_results_come_in_order_and_no_more_than_the_window_is_taken(window):
    taken, running, most = [], [0], [0]

    def source():
        for k in range(20):
            taken.append(k)
            yield k

    def work(k):
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.001 * (k % 3))
        running[0] -= 1
        return k * k

    results = bounded_map(work, source(), window)
    assert taken == []
    for k, result in enumerate(results):
        assert result == k * k and len(taken) <= k + 1 + window
    assert most[0] <= window
    with pytest.raises(TransportError, match="^window=0"):
        next(bounded_map(work, [], 0))


def test_an_error_ends_the_rest():
    done = []

    def work(k):
        done.append(k)
        if k == 3:
            raise KeyError(k)

    with pytest.raises(KeyError):
        list(bounded_map(work, range(100), 2))
    assert len(done) <= 6


def test_tries_are_bounded():
    calls = []

    def call():
        calls.append(1)
        raise UnreachableError("no route")

    with pytest.raises(UnreachableError):
        tried(call, 4)
    assert len(calls) == 4
    with pytest.raises(KeyError):
        tried(lambda: {}[1])


# -- bundles -----------------------------------------------------------------------------------------------------------


def test_a_bundle_is_seen_when_it_is_whole_and_not_before(place):
    seen = []

    def parts():
        for k in range(5):
            seen.append(read_manifest(place, "x/y"))
            yield bytes([k]) * k

    written = write_bundle(place, "x/y", {"n": 1}, parts(), window=2)
    assert seen == [None] * 5 and written.nbytes == 10
    assert read_manifest(place, "x/y") == written
    assert list(read_parts(place, "x/y", written, window=2)) == [bytes([k]) * k for k in range(5)]


def test_a_second_bundle_is_refused_unless_it_is_the_same_or_a_replacement(place):
    write_bundle(place, "x", {}, [b"a", b"b"])
    write_bundle(place, "x", {}, [b"a", b"b"])
    with pytest.raises(AlreadyThere, match="exists, expected nothing"):
        write_bundle(place, "x", {}, [b"a", b"c"])
    assert list(read_parts(place, "x", read_manifest(place, "x"))) == [b"a", b"b"]
    write_bundle(place, "x", {}, [b"z"], replace=True)
    assert list(read_parts(place, "x", read_manifest(place, "x"))) == [b"z"]


def test_of_two_writers_at_once_one_wins_and_its_bundle_is_whole():
    place = ObstorePlace(MemoryStore())
    for k in range(10):
        versions = [[bytes([w]) * 9, bytes([w])] for w in range(4)]
        with ThreadPoolExecutor(4) as pool:
            tries = [pool.submit(write_bundle, place, f"{k}", {}, version) for version in versions]
        won = [version for version, each in zip(versions, tries, strict=True) if each.exception() is None]
        assert [list(read_parts(place, f"{k}", read_manifest(place, f"{k}")))] == won


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", ["put", "create"])
def test_a_store_that_fails_for_a_moment_is_asked_again(verb, when):
    place = Faulty([(verb, when)] * 2)
    written = write_bundle(place, "x", {}, [b"a"], window=1)
    assert not place.plan and list(read_parts(place, "x", written)) == [b"a"]


@pytest.mark.parametrize("verb", ["put", "create"])
def test_a_store_that_keeps_failing_gives_an_error_and_nothing_to_see(verb):
    place = Faulty([(verb, "before")] * 3)
    with pytest.raises(UnreachableError, match="no route"):
        write_bundle(place, "x", {}, [b"a"], window=1)
    assert read_manifest(place, "x") is None and len(place.calls) <= 5


def test_a_part_that_is_cut_altered_or_missing_is_noticed():
    place = Faulty()
    written = write_bundle(place, "x", {}, [b"abc", b"def"])
    place.plan = [("get", "cut"), ("get", "before")]
    assert list(read_parts(place, "x", written, window=1)) == [b"abc", b"def"]
    key = next(key for verb, key in place.calls if verb == "put")
    for wrong in (b"abd", b"ab"):
        place.inner.put(key, wrong)
        with pytest.raises(ManifestError, match="expected 3 bytes as listed"):
            list(read_parts(place, "x", written))
    place.inner.put(key, b"abcd")
    with pytest.raises(TransportError, match="at most 3"):
        list(read_parts(place, "x", written))
    with pytest.raises(ManifestError, match="missing"):
        list(read_parts(place, "elsewhere", written))


MANIFEST = Manifest({"n": 1}, (Part.of(b"abc"), Part.of(b"")))


def test_every_flipped_bit_of_a_manifest_and_every_cut_is_refused_or_the_same():
    raw = pack_manifest(MANIFEST)
    assert parse_manifest(raw) == MANIFEST
    for cut in range(len(raw)):
        with pytest.raises(ManifestError):
            parse_manifest(raw[:cut])
    for bit in range(0, 8 * len(raw), 3):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert parse_manifest(bytes(flipped)) == MANIFEST
        except ManifestError:
            pass


def signed_manifest(inner):
    text = json.dumps(inner)
    return json.dumps({"manifest": text, "digest": xxhash.xxh3_128_hexdigest(text.encode())}).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()) | JSON.map(signed_manifest))
@example(b"[" * 9999)
@example(signed_manifest({"format": 2, "about": {}, "parts": []}))
@example(signed_manifest({"format": 1, "about": {}, "parts": [[1]]}))
@example(signed_manifest({"format": 1, "about": {}, "parts": [[-1, "0" * 32]]}))
@example(signed_manifest({"format": 1, "about": {}, "parts": [[True, "0" * 32]]}))
@example(signed_manifest({"format": 1, "about": {}, "parts": [[1 << 40, "0" * 32]]}))
@example(signed_manifest({"format": 1, "about": {}, "parts": [[1, "../" + "0" * 29]]}))
@example(b'{"manifest": "\\ud800", "digest": ""}')
def test_any_other_manifest_is_refused(raw):
    with pytest.raises(ManifestError):
        parse_manifest(raw)


@settings(max_examples=100)
@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_other_answer_is_refused(raw):
    with pytest.raises(ManifestError, match="^answer: "):
        parse_answer(raw)


@given(st.booleans(), st.text(max_size=600))
def test_an_answer_comes_back(ok, text):
    assert parse_answer(pack_answer(ok, text)) == (ok, text[:500])


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\n", ".hidden", "x" * 101])
def test_a_name_that_is_no_part_of_a_key_is_refused(name):
    with pytest.raises(ManifestError, match="^receiver "):
        check_name(name)


# -- transfers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_receiver_downloads_applies_and_answers(place, memory, mode):
    encoded = [encode(part, A.op) for part in payloads(A)]
    source = StoreTransport(place, window=2)
    source.send(A, encoded)
    for k in range(2):
        with ResidentStore.create(memory / f"store{k}", OLD, fs=Unsynced()) as store:
            intake = Intake(store)
            assert StoreTransport(place).receive(A, f"r{k}", intake, mode) == fingerprint(NEW)
            assert not intake.gate.is_open
            intake.commit(A)
            assert intake.gate.is_open and store.status().version == 1
    assert source.answers(A, ["r0", "r1"], 1) == {"r0": fingerprint(NEW), "r1": fingerprint(NEW)}


def test_a_slow_store_holds_the_encoder_back():
    go, made, place = threading.Event(), [], Faulty()
    put, place.put = place.put, lambda *args: (go.wait(5), put(*args))

    def encoder():
        for k, payload in enumerate(numbered(DELTA, A, 9)):
            made.append(k)
            yield payload

    thread = threading.Thread(target=StoreTransport(place, window=3).send, args=(A, encoder()))
    thread.start()
    time.sleep(0.2)
    assert len(made) == 3
    go.set()
    thread.join(5)
    assert len(made) == 9


def test_a_slow_receiver_downloads_no_further_than_its_window():
    place = Faulty()
    StoreTransport(place).send(A, numbered(DELTA, A, 9))
    place.calls.clear()
    ahead = []
    weights = Recorder(deliver=lambda _: (time.sleep(0.01), ahead.append(len(place.calls) - len(weights.held))))
    StoreTransport(place, window=3).receive(A, "r", Intake(weights))
    assert max(ahead) <= 1 + 3 + 1 and len(weights.held) == 9


def test_a_receiver_whose_download_breaks_says_so_and_the_retry_is_exact(memory):
    """The connection ends after the first payload; the retry by overwriting goes to a new manifest."""
    with ObjectServer() as server, Wan() as wan, ResidentStore.create(memory / "s", OLD, fs=Unsynced()) as store:
        far, near = store_at(wan.enter(server.port, "trainer")), StoreTransport(store_at(server.port), "x")
        gate = RequestGate()
        near.send(A, [encode(part, A.op) for part in payloads(A)])
        key = next(key for key in server.objects if "part-000001" in key)
        lost = server.objects.pop(key)
        with pytest.raises(ManifestError, match="missing"):
            StoreTransport(far, "x").receive(A, "r", Intake(store, gate))
        with pytest.raises(ReceiverFailed, match="receiver r: .*missing"):
            near.answers(A, ["r"], 1)
        assert store.fingerprint() not in (fingerprint(OLD), fingerprint(NEW)) and not gate.is_open
        server.objects[key] = lost
        near.send(B, [encode(part, B.op) for part in payloads(B)])
        wan.kill()
        with pytest.raises(UnreachableError):
            StoreTransport(far, "x").receive(attempt(2, "overwrite"), "r", Intake(store, gate), timeout=1)
        wan.restore()
        third = attempt(3, "overwrite")
        near.send(third, [encode(part, third.op) for part in payloads(third)])
        assert StoreTransport(far, "x").receive(third, "r", Intake(store, gate)) == fingerprint(NEW)


def test_a_receiver_killed_in_the_middle_of_a_download_is_missed_and_the_retry_is_exact():
    (row,) = interrupted_downloads(0, ["receiver killed"])
    assert row["failed"] and row["mixed"] and row["exact"], row


def test_waiting_for_a_manifest_or_an_answer_ends():
    place = ObstorePlace(MemoryStore())
    with pytest.raises(TransportTimeout, match="no manifest within timeout=0.1"):
        StoreTransport(place).receive(A, "r", Intake(Recorder()), timeout=0.1)
    with pytest.raises(TransportTimeout, match="receiver s: no answer"):
        StoreTransport(place).answers(A, ["s"], 0.1)
    with pytest.raises(ReceiverFailed, match="receiver r: .*no manifest"):
        StoreTransport(place).answers(A, ["r"], 0.1)


def test_a_receiver_may_wait_before_the_source_has_sent():
    place, found = ObstorePlace(MemoryStore()), []
    thread = threading.Thread(
        target=lambda: found.append(StoreTransport(place).receive(A, "r", Intake(Recorder()), timeout=10))
    )
    thread.start()
    time.sleep(0.1)
    StoreTransport(place).send(A, numbered(DELTA, A, 2))
    thread.join(10)
    assert found == ["held.2"]


def test_payloads_of_another_attempt_or_in_another_place_are_refused():
    place = ObstorePlace(MemoryStore())
    write_bundle(place, "refit/attempt-1.1", B.dump(), [])
    with pytest.raises(ManifestError, match="expected attempt 1.1"):
        StoreTransport(place).receive(A, "r", Intake(Recorder()))
    StoreTransport(place, "y").send(A, numbered(DELTA, B, 1))
    with pytest.raises(FencedError):
        StoreTransport(place, "y").receive(A, "r", Intake(Recorder()))
    StoreTransport(place, "z").send(A, numbered(DELTA, A, 2)[1:])
    with pytest.raises(TransportError, match="payload 1: expected number 0"):
        StoreTransport(place, "z").receive(A, "r", Intake(Recorder()))


# -- the commit record -------------------------------------------------------------------------------------------------


def test_the_commit_record_in_memory():
    commit_record(MemoryStore())


def test_the_commit_record_behind_the_s3_protocol():
    with ObjectServer() as server:
        commit_record(store_at(server.port).store)


def test_a_folder_has_no_conditional_update(memory):
    log = ObjectCommitLog.create(ObstoreObjects(LocalStore(memory)), "commit")
    with pytest.raises(RepriseError, match="no conditional update"):
        log.compare_and_set(Commit(0, 0), Commit(0, 1), "me")


def test_a_record_that_is_too_long_is_not_read():
    store = ObstoreObjects(MemoryStore())
    store.put("k", bytes(1 << 17), if_match=None)
    with pytest.raises(RepriseError, match="^k: 131072 bytes"):
        store.get("k")


# -- push and pull -----------------------------------------------------------------------------------------------------


def run(*args):
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.mark.parametrize("url", ["{}/store", "file://{}/store", "memory://push-pull"])
def test_push_and_pull_rebuild_the_checkpoint(tmp_path, url):
    old, new = small_pair(tmp_path)
    url = url.format(tmp_path)
    try:
        pushed = run("push", old, new, url)
        assert pushed.exit_code == 0 and pushed.output.startswith(f"{url}: "), pushed.output
        pulled = run("pull", old, url, "-o", tmp_path / "out")
        assert pulled.exit_code == 0 and pulled.output.endswith("equal to NEW byte for byte\n"), pulled.output
        assert contents(tmp_path / "out") == contents(new)
        assert not list(tmp_path.glob(".pull-*"))
    finally:
        fsspec.filesystem("memory").store.clear()


def test_push_and_pull_refuse_in_one_sentence_and_leave_nothing(tmp_path):
    old, new = small_pair(tmp_path)
    store = tmp_path / "store"
    for args, message in (
        (("pull", old, store, "-o", tmp_path / "out"), "no delta there"),
        (("push", old, tmp_path / "none", store), "none"),
        (("push", old, new, "nosuch://x"), "nosuch"),
    ):
        result = run(*args)
        assert result.exit_code == 1 and message in str(result.exception), result
        assert isinstance(result.exception, RepriseError)
    assert run("push", old, new, store).exit_code == 0
    assert "exists" in str(run("push", new, old, store).exception)
    assert run("push", new, old, store, "--force").exit_code == 0
    stale = run("pull", old, store, "-o", tmp_path / "out")
    assert stale.exit_code == 1 and "OLD" in str(stale.exception)
    assert "its folder does not exist" in str(run("pull", old, store, "-o", tmp_path / "no" / "out").exception)
    assert run("pull", new, store, "-o", tmp_path / "out").exit_code == 0
    assert contents(tmp_path / "out") == contents(old)
    write_bundle(open_place(str(store)), PREFIX, {"kind": "other"}, [], replace=True)
    assert f"expected {ABOUT}" in str(run("pull", new, store, "-o", tmp_path / "again").exception)


def test_commands_need_nothing_of_the_transports_to_be_listed():
    program = "import sys, reprise.refit.cli\nprint(*[m for m in ('zmq', 'obstore', 'fsspec') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
