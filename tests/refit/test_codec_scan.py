"""The compiled and the NumPy finder collect the same arrays, and a frame does not tell which one ran."""

import sys

import numpy as np
import pytest
from codec import bits, perturbed
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.refit import OPERATIONS, Bits, diff_bits, encode, encode_pair, scan
from reprise.refit.digests import chunk_slices

WIDTHS = {1: "U8", 2: "BF16", 4: "F32", 8: "I64"}


@pytest.fixture(scope="module")
def kernels():
    pytest.importorskip("numba")
    from reprise.refit import kernels

    return kernels


def found(finder, elements, chunk):
    changed = [finder.find(part) for part in chunk_slices(elements, chunk)]
    return changed, finder.count, finder.first, finder.last, finder.gaps.tolist(), finder.words.tolist()


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(WIDTHS)),
    st.integers(1, 700),
    st.sampled_from([0, 0.002, 0.02, 0.5, 1]),
    st.sampled_from(OPERATIONS),
    st.sampled_from([64, 128, 1024]),
    st.integers(0, 2**32),
)
def test_finders_agree(kernels, width, elements, share, op, chunk, seed):
    rng = np.random.default_rng(seed)
    # at an odd address and read-only, as in a mapped file
    old = np.frombuffer(b"\0" + rng.bytes(width * elements), f"<u{width}", offset=1)
    new = old ^ np.where(rng.random(elements) < share, rng.integers(1, 250, elements), 0).astype(old.dtype)
    numpy, compiled = scan.NumpyFinder(old, new, op), kernels.CompiledFinder(old, new, op, chunk)
    assert found(numpy, elements, chunk) == found(compiled, elements, chunk)


@pytest.mark.parametrize("op", OPERATIONS)
def test_frames_agree(kernels, monkeypatch, op):
    old, new = map(bits, perturbed(scan.COMPILED_FROM + 12_345, 0.02))
    compiled = encode_pair(old, new, op)
    assert compiled == encode(diff_bits(old, new), op)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "reprise.refit.kernels", None)  # as if numba were not installed
        assert isinstance(scan._finder(old.words, new.words, op, 1 << 17), scan.NumpyFinder)
        assert encode_pair(old, new, op) == compiled


def test_a_gap_across_many_chunks(kernels):
    old = np.zeros(scan.COMPILED_FROM, "<u4")
    new = old.copy()
    new[[3, 70_001, 70_002, -1]] = 7
    frames = {
        encode(diff_bits(Bits("F32", old.shape, old), Bits("F32", new.shape, new), chunk), "add") for chunk in (64,)
    }
    frames |= {encode_pair(Bits("F32", old.shape, old), Bits("F32", new.shape, new), chunk=64)}
    assert len(frames) == 1


def test_memory_stays_below_a_tensor(kernels):
    import tracemalloc

    old, new = map(bits, perturbed(1 << 20, 0.05))
    encode_pair(old, new)
    tracemalloc.start()
    encode_pair(old, new)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < old.words.nbytes


@pytest.mark.slow
def test_the_finder_beyond_two_to_the_31(kernels):
    """Zero pages that are read but never written take no memory."""
    elements = 2**31 + 1000
    old, new = np.zeros(elements, np.uint8), np.zeros(elements, np.uint8)
    places = [5, 2**31 - 1, 2**31, elements - 1]
    new[places] = 1
    finder = kernels.CompiledFinder(old, new, "add", 1 << 20)
    for part in chunk_slices(elements, 1 << 20):
        finder.find(part)
    assert (finder.count, finder.first, finder.last, finder.words.tolist()) == (4, 5, elements - 1, [2] * 4)
    from reprise.refit.locations import gaps_from_bytes, index_from_gaps

    assert index_from_gaps(gaps_from_bytes(finder.gaps)).tolist() == places
