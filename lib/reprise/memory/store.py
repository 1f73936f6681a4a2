"""Where notes live: a journal of transactions in one embedding space, shared by many writers.

A transaction is one append of `reprise.durable.Journal`: after a crash it is there whole or not at all, and a change
that was rejected never touched the file.

    header     {"schema": "mistake-notebook/1", "space": {...}, "version": v}
    put        id (16 bytes), vector of the subject (dim little-endian float16), the note as JSON in UTF-8
    del        {"op": "del", "id": ...}
    commit     {"op": "commit", "version": v}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from reprise.durable import FS, REAL, Journal, salvage
from reprise.memory.errors import EmbeddingSpaceError, MemoryFault, StaleVersion, UnknownSchema
from reprise.memory.notes import Note

SCHEMA = "mistake-notebook/1"
ID = 16  # bytes of a note's id
VECTOR = np.dtype("<f2")  # moves cosines by less than 1e-3; an eighth of the size of decimal text


@dataclass(frozen=True)
class EmbeddingSpace:
    """What two vectors must share to be compared.

    Attributes:
        model: name of the embedder.
        revision: of its weights, such as the first digits of their SHA-256.
        dim: length of a vector, at least 1.
        pooling: how token vectors become one.
        normalized: whether vectors have length 1.
    """

    model: str
    revision: str
    dim: int
    pooling: str = "mean"
    normalized: bool = True

    def __post_init__(self):
        if not isinstance(self.dim, int) or self.dim < 1:
            raise MemoryFault(f"space.dim={self.dim!r}: expected at least 1")


@dataclass(frozen=True)
class Put:
    """Add a note with the vector of its subject, (dim,) float."""

    note: Note
    vector: np.ndarray


@dataclass(frozen=True)
class Delete:
    """Take the note with this id out."""

    id: str


@dataclass(frozen=True)
class Snapshot:
    """The notes of one committed version.

    Attributes:
        version: number of transactions committed so far.
        notes: in the order they were added.
        vectors: (notes, dim) float32, a row for each.
    """

    version: int
    notes: tuple[Note, ...]
    vectors: np.ndarray


class NoteStore:
    """A notebook on disk.

    Args:
        path: its journal, made if missing.
        space: the embedding space of its vectors; None takes the one of an existing store.
        fs: where changes go.
        timeout: seconds to wait for another writer.

    Raises:
        EmbeddingSpaceError: the store is of another space.
        MemoryFault: space=None and there is no store.
        reprise.durable.JournalCorrupt: damage; `repair` sets it aside.
    """

    def __init__(self, path: str | Path, space: EmbeddingSpace | None = None, *, fs: FS = REAL, timeout: float = 30.0):
        self.path = Path(path)
        if space is None and not self.path.exists():
            raise MemoryFault(f"path={path}: no store there; expected one, or a space to make it with")
        self._journal = Journal(path, fs=fs, timeout=timeout)
        with self._journal.exclusive():
            header = next(iter(self._journal), None)
            if header is None:
                if space is None:
                    raise MemoryFault(f"path={path}: the store is empty; expected a space to make it with")
                self._journal.append(_header(space, 0))
                header = next(iter(self._journal))
        self.writable, self.space = _read_header(self.path, header.value)
        if space is not None and space != self.space:
            raise EmbeddingSpaceError(
                f"space={space}: expected {self.space}, the store's; reembed() moves a store to another space"
            )

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The latest committed version, or an older one.

        Raises:
            MemoryFault: no such version, or compaction has folded it away.
        """
        at, found = _replay(self._journal, version)
        if version is not None and at != version:
            raise MemoryFault(f"version={version}: {self.path} has no such version, or it was compacted away")
        return _snapshot(at, found, self.space.dim)

    def commit(self, operations: Sequence[Put | Delete], expected_version: int | None = None) -> int:
        """Apply operations as one transaction; returns the new version once it is on the disk.

        Args:
            operations: all of them happen or none; a note may be deleted and another put in one transaction.
            expected_version: refuse when others have committed since.

        Raises:
            StaleVersion: the store is at another version.
            EmbeddingSpaceError: a vector of another length, or not finite.
            MemoryFault: a deleted id that is not there, or a note that is there already.
            UnknownSchema: the store was written by a newer version of this library.
        """
        if not self.writable:
            raise UnknownSchema(f"{self.path}: a newer schema; expected {SCHEMA} to write")
        with self._journal.exclusive():
            version, ids = _replay(self._journal)
            if expected_version is not None and version != expected_version:
                raise StaleVersion(f"expected_version={expected_version}: the store is at version {version}")
            self._journal.append_many(_records(operations, ids, self.space, version + 1))
        return version + 1

    def rollback_to(self, version: int) -> int:
        """Make the notes those of an older version again, as a new transaction; returns the new version."""
        with self._journal.exclusive():
            now, then = self.snapshot(), self.snapshot(version)
            gone = [Delete(note.id) for note in now.notes]
            back = [Put(note, vector) for note, vector in zip(then.notes, then.vectors, strict=True)]
            return self.commit(gone + back, now.version)

    def compact(self) -> None:
        """Keep only the latest version: its notes, its number, none of its history."""
        self._journal.compact(lambda records: _folded(records, self.space))

    def reembed(self, path: str | Path, encode: Callable[[list[str]], np.ndarray], space: EmbeddingSpace) -> NoteStore:
        """The same notes in a new store at `path`, under vectors of another space. Nothing is lost: subjects are kept.

        Args:
            path: where the new store goes; must not exist.
            encode: texts -> (texts, space.dim) float.
        """
        if Path(path).exists():
            raise MemoryFault(f"path={path}: expected a path that does not exist yet")
        notes = self.snapshot().notes
        other = NoteStore(path, space)
        if notes:
            vectors = encode([note.subject for note in notes])
            other.commit([Put(note, vector) for note, vector in zip(notes, vectors, strict=True)])
        return other

    def close(self) -> None:
        self._journal.close()

    def __enter__(self) -> NoteStore:
        return self

    def __exit__(self, *exc) -> None:
        self.close()


def repair(path: str | Path, space: EmbeddingSpace | None = None) -> int:
    """Set damaged parts of a store aside, into `<path>.quarantine`; what is intact is kept, by transactions.

    Args:
        space: of the store, for the case that its header is among the damage.

    Returns:
        bytes set aside; 0 for an intact store.

    Raises:
        MemoryFault: the header is gone and no space was given.
    """
    aside = salvage(path)
    if aside:
        with Journal(path) as journal:
            first = next(iter(journal), None)
            if first is None or not _is_header(first.value):
                if space is None:
                    raise MemoryFault(f"path={path}: the header is lost; expected the space of the store")
                journal.compact(lambda records: [_header(space, 0), *(record.value for record in records)])
    return aside


def _header(space: EmbeddingSpace, version: int) -> dict:
    return {"schema": SCHEMA, "space": asdict(space), "version": version}


def _is_header(value) -> bool:
    return isinstance(value, dict) and str(value.get("schema", "")).startswith("mistake-notebook/")


def _read_header(path: Path, value) -> tuple[bool, EmbeddingSpace]:
    if not _is_header(value):
        raise MemoryFault(f"{path}: not a store of notes; expected a header with schema {SCHEMA}")
    known = {name: value["space"][name] for name in ("model", "revision", "dim", "pooling", "normalized")}
    return value["schema"] == SCHEMA, EmbeddingSpace(**known)


def _records(operations: Iterable[Put | Delete], ids: Iterable[str], space: EmbeddingSpace, version: int) -> list:
    """The records of one transaction, checked against the ids that are there."""
    records, ids = [], set(ids)
    for k, operation in enumerate(operations):
        if isinstance(operation, Delete):
            if operation.id not in ids:
                raise MemoryFault(f"operations[{k}].id={operation.id!r}: no such note")
            ids.remove(operation.id)
            records.append({"op": "del", "id": operation.id})
            continue
        id, vector = operation.note.id, np.asarray(operation.vector)
        if vector.shape != (space.dim,):
            raise EmbeddingSpaceError(
                f"operations[{k}].vector: shape {vector.shape}, expected ({space.dim},) of {space}"
            )
        if not np.isfinite(vector).all():
            raise EmbeddingSpaceError(f"operations[{k}].vector of {operation.note.subject!r}: expected finite numbers")
        if id in ids:
            raise MemoryFault(f"operations[{k}]: note {id} is there already")
        ids.add(id)
        note = json.dumps(operation.note.to_json(), ensure_ascii=False, separators=(",", ":"))
        records.append(id.encode() + vector.astype(VECTOR).tobytes() + note.encode())
    return [*records, {"op": "commit", "version": version}]


def _replay(records: Iterable, version: int | None = None) -> tuple[int, dict[str, bytes]]:
    """Version reached and put records by id, after transaction `version` or, for None, the last one."""
    found, at = {}, 0
    for record in records:
        value = record.value
        if isinstance(value, bytes):
            found[value[:ID].decode()] = value
        elif value.get("op") == "del":
            found.pop(value["id"], None)  # missing where repair() took its put away
        else:  # header, commit
            at = value["version"]
            if version is not None and at >= version:
                break
    return at, found


def _snapshot(at: int, found: dict[str, bytes], dim: int) -> Snapshot:
    end = ID + dim * VECTOR.itemsize
    raw = b"".join(value[ID:end] for value in found.values())
    vectors = np.frombuffer(raw, VECTOR).reshape(len(found), dim).astype(np.float32)
    return Snapshot(at, tuple(Note.from_json(json.loads(value[end:])) for value in found.values()), vectors)


def _folded(records: list, space: EmbeddingSpace) -> list:
    version, found = _replay(records)
    return [_header(space, version), *found.values()]
