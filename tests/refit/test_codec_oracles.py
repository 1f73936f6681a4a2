"""Right values worked out by hand or by an independent script, in the order of the pipeline."""

import numpy as np
import pytest
from codec import NEW, OLD, bits, from_bf16, perturbed, to_bf16
from hypothesis import given
from hypothesis import strategies as st

from reprise.refit import apply_, as_bits, change_fraction, decode, diff_bits, encode, entropy_bound
from reprise.refit.locations import (
    gap_bytes,
    gaps_from_bytes,
    index_from_gaps,
    one_positions,
    rice_bits,
    rice_decode,
    rice_encode,
)
from reprise.refit.operations import stored_words, zigzag
from reprise.refit.values import join, nibble_values, split

ESCAPED = [(0, [0]), (254, [254]), (255, [255, 0]), (600, [255, 255, 90])]


def test_diff_finds_signed_zero_and_nan():
    (record,) = diff_bits(bits(OLD), bits(NEW)).tensors
    assert record.index.tolist() == [1, 2, 3, 6]
    assert record.index.dtype == np.int64
    assert (np.diff(record.index, prepend=-1) - 1).tolist() == [1, 0, 0, 2]
    assert change_fraction(bits(OLD), bits(NEW)) == 0.5


@pytest.mark.parametrize(
    "op, stored",
    [("xor", [2, 0x8000, 1, 0x40C1]), ("add", [4, 65535, 2, 33154]), ("overwrite", [0xC002, 0x8000, 0x3CA5, 0x7FC1])],
)
def test_operations_store_the_worked_words(op, stored):
    (record,) = diff_bits(bits(OLD), bits(NEW)).tensors
    assert record.with_op(op).words.tolist() == stored
    assert decode(encode(diff_bits(bits(OLD), bits(NEW)), op)).tensors[0].words.tolist() == stored


def test_add_is_a_signed_step_in_ulps():
    differences = (NEW - OLD)[[1, 2, 3, 6]]
    assert differences.view(np.int16).tolist() == [2, -32768, 1, 16577]
    assert zigzag(np.array([0, -1, 1, -2, 127, -128], np.int8).view(np.uint8)).tolist() == [0, 1, 2, 3, 254, 255]


@pytest.mark.parametrize("gap, spelled", ESCAPED)
def test_gaps_escape_at_255(gap, spelled):
    assert gap_bytes(np.array([gap])).tolist() == spelled
    assert gaps_from_bytes(np.array(spelled, np.uint8)).tolist() == [gap]


def test_gap_bytes_count_from_the_last_change():
    index = np.array([1, 2, 3, 6])
    assert gap_bytes(index).tolist() == [1, 0, 0, 2]
    assert index_from_gaps(np.array([1, 0, 0, 2])).tolist() == [1, 2, 3, 6]


def test_rice_code_by_hand():
    # k = 2: 9 = 2 * 4 + 1 -> 001 and 01; 0 -> 1 and 00; 7 = 1 * 4 + 3 -> 01 and 11
    unary, remainders = rice_encode(np.array([9, 0, 7]), 2)
    assert unary.tolist() == [0b00110100]
    assert remainders.tolist() == [0b01001100]
    assert rice_decode(np.array([2, 3, 5]), remainders, 2).tolist() == [9, 0, 7]


@given(st.integers(0, 30), st.lists(st.floats(0, 20), min_size=1, max_size=50))
def test_rice_code_round_trips(k, quotients):
    gaps = np.array([int(quotient * (1 << k)) for quotient in quotients])
    unary, remainders = rice_encode(gaps, k)
    assert rice_decode(one_positions(unary), remainders, k).tolist() == gaps.tolist()
    assert 8 * unary.size - 7 <= (gaps >> k).sum() + gaps.size <= 8 * unary.size


def test_rice_parameter_is_the_best():
    gaps = np.random.default_rng(0).geometric(1 / 200, 5000) - 1
    k, cost = rice_bits(gaps)
    assert cost == min(int((gaps >> other).sum()) + gaps.size * (other + 1) for other in range(20))
    assert 6 <= k <= 8


def test_nibbles_by_hand():
    nibbles, planes = split(np.array([1, 14, 15, 2, 0x1234], "<u2"))
    assert nibbles.tolist() == [0xE1, 0x2F, 0x0F]
    assert [plane.tolist() for plane in planes] == [[15, 0x34], [0, 0x12]]
    values = nibble_values(nibbles, 5)
    assert values.tolist() == [1, 14, 15, 2, 15]
    assert join(values, np.array([15, 0x1234], "<u2")).tolist() == [1, 14, 15, 2, 0x1234]


@pytest.mark.parametrize(
    "share, bound", [(0.006, 8.8192), (0.01, 8.0793), (0.012, 7.8148), (0.03, 6.4797), (0.05, 5.7279)]
)
def test_entropy_bound_of_places(share, bound):
    # one value everywhere, so that the words cost nothing; counts that give the share exactly
    elements = 1000
    old = np.zeros(elements, "<u2")
    new = (np.arange(elements) < share * elements).astype("<u2")
    assert entropy_bound(bits(old), bits(new), "xor") == pytest.approx(bound, abs=5e-5)


def test_entropy_bound_adds_the_words_of_the_operation():
    # half of four elements change: H(1/2)/(1/2) = 2; two different xor words: 1 bit; one and the same step: 0
    old, new = np.array([1, 3, 0, 0], "<u2"), np.array([2, 4, 0, 0], "<u2")
    assert entropy_bound(bits(old), bits(new), "xor") == pytest.approx(3)
    assert entropy_bound(bits(old), bits(new), "add") == pytest.approx(2)
    assert np.isnan(entropy_bound(bits(old), bits(old), "add"))


@pytest.mark.parametrize("share", [0.01, 0.03, 0.05])
def test_frame_is_within_a_tenth_of_the_bound(share):
    old, new = map(bits, perturbed(1 << 20, share))
    changed = diff_bits(old, new).changed
    assert 8 * len(encode(diff_bits(old, new), "add")) / changed < 1.05 * entropy_bound(old, new, "add")


def test_numpy_boolean_indexing_agrees():
    old, new = perturbed(1 << 16, 0.1)
    mask, target = old != new, old.copy()
    target[mask] = new[mask]
    assert (apply_(bits(old.copy()), decode(encode(diff_bits(bits(old), bits(new))))).words == target).all()
    assert change_fraction(bits(old), bits(new)) == mask.mean()


def test_bsdiff_agrees():
    bsdiff4 = pytest.importorskip("bsdiff4")
    old, new = perturbed(1 << 12, 0.1)
    patched = bsdiff4.patch(old.tobytes(), bsdiff4.diff(old.tobytes(), new.tobytes()))
    ours = apply_(bits(old.copy()), decode(encode(diff_bits(bits(old), bits(new)))))
    assert ours.words.tobytes() == patched


def test_bf16_rounding_of_the_tests_themselves():
    one = np.array([1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-20, 1 - 2.0**-9, 1 - 2.0**-9 - 2.0**-20], np.float32)
    assert to_bf16(one).tolist() == [0x3F80, 0x3F81, 0x3F80, 0x3F7F]


def test_arithmetic_deltas_are_exact_only_while_the_subtraction_is():
    # a + (b - a) = b while a/2 <= b <= 2a (Sterbenz); beyond, a fifth of BF16 pairs come out wrong, ours never
    rng = np.random.default_rng(0)
    for amplitude, mismatch in ((1e-2, 0), (1e-1, 0), (1.0, 0.2)):
        old = to_bf16(rng.standard_normal(1 << 16) * 0.02)
        new = to_bf16(from_bf16(old) * (1 + amplitude * rng.standard_normal(1 << 16)))
        a, b = from_bf16(old), from_bf16(new)
        again = to_bf16(a + from_bf16(to_bf16(b - a)))
        wrong = (again != new).mean()
        assert wrong == mismatch if mismatch == 0 else wrong > mismatch / 2
        for op in ("xor", "add"):
            ours = apply_(bits(old.copy()), decode(encode(diff_bits(bits(old), bits(new)), op)))
            assert (ours.words == new).all()


def test_as_bits_keeps_the_storage_of_arrays():
    array = np.array([[1.0, -0.0]], np.float32)
    held = as_bits(array)
    assert (held.dtype, held.shape, held.words.tolist()) == ("F32", (1, 2), [0x3F800000, 0x80000000])
    assert np.shares_memory(held.words, array)
    assert stored_words("xor", held.words[:1], held.words[1:]).tolist() == [0xBF800000]
