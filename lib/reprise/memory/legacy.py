"""Notebooks of the released code: plain JSONL with subject, guidance and embedding on each line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from reprise.memory.errors import EmbeddingSpaceError, MemoryFault, StaleVersion
from reprise.memory.notes import Guidance, Note
from reprise.memory.store import EmbeddingSpace, NoteStore, Put

UNKNOWN = "not recorded by the file this note came from"


def import_legacy(store: NoteStore, path: str | Path) -> tuple[int, list[str]]:
    """Add the notes of such a file in one transaction; notes that are there already are left alone.

    Its guidance is one text, which becomes the approach of a note whose other parts say that they are unknown. A line
    that cannot be used is named, with the reason, and left out.

    Args:
        store: of the space the file's vectors are in; nothing in the file says which that is.

    Returns:
        (notes added, problems).
    """
    puts, problems = {}, []
    with open(path, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    put = _read(json.loads(line), store.space)
                    puts.setdefault(put.note.id, put)
                except (ValueError, TypeError, KeyError, RecursionError) as error:
                    problems.append(f"line {number}: {error}")
    while True:
        now = store.snapshot()
        present = {note.id for note in now.notes}
        new = [put for id, put in puts.items() if id not in present]
        try:
            if new:
                store.commit(new, now.version)
            return len(new), problems
        except StaleVersion:
            continue


def _read(value, space: EmbeddingSpace) -> Put:
    if not isinstance(value, dict):
        raise MemoryFault(f"{type(value).__name__}: expected an object with subject, guidance and embedding")
    vector = np.asarray(value["embedding"], np.float32)
    if vector.shape != (space.dim,) or not np.isfinite(vector).all():
        raise EmbeddingSpaceError(f"embedding: shape {vector.shape}, expected {space.dim} finite numbers")
    guidance = Guidance((UNKNOWN,), str(value["guidance"]), UNKNOWN, UNKNOWN, UNKNOWN)
    return Put(Note(str(value["subject"]), guidance), vector)
