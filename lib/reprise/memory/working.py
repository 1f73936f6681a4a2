"""The notes a batch works with: one version of a store in memory, and candidates derived from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reprise.memory.notes import Note
from reprise.memory.retrieval import Index
from reprise.memory.store import Delete, Put, Snapshot


@dataclass(frozen=True)
class Working:
    """Notes with their vectors, unchanged once made.

    Attributes:
        notes: in the order they were added.
        vectors: (notes, dim) float32.
    """

    notes: tuple[Note, ...]
    vectors: np.ndarray

    @classmethod
    def of(cls, snapshot: Snapshot) -> Working:
        return cls(snapshot.notes, snapshot.vectors)

    def search(self, queries: np.ndarray, k: int, threshold: float) -> list[tuple[Note, ...]]:
        """Notes for each query vector, best first."""
        if not self.notes or k == 0:
            return [()] * len(queries)
        found = self._index.search(queries, k, threshold)
        return [tuple(self.notes[hit.row] for hit in hits) for hits in found]

    def replaced(self, gone: Sequence[Note], note: Note, vector: np.ndarray) -> Working:
        """A candidate in which one note takes the place of others; the same note again changes nothing."""
        if any(each.id == note.id for each in self.notes):
            return self
        ids = {each.id for each in gone}
        keep = [k for k, each in enumerate(self.notes) if each.id not in ids]
        rows = np.concatenate([self.vectors[keep], np.asarray(vector, np.float32)[None]])
        return Working((*(self.notes[k] for k in keep), note), rows)

    def operations_to(self, other: Working) -> list[Put | Delete]:
        """What turns this memory into `other`, as one transaction of a store."""
        here, there = {note.id for note in self.notes}, {note.id for note in other.notes}
        gone = [Delete(note.id) for note in self.notes if note.id not in there]
        return gone + [Put(n, v) for n, v in zip(other.notes, other.vectors, strict=True) if n.id not in here]

    @property
    def _index(self) -> Index:
        # built once: a frozen dataclass has no cached_property, so it is kept beside the fields
        if "index" not in self.__dict__:
            self.__dict__["index"] = Index(self.vectors)
        return self.__dict__["index"]
