"""Notes and stores that several tests make, and a writer process: `python notebooks.py PATH WRITER TRANSACTIONS`."""

import sys

import numpy as np

from reprise.memory.notes import Guidance, Note
from reprise.memory.store import EmbeddingSpace, NoteStore, Put

SPACE = EmbeddingSpace("test", "1", 4)


def guidance(text="use the code M"):
    return Guidance(("q: men / a: M",), text, "the word was used", "look for codes", "do not guess")


def note(subject="coded columns", **fields):
    return Note(subject, guidance(), **fields)


def put(k, dim=4):
    return Put(note(f"subject {k}"), np.eye(dim)[k % dim])


def subjects(store, version=None):
    return [each.subject for each in store.snapshot(version).notes]


if __name__ == "__main__":
    path, writer, transactions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with NoteStore(path, SPACE, timeout=120) as store:
        for k in range(transactions):
            store.commit([put(1000 * writer + k)])
