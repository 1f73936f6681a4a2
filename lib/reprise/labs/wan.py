"""A link between two clusters on one machine: a TCP proxy that is the only way, counts bytes, and can be shaped.

The two sides are "trainer" and "rollout". All connections over one link share its rate, each direction its own. The
proxy sets TCP_NODELAY: without it the delayed acknowledgement of small messages, not the rate, would set the time.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

from reprise.errors import RepriseError

HOST = "127.0.0.1"
SIDES = ("trainer", "rollout")
PIECE = 1 << 14  # bytes forwarded at a time
BURST = 1 << 14  # bytes that may pass at once after a pause


class TokenBucket:
    """Lets `rate` bytes a second through, and `burst` at once after a pause; None for no limit."""

    def __init__(self, rate: float | None, burst: int = BURST):
        if rate is not None and not rate > 0:
            raise RepriseError(f"rate={rate}: expected more than 0 bytes a second, or None")
        self.rate, self._burst = rate, burst
        self._paid_until, self._mutex = 0.0, threading.Lock()

    def take(self, nbytes: int, now: float) -> float:
        """Seconds to wait before `nbytes` may pass, whose tokens are taken."""
        if self.rate is None:
            return 0.0
        with self._mutex:
            start = max(self._paid_until, now - self._burst / self.rate)
            self._paid_until = start + nbytes / self.rate
            return max(0.0, self._paid_until - now)


class Wan:
    """A link and the ports through which it is entered.

    Args:
        rate: bytes a second in each direction; None for as fast as it goes.
    """

    def __init__(self, rate: float | None = None):
        self._buckets = {side: TokenBucket(rate) for side in SIDES}
        self._bytes, self._mutex = dict.fromkeys(SIDES, 0), threading.Lock()
        self._flows, self._alive, self._closed = threading.Event(), threading.Event(), threading.Event()
        self._flows.set()
        self._alive.set()
        self._listeners: list[socket.socket] = []
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def enter(self, port: int, side: str) -> int:
        """Port of the loopback that leads over the link to `port`, which lies on `side`."""
        if side not in SIDES:
            raise RepriseError(f"side={side!r}: expected one of {', '.join(SIDES)}")
        listener = socket.create_server((HOST, 0))
        self._listeners.append(listener)
        self._start(self._accept, listener, port, side)
        return listener.getsockname()[1]

    def crossed(self, side: str) -> int:
        """Bytes that have left the link towards `side`."""
        with self._mutex:
            return self._bytes[side]

    def stall(self) -> None:
        """Let no byte through, and keep the connections."""
        self._flows.clear()

    def resume(self) -> None:
        self._flows.set()

    def kill(self) -> None:
        """Cut all connections and refuse new ones until `restore`."""
        self._alive.clear()
        with self._mutex:
            held, self._connections = self._connections, set()
        for each in held:
            _shut(each)

    def restore(self) -> None:
        self._alive.set()

    def close(self) -> None:
        """End all threads and connections."""
        self._closed.set()
        self._flows.set()
        for listener in self._listeners:
            _shut(listener)
        self.kill()
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> Wan:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _start(self, call, *args) -> None:
        thread = threading.Thread(target=call, args=args, daemon=True)
        with self._mutex:
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def _accept(self, listener: socket.socket, port: int, side: str) -> None:
        other = SIDES[1 - SIDES.index(side)]
        while not self._closed.is_set():
            try:
                near = listener.accept()[0]
            except OSError:
                return
            try:
                if not self._alive.is_set():
                    raise ConnectionRefusedError
                far = socket.create_connection((HOST, port), timeout=5)
                far.settimeout(None)
            except OSError:
                _shut(near)
                continue
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._mutex:
                self._connections |= {near, far}
            if self._closed.is_set() or not self._alive.is_set():
                self._end(near, far)
                continue
            self._start(self._pump, near, far, side)
            self._start(self._pump, far, near, other)

    def _pump(self, source: socket.socket, sink: socket.socket, side: str) -> None:
        """Forward what comes from `source`, until either end closes."""
        try:
            while data := source.recv(PIECE):
                self._closed.wait(self._buckets[side].take(len(data), time.monotonic()))
                self._flows.wait()
                with self._mutex:
                    self._bytes[side] += len(data)  # first, so that who has read them finds them counted
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)  # the other direction may still have something to say
        except OSError:
            self._end(source, sink)

    def _end(self, *sockets: socket.socket) -> None:
        for each in sockets:
            _shut(each)
        with self._mutex:
            self._connections -= set(sockets)


def _shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it, which closing alone does not
    each.close()
