import numpy as np
import pytest

from reprise.chat import available
from reprise.memory.embedders import MINILM, HashedNgrams, MiniLM

HERE = [0.0, 0.0, 0.1961161345243454, -0.1961161345243454]
SENTENCES = ["How many pupils live in rented homes?", "Count the students in rental housing", "Which trains were late?"]


def test_hashed_ngrams_are_the_same_everywhere():
    rows = HashedNgrams(64).encode(["late trains", "late trains", ""])
    assert rows.shape == (3, 64) and rows.dtype == np.float32
    assert np.array_equal(rows[0], rows[1]) and not rows[2].any()
    assert np.linalg.norm(rows[0]) == pytest.approx(1)
    assert rows[0, :4] == pytest.approx(HERE, abs=1e-6)


def test_hashed_ngrams_bring_similar_words_together():
    a, b, c = HashedNgrams().encode(["trains that were delayed", "delayed trains", "income of pupils"])
    assert a @ b > 0.5 > 0.2 > a @ c


@pytest.mark.skipif(available(MINILM) is not None, reason=str(available(MINILM)))
def test_minilm_finds_the_paraphrase_and_batches_change_nothing():
    model = MiniLM(threads=1)
    rows = model.encode(SENTENCES)
    assert rows.shape == (3, 384) and np.linalg.norm(rows, axis=1) == pytest.approx(1)
    assert rows[0] @ rows[1] > 0.6 > 0.2 > rows[0] @ rows[2]
    one = np.concatenate([model.encode([text]) for text in SENTENCES])
    assert rows == pytest.approx(one, abs=1e-5)
    assert model.encode([]).shape == (0, 384)
