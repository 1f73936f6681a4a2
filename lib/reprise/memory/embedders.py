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
