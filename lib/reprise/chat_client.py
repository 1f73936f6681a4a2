"""One way to ask many chat models: kept answers, equal requests asked once, a bound on calls, and a ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from reprise.chat_replay import Completion, Messages, Prices, ReplayCache, Usage, chat_request, request_key
from reprise.errors import RepriseError

Send = Callable[[Mapping[str, Any]], Awaitable[Completion]]


class BudgetExceeded(RepriseError):
    """The next call would pass a limit that was set; nothing was asked."""


@dataclass(frozen=True)
class Budget:
    """Limits on what is asked, None for none; kept answers are free.

    Attributes:
        calls: most calls.
        tokens: most tokens, read and written; checked before each call against what was used so far.
        dollars: most dollars at the client's prices, checked likewise.
    """

    calls: int | None = None
    tokens: int | None = None
    dollars: float | None = None


class ChatClient:
    """Asks one model through `send`, and remembers.

    Args:
        send: request -> answer; does its own retries. See `scripted` and `over_endpoint`.
        model: name under which answers are kept.
        cache: kept answers; None keeps none.
        budget, prices: limits, and what a token costs.
        concurrency: most calls under way at once.
        count_tokens: text -> tokens, for answers whose usage the model does not state (flagged as estimated).

    Attributes:
        usage, calls, kept: tokens asked for, calls made, answers that were kept from earlier.
    """

    def __init__(
        self,
        send: Send,
        model: str,
        *,
        cache: ReplayCache | None = None,
        budget: Budget | None = None,
        prices: Prices | None = None,
        concurrency: int = 8,
        count_tokens: Callable[[str], int] | None = None,
    ):
        if concurrency < 1:
            raise RepriseError(f"concurrency={concurrency}: expected at least 1")
        self.model, self.concurrency = model, concurrency
        self._send, self._cache, self._budget = send, cache, budget or Budget()
        self._prices, self._count = prices or Prices(), count_tokens or (lambda text: max(1, len(text) // 4))
        self.usage, self.calls, self.kept = Usage(), 0, 0

    @property
    def dollars(self) -> float:
        """What the calls cost so far."""
        return self._prices.cost(self.usage)

    def complete(self, messages: Messages, **settings) -> Completion:
        """One answer; settings as in `chat_request`.

        Raises:
            BudgetExceeded, CacheMiss, or what `send` raises.
        """
        answer = self.complete_many([messages], **settings)[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def complete_many(self, conversations: Sequence[Messages], **settings) -> list[Completion | Exception]:
        """Answers in the order of the conversations, or, for each that failed, its error; the others are not held up.

        Raises:
            BudgetExceeded: a limit was reached; answers that came before it are kept.
        """

        def run() -> list[Completion | Exception]:
            return asyncio.run(self.acomplete_many(conversations, **settings))

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return run()
        # a notebook's cell stands inside a loop of its own, and a loop cannot be entered twice
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(run).result()

    async def acomplete_many(self, conversations: Sequence[Messages], **settings) -> list[Completion | Exception]:
        """`complete_many`, awaited."""
        requests = [chat_request(self.model, messages, **settings) for messages in conversations]
        slots, flights = asyncio.Semaphore(self.concurrency), {}
        for request in requests:
            key = request_key(request)
            if key not in flights:
                flights[key] = asyncio.ensure_future(self._one(request, slots))
        done = dict(zip(flights, await asyncio.gather(*flights.values(), return_exceptions=True), strict=True))
        for outcome in done.values():
            if (
                isinstance(outcome, BudgetExceeded)
                or isinstance(outcome, BaseException)
                and not isinstance(outcome, Exception)
            ):
                raise outcome
        return [done[request_key(request)] for request in requests]

    async def _one(self, request: Mapping[str, Any], slots: asyncio.Semaphore) -> Completion:
        if self._cache is not None and (kept := self._cache.get(request)) is not None:
            self.kept += 1
            return kept
        async with slots:
            self._check_budget()
            self.calls += 1
            answer = await self._send(request)
        answer = self._counted(request, answer)
        self.usage = self.usage + answer.usage
        if self._cache is not None:
            self._cache.put(request, answer)
        return answer

    def _check_budget(self) -> None:
        used = {"calls": self.calls, "tokens": self.usage.tokens, "dollars": self.dollars}
        for name, value in used.items():
            limit = getattr(self._budget, name)
            if limit is not None and value >= limit:
                raise BudgetExceeded(f"{name}={value:g}: the budget of {limit:g} is used up")

    def _counted(self, request: Mapping[str, Any], answer: Completion) -> Completion:
        usage = answer.usage
        if usage.tokens > 0 and min(usage.prompt, usage.cached, usage.completion) >= 0:
            return answer
        read = sum(self._count(str(message.get("content", ""))) for message in request["messages"])
        estimate = Usage(read, 0, self._count(answer.text) if answer.text else 0, estimated=True)
        return Completion(answer.text, estimate, answer.finish, answer.attempts)


def scripted(answer: Callable[[Mapping[str, Any]], str | Exception]) -> Send:
    """A model that is a function of the request, for tests and worlds; an exception it returns is raised."""

    async def send(request: Mapping[str, Any]) -> Completion:
        text = answer(request)
        if isinstance(text, Exception):
            raise text
        return Completion(text, finish="stop")

    return send


def over_endpoint(base_url: str, model: str, **options) -> Send:
    """An OpenAI-compatible endpoint; options as in `reprise.chat_endpoint.Endpoint`, which does the retries."""
    from reprise.chat_endpoint import Endpoint

    endpoint = Endpoint(base_url, model, **options)

    async def send(request: Mapping[str, Any]) -> Completion:
        settings = {name: request[name] for name in ("temperature", "top_p", "max_tokens", "seed")}
        settings = {name: value for name, value in settings.items() if value is not None}
        return await endpoint.achat(request["messages"], **settings, **request["extra"])

    return send
