"""Exactness of the operations: every BF16 pattern, every dtype, shapes and sparsities drawn at random."""

from math import prod

import numpy as np
import pytest
from codec import bits
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.refit import DTYPES, OPERATIONS, Bits, apply_, as_bits, decode, diff_bits, encode, encode_pair
from reprise.refit.bits import word_dtype
from reprise.refit.operations import new_words, stored_words, unzigzag, zigzag

PATTERNS = np.arange(1 << 16, dtype="<u2")
SHIFTS = np.linspace(0, 65535, 256).astype(np.uint16)  # 0, 257, 514 ... 65535
WORDS = [np.dtype(f"<u{size}") for size in (1, 2, 4, 8)]


def restored(old: Bits, new: Bits, op: str) -> Bits:
    return apply_(Bits(old.dtype, old.shape, old.words.copy()), decode(encode(diff_bits(old, new), op)))


def check_all_patterns(op: str, shifts) -> None:
    for shift in shifts:
        partner = PATTERNS + shift
        assert (new_words(op, PATTERNS, stored_words(op, PATTERNS, partner)) == partner).all()


@pytest.mark.parametrize("op", OPERATIONS)
def test_every_bf16_pattern(op):
    check_all_patterns(op, SHIFTS[::8])
    for shift in (1, 0x8000, 0xFFFF):
        assert (restored(bits(PATTERNS), bits(PATTERNS + np.uint16(shift)), op).words == PATTERNS + shift).all()


@pytest.mark.slow
@pytest.mark.parametrize("op", OPERATIONS)
def test_every_bf16_pattern_with_256_partners(op):
    check_all_patterns(op, SHIFTS)
    for shift in SHIFTS[1:]:
        assert (restored(bits(PATTERNS), bits(PATTERNS + shift), op).words == PATTERNS + shift).all()


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("dtype", WORDS, ids=str)
def test_extreme_words_of_each_width(dtype, op):
    top = np.iinfo(dtype).max
    edge = np.array([0, 1, 2, top // 2, top // 2 + 1, top - 1, top], dtype)
    old, new = np.repeat(edge, edge.size), np.tile(edge, edge.size)
    stored = stored_words(op, old, new)
    assert stored.dtype == dtype
    assert (new_words(op, old, stored) == new).all()


@pytest.mark.parametrize("dtype", WORDS[:2], ids=str)
def test_zigzag_is_a_bijection(dtype):
    words = np.arange(np.iinfo(dtype).max + 1, dtype=dtype)
    assert (unzigzag(zigzag(words)) == words).all()
    assert np.unique(zigzag(words)).size == words.size


def test_xor_twice_is_the_identity():
    rng = np.random.default_rng(0)
    old, new = rng.integers(0, 1 << 16, (2, 1000), np.uint16)
    mask = stored_words("xor", old, new)
    assert (new_words("xor", new_words("xor", old, mask), mask) == old).all()


@st.composite
def tensor_pairs(draw):
    """(old, new) of a drawn dtype and shape whose words change with a drawn probability, near or anywhere."""
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 40), max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    word = word_dtype(dtype)
    old = rng.integers(0, np.iinfo(word).max, prod(shape), word, endpoint=True)
    near = rng.integers(-3, 4, old.size).astype(word) + old
    anywhere = rng.integers(0, np.iinfo(word).max, old.size, word, endpoint=True)
    chosen = rng.random(old.size) < draw(st.sampled_from([0, 0.001, 0.05, 0.5, 1]))
    new = np.where(chosen, draw(st.sampled_from([near, anywhere])), old).astype(word)
    return Bits(dtype, shape, old), Bits(dtype, shape, new)


@settings(max_examples=150, deadline=None)
@given(tensor_pairs(), st.sampled_from(OPERATIONS), st.sampled_from([64, 1 << 10, 1 << 17]))
def test_round_trip(pair, op, chunk):
    old, new = pair
    delta = diff_bits(old, new, chunk)
    frame = encode(delta, op)
    assert frame == encode_pair(old, new, op, chunk=chunk)
    again = decode(frame)
    target = Bits(old.dtype, old.shape, old.words.copy())
    assert (apply_(target, again).words == new.words).all()
    assert encode(again, op) == frame
    for ours, theirs in zip(again.tensors, delta.tensors, strict=True):
        assert (ours.index == theirs.index).all() and ours.index.dtype == np.int64
        assert (ours.old_digests == theirs.old_digests).all() and (ours.new_digests == theirs.new_digests).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(tensor_pairs(), min_size=1, max_size=6), st.sampled_from(OPERATIONS), st.randoms(use_true_random=False))
def test_order_and_splitting_change_nothing(drawn, op, random):
    names = [f"layer.{k}" for k in range(len(drawn))]
    old = {name: pair[0] for name, pair in zip(names, drawn, strict=True)}
    new = {name: pair[1] for name, pair in zip(names, drawn, strict=True)}
    frames = [encode_pair(old, new, op)]
    shuffled = random.sample(names, len(names))
    frames.append(encode_pair({k: old[k] for k in shuffled}, {k: new[k] for k in shuffled}, op))
    cut = random.randint(0, len(names))
    parts = [
        encode_pair({k: old[k] for k in part}, {k: new[k] for k in part}, op) for part in (names[:cut], names[cut:])
    ]
    for payloads in ([frames[0]], [frames[1]], parts, parts[::-1]):
        target = {name: Bits(held.dtype, held.shape, held.words.copy()) for name, held in old.items()}
        for payload in payloads:
            apply_(target, decode(payload))
        assert all((target[name].words == new[name].words).all() for name in names)


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "bool", "complex64"])
def test_numpy_dtypes_round_trip(dtype, op):
    rng = np.random.default_rng(1)
    size = np.dtype(dtype).itemsize
    old, new = rng.integers(0, 2 if dtype == "bool" else 256, (2, 600 * size), np.uint8).view(dtype).reshape(2, 20, 30)
    target = old.copy()
    apply_(target, decode(encode(diff_bits(old, new), op)))
    assert target.tobytes() == new.tobytes()


def test_nan_payloads_and_signed_zeros_are_values():
    old = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000, 0, 0x80000000], np.uint32).view(np.float32)
    new = np.array([0x7FC00002, 0x7FC00001, 0x7F800001, 0x80000000, 0x80000000], np.uint32).view(np.float32)
    delta = diff_bits(old, new)
    assert delta.tensors[0].index.tolist() == [0, 2, 3]
    assert apply_(old.copy(), decode(encode(delta))).tobytes() == new.tobytes()


@pytest.mark.parametrize("op", OPERATIONS)
def test_none_and_all_changed(op):
    old = np.zeros(5000, np.int32)
    for new in (old.copy(), old + 1):
        delta = diff_bits(old, new)
        frame = encode(delta, op)
        assert delta.changed == np.count_nonzero(new)
        assert len(frame) < 300  # neither places nor equal words cost anything
        assert (apply_(old.copy(), decode(frame)) == new).all()


def test_zero_dimensional_and_empty_tensors():
    old, new = np.array(1, np.float32), np.array(2, np.float32)
    assert as_bits(old).shape == () and as_bits(old).words.size == 1
    frame = encode(diff_bits({"scale": old, "none": old[None][:0]}, {"scale": new, "none": new[None][:0]}))
    assert [(record.name, record.shape) for record in decode(frame).tensors] == [("scale", ())]
    target = {"scale": np.array(1, np.float32), "none": np.empty(0, np.float32)}
    apply_(target, decode(frame))
    assert target["scale"] == 2
    assert diff_bits(np.empty((0, 3)), np.empty((0, 3))).tensors == ()


@pytest.mark.parametrize("view", [np.s_[::2], np.s_[:, ::-1], np.s_[1:, :7]], ids=["rows", "mirrored", "block"])
def test_strided_arrays_change_in_their_own_memory(view):
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((12, 10)).astype(np.float32)
    target, around = whole[view], whole.copy()
    new = np.where(rng.random(target.shape) < 0.5, target + 1, target)
    apply_(target, decode(encode(diff_bits(target, new))))
    around[view] = new
    assert whole.tobytes() == around.tobytes()
