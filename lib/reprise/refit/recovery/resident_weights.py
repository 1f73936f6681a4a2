"""The file of resident weights: a safetensors file, mapped for reading, whose chunks are overwritten in place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reprise.durable import FS, atomic_write
from reprise.refit.bits import Bits, as_bits
from reprise.refit.checkpoints import safetensors_file
from reprise.refit.checkpoints.safetensors_file import Entry, SafetensorsFile
from reprise.refit.delta import Delta, TensorDelta
from reprise.refit.errors import PayloadError, RefitSchemaError
from reprise.refit.recovery.chunk_plan import ChunkPlan, plan_chunks


class PlacedPlan(NamedTuple):
    """A record of a delta, the tensor it is to change, and what that tensor's chunks need."""

    record: TensorDelta
    entry: Entry
    plan: ChunkPlan


class ResidentWeights:
    """The tensors in the safetensors file `path`; CheckpointError if it is none. Changes go through `fs`."""

    def __init__(self, path: Path, fs: FS):
        self.path, self._fs = path, fs
        self._file = SafetensorsFile.open(path)
        self._entries = {entry.name: entry for entry in self._file.entries}

    def tensors(self) -> dict[str, Bits]:
        """Read-only views of the mapped words."""
        return {name: safetensors_file.bits(entry, self._file.map(entry)) for name, entry in self._entries.items()}

    def plan(self, delta: Delta) -> list[PlacedPlan]:
        """What `delta` needs of each tensor it changes; errors as `ResidentStore.apply`."""
        return [
            PlacedPlan(record, entry, plan_chunks(record, self._file.map(entry)))
            for record, entry in self._places(delta)
        ]

    def write(self, plans: list[PlacedPlan]) -> None:
        """Write the planned chunks one after another, so that a kill tears one of them, and sync the file."""
        with self._fs.open(self.path, "r+b") as file:
            for record, entry, plan in plans:
                words = self._file.map(entry)
                for part, entries, new in plan.writes:
                    chunk = words[part].copy()
                    chunk[record.index[entries] - part.start] = new
                    file.seek(len(self._file.prefix) + entry.begin + part.start * entry.word_bytes)
                    view = memoryview(chunk).cast("B")
                    while view:
                        view = view[file.write(view) :]
            self._fs.fsync(file)

    def _places(self, delta: Delta) -> Iterator[tuple[TensorDelta, Entry]]:
        """Each record with each tensor it is to change: more than one where tied weights are held untied."""
        seen = set()
        for record in delta.tensors:
            record.check()
            held = [self._entries[name] for name in (record.name, *record.aliases) if name in self._entries]
            if not held:
                raise PayloadError(f"tensor {record.name!r}: unknown to the store")
            for entry in held:
                if entry.name in seen:
                    raise PayloadError(f"tensor {entry.name!r}: changed twice by one payload")
                seen.add(entry.name)
                if (entry.dtype, entry.shape) != (record.dtype, record.shape):
                    raise RefitSchemaError(
                        f"tensor {record.name!r}: {record.dtype}{record.shape} in the payload, "
                        f"{entry.dtype}{entry.shape} in the store"
                    )
                yield record, entry


def write_weights(path: Path, tensors: Mapping, fs: FS) -> None:
    """A safetensors file in which every word is aligned: widest dtypes first, data from a multiple of 8."""
    held = {name: as_bits(tensor) for name, tensor in tensors.items()}
    names = sorted(held, key=lambda name: (-held[name].words.dtype.itemsize, name))
    header, end = {}, 0
    for name in names:
        bits, begin = held[name], end
        end += bits.words.nbytes
        header[name] = {"dtype": bits.dtype, "shape": list(bits.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = (np.ascontiguousarray(held[name].words).data.cast("B") for name in names if held[name].words.size)
    atomic_write(path, _pieces(text, data), fs=fs)


def _pieces(text: bytes, data: Iterator[memoryview]) -> Iterator[bytes | memoryview]:
    yield len(text).to_bytes(8, "little") + text
    yield from data
