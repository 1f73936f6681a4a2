"""A chat model behind an OpenAI-compatible HTTP endpoint.

The key is read from an environment variable for each request. It is in no attribute, and is blotted out of what a
server says in an error.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from reprise.chat_replay import Completion, Messages, Usage
from reprise.errors import RepriseError

if TYPE_CHECKING:
    import httpx

RETRIED = frozenset({408, 429, 500, 502, 503, 504})
MAX_REPLY = 8 << 20  # bytes of a reply's body
EXCERPT = 300  # characters of an error's body that are shown
# what reading a body that is no chat completion may raise
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class EndpointError(RepriseError):
    """No reply: the endpoint cannot be reached, stayed busy, or answered with something that is no chat completion."""


class EndpointRefused(EndpointError):
    """The endpoint understood the request and refused it.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class Endpoint:
    """`POST {base_url}/chat/completions`, in step or awaited.

    Args:
        base_url: such as "https://host/v1".
        model: the name that the endpoint knows.
        key_variable: environment variable with the key; no key is sent where it is not set.
        temperature: 0 for judges.
        max_tokens: most tokens of a reply; None leaves it to the endpoint.
        timeout: seconds for one attempt.
        retries: further attempts after a connection that fails or a status in `RETRIED`.
        backoff: seconds before the first of them, doubled each time; a Retry-After header replaces it.
        max_wait: longest pause in seconds. A server that asks for more is not waited for.
        concurrency: requests under way at once through `achat`.

    Raises:
        EndpointError: base_url is no http or https address, or holds a password or a query, which every message would
            show; retries or concurrency allow no request.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        key_variable: str = "OPENAI_API_KEY",
        temperature: float = 0.0,
        max_tokens: int | None = None,
        timeout: float = 60.0,
        retries: int = 4,
        backoff: float = 0.5,
        max_wait: float = 60.0,
        concurrency: int = 8,
    ):
        _check_address(base_url)
        for name, value, least in (("retries", retries, 0), ("concurrency", concurrency, 1)):
            if value < least:
                raise EndpointError(f"{name}={value}: expected at least {least}")
        self.base_url, self.model, self.key_variable = base_url.rstrip("/"), model, key_variable
        self.temperature, self.max_tokens, self.timeout = temperature, max_tokens, timeout
        self.retries, self.backoff, self.max_wait, self.concurrency = retries, backoff, max_wait, concurrency
        self._slots: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    def request(
        self, messages: Messages, response_format: Mapping[str, Any] | None = None, **settings: Any
    ) -> dict[str, Any]:
        """The body that is sent; it holds no key, so that a cache can be addressed by it."""
        body = {"model": self.model, "messages": list(messages), "temperature": self.temperature}
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        return body | ({"response_format": dict(response_format)} if response_format else {}) | settings

    def chat(self, messages: Messages, response_format: Mapping[str, Any] | None = None, **settings: Any) -> Completion:
        """One reply. `settings` go into the body as they are: top_p, seed, or another temperature.

        Raises:
            EndpointRefused: a status that is not worth another attempt.
            EndpointError: no reply after all attempts, or one that is no chat completion.
        """
        import httpx

        body = _encoded(self.request(messages, response_format, **settings))
        with httpx.Client(timeout=self.timeout) as client:
            for attempt in itertools.count():  # the last one returns or raises
                try:
                    with client.stream("POST", self._url, content=body, headers=self._headers()) as response:
                        outcome = self._outcome(response, _limited(response.iter_raw()), attempt)
                except httpx.TransportError as error:
                    outcome = self._later(attempt, f"{type(error).__name__}: {error}", None)
                if isinstance(outcome, Completion):
                    return outcome
                time.sleep(outcome)

    async def achat(
        self, messages: Messages, response_format: Mapping[str, Any] | None = None, **settings: Any
    ) -> Completion:
        """`chat`, awaited."""
        import httpx

        body = _encoded(self.request(messages, response_format, **settings))
        async with self._slot(), httpx.AsyncClient(timeout=self.timeout) as client:
            for attempt in itertools.count():  # the last one returns or raises
                try:
                    async with client.stream("POST", self._url, content=body, headers=self._headers()) as response:
                        pieces = bytearray()
                        async for piece in response.aiter_raw():
                            pieces += _limited([piece], len(pieces))
                        outcome = self._outcome(response, bytes(pieces), attempt)
                except httpx.TransportError as error:
                    outcome = self._later(attempt, f"{type(error).__name__}: {error}", None)
                if isinstance(outcome, Completion):
                    return outcome
                await asyncio.sleep(outcome)

    @property
    def _url(self) -> str:
        return f"{self.base_url}/chat/completions"

    def _headers(self) -> dict[str, str]:
        # a compressed reply would have to be unpacked before its size is known
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if key := self._key():
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _key(self) -> str:
        """The key, refused where it is no header value: the HTTP client would quote it in its own error."""
        key = os.environ.get(self.key_variable, "").strip()  # files leave a line's end
        if not (key.isascii() and key.isprintable()):
            raise EndpointError(f"{self.key_variable}: expected a key of printable ASCII characters")
        return key

    def _slot(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._slots is None or self._slots[0] is not loop:  # a semaphore belongs to one loop
            self._slots = loop, asyncio.Semaphore(self.concurrency)
        return self._slots[1]

    def _outcome(self, response: httpx.Response, body: bytes, attempt: int) -> Completion | float:
        """The reply, or the seconds to wait before the next attempt."""
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise EndpointError(f"{self._url}: a compressed reply, although none was accepted")
        if response.status_code == 200:
            try:
                return _reply(body)
            except _UNREADABLE as error:
                said = self._blotted(f"{type(error).__name__}: {error}")[:EXCERPT]
                raise EndpointError(f"{self._url}: expected a chat completion: {said}") from None
        said = self._blotted(body.decode("utf-8", "replace"))[:EXCERPT]
        problem = f"{self._url}: HTTP status {response.status_code}: {said}"
        if response.status_code not in RETRIED:
            raise EndpointRefused(problem, response.status_code)
        return self._later(attempt, problem, response.headers.get("Retry-After"))

    def _later(self, attempt: int, problem: str, retry_after: str | None) -> float:
        if attempt >= self.retries:
            raise EndpointError(f"{self._blotted(problem)} (after {attempt + 1} attempts)")
        asked = _seconds(retry_after)
        if asked is not None and asked > self.max_wait:
            raise EndpointError(f"{problem}: asks for {asked:.0f} s: expected at most max_wait={self.max_wait:g}")
        # clients that failed together must not come back together
        own = min(self.max_wait, self.backoff * 2**attempt) * random.uniform(0.5, 1.0)
        return own if asked is None else asked

    def _blotted(self, text: str) -> str:
        key = self._key()
        return text.replace(key, "[key]") if key else text


def _limited(pieces: Iterable[bytes], had: int = 0) -> bytes:
    """The pieces joined, unless they and the `had` bytes before them are more than MAX_REPLY."""
    body = bytearray()
    for piece in pieces:
        body += piece
        if had + len(body) > MAX_REPLY:
            raise EndpointError(f"a reply of more than {MAX_REPLY} bytes")
    return bytes(body)


def _reply(body: bytes) -> Completion:
    """The reply in a chat completion; raises one of _UNREADABLE where it is none."""
    record = json.loads(body)
    choice, usage = record["choices"][0], record.get("usage") or {}
    text = choice["message"]["content"]
    if not isinstance(text, str):
        raise TypeError(f"content={text!r}: expected a text")
    kept = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    read, written, kept = (int(count or 0) for count in (read, written, kept))
    return Completion(text, Usage(read - kept, kept, written), str(choice.get("finish_reason") or ""))


def _check_address(base_url: str) -> None:
    """Refuse what no request can be sent to, and what no message may show."""
    if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
        raise EndpointError(f"base_url={base_url!r}: expected an address that starts with http:// or https://")
    if set("@?#") & set(base_url):
        raise EndpointError("base_url: expected an address without user name, password, query and fragment")
    try:
        sound = bool(urlsplit(base_url).hostname) and urlsplit(base_url).port != 0
    except ValueError:  # no number for a port, or half of an IPv6 address
        sound = False
    if not sound:
        raise EndpointError(f"base_url={base_url!r}: expected a host, and a port from 1 to 65535 if any")


def _encoded(body: Mapping[str, Any]) -> bytes:
    """ASCII JSON, which holds half of a surrogate pair too, as texts that were cut may end in one."""
    return json.dumps(body, allow_nan=False).encode()


def _seconds(retry_after: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, given as a number or as a date; None if it has neither."""
    if retry_after is None:
        return None
    with suppress(ValueError):
        return max(0.0, float(retry_after)) if float(retry_after) < float("inf") else None
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    return None
