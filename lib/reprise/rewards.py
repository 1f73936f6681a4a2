"""What TRL and verl hand to a reward function, read the same way for every system.

    TRL 1.x    reward(prompts, completions, completion_ids, **columns): texts, or lists of {role, content} messages
    verl 0.9   compute_score(data_source, solution_str, ground_truth, extra_info): objects may arrive as JSON text or
               inside an array, as Parquet readers give them

Source: TRL 1.16, GRPOTrainer._calculate_rewards; verl 0.9.1, experimental/reward_loop/reward_manager/naive.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from reprise.errors import RepriseError


class RewardInputError(RepriseError):
    """A completion or an object in no layout that a trainer uses."""


def response_text(completion: Any) -> str:
    """A completion's text; of a conversation, what the assistant said in it.

    Raises:
        RewardInputError: neither a text nor a list of messages.

    >>> response_text([{"role": "assistant", "content": "4"}, {"role": "tool", "content": "ok"}])
    '4'
    """
    if completion is None or isinstance(completion, str):
        return completion or ""
    messages = isinstance(completion, Iterable) and not isinstance(completion, Mapping)
    if not messages or not all(isinstance(turn, Mapping) for turn in completion):
        raise RewardInputError(f"completion: {type(completion).__name__}: expected a text, or a list of messages")
    said = [turn for turn in completion if turn.get("role", "assistant") == "assistant"]
    return "\n".join(_content(turn.get("content")) for turn in said)


def json_object(value: Any, name: str) -> Mapping[str, Any]:
    """An object, its JSON text, or an array around either; an empty one for None.

    Raises:
        RewardInputError: anything else; the message starts with `name`.

    >>> json_object('{"step": 3}', "ground_truth")
    {'step': 3}
    """
    if not isinstance(value, str | Mapping) and hasattr(value, "item") and not getattr(value, "ndim", 0):
        value = value.item()
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise RewardInputError(f"{name}: a text that is no JSON: expected an object") from None
    if value is not None and not isinstance(value, Mapping):
        raise RewardInputError(f"{name}: {type(value).__name__}: expected an object")
    return value or {}


def _content(content: Any) -> str:
    """A message's text; the text blocks of one that is a list of blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Mapping) or not isinstance(content, Iterable):
        raise RewardInputError(f"content: {type(content).__name__}: expected a text, or a list of blocks")
    return "".join(str(block.get("text") or "") for block in content if isinstance(block, Mapping))
