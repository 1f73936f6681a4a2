"""Replies of chat models that can be played again: a canonical key for a request, and a SQLite file of answers.

Neither the key nor the file holds an address or an API key, so a file can be given away with the results it explains.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reprise.errors import RepriseError

KEY_VERSION = 1
MODES = ("off", "readwrite", "replay")

Messages = Sequence[Mapping[str, Any]]


class CacheMiss(RepriseError):
    """A request without a kept answer, in replay, where nothing may be asked.

    Attributes:
        key: of the request.
    """

    def __init__(self, key: str, request: Mapping):
        said = json.dumps(request["messages"], ensure_ascii=False)[:200]
        super().__init__(f"key={key}: expected a kept answer in replay; the request begins {said}")
        self.key = key


@dataclass(frozen=True)
class Usage:
    """Tokens of one or many calls.

    Attributes:
        prompt: read, those a provider had cached left out.
        cached: read from a provider's cache, at another price.
        completion: written.
        estimated: whether any of it was counted by us because the provider said nothing.
    """

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        pairs = zip(
            (self.prompt, self.cached, self.completion), (other.prompt, other.cached, other.completion), strict=True
        )
        return Usage(*(a + b for a, b in pairs), self.estimated or other.estimated)

    @property
    def tokens(self) -> int:
        return self.prompt + self.cached + self.completion


@dataclass(frozen=True)
class Prices:
    """US dollars per million tokens."""

    prompt: float = 0.0
    cached: float = 0.0
    completion: float = 0.0

    def cost(self, usage: Usage) -> float:
        """Dollars.

        >>> round(Prices(.28, .028, .42).cost(Usage(1200, 800, 350)), 7)
        0.0005054
        """
        parts = (usage.prompt, self.prompt), (usage.cached, self.cached), (usage.completion, self.completion)
        return sum(count * price for count, price in parts) / 1e6


@dataclass(frozen=True)
class Completion:
    """An answer.

    Attributes:
        text: what the model wrote.
        usage: tokens of the call that made it, also where it was kept from an earlier one.
        finish: why it ended: "stop", "length", or what else the model says.
        attempts: requests it took; 0 where it was kept.
    """

    text: str
    usage: Usage = Usage()
    finish: str = ""
    attempts: int = 1

    @property
    def cached(self) -> bool:
        return self.attempts == 0


def chat_request(
    model: str,
    messages: Messages,
    *,
    temperature: float = 0.0,
    top_p: float = 1.0,
    max_tokens: int | None = None,
    seed: int | None = None,
    extra: Mapping[str, Any] | None = None,
    sample: int = 0,
) -> dict[str, Any]:
    """A request as it is keyed: everything that decides the answer, and the number of the sample drawn from it.

    Raises:
        RepriseError: something JSON cannot hold, or no messages.
    """
    if not messages:
        raise RepriseError("messages=[]: expected at least one")
    request = dict(v=KEY_VERSION, model=model, messages=list(map(dict, messages)), temperature=temperature, top_p=top_p)
    request |= dict(max_tokens=max_tokens, seed=seed, extra=dict(extra or {}), sample=sample)
    request_key(request)
    return request


def request_key(request: Mapping[str, Any]) -> str:
    """SHA-256 of the request as canonical JSON: keys sorted, no spaces, UTF-8 as it is."""
    try:
        text = json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RepriseError(f"request: expected what JSON can hold ({error})") from error
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class ReplayCache:
    """Answers on disk; safe for threads, and for processes that share the file.

    Args:
        path: SQLite file, made with its folder if missing (not in replay); ":memory:" for none.
        mode: "readwrite"; "replay" never asks and raises `CacheMiss`; "off" keeps nothing.

    Raises:
        RepriseError: an unknown mode, a missing file in replay, or a file that is no cache.
    """

    def __init__(self, path: str | Path, mode: str = "readwrite"):
        if mode not in MODES:
            raise RepriseError(f"mode={mode!r}: expected one of {', '.join(MODES)}")
        if mode == "replay" and str(path) != ":memory:" and not Path(path).is_file():
            raise RepriseError(f"path={path}: expected a file of kept answers to replay")
        if mode == "readwrite":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.mode, self._lock = mode, threading.Lock()
        self._database = sqlite3.connect(":memory:" if mode == "off" else path, timeout=60, check_same_thread=False)
        try:
            with self._database:
                self._database.execute(
                    "create table if not exists replies (key text primary key, answer text not null)"
                )
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise RepriseError(f"path={path}: expected a SQLite file of kept answers ({error})") from error

    def get(self, request: Mapping[str, Any]) -> Completion | None:
        """The kept answer, or None.

        Raises:
            CacheMiss: in replay, where there is none.
        """
        if self.mode == "off":
            return None
        key = request_key(request)
        with self._lock:
            row = self._database.execute("select answer from replies where key = ?", (key,)).fetchone()
        if row is None:
            if self.mode == "replay":
                raise CacheMiss(key, request)
            return None
        kept = json.loads(row[0])
        return Completion(kept["text"], Usage(**kept["usage"]), kept["finish"], attempts=0)

    def put(self, request: Mapping[str, Any], answer: Completion) -> None:
        """Keep an answer; the first one for a request stays."""
        if self.mode == "readwrite":
            # ASCII, for half of a surrogate pair is no UTF-8, and a text that was cut may end in one
            text = json.dumps({"text": answer.text, "usage": asdict(answer.usage), "finish": answer.finish})
            with self._lock, self._database:
                self._database.execute("insert or ignore into replies values (?, ?)", (request_key(request), text))

    def __len__(self) -> int:
        with self._lock:
            return self._database.execute("select count(*) from replies").fetchone()[0]

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> ReplayCache:
        return self

    def __exit__(self, *exc) -> None:
        self.close()
