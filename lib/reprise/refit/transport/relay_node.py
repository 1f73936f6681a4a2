"""A receiver in a relay tree: passes messages on to the two below it, does its own part, and answers for all of them.

One thread and one loop. A message goes down before it is done here, so that those below work meanwhile; it is answered
upwards when it is done here and below. Nothing more is read while those below owe `window` answers, so whatever the
sender does, a node holds no more than that.

A node that was restarted knows no attempt: it answers "failed" to the next message, and the sender tries again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import zmq

from reprise.errors import RepriseError
from reprise.refit.frame import DEFAULT_LIMITS, Limits
from reprise.refit.recovery.attempt import NO_ORDER, Attempt
from reprise.refit.transport.common import ReceiverFailed, TransportError
from reprise.refit.transport.intake import Intake
from reprise.refit.transport.relay_link import LINGER_MS, TIMEOUT, WINDOW, Downstream
from reprise.refit.transport.relay_messages import DOWN, HEADER_BYTES, REASON_CHARACTERS, Message, MessageError, parse
from reprise.refit.transport.relay_tree import children

WAKE_MS = 100  # how long after `stop` is set the loop ends


@dataclass
class _Open:
    """The attempt under way: who feeds it, what is next, and what is done here but not yet below."""

    attempt: Attempt
    parent: bytes
    down: Downstream
    next: int = 0
    answered: int = 0
    fingerprint: str = ""


class RelayNode:
    """Receiver `index` of a tree.

    Args:
        index: which of `addresses` this one is.
        addresses: receiver i's address, as seen from inside the cluster.
        intake: what is done with the payloads.
        bind: address to listen at, by default the own one.
        window, timeout: as for RelayTransport; of those below.
        limits: what a payload may ask for.

    Raises:
        TransportError: no such index, or the address cannot be had.
    """

    def __init__(
        self,
        index: int,
        addresses: Sequence[str],
        intake: Intake,
        *,
        bind: str | None = None,
        window: int = WINDOW,
        timeout: float = TIMEOUT,
        limits: Limits = DEFAULT_LIMITS,
    ):
        if not 0 <= index < len(addresses):
            raise TransportError(f"index={index}: expected 0 <= index < {len(addresses)}")
        self.index, self._addresses, self._intake = index, list(addresses), intake
        self._window, self._timeout, self._limits = window, timeout, limits
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, LINGER_MS)
        self._router.setsockopt(zmq.RCVHWM, window)
        self._router.setsockopt(zmq.MAXMSGSIZE, max(HEADER_BYTES, limits.frame_bytes))
        self._open: _Open | None = None
        self._newest = NO_ORDER
        try:
            self._router.bind(bind or addresses[index])
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise TransportError(f"{bind or addresses[index]}: {error}") from None

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop` is set; closes the node."""
        try:
            while not stop.is_set():
                self._turn()
        finally:
            self._drop(stop=False)
            self._router.close()
            self._context.term()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        down, poller = self._open and self._open.down, zmq.Poller()
        for socket in down.sockets if down else ():
            poller.register(socket, zmq.POLLIN)
        if down is None or down.outstanding < self._window:
            poller.register(self._router, zmq.POLLIN)
        ready = dict(poller.poll(WAKE_MS))
        try:
            if down is not None:
                down.receive()
                down.check_time()
                self._answer()
            if self._router in ready:
                self._take(*self._router.recv_multipart(copy=False))
        except (RepriseError, OSError) as error:
            self._fail(error)

    def _take(self, sender, *frames) -> None:
        """One message from above; RepriseError or OSError if it ends the attempt."""
        sender = sender.bytes
        try:
            message = parse([frame.buffer for frame in frames], self._limits.frame_bytes)
            if message.kind not in DOWN:
                raise MessageError(f"{message.kind}: from above, expected one of {', '.join(DOWN)}")
        except MessageError:
            if self._open is not None and sender == self._open.parent:
                raise
            return  # a stranger
        if message.kind == "open":
            if not self._enter(sender, message):
                return
        elif self._open is None or self._open.attempt.order != message.order:
            if message.kind != "stop":
                self._refuse(sender, message, "no such attempt is open here")
            return
        elif self._open.parent != sender:
            return  # only who opened an attempt goes on with it
        if message.kind == "stop":
            self._intake.stop(message.order)
            self._drop(stop=True)
            return
        self._step(message)

    def _enter(self, sender: bytes, message: Message) -> bool:
        """Begin the attempt of an "open"; False if it was refused."""
        attempt, members = Attempt(**message.fields["attempt"]), message.fields["members"]
        if attempt.order <= self._newest:
            self._refuse(sender, message, f"{attempt}: expected one after {self._newest[0]}.{self._newest[1]}")
            return False
        if self.index not in members or max(members) >= len(self._addresses):
            self._refuse(sender, message, f"members {members[:20]}: expected {self.index}, of {len(self._addresses)}")
            return False
        self._drop(stop=True)
        self._newest, below = attempt.order, children(members, self.index)
        addresses = {node: self._addresses[node] for node in below}
        trees = dict.fromkeys(below, members)
        self._open = _Open(attempt, sender, Downstream(self._context, attempt.order, addresses, trees, self._timeout))
        return True

    def _step(self, message: Message) -> None:
        """Pass `message` on, do it here, answer what is done everywhere."""
        state, fields = self._open, message.fields
        if fields["seq"] != state.next:
            raise MessageError(f"{message.kind} {fields['seq']}: expected message {state.next}; one was lost")
        state.down.send(message)
        match message.kind:
            case "open":
                self._intake.begin(state.attempt, fields["mode"])
            case "payload":
                self._intake.accept(fields["number"], message.body)
            case "apply":
                self._intake.apply(fields["number"])
            case "check":
                state.fingerprint = self._intake.check(state.attempt, fields["payloads"])
            case "commit":
                self._intake.commit(state.attempt)
        state.next += 1
        self._answer()

    def _answer(self) -> None:
        """Ack every message that is done here and below."""
        state = self._open
        if state is None:
            return
        while state.answered < state.next - state.down.outstanding:
            fingerprints = {}
            if state.fingerprint and state.answered == state.next - 1:
                fingerprints = {**state.down.fingerprints, self.index: state.fingerprint}
            self._up(state.parent, "ack", seq=state.answered, fingerprints=fingerprints)
            state.answered += 1

    def _fail(self, error: Exception) -> None:
        """End the attempt here, below and, by a message, above."""
        state = self._open
        if state is None:
            return
        node, reason = (error.receiver, str(error)) if isinstance(error, ReceiverFailed) else (self.index, str(error))
        reason = reason.removeprefix(f"receiver {node}: ")[:REASON_CHARACTERS]
        self._up(state.parent, "failed", node=node, reason=reason)
        with suppress(RepriseError, OSError):  # what failed may fail again, and the next attempt fences this one
            self._intake.stop(state.attempt.order)
        self._drop(stop=True)

    def _refuse(self, sender: bytes, message: Message, reason: str) -> None:
        if message.order == self._newest and self._open is None:
            return  # the rest of an attempt whose end was told
        refusal = Message("failed", message.order, {"node": self.index, "reason": reason[:REASON_CHARACTERS]})
        self._router.send_multipart([sender, *refusal.pack()])

    def _up(self, parent: bytes, kind: str, **fields) -> None:
        self._router.send_multipart([parent, *Message(kind, self._open.attempt.order, fields).pack()])

    def _drop(self, stop: bool) -> None:
        if self._open is not None:
            self._open.down.close(stop)
            self._open = None
