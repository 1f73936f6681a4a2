"""What the loop works on, and the four parties it asks: policy, tuner, judge and embedder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np

from reprise.memory.errors import MemoryFault
from reprise.memory.notes import Guidance, Note
from reprise.memory.store import EmbeddingSpace


@dataclass(frozen=True)
class Item:
    """A question.

    Attributes:
        id: unique in a run.
        query: the prompt without notes.
        reference: the right answer, or None where a judge does without (self-evolution).
        meta: anything a policy, judge or tuner of a world needs; never shown to a language model.
    """

    id: str
    query: str
    reference: str | None = None
    meta: Mapping = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Prompt:
    """A question with the notes that were found for it, best first, and the text a language model reads."""

    item: Item
    notes: tuple[Note, ...]
    text: str


@dataclass(frozen=True)
class Failure:
    """A question and the answer that was wrong."""

    item: Item
    answer: str | None


class Policy(Protocol):
    """The tuning model: frozen, it only reads."""

    def answer(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """One answer for each prompt, None where none came (time-out, refusal)."""


class Tuner(Protocol):
    """The tuner model: turns failures into notes."""

    def subjects(self, failures: Sequence[Failure]) -> list[str]:
        """A subject for each failure; equal ones make a cluster."""

    def extract(self, subject: str, failures: Sequence[Failure], passed: Sequence[Item]) -> Draft | None:
        """A note for one cluster; None where no valid one came. `passed`: items of the batch that were right."""

    def merge(self, existing: Sequence[Note], draft: Draft) -> Draft | None:
        """One note for several old ones and a new one; None keeps the old ones and adds the new one."""


class Embedder(Protocol):
    space: EmbeddingSpace

    def encode(self, texts: list[str]) -> np.ndarray:
        """(texts, space.dim) float32."""


Judge = Callable[[Item, str], float]


@dataclass(frozen=True)
class Draft:
    """A note before it has an identity; payload as in `Note`."""

    subject: str
    guidance: Guidance
    payload: str = "null"


def check_items(items: Sequence[Item], supervised: bool) -> None:
    """Refuse what no model call should be spent on.

    Raises:
        MemoryFault: an id occurs twice, a query is empty, or a reference is missing in supervised mode.
    """
    seen = set()
    for item in items:
        if item.id in seen:
            raise MemoryFault(f"item {item.id!r}: expected an id that occurs once")
        seen.add(item.id)
        if not item.query.strip():
            raise MemoryFault(f"item {item.id!r}: query={item.query!r}: expected a text that is not empty")
        if supervised and item.reference is None:
            raise MemoryFault(f"item {item.id!r}: reference=None: expected one in supervised mode")


def from_reward_fn(reward: Callable[..., list[float]]) -> Judge:
    """A judge from a reward function of TRL's or verl's shape; reference and meta are its columns."""

    def judge(item: Item, answer: str) -> float:
        columns = {name: [value] for name, value in item.meta.items()}
        return float(reward([item.query], [answer], reference=[item.reference], **columns)[0])

    return judge


def from_pairwise(
    prefers: Callable[[str, str, str, str | None], Sequence[float]], other: Callable[[Item], str]
) -> Judge:
    """A judge from pairwise comparison with a fixed other answer, asked in both orders; disagreement is a tie of 1/2.

    Args:
        prefers: (question, answer A, answer B, reference) -> (score of A, score of B).
        other: the answer an item's answers are compared with.
    """

    def judge(item: Item, answer: str) -> float:
        first = prefers(item.query, answer, other(item), item.reference)[0]
        second = prefers(item.query, other(item), answer, item.reference)[1]
        return float(first) if first == second else 0.5

    return judge
