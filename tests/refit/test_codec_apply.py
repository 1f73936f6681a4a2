"""Applying: all or nothing, only onto the base it was made from, and what an interrupted apply leaves to do."""

from dataclasses import replace

import numpy as np
import pytest
from codec import NEW, OLD, bits, perturbed

from reprise import refit
from reprise.errors import RepriseError
from reprise.refit import (
    OPERATIONS,
    Bits,
    PayloadError,
    RefitSchemaError,
    StaleBaseError,
    apply_,
    chunk_states,
    decode,
    diff_bits,
    encode,
)

CHUNK = 256


@pytest.fixture
def pair():
    return perturbed(4 * CHUNK, 0.1)


def payload(pair, op="add"):
    return decode(encode(diff_bits(*map(bits, pair), chunk=CHUNK), op))


@pytest.mark.parametrize("op", OPERATIONS)
def test_a_stale_base_is_refused(pair, op):
    old, new = pair
    untouched = np.flatnonzero(old == new)[0]
    changed = np.flatnonzero(old != new)[0]
    for where in (untouched, changed):
        target = old.copy()
        target[where] ^= 1
        before = target.copy()
        with pytest.raises(StaleBaseError, match="^tensor '': elements 0 to 256 are not those of the base version$"):
            apply_(bits(target), payload(pair, op))
        assert (target == before).all()


@pytest.mark.parametrize("op", OPERATIONS)
def test_a_second_apply_is_refused(pair, op):
    target = bits(pair[0].copy())
    apply_(target, payload(pair, op))
    with pytest.raises(StaleBaseError):
        apply_(target, payload(pair, op))
    assert (target.words == pair[1]).all()


def test_one_bad_tensor_leaves_all_as_they_were(pair):
    old, new = pair
    delta = decode(encode(diff_bits({"a": bits(old), "b": bits(old.copy())}, {"a": bits(new), "b": bits(new.copy())})))
    target = {"a": bits(old.copy()), "b": bits(new.copy())}
    with pytest.raises(StaleBaseError, match="tensor 'b'"):
        apply_(target, delta)
    assert (target["a"].words == old).all()


def test_a_wrong_result_is_refused_before_it_is_written(pair):
    delta = payload(pair)
    (record,) = delta.tensors
    digests = record.new_digests.copy()
    digests[-1] += 1
    target = bits(pair[0].copy())
    with pytest.raises(PayloadError, match="elements 768 to 1024 would not become the new version"):
        apply_(target, replace(delta, tensors=(replace(record, new_digests=digests),)))
    assert (target.words == pair[0]).all()


@pytest.mark.parametrize(
    "change, why",
    [
        (dict(index=np.array([5, 5])), "do not increase"),
        (dict(index=np.array([6, 5])), "do not increase"),
        (dict(index=np.array([-1, 5])), "out of range"),
        (dict(index=np.array([5, 8])), "out of range"),
        (dict(words=np.zeros(3, "<u2")), "words"),
        (dict(words=np.zeros(2, "<u4")), "words"),
        (dict(old_digests=np.zeros(2, np.uint64)), "digests"),
    ],
)
def test_records_made_by_hand_are_checked(change, why):
    (record,) = diff_bits(bits(OLD), bits(NEW)).tensors
    record = replace(record, index=np.array([1, 2]), words=NEW[1:3])
    target = OLD.copy()
    with pytest.raises(PayloadError, match=why):
        apply_(bits(target), replace(diff_bits(OLD, OLD), tensors=(replace(record, **change),)))
    assert (target == OLD).all()


@pytest.mark.parametrize(
    "other, why",
    [(bits(OLD, "F16"), "dtype BF16 in OLD, F16 in NEW"), (bits(OLD, shape=(2, 4)), r"shape \(8,\) in OLD, \(2, 4\)")],
)
def test_changed_schema_is_refused_by_name(other, why):
    with pytest.raises(RefitSchemaError, match=f"tensor 'w': {why}"):
        diff_bits({"w": bits(OLD)}, {"w": other})
    with pytest.raises(RefitSchemaError, match="tensor 'w': .* in the payload, .* in the target"):
        apply_({"w": other}, diff_bits({"w": bits(OLD)}, {"w": bits(NEW)}))


def test_missing_names_are_refused():
    with pytest.raises(RefitSchemaError, match="tensor 'b': only in OLD"):
        diff_bits({"a": OLD, "b": OLD}, {"a": NEW})
    with pytest.raises(RefitSchemaError, match="tensor 'b': only in NEW"):
        diff_bits({"a": OLD}, {"a": NEW, "b": NEW})
    with pytest.raises(RefitSchemaError, match="only in"):
        diff_bits({"a": OLD}, NEW)
    with pytest.raises(PayloadError, match="tensor 'a': unknown to the target"):
        apply_({"b": OLD.copy()}, diff_bits({"a": OLD}, {"a": NEW}))
    with pytest.raises(PayloadError, match="2 tensors for one target"):
        apply_(OLD.copy(), diff_bits({"a": OLD, "b": OLD.copy()}, {"a": NEW, "b": NEW}))


def test_unknown_dtypes_are_refused_by_name():
    with pytest.raises(RefitSchemaError, match="dtype='F4': expected one of BOOL, U8"):
        Bits("F4", (1,), np.zeros(1, np.uint8))
    with pytest.raises(RefitSchemaError, match="complex128"):
        diff_bits(np.zeros(1, complex), np.zeros(1, complex))
    with pytest.raises(RefitSchemaError, match="dtype=>f4"):
        diff_bits(np.zeros(1, ">f4"), np.zeros(1, ">f4"))
    with pytest.raises(RefitSchemaError, match="words: uint16 of shape"):
        Bits("F32", (1,), np.zeros(1, np.uint16))
    with pytest.raises(RefitSchemaError, match="words: 3 elements, expected 2"):
        Bits("I8", (2,), np.zeros(3, np.uint8))
    with pytest.raises(RefitSchemaError, match="list: expected Bits"):
        diff_bits([1.0], [2.0])


def test_targets_that_cannot_be_written_are_refused():
    delta = diff_bits(OLD, NEW)
    target = OLD.copy()
    target.flags.writeable = False
    with pytest.raises(RefitSchemaError, match="read-only"):
        apply_(target, delta)
    with pytest.raises(RefitSchemaError, match="read-only"):
        apply_(bits(target, "U16"), delta)
    with pytest.raises(RefitSchemaError, match=r"strides=\(0,\): elements share memory"):
        shared = np.lib.stride_tricks.as_strided(np.zeros(1, "<u2"), (8,), (0,))
        apply_(shared, diff_bits(np.zeros(8, "<u2"), NEW))


def test_tied_arrays_travel_once():
    old, new, other = OLD.copy(), NEW.copy(), OLD.copy()
    delta = diff_bits({"embed": old, "other": other, "head": old}, {"embed": new, "other": NEW, "head": new})
    assert [(record.name, record.aliases) for record in delta.tensors] == [("embed", ("head",)), ("other", ())]
    again = decode(encode(delta, "xor"))
    tied, single = OLD.copy(), OLD.copy()
    apply_({"embed": tied, "head": tied, "other": single}, again)
    assert (tied == NEW).all() and (single == NEW).all()
    apart = apply_({"embed": OLD.copy(), "head": OLD.copy(), "other": OLD.copy()}, again)
    assert all((held == NEW).all() for held in apart.values())
    only_alias = apply_({"head": OLD.copy(), "other": OLD.copy()}, again)
    assert (only_alias["head"] == NEW).all()


def test_tensors_tied_on_one_side_only_travel_apart():
    old = OLD.copy()
    delta = diff_bits({"embed": old, "head": old}, {"embed": NEW, "head": OLD.copy()})
    assert [(record.name, record.index.size) for record in delta.tensors] == [("embed", 4), ("head", 0)]
    with pytest.raises(PayloadError, match="'head': shares its storage with 'embed'"):
        apply_({"embed": old, "head": old}, delta)


def interrupted(pair, chunks: int, extra: int = 0) -> np.ndarray:
    """Old words of which the first `chunks` chunks, and `extra` changed words of the next, are already new."""
    old, new = pair
    words = old.copy()
    words[: chunks * CHUNK] = new[: chunks * CHUNK]
    within = np.flatnonzero(old != new)
    within = within[within >= chunks * CHUNK][:extra]
    words[within] = new[within]
    return words


def test_chunk_states_tell_what_is_done(pair):
    (record,) = payload(pair).tensors
    assert chunk_states(bits(pair[0]), record).tolist() == [refit.OLD] * 4
    assert chunk_states(bits(pair[1]), record).tolist() == [refit.NEW] * 4
    mixed = chunk_states(bits(interrupted(pair, 1, 2)), record)
    assert mixed.tolist() == [refit.NEW, refit.OTHER, refit.OLD, refit.OLD]


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("done", range(5))
def test_resume_between_chunks(pair, op, done):
    target = bits(interrupted(pair, done))
    assert (apply_(target, payload(pair, op), resume=True).words == pair[1]).all()
    assert (apply_(target, payload(pair, op), resume=True).words == pair[1]).all()


def test_resume_within_a_chunk_takes_overwrite(pair):
    held = interrupted(pair, 1, 3)
    for op in ("xor", "add"):
        target = bits(held.copy())
        with pytest.raises(StaleBaseError):
            apply_(target, payload(pair, op), resume=True)
        assert (target.words == held).all()
    assert (apply_(bits(held.copy()), payload(pair, "overwrite"), resume=True).words == pair[1]).all()


def test_resume_does_not_excuse_a_stale_base(pair):
    target = interrupted(pair, 1, 3)
    target[np.flatnonzero(pair[0] == pair[1])[-1]] ^= 1
    before = target.copy()
    with pytest.raises(StaleBaseError, match="would not become the new version"):
        apply_(bits(target), payload(pair, "overwrite"), resume=True)
    assert (target == before).all()


def views(cut):
    """Two views, made by `cut`, of one buffer of zeros, and the delta that sets them to 1 and 2."""
    buffer = np.zeros(24, "<f4")
    places = cut(buffer)
    new = {name: np.full_like(place, k + 1) for k, (name, place) in enumerate(places.items())}
    old = {name: np.zeros_like(place) for name, place in places.items()}
    return buffer, places, decode(encode(diff_bits(old, new)))


OVERLAPPING = {
    "ranges": lambda z: {"a": z[:12], "b": z[6:]},
    "one element": lambda z: {"a": z[:12], "b": z[11:]},
    "a view of another shape": lambda z: {"a": z[:12], "b": z[:12].reshape(3, 4)},
    "the whole": lambda z: {"a": z[3:5], "b": z},
    "strides that meet": lambda z: {"a": z[::2], "b": z[::3]},
    "not the neighbour in memory": lambda z: {"a": z, "b": z[:2], "c": z[4:6]},
}


@pytest.mark.parametrize("cut", OVERLAPPING.values(), ids=OVERLAPPING)
def test_targets_that_share_a_part_are_refused(cut):
    buffer, places, delta = views(cut)
    with pytest.raises(RefitSchemaError, match="shares part of its storage with"):
        apply_(places, delta)
    assert not buffer.any()


APART = {
    "ranges": lambda z: {"a": z[:12], "b": z[12:]},
    "interleaved": lambda z: {"a": z[::2], "b": z[1::2]},
    "columns": lambda z: {"a": z.reshape(4, 6)[:, :2], "b": z.reshape(4, 6)[:, 2:]},
    "backwards": lambda z: {"a": z[11::-1], "b": z[:11:-1]},
}


@pytest.mark.parametrize("cut", APART.values(), ids=APART)
def test_targets_of_one_buffer_that_are_apart_are_written(cut):
    _, places, delta = views(cut)
    apply_(places, delta)
    assert [np.unique(place).tolist() for place in places.values()] == [[1], [2]]


def test_what_is_no_delta_and_no_payload_is_named():
    payload = encode(diff_bits(OLD, NEW))
    with pytest.raises(RefitSchemaError, match="^delta: bytes, expected a Delta: decode it first$"):
        apply_(OLD.copy(), payload)
    with pytest.raises(RefitSchemaError, match="^delta: ndarray, expected a Delta"):
        encode(OLD)
    for data in (3, None, "text", diff_bits(OLD, NEW)):
        with pytest.raises(PayloadError, match=f"^payload: {type(data).__name__}, expected bytes$"):
            decode(data)
    for level in (-1, 0, 23):
        with pytest.raises(RepriseError, match=f"^level={level}: expected 1 to 22$"):
            encode(diff_bits(OLD, NEW), level=level)


def test_names_are_text_and_arrays_plain():
    with pytest.raises(RefitSchemaError, match="^tensor 3: a name of type int, expected text$"):
        diff_bits({3: OLD}, {3: NEW})
    with pytest.raises(RefitSchemaError, match="^masked array: "):
        diff_bits(np.ma.masked_equal(OLD, 0), NEW)
    with pytest.raises(RefitSchemaError, match="^masked array: "):
        apply_({"": np.ma.masked_equal(OLD, 0)}, diff_bits(OLD, NEW))
