"""The source's copy of the committed bits: what the next change is measured from.

`begin` compares and keeps the change aside, `commit` moves the baseline by it, `abort` forgets it. Nothing moves before
the commit record names the new version, so whoever finds a change pending reads the record and knows (`recover`): the
target is committed, roll forward; otherwise the baseline is where it should be.

Source: NeMo-DCR, committed source baseline and joint commit.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

from reprise.durable import FS, REAL, atomic_write
from reprise.errors import RepriseError
from reprise.refit.apply import apply_
from reprise.refit.bits import Bits, as_bits, storage_key
from reprise.refit.delta import Delta, diff_bits
from reprise.refit.digests import CHUNK
from reprise.refit.frame import Limits
from reprise.refit.payload import decode, encode
from reprise.refit.recovery.attempt import NO_ORDER, Attempt, FencedError
from reprise.refit.recovery.lock import one_at_a_time
from reprise.refit.recovery.resident import ResidentStore

STAGED = "staged.delta"
# the staged change is our own file, whose sizes are those of the weights beside it
OWN = Limits(frame_bytes=1 << 62, header_bytes=(1 << 32) - 1, raw_bytes=1 << 62, changes=1 << 62)


class BaselineLost(RepriseError):
    """The baseline is not the committed version and holds no change that leads to it."""


class Baseline:
    """A baseline in memory, for a source that outlives its coordinators and is rebuilt with its trainer.

    Args:
        tensors: name -> array, tensor or Bits of the committed version; copied, tied tensors once.
        version: the committed version.
        chunk: elements a digest chunk of the deltas.
    """

    def __init__(self, tensors: Mapping, version: int = 0, *, chunk: int = CHUNK):
        copies: dict = {}
        self._tensors = {}
        for name, tensor in tensors.items():
            bits = as_bits(tensor)
            key = storage_key(tensor) or name
            self._tensors[name] = copies.setdefault(key, Bits(bits.dtype, bits.shape, bits.words.copy()))
        self.version, self._chunk = version, chunk
        self._mutex = threading.RLock()
        self._order, self._pending, self._delta = NO_ORDER, None, None

    def tensors(self) -> dict[str, Bits]:
        """The committed bits."""
        return self._tensors

    @one_at_a_time
    def begin(self, new: Mapping, attempt: Attempt) -> Delta:
        """The change from the baseline to `new`, kept until `commit` or `abort`; the same again for the same bits.

        Raises:
            FencedError: a newer attempt was begun, or `attempt` starts from another version.
            RefitSchemaError: other names, shapes or dtypes than the baseline's.
        """
        if attempt.order <= self._order or attempt.base_version != self.version:
            raise FencedError(f"{attempt}: the baseline is at version {self.version} after attempts to {self._order}")
        delta = diff_bits(self._tensors, new, self._chunk, **attempt.transfer)
        self._order, self._pending, self._delta = attempt.order, attempt, delta
        return delta

    @one_at_a_time
    def commit(self, attempt: Attempt) -> None:
        """Move to the target of `attempt`, which the commit record names; again is no error.

        Raises:
            FencedError: another attempt is pending.
        """
        if self.version >= attempt.target_version:
            return
        if attempt != self._pending:
            raise FencedError(f"{attempt}: the baseline waits for {self._pending}")
        apply_(self._tensors, self._delta)
        self.version = attempt.target_version
        self.abort(attempt)

    @one_at_a_time
    def abort(self, attempt: Attempt) -> None:
        """Forget the change of `attempt`, if it is the pending one."""
        if attempt == self._pending:
            self._pending = self._delta = None

    @one_at_a_time
    def recover(self, version: int) -> None:
        """Be at `version`, the one in the commit record, by the pending change if that leads to it.

        Raises:
            BaselineLost: the baseline cannot become that version.
        """
        if self._pending and self._pending.target_version == version:
            self.commit(self._pending)
        if self.version != version:
            raise BaselineLost(f"baseline of version {self.version}: expected {version}, as in the commit record")


class FileBaseline:
    """A baseline on disk with the methods of `Baseline`, which survives its process.

    The pending change is staged in a file before `begin` returns. `commit` applies it in place, and a crash there is
    repaired as a receiver's would be: by the digests of each chunk.

    Args:
        store: the committed bits and their version; `close` it when done.
        fs: where the staged change goes.
        chunk: as for `Baseline`.
    """

    def __init__(self, store: ResidentStore, *, fs: FS = REAL, chunk: int = CHUNK):
        self.store, self._fs, self._chunk = store, fs, chunk
        self._staged, self._mutex = store.folder / STAGED, threading.RLock()

    @property
    def version(self) -> int:
        return self.store.status().version

    def tensors(self) -> dict[str, Bits]:
        return self.store.tensors()

    @one_at_a_time
    def begin(self, new: Mapping, attempt: Attempt) -> Delta:
        self.store.begin(attempt)
        delta = diff_bits(self.tensors(), new, self._chunk, **attempt.transfer)
        atomic_write(self._staged, encode(delta, "overwrite"), fs=self._fs)
        return delta

    @one_at_a_time
    def commit(self, attempt: Attempt) -> None:
        if self.version >= attempt.target_version:
            return
        try:
            delta = decode(self._staged.read_bytes(), OWN)
        except FileNotFoundError:
            delta = None
        if delta is None or not attempt.owns(delta):
            raise BaselineLost(f"{self._staged}: expected the change of {attempt}")
        self.store.resume(delta)
        self.store.commit(attempt)
        self._fs.unlink(self._staged)

    @one_at_a_time
    def abort(self, attempt: Attempt) -> None:
        # the attempt stays open in the store, where it has not changed a byte; the next one replaces it
        if attempt == self.store.status().attempt:
            with suppress(FileNotFoundError):
                self._fs.unlink(self._staged)

    @one_at_a_time
    def recover(self, version: int) -> None:
        pending = self.store.status().attempt
        if pending and pending.target_version == version:
            self.commit(pending)
        if self.version != version:
            raise BaselineLost(f"{self.store.folder}: version {self.version}, expected {version} of the commit record")
