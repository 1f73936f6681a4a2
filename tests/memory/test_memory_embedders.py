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


def test_an_endpoint_s_vectors_come_back_in_the_order_of_the_texts(monkeypatch):
    pytest.importorskip("httpx")
    from chat_server import serving

    from reprise.chat_endpoint import EndpointError
    from reprise.memory.embedders import EndpointEmbedder

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    def vectors(body):
        data = [{"index": k, "embedding": [len(text), 1.0]} for k, text in enumerate(body["input"])]
        return 200, {}, {"data": data[::-1]}

    with serving(vectors) as server:
        found = EndpointEmbedder(server.url, "tiny", 2, rows=2).encode(["a", "bbb", "cc"])
        assert found == pytest.approx(np.array([[1, 1], [3, 1], [2, 1]]) / np.sqrt([[2], [10], [5]]))
        assert [path for path, _, _ in server.seen] == ["/v1/embeddings"] * 2
        with pytest.raises(EndpointError, match=r"shape \(1, 2\), expected \(1, 3\)"):
            EndpointEmbedder(server.url, "tiny", 3).encode(["a"])
    for reply in ((500, {}, {}), (200, {}, {"data": [{}]}), (200, {}, b"{")):
        with serving(reply) as server, pytest.raises(EndpointError, match="embeddings"):
            EndpointEmbedder(server.url, "tiny", 2).encode(["a"])
