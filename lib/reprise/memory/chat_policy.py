"""A chat model as policy and as tuner's voice: prompts in, answers out, what failed stays without an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from reprise.chat_client import ChatClient
from reprise.memory.items import Item, Prompt

FENCE = re.compile(r"```(?:sql|SQL)?\s*\n?(.*?)```", re.DOTALL)


class ChatPolicy:
    """`Policy` over a chat client; requests of a batch are made together.

    Args:
        client: asks the model; its cache makes a run repeatable.
        context: item -> what stands before its prompt, such as a database schema; not part of what notes are found by.
        extract: reply -> answer, None where there is none in it.
        temperature, max_tokens: of every request (the released code's configured temperature is 0).

    Attributes:
        failed: prompts without an answer, because the request failed or the reply held none.
    """

    def __init__(
        self,
        client: ChatClient,
        context: Callable[[Item], str] = lambda item: "",
        extract: Callable[[str], str | None] = lambda reply: reply.strip() or None,
        temperature: float = 0.0,
        max_tokens: int | None = None,
    ):
        self._client, self._context, self._extract = client, context, extract
        self._settings = dict(temperature=temperature, max_tokens=max_tokens)
        self.failed = 0

    def answer(self, prompts: Sequence[Prompt]) -> list[str | None]:
        conversations = []
        for prompt in prompts:
            before = self._context(prompt.item)
            system = [{"role": "system", "content": before}] if before else []
            conversations.append([*system, {"role": "user", "content": prompt.text}])
        replies = self._client.complete_many(conversations, **self._settings)
        answers = [None if isinstance(reply, Exception) else self._extract(reply.text) for reply in replies]
        self.failed += answers.count(None)
        return answers


def asked(client: ChatClient, max_tokens: int | None = None) -> Callable[[str, float, int], str | None]:
    """What a `ChatTuner` asks with: (prompt, temperature, attempt) -> reply, None where the request failed."""

    def ask(prompt: str, temperature: float, attempt: int) -> str | None:
        conversation = [{"role": "user", "content": prompt}]
        settings = dict(temperature=temperature, max_tokens=max_tokens, sample=attempt)
        (reply,) = client.complete_many([conversation], **settings)
        return None if isinstance(reply, Exception) else reply.text

    return ask


def sql_in(reply: str) -> str | None:
    """The query in a reply: the last fenced block, else from the first SELECT or WITH on; None without either.

    >>> sql_in("Sure:\\n```sql\\nSELECT 1;\\n```")
    'SELECT 1'
    """
    blocks = FENCE.findall(reply)
    text = blocks[-1] if blocks else reply
    found = re.search(r"\b(SELECT|WITH)\b.*", text, re.DOTALL | re.IGNORECASE)
    return found.group(0).strip().rstrip(";").strip() if found else None
