"""Judges: functions from chat messages to a text, over an endpoint, kept answers, or a model on this machine.

Any `Callable[[list[dict]], str]` is one; these two are what an auditor (`OnlineAuditor`) and `attribute` usually get.
"""

from __future__ import annotations

from typing import Any

from reprise.audit.errors import AuditError
from reprise.audit.replay import ReplayConfig
from reprise.chat import LocalModel
from reprise.chat_client import Budget, ChatClient, over_endpoint
from reprise.chat_replay import ReplayCache


class OpenAIJudge:
    """A model behind an OpenAI-compatible endpoint, greedy and with at most 1,500 response tokens as in the paper.

    Args:
        base_url: such as "https://host/v1"; None answers from `cache` alone.
        model: the name that the endpoint knows.
        api_key_env: environment variable with the key.
        max_tokens, temperature: of each answer.
        cache: kept answers. In replay nothing is asked, and an answer that is not there raises CacheMiss.
        budget: limits on what is asked.
        options: of `reprise.chat_endpoint.Endpoint`, such as timeout and retries.

    Attributes:
        client: counts calls, kept answers and tokens.

    Raises:
        AuditError: neither an address nor a cache.  EndpointError: no address that can be asked.
    """

    def __init__(
        self,
        base_url: str | None,
        model: str,
        api_key_env: str = "OPENAI_API_KEY",
        max_tokens: int = ReplayConfig.response_tokens,
        temperature: float = ReplayConfig.temperature,
        *,
        cache: ReplayCache | None = None,
        budget: Budget | None = None,
        **options: Any,
    ):
        if base_url is None and cache is None:
            raise AuditError("base_url=None: expected an address, or a cache of kept answers")
        send = _nowhere if base_url is None else over_endpoint(base_url, model, key_variable=api_key_env, **options)
        self.client = ChatClient(send, model, cache=cache, budget=budget)
        self.max_tokens, self.temperature = max_tokens, temperature

    def __call__(self, messages: list[dict]) -> str:
        """The answer's text; raises what the endpoint, the cache or the budget raise."""
        return self.client.complete(messages, max_tokens=self.max_tokens, temperature=self.temperature).text


class LocalJudge:
    """A model on this machine that writes its answer; `StreamAuditor` compares all possible verdicts instead.

    Args:
        local: a chat model.
        max_tokens: of each answer.
    """

    def __init__(self, local: LocalModel, max_tokens: int = 200):
        self.local, self.max_tokens = local, max_tokens

    def __call__(self, messages: list[dict]) -> str:
        from reprise.chat_choose import generate

        return generate(self.local, messages, self.max_tokens)


async def _nowhere(request: Any) -> Any:
    raise AuditError("base_url=None: no kept answer, and nowhere to ask")
