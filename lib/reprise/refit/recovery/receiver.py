"""A replica, as whoever changes it sees it: a `ResidentStore`, here or behind a transport, or what keeps its promises.

Every method may raise OSError where the replica or the way to it fails, and what `ResidentStore` raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from reprise.refit.recovery.attempt import Attempt, Order
from reprise.refit.recovery.resident import Outcome, Status


class Weights(Protocol):
    """What the payloads of an attempt change: the part of a receiver that its transport calls."""

    def status(self) -> Status: ...
    def begin(self, attempt: Attempt) -> None: ...
    def deliver(self, payload: bytes) -> Outcome: ...
    def check(self, attempt: Attempt, payloads: int) -> str: ...
    def commit(self, attempt: Attempt) -> None: ...
    def stop_and_wait(self, order: Order) -> None: ...


class Receiver(Weights, Protocol):
    """What a coordinator needs besides: to compare the replica's bits, and to load them densely."""

    def fingerprint(self) -> str: ...
    def load(self, tensors: Mapping, version: int, generation: int = 0) -> None: ...
