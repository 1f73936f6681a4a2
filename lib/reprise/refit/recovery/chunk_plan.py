"""What each chunk of a tensor needs to become the new version, whatever an interrupted apply left in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprise.refit.delta import TensorDelta
from reprise.refit.digests import chunk_bounds, chunk_slices, digest
from reprise.refit.errors import PayloadError
from reprise.refit.operations import new_words


@dataclass(frozen=True)
class ChunkPlan:
    """Chunks of one tensor by what is to be done with them.

    Args:
        writes: (chunk, its part of the record's entries, its new words at these) of each chunk to be written.
        skipped: chunks that the record changes and that hold the new bits already.
        rewritten: chunks among `writes` that hold neither version.
        damaged: numbers of chunks that hold neither version and that this record cannot mend.
    """

    writes: tuple[tuple[slice, slice, np.ndarray], ...]
    skipped: int
    rewritten: int
    damaged: tuple[int, ...]

    @property
    def is_base(self) -> bool:
        """Whether every chunk holds the old bits."""
        return not (self.skipped or self.rewritten or self.damaged)


def plan_chunks(record: TensorDelta, words: np.ndarray) -> ChunkPlan:
    """Compare each chunk with its two digests and form its new words; nothing is written.

    A chunk with the new digest is skipped, one with the old digest takes any operation, one with neither takes
    "overwrite" if that alone gives the new digest.

    Args:
        record: changes of the tensor.
        words: what it holds.

    Raises:
        PayloadError: the old bits would not become the new ones, so the record contradicts itself.
    """
    bounds = chunk_bounds(record.index, words.size, record.chunk)
    old_digests, new_digests = record.old_digests.tolist(), record.new_digests.tolist()
    writes, skipped, rewritten, damaged = [], 0, 0, []
    for k, part in enumerate(chunk_slices(words.size, record.chunk)):
        held, entries = digest(words[part]), slice(bounds[k], bounds[k + 1])
        if held == new_digests[k]:
            skipped += entries.start < entries.stop
            continue
        is_old = held == old_digests[k]
        if not is_old and record.op != "overwrite":
            damaged.append(k)
            continue
        scratch, at = words[part].copy(), record.index[entries] - part.start
        scratch[at] = new = new_words(record.op, scratch[at], record.words[entries])
        if digest(scratch) == new_digests[k]:
            writes.append((part, entries, new))
            rewritten += not is_old
        elif is_old:
            raise PayloadError(
                f"tensor {record.name!r}: elements {part.start} to {part.stop} would not become the new version"
            )
        else:
            damaged.append(k)
    return ChunkPlan(tuple(writes), skipped, rewritten, tuple(damaged))
