"""What a receiver does with the payloads of an attempt, whichever way they come.

    synchronous    the gate closes before the first payload, and each is applied as it arrives
    asynchronous   payloads are staged, compressed, while requests go on; then the gate closes and they are applied

Either way the gate opens again when the attempt is committed, and only then: after a failure the weights may be
neither version, and they stay behind the gate until a retry has gone through.

Source: NeMo-DCR, pipelined transfer and request gate.
"""

from __future__ import annotations

from reprise.refit.payload import read_header
from reprise.refit.recovery.attempt import Attempt, FencedError, Order
from reprise.refit.recovery.receiver import Weights
from reprise.refit.transport.common import TransportError
from reprise.refit.transport.gate import RequestGate

MODES = ("sync", "async")
STAGED_BYTES = 1 << 34
GATE_TIMEOUT = 30.0  # seconds for running requests to end


class Intake:
    """The receiving end of one replica.

    Args:
        weights: what the payloads change; if an attempt is open there, the gate starts closed.
        gate: before the requests that read them.
        staged_bytes: compressed bytes held of one attempt in asynchronous mode.
        gate_timeout: seconds for running requests to end.
    """

    def __init__(
        self,
        weights: Weights,
        gate: RequestGate | None = None,
        *,
        staged_bytes: int = STAGED_BYTES,
        gate_timeout: float = GATE_TIMEOUT,
    ):
        self.weights, self.gate = weights, gate or RequestGate()
        self._limit, self._gate_timeout = staged_bytes, gate_timeout
        self._attempt: Attempt | None = None
        self._mode, self._staged, self._held = "sync", {}, 0
        if weights.status().attempt is not None:
            self.gate.close(gate_timeout)

    def begin(self, attempt: Attempt, mode: str) -> None:
        """Open `attempt`, dropping what is staged of an earlier one; errors as `ResidentStore.begin`."""
        if mode not in MODES:
            raise TransportError(f"mode={mode!r}: expected one of {', '.join(MODES)}")
        self.weights.begin(attempt)
        self._attempt, self._mode, self._staged, self._held = attempt, mode, {}, 0

    def accept(self, number: int, payload: bytes) -> None:
        """Take payload `number` of the attempt: apply it or stage it.

        Raises:
            FencedError: it belongs to another attempt.
            TransportError: it bears another number, or more is staged than fits.
            PayloadError and others: as `ResidentStore.deliver`; requests stay shut out if anything was written.
        """
        header = read_header(payload)
        self._require(header, number)
        if self._mode == "sync":
            self._deliver(payload)
            return
        self._held += len(payload)
        if self._held > self._limit:
            raise TransportError(f"staged: {self._held} bytes, expected at most staged_bytes={self._limit}")
        self._staged[number] = bytes(payload)

    def apply(self, number: int) -> None:
        """Apply staged payload `number`; the first one closes the gate.

        Raises:
            TransportTimeout: requests do not end; nothing was written.
            TransportError: there is no such payload.
        """
        if number not in self._staged:
            raise TransportError(f"payload {number}: not staged")
        self._deliver(self._staged[number])
        self._held -= len(self._staged.pop(number))

    def check(self, attempt: Attempt, payloads: int) -> str:
        """Fingerprint of the bits; errors as `ResidentStore.check`."""
        return self.weights.check(attempt, payloads)

    def commit(self, attempt: Attempt) -> None:
        """The attempt is official: requests may see its bits."""
        self.weights.commit(attempt)
        self._attempt = None
        self.gate.open()

    def stop(self, order: Order) -> None:
        """Nothing of an attempt up to `order` changes a byte any more; the gate stays as it is."""
        self.weights.stop_and_wait(order)
        if self._attempt is not None and self._attempt.order <= order:
            self._attempt, self._staged, self._held = None, {}, 0

    def _deliver(self, payload: bytes) -> None:
        self.gate.close(self._gate_timeout)
        outcome = self.weights.deliver(payload)
        if outcome.damaged:
            raise TransportError(f"chunks {outcome.damaged[:4]} hold neither version, expected a dense load")

    def _require(self, header, number: int) -> None:
        attempt = self._attempt
        if attempt is None or not attempt.owns(header):
            raise FencedError(
                f"payload {header.payload_id} of {header.transfer_id}, attempt {header.attempt}: "
                f"expected {attempt or 'no payload'}"
            )
        if header.payload_id != number:
            raise TransportError(f"payload {header.payload_id}: expected number {number}")
