"""Rubrics from a JSON Lines file: HealthBench, PLawBench and trainer layouts, one prompt a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprise.rubric.errors import RubricError
from reprise.rubric.graph import RubricGraph


class RubricFileError(RubricError):
    """A line that holds no rubric; the message has the file, the line and the field."""


@dataclass(frozen=True)
class PromptRubric:
    """One prompt and what is asked of its responses.

    Attributes:
        id: the record's own, else its line number.
        prompt: text; the turns of a conversation are joined.
        graph: criteria in the order of their scores; with edges where the record has a graph.
    """

    id: str
    prompt: str
    graph: RubricGraph


def read_rubrics(path: str | Path) -> Iterator[PromptRubric]:
    """The rubrics of a JSON Lines file, in order; blank lines are passed over.

    A line is an object with `rubrics`, a list of {criterion, points} and optionally {id, tags}, either at the top or
    under `reward_model`, itself at the top or under `extra_info`; either of these may be JSON text. The prompt is a
    text or a list of {role, content}; a `graph` beside the rubrics is read too. Nothing is validated that only a graph
    needs.

    Raises:
        RubricFileError: a line is no JSON object or has no rubrics, or a field of them is missing.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield _read(json.loads(line), number)
            except (ValueError, RecursionError) as error:
                raise RubricFileError(f"{path}, line {number}: {error}") from error


def message_text(prompt: Any) -> str:
    """A text, or the texts of a list of {role, content} messages; several turns are marked by their role.

    Parquet readers return a conversation as an array of messages.

    Raises:
        RubricFileError: neither of them.

    >>> message_text([{"role": "user", "content": "Hi"}])
    'Hi'
    """
    if prompt is None:
        return ""
    if isinstance(prompt, str):
        return prompt
    if not _is_list(prompt) or not all(isinstance(turn, Mapping) for turn in prompt):
        raise RubricFileError(f"prompt: {type(prompt).__name__}: expected a text, or a list of messages")
    turns = [(str(turn.get("role", "")), _content(turn.get("content"))) for turn in prompt]
    return turns[0][1] if len(turns) == 1 else "\n".join(f"{role}: {text}" for role, text in turns)


def _content(content: Any) -> str:
    """A message's text; the text blocks of one that is a list of blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    if not _is_list(content):
        raise RubricFileError(f"content: {type(content).__name__}: expected a text, or a list of blocks")
    return "".join(str(block.get("text") or "") for block in content if isinstance(block, Mapping))


def _object(value: Any) -> Mapping:
    """An object or its JSON text; empty for anything else."""
    value = json.loads(value) if isinstance(value, str) and value.lstrip().startswith("{") else value
    return value if isinstance(value, Mapping) else {}


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, Mapping)


def _read(record: Any, number: int) -> PromptRubric:
    if not isinstance(record, Mapping):
        raise RubricFileError(f"{type(record).__name__}: expected an object")
    extra = _object(record.get("extra_info"))
    for holder in (record, _object(record.get("reward_model")), _object(extra.get("reward_model"))):
        if holder.get("rubrics"):
            prompt = record.get("prompt") or extra.get("prompt") or holder.get("prompt")
            id = next(each for each in (record.get("prompt_id"), record.get("id"), number) if each is not None)
            return PromptRubric(str(id), message_text(prompt), RubricGraph.from_reward_model(holder))
    raise RubricFileError("rubrics: expected a list of {criterion, points}, at the top or in reward_model")
