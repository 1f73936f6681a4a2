"""The gate between inference requests and weights that are about to change under them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from reprise.refit.transport.common import TransportTimeout


class RequestGate:
    """Requests run while it is open; closing waits for those that run.

    >>> gate = RequestGate()
    >>> with gate.request():
    ...     gate.running
    1
    >>> gate.close(timeout=1.0)
    >>> gate.is_open
    False
    """

    def __init__(self):
        self.is_open, self.running, self._changed = True, 0, threading.Condition()

    @contextmanager
    def request(self, timeout: float | None = None) -> Iterator[None]:
        """Run a request within the block, after waiting for the gate to open.

        Raises:
            TransportTimeout: not open within `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.is_open, timeout):
                raise TransportTimeout(f"request gate: not open within timeout={timeout} s")
            self.running += 1
        try:
            yield
        finally:
            with self._changed:
                self.running -= 1
                self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """Let no new request in, and wait until none runs. Closed already is no error.

        Raises:
            TransportTimeout: requests still run after `timeout` seconds; the gate is as it was.
        """
        with self._changed:
            was_open, self.is_open = self.is_open, False
            if self._changed.wait_for(lambda: self.running == 0, timeout):
                return
            self.is_open = was_open
            self._changed.notify_all()
            raise TransportTimeout(f"request gate: {self.running} requests run after timeout={timeout} s")

    def open(self) -> None:
        with self._changed:
            self.is_open = True
            self._changed.notify_all()
