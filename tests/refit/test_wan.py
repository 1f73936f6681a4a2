"""The link: a proxy that is the only way, counts both directions, keeps to its rate, and can be stalled or cut."""

import socket
import threading
import time
from contextlib import closing, contextmanager

import pytest

from reprise.errors import RepriseError
from reprise.labs.wan import HOST, TokenBucket, Wan

WITHIN = 5.0  # seconds for anything that should happen at once


@contextmanager
def echo():
    """Port of a server that sends back twice what it gets, until the other side is done."""
    listener = socket.create_server((HOST, 0))

    def serve():
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection):
        with closing(connection):
            try:
                while data := connection.recv(1 << 16):
                    connection.sendall(2 * data)
            except OSError:
                pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(WITHIN)


def connect(port):
    return closing(socket.create_connection((HOST, port), timeout=WITHIN))


def read(connection, nbytes):
    data = b""
    while len(data) < nbytes:
        piece = connection.recv(1 << 16)
        if not piece:
            raise ConnectionError(f"{len(data)} of {nbytes} bytes")
        data += piece
    return data


def test_a_bucket_lets_a_burst_through_and_then_keeps_to_its_rate():
    bucket = TokenBucket(100.0, burst=50)
    assert [bucket.take(25, now) for now in (10.0, 10.0, 10.0, 10.0)] == [0.0, 0.0, 0.25, 0.5]
    assert bucket.take(25, 10.75) == 0.0 and bucket.take(50, 10.75) == pytest.approx(0.5)
    assert bucket.take(50, 99.0) == 0.0 and bucket.take(50, 99.0) == pytest.approx(0.5)
    assert TokenBucket(None).take(10**12, 0.0) == 0.0


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_is_positive(rate):
    with pytest.raises(RepriseError, match="^rate="):
        Wan(rate)


def test_it_counts_what_leaves_it_towards_each_side():
    with echo() as port, Wan() as wan:
        there, back = wan.enter(port, "rollout"), wan.enter(port, "trainer")
        with connect(there) as a, connect(there) as b, connect(back) as c:
            for connection, nbytes in ((a, 1000), (b, 70_000), (c, 3)):
                connection.sendall(b"x" * nbytes)
                assert read(connection, 2 * nbytes) == b"x" * 2 * nbytes
        assert (wan.crossed("rollout"), wan.crossed("trainer")) == (71_000 + 6, 142_000 + 3)
        with pytest.raises(RepriseError, match="^side="):
            wan.enter(port, "elsewhere")


@pytest.mark.parametrize("connections", [1, 3])
def test_connections_share_the_rate_of_a_direction(connections):
    """300 kB at 1 MB/s take .3 s whether one connection carries them or three do."""
    share = 150_000 // connections
    with echo() as port, Wan(1e6) as wan:
        entry = wan.enter(port, "trainer")

        def talk():
            with connect(entry) as connection:
                connection.sendall(b"x" * share)
                read(connection, 2 * share)

        start, threads = time.monotonic(), [threading.Thread(target=talk) for _ in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WITHIN)
        assert 0.26 < time.monotonic() - start < WITHIN


def test_small_messages_go_at_once():
    """A hundred round trips; a delayed acknowledgement of 40 ms in each would make them last 4 s."""
    with echo() as port, Wan() as wan, connect(wan.enter(port, "rollout")) as connection:
        start = time.monotonic()
        for _ in range(100):
            connection.sendall(b"x")
            connection.sendall(b"y")
            read(connection, 4)
        assert time.monotonic() - start < 2
        for each in wan._connections:
            assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_stalled_link_keeps_connections_and_loses_nothing():
    with echo() as port, Wan() as wan, connect(wan.enter(port, "rollout")) as connection:
        wan.stall()
        connection.sendall(b"abc")
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert wan.crossed("rollout") == 0
        wan.resume()
        connection.settimeout(WITHIN)
        assert read(connection, 6) == b"abcabc"


def test_a_cut_link_ends_connections_and_refuses_new_ones():
    with echo() as port, Wan() as wan:
        entry = wan.enter(port, "rollout")
        with connect(entry) as connection:
            connection.sendall(b"a")
            read(connection, 2)
            wan.kill()
            with pytest.raises(ConnectionError):
                read(connection, 1)
        with connect(entry) as connection, pytest.raises(ConnectionError):
            connection.sendall(b"a")
            read(connection, 1)
        wan.restore()
        with connect(entry) as connection:
            connection.sendall(b"a")
            assert read(connection, 2) == b"aa"


def test_nothing_is_left_running():
    before = threading.active_count()
    with echo() as port:
        with Wan(1e3) as wan, connect(wan.enter(port, "rollout")) as connection:
            connection.sendall(b"x" * 100_000)
    give_up = time.monotonic() + WITHIN
    while threading.active_count() > before and time.monotonic() < give_up:
        time.sleep(0.01)
    assert threading.active_count() <= before
