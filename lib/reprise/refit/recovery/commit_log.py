"""The commit record (version, generation): the one place where a policy version becomes official.

A commit is the exchange (v, g) -> (v + 1, g), a takeover (v, g) -> (v, g + 1). Either names the record it expects, so
an old coordinator of any generation fails at its next exchange. Two stores keep the record: a file, by a lock and
an atomic replacement, and an object, by a conditional put.

Source: NeMo-DCR, joint commit, which asks for a compare-and-set in the control plane; the two exchanges are ours.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from reprise.durable import FS, REAL, atomic_write
from reprise.errors import RepriseError
from reprise.refit.recovery.lock import locked


class CommitLogError(RepriseError):
    """A commit record that is missing, malformed or already there."""


class CommitConflict(RepriseError):
    """The record is not the expected one; `found` is what it is."""

    def __init__(self, expected: Commit, found: Commit):
        super().__init__(f"commit record: {found}, expected {expected}")
        self.found = found


@dataclass(frozen=True)
class Commit:
    """version: the committed one. generation: of the coordinator that may exchange the record next; 0 for none."""

    version: int
    generation: int

    def __str__(self) -> str:
        return f"(version {self.version}, generation {self.generation})"

    @property
    def committed(self) -> Commit:
        """After the coordinator of this generation commits the next version."""
        return replace(self, version=self.version + 1)

    @property
    def taken_over(self) -> Commit:
        """After another coordinator takes over."""
        return replace(self, generation=self.generation + 1)


class CommitLog:
    """What both stores share: the record's bytes and the rule of the exchange.

    An exchange may be done although its caller saw an error (a put that timed out, an fsync that failed after the
    rename). Records are therefore signed, and `compare_and_set` called again with the same arguments finds the
    caller's own record and succeeds. Until then whether it happened is unknown.
    """

    def read(self) -> Commit:
        """The record as it is now.

        Raises:
            CommitLogError: there is none, or it is malformed.
        """
        raise NotImplementedError

    def compare_and_set(self, expected: Commit, new: Commit, writer: str) -> None:
        """Replace `expected` by `new`, or raise and change nothing; durable when it returns.

        Args:
            new: `expected.committed` or `expected.taken_over`.
            writer: signature of the caller, which nobody else uses; see `signature`.

        Raises:
            CommitConflict: the record is another one.
            OSError: the store failed; the exchange may have happened or may still happen. Call again.
        """
        raise NotImplementedError


def signature() -> str:
    """A text that no one else has."""
    return uuid.uuid4().hex


def pack_record(commit: Commit, writer: str) -> bytes:
    return json.dumps({**asdict(commit), "writer": writer}).encode()


def parse_record(raw: bytes | None) -> tuple[Commit, str]:
    """(record, who wrote it).

    Raises:
        CommitLogError: no record, or bytes no CommitLog writes.
    """
    if raw is None:
        raise CommitLogError("commit record: none, expected one; create() writes the first")
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or set(fields) != {"version", "generation", "writer"}:
        raise CommitLogError(f"commit record: {raw[:80]!r}, expected version, generation and writer in JSON")
    version, generation, writer = fields["version"], fields["generation"], fields["writer"]
    if any(type(n) is not int or n < 0 for n in (version, generation)) or not isinstance(writer, str):
        raise CommitLogError(f"commit record: {raw[:80]!r}, expected two whole numbers and a text")
    return Commit(version, generation), writer


def check_exchange(raw: bytes | None, expected: Commit, new: Commit, writer: str) -> None:
    """Raise unless the record `raw` is `expected`, or is `new` by the hand of `writer`."""
    if new not in (expected.committed, expected.taken_over):
        raise CommitLogError(f"exchange {expected} -> {new}: expected the next version or the next generation")
    found = parse_record(raw)
    if found[0] != expected and found != (new, writer):
        raise CommitConflict(expected, found[0])


class FileCommitLog(CommitLog):
    """A record in a file of a local file system, shared by the processes of one machine.

    Args:
        path: the record; a lock `<path>.lock` stands beside it.
        fs: where changes go.
        timeout: seconds to wait for the lock.
    """

    def __init__(self, path: str | Path, *, fs: FS = REAL, timeout: float = 30.0):
        self.path, self._fs, self._timeout = Path(path), fs, timeout

    @classmethod
    def create(cls, path: str | Path, first: Commit = Commit(0, 0), **options) -> FileCommitLog:
        """Write the first record; CommitLogError if there is one."""
        log = cls(path, **options)
        with locked(log._lock_path, log._timeout):
            if log.path.exists():
                raise CommitLogError(f"{path}: exists, expected no commit record")
            atomic_write(log.path, pack_record(first, signature()), fs=log._fs)
        return log

    def read(self) -> Commit:
        with locked(self._lock_path, self._timeout):
            # whoever renamed it may have been killed before this; what is read here is acted upon
            self._fs.fsync_dir(self.path.parent)
            return parse_record(self._raw())[0]

    def compare_and_set(self, expected: Commit, new: Commit, writer: str) -> None:
        with locked(self._lock_path, self._timeout):
            check_exchange(self._raw(), expected, new, writer)
            atomic_write(self.path, pack_record(new, writer), fs=self._fs)

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(self.path.name + ".lock")

    def _raw(self) -> bytes | None:
        return self.path.read_bytes() if self.path.exists() else None


class PreconditionFailed(RepriseError):
    """A conditional put found another object than its condition names."""


class ObjectStore(Protocol):
    """What a conditional store offers: S3 with If-Match and If-None-Match, or an equal."""

    def get(self, key: str) -> tuple[bytes, str] | None:
        """(bytes, entity tag) of the newest object, or None if there is none; strongly consistent."""

    def put(self, key: str, data: bytes, *, if_match: str | None) -> None:
        """Write if the object has the tag `if_match`, or, for None, if there is none; durable when it returns.

        Raises:
            PreconditionFailed: the condition does not hold.
            OSError: unknown whether it was written.
        """


class ObjectCommitLog(CommitLog):
    """A record in an object store. No record ever comes back, so a tag made of the bytes cannot mistake one."""

    def __init__(self, store: ObjectStore, key: str):
        self.store, self.key = store, key

    @classmethod
    def create(cls, store: ObjectStore, key: str, first: Commit = Commit(0, 0)) -> ObjectCommitLog:
        """Write the first record; CommitLogError if there is one."""
        log = cls(store, key)
        try:
            store.put(key, pack_record(first, signature()), if_match=None)
        except PreconditionFailed:
            raise CommitLogError(f"{key}: exists, expected no commit record") from None
        return log

    def read(self) -> Commit:
        held = self.store.get(self.key)
        return parse_record(held and held[0])[0]

    def compare_and_set(self, expected: Commit, new: Commit, writer: str) -> None:
        held = self.store.get(self.key)
        check_exchange(held and held[0], expected, new, writer)
        try:
            self.store.put(self.key, pack_record(new, writer), if_match=held[1])
        except PreconditionFailed:
            # a rival's put, or an earlier one of ours that only now arrived
            held = self.store.get(self.key)
            found = parse_record(held and held[0])
            if found != (new, writer):
                raise CommitConflict(expected, found[0]) from None
