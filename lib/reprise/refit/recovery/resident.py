"""Canonical weights of one replica on disk, changed in place, exact after a kill or a power cut at any moment.

Two files: the weights, a safetensors file whose chunks are overwritten where they stand, and a state of a few hundred
bytes, replaced atomically. An update goes

    begin     the attempt is on the disk before the first byte changes, and older attempts are fenced
    apply     every chunk is proven to hold the old bits; then chunk after chunk is written, the file synced and the
              payload recorded
    check     all payloads are there, and the fingerprint of all bits goes back to the coordinator
    commit    the state names the new version

A kill during `apply` leaves at most one chunk neither old nor new, since chunks are written one after another. A power
cut may lose any sector written since the last sync, so any chunk of the one payload under way. Either way the two
digests of each chunk tell what it holds, and `resume` does what is left.

Source: NeMo-DCR, sections on in-place application and recovery; states by chunk and the fence are ours.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from reprise.durable import FS, REAL
from reprise.refit.bits import Bits
from reprise.refit.delta import Delta
from reprise.refit.errors import StaleBaseError
from reprise.refit.frame import DEFAULT_LIMITS, Limits
from reprise.refit.payload import decode
from reprise.refit.recovery import lock
from reprise.refit.recovery.attempt import Attempt, FencedError, Order
from reprise.refit.recovery.fingerprint import fingerprint
from reprise.refit.recovery.lock import one_at_a_time
from reprise.refit.recovery.parts import Damage
from reprise.refit.recovery.resident_state import FILE, ResidentError, ResidentState
from reprise.refit.recovery.resident_weights import ResidentWeights, write_weights

LOCK = "lock"


@dataclass(frozen=True)
class Outcome:
    """What became of a payload.

    Args:
        status: "applied"; "damaged": everything but the damaged chunks; "duplicate": its number was applied in this
            attempt; "replayed": it leads to a version already held. The last two write nothing.
        written, skipped: chunks written, and changed chunks that held the new bits already.
        rewritten: chunks among the written that held neither version.
        damaged: (tensor, chunk) pairs that hold neither version and need `parts.repair`.
    """

    status: str
    written: int = 0
    skipped: int = 0
    rewritten: int = 0
    damaged: Damage = ()


@dataclass(frozen=True)
class Status:
    """Version of the bits, and the attempt that may have changed them, if one is open."""

    version: int
    attempt: Attempt | None


class ResidentStore:
    """An existing store in `folder`, locked against other processes until `close`.

    Args:
        folder: where `create` made it.
        fs: where changes go.
        limits: what a payload may ask for.

    Raises:
        ResidentError: no store, or a damaged state.
        LockHeld: another process has it open, perhaps one that was believed dead.
        CheckpointError: the weights are no safetensors file.
    """

    def __init__(self, folder: str | Path, *, fs: FS = REAL, limits: Limits = DEFAULT_LIMITS):
        self.folder, self._fs, self._limits = Path(folder), fs, limits
        self._mutex, self._failed = threading.RLock(), False
        self._lock: int | None = lock.take(self.folder / LOCK)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, folder: str | Path, tensors: Mapping, version: int = 0, *, fs: FS = REAL, **options):
        """Make a store that holds `tensors` (name -> array, tensor or Bits); ResidentError if there is one."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with lock.locked(folder / LOCK, 0.0):
            if (folder / FILE).exists():
                raise ResidentError(f"{folder}: holds a store, expected none")
            state = ResidentState("weights-0.safetensors", version)
            write_weights(folder / state.weights, tensors, fs)
            state.write(folder, fs)
        return cls(folder, fs=fs, **options)

    # -- what it holds -----------------------------------------------------------------------------------------------

    def status(self) -> Status:
        return Status(self._state.version, self._state.attempt)

    def tensors(self) -> dict[str, Bits]:
        """Read-only views of the mapped weights; mixed bits while an attempt is open."""
        return self._weights.tensors()

    def fingerprint(self) -> str:
        return fingerprint(self.tensors())

    # -- an update ---------------------------------------------------------------------------------------------------

    @one_at_a_time
    def begin(self, attempt: Attempt) -> None:
        """Open `attempt`; no other attempt's payload is accepted from now on. Again is no error.

        Raises:
            FencedError: a newer attempt was opened, or this one was stopped.
            StaleBaseError: the store holds another version than the attempt starts from.
        """
        if attempt == self._state.attempt and attempt.order > self._state.fence:
            return
        newest = self._newest()
        if attempt.order <= newest:
            raise FencedError(f"{attempt}: expected one after {newest[0]}.{newest[1]}")
        if attempt.base_version != self._state.version:
            raise StaleBaseError(f"{attempt}: the store holds version {self._state.version}")
        self._set(attempt=attempt, applied=frozenset())

    @one_at_a_time
    def deliver(self, payload: bytes) -> Outcome:
        """Apply an encoded payload of the open attempt, as a retry where that is one of overwriting."""
        delta, attempt = decode(payload, self._limits), self._state.attempt
        return self.resume(delta) if attempt and attempt.op == "overwrite" else self.apply(delta)

    @one_at_a_time
    def apply(self, delta: Delta) -> Outcome:
        """Change the weights, if every chunk holds the old bits; on the disk when it returns.

        Raises:
            FencedError: a payload of another attempt than the open one.
            StaleBaseError: a chunk holds other bits; nothing was written.
            PayloadError, RefitSchemaError: a payload that does not fit; nothing was written.
        """
        return self._receive(delta, strict=True)

    @one_at_a_time
    def resume(self, delta: Delta) -> Outcome:
        """Change the weights whatever an interrupted attempt left; see `plan_chunks`. Errors as `apply`.

        Chunks that `delta` cannot mend are named in the outcome, and the payload counts as applied only after
        `parts.repair` brought them.
        """
        return self._receive(delta, strict=False)

    @one_at_a_time
    def check(self, attempt: Attempt, payloads: int) -> str:
        """Fingerprint of all bits once payloads 0 to `payloads` - 1 are applied.

        Raises:
            FencedError: `attempt` is not the open one.
            ResidentError: a payload is missing.
        """
        self._require(attempt == self._state.attempt, str(attempt))
        missing = sorted(set(range(payloads)) - self._state.applied)
        if missing:
            raise ResidentError(f"{attempt}: payloads {missing[:8]} missing, expected 0 to {payloads - 1}")
        return self.fingerprint()

    @one_at_a_time
    def commit(self, attempt: Attempt) -> None:
        """The open attempt was committed: its target is the version held. Again is no error.

        Raises:
            FencedError: `attempt` is not the open one.
        """
        if self._state.attempt is None and self._state.version >= attempt.target_version:
            return
        self._require(attempt == self._state.attempt, str(attempt))
        self._set(version=attempt.target_version, attempt=None, applied=frozenset(), fence=self._newest())

    @one_at_a_time
    def stop_and_wait(self, order: Order) -> None:
        """After this no payload of an attempt up to `order` changes a byte, not even one under way."""
        if order > self._state.fence:
            self._set(fence=order)

    @one_at_a_time
    def load(self, tensors: Mapping, version: int, generation: int = 0) -> None:
        """Dense load: hold `tensors` as `version`, whatever was held or open before.

        Args:
            generation: of the coordinator that asks; earlier ones are fenced from now on.

        Raises:
            FencedError: the store has heard from a later coordinator.
        """
        newest = self._newest()
        if generation < newest[0]:
            raise FencedError(f"dense load of generation {generation}: expected {newest[0]} or a later one")
        number = int(self._state.weights.removeprefix("weights-").removesuffix(".safetensors"))
        weights = f"weights-{number + 1}.safetensors"
        write_weights(self.folder / weights, tensors, self._fs)
        ResidentState(weights, version, max(newest, (generation, 0))).write(self.folder, self._fs)
        self._failed = False
        self._open()

    def close(self) -> None:
        if self._lock is not None:
            lock.release(self._lock)
            self._lock = None

    def __enter__(self) -> ResidentStore:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._state = ResidentState.read(self.folder)
        self._weights = ResidentWeights(self.folder / self._state.weights, self._fs)
        for path in [*self.folder.glob("weights-*.safetensors"), *self.folder.glob(".*.tmp")]:
            if path.name != self._state.weights:  # left by a process that was killed
                self._fs.unlink(path)

    def _newest(self) -> Order:
        """Order of the newest attempt heard of."""
        return max(self._state.fence, self._state.attempt.order if self._state.attempt else self._state.fence)

    def _set(self, **fields) -> None:
        state = replace(self._state, **fields)
        state.write(self.folder, self._fs)
        self._state = state

    @staticmethod
    def _require(holds: bool, what: str) -> None:
        if not holds:
            raise FencedError(f"{what}: not the open attempt of this store")

    def _receive(self, delta: Delta, strict: bool) -> Outcome:
        state = self._state
        if delta.target_version <= state.version:
            return Outcome("replayed")
        open_ = state.attempt is not None and state.attempt.order > state.fence and state.attempt.owns(delta)
        self._require(open_, f"payload {delta.payload_id} of {delta.transfer_id}, attempt {delta.attempt}")
        if delta.payload_id in state.applied:
            return Outcome("duplicate")
        if self._failed:
            raise ResidentError(f"{self.folder}: a write or sync failed before, expected a dense load")
        plans = self._weights.plan(delta)
        if strict and (moved := [record.name for record, _, plan in plans if not plan.is_base]):
            raise StaleBaseError(f"tensor {moved[0]!r}: does not hold the bits of version {delta.base_version}")
        try:
            self._weights.write(plans)
        except OSError:
            # after a failed sync the cache may show bits that the disk lost, and digests would believe them
            self._failed = True
            raise
        damaged = tuple(sorted({(record.name, k) for record, _, plan in plans for k in plan.damaged}))
        if not damaged:
            self._set(applied=state.applied | {delta.payload_id})
        return Outcome(
            "damaged" if damaged else "applied",
            sum(len(plan.writes) for _, _, plan in plans),
            sum(plan.skipped for _, _, plan in plans),
            sum(plan.rewritten for _, _, plan in plans),
            damaged,
        )
