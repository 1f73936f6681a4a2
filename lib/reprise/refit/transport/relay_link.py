"""The subtrees that one sender feeds, and what each of them has yet to answer."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

import zmq

from reprise.refit.recovery.attempt import Order
from reprise.refit.transport.common import ReceiverFailed, TransportTimeout
from reprise.refit.transport.relay_messages import HEADER_BYTES, Message, MessageError, parse
from reprise.refit.transport.relay_tree import height

TIMEOUT = 60.0  # seconds without an answer; longer than a payload takes to arrive and to be applied
WINDOW = 4  # messages on the way to a subtree
PATIENCE = 0.25  # of the timeout, added for every level below, so that the deepest link tells who is silent
LINGER_MS = 200  # for the last "stop"


class Subtree:
    """One receiver and those below it, on a connection of its own."""

    def __init__(self, context: zmq.Context, address: str, node: int, members: tuple[int, ...], timeout: float):
        self.node, self.members = node, members
        self.limit = timeout * (1 + PATIENCE * height(members, node))
        self.waiting: deque[int] = deque()
        self.since = time.monotonic()
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, LINGER_MS)
        self.socket.setsockopt(zmq.MAXMSGSIZE, HEADER_BYTES)
        self.socket.connect(address)

    def send(self, message: Message) -> None:
        if message.kind == "open":
            message = replace(message, fields={**message.fields, "members": list(self.members)})
        # never blocks: there are at most WINDOW messages in a queue of a thousand
        self.socket.send_multipart(message.pack(), zmq.DONTWAIT, copy=False)
        if "seq" in message.fields:
            if not self.waiting:
                self.since = time.monotonic()
            self.waiting.append(message.fields["seq"])


class Downstream:
    """All subtrees of one sender for one attempt.

    Args:
        addresses: receiver -> its address, of those that are fed directly.
        members: receiver -> the tree it is part of, in tree order.
        timeout: seconds within which a subtree of one receiver must answer something while it owes an answer.
    """

    def __init__(
        self,
        context: zmq.Context,
        order: Order,
        addresses: Mapping[int, str],
        members: Mapping[int, Sequence[int]],
        timeout: float = TIMEOUT,
    ):
        self.order, self.fingerprints = order, {}
        self._subtrees = {
            node: Subtree(context, address, node, tuple(members[node]), timeout) for node, address in addresses.items()
        }

    @property
    def sockets(self) -> list[zmq.Socket]:
        return [subtree.socket for subtree in self._subtrees.values()]

    @property
    def outstanding(self) -> int:
        """Messages that some subtree has not answered."""
        return max((len(subtree.waiting) for subtree in self._subtrees.values()), default=0)

    def send(self, message: Message) -> None:
        for subtree in self._subtrees.values():
            subtree.send(message)

    def receive(self) -> None:
        """Take all answers that are there.

        Raises:
            ReceiverFailed: a receiver says so.
            MessageError: an answer to nothing that was asked.
        """
        for subtree in self._subtrees.values():
            for _ in count():
                try:
                    frames = subtree.socket.recv_multipart(zmq.DONTWAIT)
                except zmq.Again:
                    break
                self._take(subtree, parse(frames, 0))

    def check_time(self) -> None:
        """TransportTimeout if a subtree owes an answer for too long. Call `receive` first."""
        now = time.monotonic()
        for subtree in self._subtrees.values():
            if subtree.waiting and now - subtree.since > subtree.limit:
                raise SilentReceiver(subtree.node, f"no answer within {subtree.limit:g} s")

    def patience(self) -> float:
        """Seconds until `check_time` may raise."""
        now = time.monotonic()
        ends = [subtree.since + subtree.limit - now for subtree in self._subtrees.values() if subtree.waiting]
        return max(0.0, min(ends, default=60.0))

    def close(self, stop: bool) -> None:
        """Let go of the subtrees; `stop` tells them that the attempt is over."""
        for subtree in self._subtrees.values():
            if stop:
                try:
                    subtree.send(Message("stop", self.order))
                except zmq.Again:
                    pass  # nobody there
            subtree.socket.close()
        self._subtrees = {}

    def _take(self, subtree: Subtree, message: Message) -> None:
        if message.order != self.order:
            return  # of an attempt that this receiver believes in, and we do not
        if message.kind == "failed":
            raise ReceiverFailed(message.fields["node"], message.fields["reason"])
        if message.kind != "ack" or not subtree.waiting or subtree.waiting[0] != message.fields["seq"]:
            raise MessageError(f"receiver {subtree.node}: {message.kind} {message.fields}, expected the next ack")
        subtree.waiting.popleft()
        subtree.since = time.monotonic()
        self.fingerprints |= {int(node): text for node, text in message.fields["fingerprints"].items()}


class SilentReceiver(ReceiverFailed, TransportTimeout):
    """A receiver, or the way to it, gives no answer."""
