"""Payloads through a tree of receivers: each crosses the boundary between the clusters once, to the root.

The sender's end. It keeps at most `window` messages unanswered, and an answer means that every receiver below has
done it, so the slowest receiver sets the pace and no queue grows.

Source: NeMo-DCR, relay-tree transport. Nothing here is encrypted or authenticated: the network must keep others out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import zmq

from reprise.refit.recovery.attempt import Attempt
from reprise.refit.transport.common import TransportError
from reprise.refit.transport.relay_link import TIMEOUT, WINDOW, Downstream
from reprise.refit.transport.relay_messages import Message
from reprise.refit.transport.relay_tree import rotated

FANS = ("tree", "star")


class RelayTransport:
    """The source of a relay tree.

    Args:
        addresses: receiver i's address, as seen from here: `tcp://host:port`.
        window: messages that may wait for answers.
        timeout: seconds within which a receiver must answer; more for those with others below.
        fan: "tree", or "star", in which every receiver hangs on the source itself and each payload crosses as many
            times: for receivers that cannot reach each other, and to compare with.
    """

    def __init__(self, addresses: Sequence[str], *, window: int = WINDOW, timeout: float = TIMEOUT, fan: str = "tree"):
        if fan not in FANS:
            raise TransportError(f"fan={fan!r}: expected one of {', '.join(FANS)}")
        if window < 1:
            raise TransportError(f"window={window}: expected at least 1")
        self._addresses, self._window, self._timeout, self._fan = list(addresses), window, timeout, fan
        self._context = zmq.Context()
        self._down: Downstream | None = None
        self._seq = 0

    def broadcast(
        self,
        attempt: Attempt,
        payloads: Iterable[bytes],
        *,
        mode: str = "sync",
        root: int | None = None,
        receivers: Sequence[int] | None = None,
    ) -> dict[int, str]:
        """Bring payloads 0, 1, ... to every receiver and have them applied.

        Args:
            payloads: encoded ones of `attempt`, taken as there is room.
            mode: "sync": applied on arrival; "async": staged, and applied when the last one is staged everywhere.
            root: receiver that is fed from here; by default another one for each attempt.
            receivers: who takes part, by default all.

        Returns:
            the fingerprint of each receiver's bits.

        Raises:
            ReceiverFailed: a receiver refused, failed or gives no answer, which its feeder tells; it is named. The
                root's own silence is a TransportTimeout too. All receivers have been told to stop, and the next
                attempt fences those that did not hear it.
        """
        receivers = list(range(len(self._addresses)) if receivers is None else receivers)
        if not receivers:
            raise TransportError("receivers=[]: expected at least one")
        root = receivers[attempt.number % len(receivers)] if root is None else root
        members = rotated(receivers, root)

        def talk() -> dict[int, str]:
            self._send("open", attempt=attempt.dump(), members=[], mode=mode)
            number = -1
            for number, payload in enumerate(payloads):
                self._send("payload", body=payload, number=number)
            if mode == "async":
                self._settle()  # requests wait only once everything is there
                for staged in range(number + 1):
                    self._send("apply", number=staged)
            self._send("check", payloads=number + 1)
            self._settle()
            return self._fingerprints(members)

        self.close_attempt()
        trees = {root: members} if self._fan == "tree" else {node: (node,) for node in members}
        self._down = Downstream(
            self._context, attempt.order, {node: self._addresses[node] for node in trees}, trees, self._timeout
        )
        self._seq = 0
        return self._guarded(talk)

    def commit(self, attempt: Attempt) -> None:
        """Tell the receivers of the last broadcast that it is official, so that they let requests in again.

        Raises:
            ReceiverFailed: one of them did not hear it, or not all of them did.
        """
        if self._down is None or self._down.order != attempt.order:
            raise TransportError(f"{attempt}: expected the attempt that was broadcast last")

        def talk() -> None:
            self._send("commit")
            self._settle()

        self._guarded(talk)
        self.close_attempt()

    def close_attempt(self) -> None:
        """Let go of the receivers without a word."""
        if self._down is not None:
            self._down.close(stop=False)
            self._down = None

    def close(self) -> None:
        self.close_attempt()
        self._context.term()

    def __enter__(self) -> RelayTransport:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _guarded(self, talk: Callable):
        try:
            return talk()
        except BaseException:
            self._down.close(stop=True)
            self._down = None
            raise

    def _send(self, kind: str, body: bytes = b"", **fields) -> None:
        self._wait(self._window - 1)
        self._down.send(Message(kind, self._down.order, {"seq": self._seq, **fields}, body))
        self._seq += 1

    def _settle(self) -> None:
        self._wait(0)

    def _wait(self, outstanding: int) -> None:
        """Until at most so many messages are unanswered."""
        poller = zmq.Poller()
        for socket in self._down.sockets:
            poller.register(socket, zmq.POLLIN)
        self._down.receive()
        while self._down.outstanding > outstanding:
            poller.poll(1000 * self._down.patience() + 1)
            self._down.receive()
            self._down.check_time()

    def _fingerprints(self, members: Sequence[int]) -> dict[int, str]:
        found = self._down.fingerprints
        if set(found) != set(members):
            raise TransportError(f"fingerprints of receivers {sorted(found)}, expected {sorted(members)}")
        return dict(found)
