"""A delta onto the tensors it starts from: everything is checked before the first byte changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from reprise.refit.bits import Bits, address_view, as_bits, storage_key, writable_bits
from reprise.refit.delta import Delta, TensorDelta
from reprise.refit.digests import chunk_bounds, chunk_slices, digest
from reprise.refit.errors import PayloadError, RefitSchemaError, StaleBaseError
from reprise.refit.operations import new_words

OLD, NEW, OTHER = 0, 1, 2  # what a chunk of a target holds
MAX_WORK = 10_000  # steps of the exact search for an address that two strided views share


def apply_(target, delta: Delta, *, resume: bool = False):
    """Turn the old bits of `target` into the new ones, in place, or raise and leave it as it was.

    Each chunk is proven to hold the old bits, and its result, formed in a scratch chunk, to have the new digest;
    only when that holds for all chunks of all tensors is the first byte written.

    Args:
        target: what OLD was: an array, tensor or Bits with writable storage, or a mapping from name to these. Names
            that the delta lacks are left alone; of tied names one is enough, and untied copies are all written.
        delta: from `decode` or `diff_bits`.
        resume: continue after an interrupted apply of the same two versions. A chunk that holds the new bits is
            skipped, one that holds the old bits is written by any operation, and a mixed one by "overwrite" only.

    Returns:
        `target`.

    Raises:
        StaleBaseError: a chunk holds bits this delta does not start from.
        RefitSchemaError: another shape or dtype, read-only storage, elements or tensors that share memory in part, or
            a `delta` that is none.
        PayloadError: an unknown name, two records for one storage, an index out of range, a wrong result.
    """
    if not isinstance(delta, Delta):
        raise RefitSchemaError(f"delta: {type(delta).__name__}, expected a Delta: decode it first")
    places = list(_places(target, delta))
    _refuse_overlaps(places)
    writes = []
    for record, place in places:
        record.check()
        bits, _ = writable_bits(place)
        _check_schema(record, bits)
        writes.append(_verified(record, bits.words, resume))
    for (record, place), parts in zip(places, writes, strict=True):
        bits, commit = writable_bits(place)  # again, so that copies of strided or device tensors never pile up
        for entries, new in parts:
            bits.words[record.index[entries]] = new
        commit()
    return target


def chunk_states(target, record: TensorDelta) -> np.ndarray:
    """[chunks] int8: OLD, NEW or OTHER bits in each chunk of `target`; a chunk that does not change is OLD.

    After an interrupted apply the chunks in state NEW are done and those in state OLD untouched.
    """
    bits = as_bits(target)
    _check_schema(record, bits)
    found = (digest(bits.words[part]) for part in chunk_slices(bits.words.size, record.chunk))
    held = np.fromiter(found, np.uint64, record.old_digests.size)
    return np.select([held == record.old_digests, held == record.new_digests], [OLD, NEW], OTHER).astype(np.int8)


def _places(target, delta: Delta) -> Iterator[tuple[TensorDelta, object]]:
    """Each record with each distinct storage it is to change."""
    if not isinstance(target, Mapping):
        if len(delta.tensors) > 1:
            raise PayloadError(f"payload: {len(delta.tensors)} tensors for one target, expected a mapping of names")
        yield from ((record, target) for record in delta.tensors)
        return
    owners = {}
    for record in delta.tensors:
        held = [name for name in (record.name, *record.aliases) if name in target]
        if not held:
            raise PayloadError(f"tensor {record.name!r}: unknown to the target")
        for name in held:
            owner = owners.setdefault(storage_key(target[name]) or name, record)
            if owner is not record:
                raise PayloadError(
                    f"tensor {name!r}: shares its storage with {owner.name!r}, which the payload also changes"
                )
        distinct = {storage_key(target[name]) or name: target[name] for name in held}
        yield from ((record, place) for place in distinct.values())


def _refuse_overlaps(places: Iterable[tuple[TensorDelta, object]]) -> None:
    """Raise RefitSchemaError where two places share an address: what one writes would change under the other."""
    spans = []
    for record, place in places:
        if (seen := address_view(place)) is not None:
            spans.append((seen[0], *np.lib.array_utils.byte_bounds(seen[1]), record.name, seen[1]))
    reaching = []  # earlier ones that end behind the begin of this one
    for span in sorted(spans, key=lambda span: span[:3]):
        device, begin, _, name, view = span
        reaching = [earlier for earlier in reaching if earlier[0] == device and earlier[2] > begin]
        for *_, other, held in reaching:
            if _share(held, view):
                raise RefitSchemaError(
                    f"tensor {name!r}: shares part of its storage with {other!r}, expected tensors apart or tied"
                )
        reaching.append(span)


def _share(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return np.shares_memory(a, b, max_work=MAX_WORK)
    except np.exceptions.TooHardError:  # not proven to be apart
        return True


def _check_schema(record: TensorDelta, bits: Bits) -> None:
    for field in ("dtype", "shape"):
        expected, held = getattr(record, field), getattr(bits, field)
        if expected != held:
            raise RefitSchemaError(f"tensor {record.name!r}: {field} {expected} in the payload, {held} in the target")


def _verified(record: TensorDelta, words: np.ndarray, resume: bool) -> list[tuple[slice, np.ndarray]]:
    """(range of the record's entries, new words) of each chunk to write, after the proof that these give NEW."""
    bounds = chunk_bounds(record.index, words.size, record.chunk)
    old_digests, new_digests = record.old_digests.tolist(), record.new_digests.tolist()
    todo = []
    for k, part in enumerate(chunk_slices(words.size, record.chunk)):
        held, entries = digest(words[part]), slice(bounds[k], bounds[k + 1])
        if held == new_digests[k] and (resume or (held == old_digests[k] and entries.start == entries.stop)):
            continue
        if held != old_digests[k] and not (resume and record.op == "overwrite"):
            raise StaleBaseError(
                f"tensor {record.name!r}: elements {part.start} to {part.stop} are not those of the base version"
            )
        scratch, at = words[part].copy(), record.index[entries] - part.start
        new = new_words(record.op, scratch[at], record.words[entries])
        scratch[at] = new
        if digest(scratch) != new_digests[k]:
            wrong = PayloadError if held == old_digests[k] else StaleBaseError
            raise wrong(
                f"tensor {record.name!r}: elements {part.start} to {part.stop} would not become the new version"
            )
        todo.append((entries, new))
    return todo
