import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers import need

from reprise.memory.errors import EmbeddingSpaceError, MemoryFault
from reprise.memory.retrieval import Index, calibrate, unit_rows

ENTRIES = np.array([[1, 0], [0, 1], [-3, -4], [6, 8]], float)


def found(hits):
    return [hit.row for hit in hits]


def test_the_worked_example():
    index = Index(ENTRIES)
    hits = index.search([[3, 4]], 4)[0]
    assert found(hits) == [3, 1, 0, 2]
    assert [hit.score for hit in hits] == pytest.approx([1, 0.8, 0.6, -1])
    assert found(index.search([[3, 4]], 2, 0.7)[0]) == [3, 1]
    assert found(index.search([[3, 4]], 4, 0.8)[0]) == [3, 1]  # the threshold is inclusive


@pytest.mark.parametrize("k", [7, 40, 60])
def test_equal_rows_come_in_the_order_they_were_added(k):
    index = Index(np.ones((50, 3)))
    assert found(index.search([[1, 1, 1]], k)[0]) == list(range(min(k, 50)))
    # several queries at once, or no numba, take another way than one query
    assert [found(hits) for hits in index.search([[1, 1, 1]] * 2, k)] == [list(range(min(k, 50)))] * 2


def test_a_query_without_a_direction_finds_nothing_and_says_so():
    with pytest.warns(UserWarning, match="2 queries"):
        hits = Index(ENTRIES).search([[0, 0], [np.nan, 1], [1, 0]], 1)
    assert [found(each) for each in hits] == [[], [], [0]]


def test_edges():
    index = Index(ENTRIES)
    assert index.search([[1, 0]], 0) == [[]]
    assert len(index.search([[1, 0]], 100)[0]) == 4
    assert Index(np.empty((0, 2))).search([[1, 0]], 3) == [[]]
    assert found(Index([[0, 0], [1, 1]]).search([[1, 1]], 2, 0.1)[0]) == [1]


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_search_is_brute_force(n, dim, k, seed):
    rng = np.random.default_rng(seed)
    rows, query = rng.integers(-2, 3, (n, dim)), rng.integers(-2, 3, dim)  # many ties, some rows of zeros
    if not query.any():
        return
    scores = unit_rows(rows) @ unit_rows(query[None])[0]
    expected = np.argsort(-scores, kind="stable")[:k]
    index = Index(rows)
    for hits in (*index.search(query[None], k), *index.search(np.stack([query, query]), k)):
        assert [hit.score for hit in hits] == pytest.approx(scores[expected].tolist(), abs=1e-6)
        # sums in another order may swap rows whose scores differ in the last bits, and only those
        assert [scores[row] for row in found(hits)] == pytest.approx(scores[expected].tolist(), abs=1e-6)
        for one, other in itertools.pairwise(hits):
            assert one.score > other.score or (one.score == other.score and one.row < other.row)


@given(st.integers(0, 2**32 - 1))
def test_adding_rows_is_the_same_as_starting_with_them(seed):
    rows = np.random.default_rng(seed).normal(size=(40, 5))
    grown = Index(rows[:3])
    for start in range(3, 40, 7):
        grown.add(rows[start : start + 7])
    assert np.array_equal(grown.rows, Index(rows).rows)


def test_scaling_a_row_changes_nothing():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 6))
    scale = np.exp2(rng.integers(-60, 60, (30, 1)))
    assert np.allclose(Index(rows).rows, Index(rows * scale).rows, atol=1e-6)


def test_faiss_finds_the_same_rows():
    faiss = need("faiss", "1.15.1")
    rng = np.random.default_rng(3)
    rows, queries = rng.normal(size=(2000, 64)), rng.normal(size=(20, 64))
    flat = faiss.IndexFlatIP(64)
    flat.add(unit_rows(rows))
    _, expected = flat.search(unit_rows(queries), 4)
    assert [found(hits) for hits in Index(rows).search(queries, 4)] == expected.tolist()


def test_a_threshold_lets_one_unrelated_pair_in_twenty_through():
    unrelated = np.linspace(0, 0.99, 100)
    threshold, kept = calibrate([0.9, 0.95, 0.97, 0.5], unrelated)
    assert np.count_nonzero(unrelated >= threshold) == 5 and threshold == pytest.approx(0.94)
    assert kept == 0.5
    assert calibrate([1.0], [0.2], 0.0)[0] > 0.2


@pytest.mark.parametrize(
    "call, error, name",
    [
        (lambda: Index(ENTRIES).search([[1, 0]], -1), MemoryFault, "k=-1"),
        (lambda: Index(ENTRIES).search([[1, 0]], 1, np.nan), MemoryFault, "threshold"),
        (lambda: Index(ENTRIES).search([[1, 0, 0]], 1), EmbeddingSpaceError, r"queries: shape \(1, 3\)"),
        (lambda: Index(ENTRIES).add([[1, 0, 0]]), EmbeddingSpaceError, "dim 3"),
        (lambda: Index([[1, 0], [np.inf, 0]]), EmbeddingSpaceError, r"vectors\[1\]"),
        (lambda: calibrate([], [1]), MemoryFault, "related=0"),
        (lambda: calibrate([1], [1], 1), MemoryFault, "false_positives"),
    ],
)
def test_a_bad_argument_is_named(call, error, name):
    with pytest.raises(error, match=name):
        call()
