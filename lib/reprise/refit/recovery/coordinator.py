"""One refit from change to joint commit, its retries, and the failover of who runs it.

    prepare   the baseline gives the change; every required receiver begins the attempt, applies and syncs all
              payloads, and answers with the fingerprint of its bits
    commit    the commit record goes from (v, g) to (v + 1, g) by compare-and-set
    finish    only then the baseline moves and the receivers are told

An attempt that fails is stopped at all receivers and tried again, from the same new bits and the same baseline, by
overwriting. A coordinator that died is replaced by one that takes the record from (v, g) to (v, g + 1); if the old one
was only slow, its payloads are refused by receivers that know the new one and its commit by the record.

Source: NeMo-DCR, recovery, joint commit and coordinator failover.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from reprise.errors import RepriseError
from reprise.refit.delta import Delta
from reprise.refit.payload import encode
from reprise.refit.recovery.attempt import Attempt, FencedError
from reprise.refit.recovery.baseline import Baseline, FileBaseline
from reprise.refit.recovery.commit_log import Commit, CommitConflict, CommitLog, signature
from reprise.refit.recovery.fingerprint import fingerprint
from reprise.refit.recovery.parts import repair, split
from reprise.refit.recovery.receiver import Receiver

PAYLOAD_BYTES = 1 << 26  # dense bytes a payload; a power cut can tear the chunks of one
ATTEMPTS = 3
EXCHANGES = 3  # tries of a compare-and-set whose store fails


class RefitFailed(RepriseError):
    """All attempts failed, the last one as the cause tells; nothing is committed and the receivers are stopped."""


class RefitCoordinator:
    """The coordinator of one generation; made by `take_over`.

    Args:
        log: the commit record.
        baseline: the committed bits at the source.
        receivers: name -> required receiver. May be changed between two refits.
        generation: the record's, as long as this coordinator is the newest.
        writer: its signature in the record.
        op: operation of first attempts.
        attempts: tries of one refit.
        payload_bytes: dense bytes of the tensors of one payload.
    """

    def __init__(
        self,
        log: CommitLog,
        baseline: Baseline | FileBaseline,
        receivers: dict[str, Receiver],
        generation: int,
        writer: str,
        *,
        op: str = "xor",
        attempts: int = ATTEMPTS,
        payload_bytes: int = PAYLOAD_BYTES,
    ):
        self.log, self.baseline, self.receivers, self.generation = log, baseline, receivers, generation
        self._op, self._attempts, self._payload_bytes = op, attempts, payload_bytes
        self._writer, self._number = writer, 0

    @classmethod
    def take_over(cls, log: CommitLog, baseline, receivers: dict[str, Receiver], **options) -> RefitCoordinator:
        """Become the coordinator, the first or the next, and bring the baseline to the committed version.

        Raises:
            CommitConflict: another one was faster.
            BaselineLost: the source does not hold the committed version.
        """
        record, writer = log.read(), signature()
        _exchange(log, record, record.taken_over, writer)
        baseline.recover(record.version)
        return cls(log, baseline, receivers, record.generation + 1, writer, **options)

    def refit(self, new: Mapping) -> Commit:
        """Bring every receiver and then the baseline to the bits of `new`; returns the record after the commit.

        Args:
            new: name -> array, tensor or Bits of the next version; not changed meanwhile.

        Raises:
            FencedError: another coordinator has taken over; nothing of this refit will be committed.
            RefitFailed: no attempt succeeded.
            RefitSchemaError: `new` does not have the baseline's names, shapes and dtypes.
            OSError: whether it was committed is unknown; `take_over` finds out.
        """
        for _ in self.steps(new):
            pass
        return self._record()

    def steps(self, new: Mapping) -> Iterator[str]:
        """`refit` with a pause, and its name, after every action that another process can see."""
        record, expected = self._record(), fingerprint(new)
        self.baseline.recover(record.version)
        failure = None
        for _ in range(self._attempts):
            attempt = self._next(record.version, retry=failure is not None)
            deltas = split(self.baseline.begin(new, attempt), self._payload_bytes)
            payloads = [(delta, encode(delta, attempt.op)) for delta in deltas]
            yield "baseline: begun"
            try:
                for name, receiver in self.receivers.items():
                    yield from self._prepare(name, receiver, attempt, payloads, new, expected)
                break
            except FencedError:
                raise
            except (RepriseError, OSError) as error:
                failure = error
                self._stop(attempt)
                yield f"stopped: {error}"
        else:
            self.baseline.abort(attempt)
            raise RefitFailed(f"{attempt}: failed as all {self._attempts} did: {failure}") from failure
        yield from self._commit(record, attempt)

    def admit(self, name: str, receiver: Receiver) -> None:
        """Add a late or restarted receiver at the committed version, by a dense load unless it holds it already."""
        self._bring_up(receiver, self._record().version)
        self.receivers[name] = receiver

    # -- inside ------------------------------------------------------------------------------------------------------

    def _record(self) -> Commit:
        record = self.log.read()
        if record.generation != self.generation:
            raise FencedError(f"generation {self.generation}: the commit record is {record}")
        return record

    def _next(self, version: int, retry: bool) -> Attempt:
        self._number += 1
        op = "overwrite" if retry or not self._untouched() else self._op
        return Attempt(self.generation, self._number, version, version + 1, op)

    def _untouched(self) -> bool:
        """Whether no receiver can hold anything of an earlier attempt."""
        try:
            return all(receiver.status().attempt is None for receiver in self.receivers.values())
        except (RepriseError, OSError):
            return False

    def _prepare(
        self,
        name: str,
        receiver: Receiver,
        attempt: Attempt,
        payloads: list[tuple[Delta, bytes]],
        new: Mapping,
        expected: str,
    ) -> Iterator[str]:
        self._bring_up(receiver, attempt.base_version)
        yield f"{name}: at version {attempt.base_version}"
        receiver.begin(attempt)
        yield f"{name}: begun"
        for delta, payload in payloads:
            outcome = receiver.deliver(payload)
            if outcome.damaged:
                outcome = receiver.deliver(encode(repair(delta, new, outcome.damaged), "overwrite"))
            if outcome.damaged:
                raise RefitFailed(f"{name}: chunks {outcome.damaged[:4]} stay damaged, expected whole ones")
            yield f"{name}: payload {delta.payload_id} {outcome.status}"
        found = receiver.check(attempt, len(payloads))
        if found != expected:
            raise RefitFailed(f"{name}: bits of fingerprint {found}, expected {expected}")
        yield f"{name}: checked"

    def _bring_up(self, receiver: Receiver, version: int) -> None:
        """Make `receiver` hold the committed `version`, whatever it missed."""
        status = receiver.status()
        if status.version == version:
            return
        committed = self.baseline.tensors()
        open_ = status.attempt
        # it may have applied everything and missed only the news; or applied what was then not committed
        if open_ and open_.target_version == version and receiver.fingerprint() == fingerprint(committed):
            receiver.commit(open_)
        else:
            receiver.load(committed, version, self.generation)

    def _stop(self, attempt: Attempt) -> None:
        for receiver in self.receivers.values():
            with suppress(RepriseError, OSError):  # one that cannot be reached fails the next attempt
                receiver.stop_and_wait(attempt.order)

    def _commit(self, record: Commit, attempt: Attempt) -> Iterator[str]:
        try:
            _exchange(self.log, record, record.committed, self._writer)
        except CommitConflict as conflict:
            raise FencedError(f"{attempt}: another coordinator took over: {conflict}") from conflict
        yield "committed"
        self.baseline.commit(attempt)
        yield "baseline: moved"
        for name, receiver in self.receivers.items():
            with suppress(RepriseError, OSError):  # one that misses this is brought up by the next attempt
                receiver.commit(attempt)
            yield f"{name}: told"


def _exchange(log: CommitLog, expected: Commit, new: Commit, writer: str) -> None:
    for remaining in reversed(range(EXCHANGES)):
        try:
            return log.compare_and_set(expected, new, writer)
        except OSError:
            if not remaining:
                raise
