"""What a language model chose and wrote, kept in files, so that an experiment runs again without the model.

A choice is kept under the SHA-256 of its prompt, its options and the model's weights: an experiment whose prompts have
changed does not find it, and says so.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprise.durable import atomic_write
from reprise.errors import RepriseError
from reprise.local_models import PACKAGED

MODEL = "smollm2-135m"
COLUMNS = ("key", "chosen", "tokens", "scores")
Messages = Sequence[Mapping[str, str]]


class NotKept(RepriseError):
    """A choice or a reply that no run has kept, asked for without a model."""


@dataclass(frozen=True)
class Choice:
    """The index of the option chosen, the mean log-likelihood a token of each, and tokens of the prompt."""

    chosen: int
    scores: tuple[float, ...]
    tokens: int


class KeptChoices:
    """A model's choices: from files where they are, else from the model, then kept.

    Args:
        folder: with `lm_choices.csv` and `lm_replies.json`, or where they will be; None keeps them in memory.
        model: a `LocalModel`; None for files alone.
        every: choices after which the file is written; `close` writes the rest.

    Attributes:
        asked: choices and replies that the model was asked for.
    """

    def __init__(self, folder: str | Path | None = None, model=None, every: int = 10):
        self.folder, self.model, self.asked, self._every = folder and Path(folder), model, 0, every
        self.choices: dict[str, Choice] = {}
        self.replies: dict[str, str] = {}
        self._kept, self._unwritten = None, 0
        if self.folder and (self.folder / "lm_choices.csv").is_file():
            with open(self.folder / "lm_choices.csv", newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    scores = tuple(map(float, row["scores"].split()))
                    self.choices[row["key"]] = Choice(int(row["chosen"]), scores, int(row["tokens"]))
        if self.folder and (self.folder / "lm_replies.json").is_file():
            self.replies = json.loads((self.folder / "lm_replies.json").read_text(encoding="utf-8"))

    def choose(self, messages: Messages, options: Sequence[str], prefix: str = "") -> Choice:
        """As `reprise.chat_choose.choose`.

        Raises:
            NotKept: no model, and no run has kept this choice.
        """
        key = _key(list(messages), list(options), prefix)
        if key not in self.choices:
            self._ask(messages)
            from reprise.chat_choose import KeptPrompt, choose

            self._kept = self._kept or KeptPrompt()
            before = self._kept.read + self._kept.shared
            index, scores = choose(self.model, messages, options, prefix, self._kept)
            tokens = self._kept.read + self._kept.shared - before
            self.choices[key] = Choice(index, tuple(round(float(score), 5) for score in scores), tokens)
            self.asked += 1
            self._unwritten += 1
            if self._unwritten == self._every:
                self.close()
        return self.choices[key]

    def write(self, prompt: str, temperature: float, max_new_tokens: int, seed: int) -> str:
        """As `reprise.chat_choose.generate`, for one user turn."""
        messages = [{"role": "user", "content": prompt}]
        key = _key(messages, [temperature, max_new_tokens, seed], "")
        if key not in self.replies:
            self._ask(messages)
            from reprise.chat_choose import generate

            self.replies[key] = generate(self.model, messages, max_new_tokens, temperature, seed)
            self.asked += 1
            if self.folder:
                self.folder.mkdir(parents=True, exist_ok=True)
                text = json.dumps(self.replies, indent=1, ensure_ascii=False) + "\n"
                atomic_write(self.folder / "lm_replies.json", text.encode())
        return self.replies[key]

    def close(self) -> None:
        """Write the choices that were asked for since the last time."""
        if not self.folder or not self._unwritten:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(COLUMNS)
        for key, choice in self.choices.items():
            lines.writerow([key, choice.chosen, choice.tokens, " ".join(f"{score:.5f}" for score in choice.scores)])
        atomic_write(self.folder / "lm_choices.csv", text.getvalue().encode())
        self._unwritten = 0

    def _ask(self, messages: Messages) -> None:
        if self.model is None:
            said = messages[-1]["content"][:60]
            raise NotKept(f"prompt={said!r}: expected a kept answer; python -m reprise.labs.memory_lm asks the model")


def _key(messages: list, options: list, prefix: str) -> str:
    text = json.dumps([PACKAGED[MODEL].sha256, messages, options, prefix], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]
