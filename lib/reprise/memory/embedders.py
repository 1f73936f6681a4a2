"""Subjects and questions as vectors: a packaged sentence encoder, and a fallback that needs nothing.

Each has a space and a threshold of its own (`retrieval.calibrate`): the paper's .6 and .9 belong to another.
"""

from __future__ import annotations

import re
import zlib

import numpy as np

from reprise.memory.retrieval import unit_rows
from reprise.memory.store import EmbeddingSpace

MINILM = "minilm-l6-v2"


class MiniLM:
    """all-MiniLM-L6-v2 from its package: mean of the token vectors under the attention mask, scaled to length 1.

    Args:
        threads: torch's CPU threads, for the whole process; None leaves them.
        rows: texts encoded together.

    Raises:
        reprise.chat.ModelUnavailable: not installed (`make models`).
    """

    MAX_TOKENS = 256

    def __init__(self, threads: int | None = None, rows: int = 64):
        from reprise.chat import LocalModel
        from reprise.local_models import PACKAGED

        self._model, self._rows = LocalModel(MINILM, threads=threads, device="cpu"), rows
        self.space = EmbeddingSpace(MINILM, PACKAGED[MINILM].sha256[:16], 384)

    def encode(self, texts: list[str]) -> np.ndarray:
        """(texts, 384) float32 unit rows; the texts may be cut at 256 tokens."""
        import torch

        # long texts together, so that short ones are not padded to their length
        order = sorted(range(len(texts)), key=lambda k: len(texts[k]))
        found = np.empty((len(texts), self.space.dim), np.float32)
        for start in range(0, len(order), self._rows):
            part = order[start : start + self._rows]
            tokens = self._model.tokenizer(
                [texts[k] for k in part], padding=True, truncation=True, max_length=self.MAX_TOKENS, return_tensors="pt"
            )
            with torch.inference_mode():
                states = self._model.model(**tokens).last_hidden_state
            mask = tokens["attention_mask"][:, :, None].to(states.dtype)
            found[part] = ((states * mask).sum(1) / mask.sum(1)).float().numpy()
        return unit_rows(found)


class HashedNgrams:
    """Words and character 3- to 5-grams, hashed into signed counts. No weights, no corpus, the same on every machine.

    Args:
        dim: length of a vector.
    """

    def __init__(self, dim: int = 1024):
        self.space = EmbeddingSpace("hashed-ngrams", "1", dim, pooling="sum")

    def encode(self, texts: list[str]) -> np.ndarray:
        """(texts, dim) float32 unit rows; a text without a letter or digit gives zeros."""
        found = np.zeros((len(texts), self.space.dim), np.float32)
        for row, text in zip(found, texts, strict=True):
            for feature, count in _features(text).items():
                code = zlib.crc32(feature.encode())
                row[code % self.space.dim] += (1 if code & 0x80000000 else -1) * (1 + np.log(count))
        return unit_rows(found)


def _features(text: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in re.findall(r"\w+", text.lower()):
        padded = f"<{word}>"
        grams = [padded, *(padded[k : k + n] for n in (3, 4, 5) for k in range(len(padded) - n + 1))]
        for gram in grams:
            counts[gram] = counts.get(gram, 0) + 1
    return counts


class EndpointEmbedder:
    """Vectors from an OpenAI-compatible endpoint, `POST {base_url}/embeddings`.

    Args:
        base_url: such as "https://host/v1".
        model: the endpoint's name for it; names the space too.
        dim: length of its vectors.
        revision: what else tells this model from another of that name.
        key_variable: environment variable with the key; no key is sent where it is not set.
        rows: texts a request.
        timeout: seconds for one request.

    Raises:
        reprise.chat_endpoint.EndpointError: the address is none.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        dim: int,
        *,
        revision: str = "",
        key_variable: str = "OPENAI_API_KEY",
        rows: int = 128,
        timeout: float = 60.0,
    ):
        from reprise.chat_endpoint import Endpoint

        self.space = EmbeddingSpace(model, revision, dim, pooling="endpoint")
        # for its checks of address and key, which are the same for every path of an endpoint
        self._endpoint, self._rows, self._timeout = Endpoint(base_url, model, key_variable=key_variable), rows, timeout

    def encode(self, texts: list[str]) -> np.ndarray:
        """(texts, dim) float32 unit rows.

        Raises:
            reprise.chat_endpoint.EndpointError: no reply, or one without a vector of the right length for every text.
        """
        found = [self._request(texts[start : start + self._rows]) for start in range(0, len(texts), self._rows)]
        return unit_rows(np.concatenate(found)) if found else np.empty((0, self.space.dim), np.float32)

    def _request(self, texts: list[str]) -> np.ndarray:
        import httpx

        from reprise.chat_endpoint import EndpointError

        url, body = f"{self._endpoint.base_url}/embeddings", {"model": self.space.model, "input": texts}
        try:
            reply = httpx.post(url, json=body, headers=self._endpoint._headers(), timeout=self._timeout)
            reply.raise_for_status()
            entries = sorted(reply.json()["data"], key=lambda entry: entry["index"])
            rows = np.array([entry["embedding"] for entry in entries], np.float32)
        except httpx.HTTPStatusError as error:
            raise EndpointError(f"{url}: HTTP status {error.response.status_code}") from None
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise EndpointError(f"{url}: expected a list of embeddings ({type(error).__name__})") from None
        if rows.shape != (len(texts), self.space.dim):
            raise EndpointError(f"{url}: vectors of shape {rows.shape}, expected ({len(texts)}, {self.space.dim})")
        return rows
