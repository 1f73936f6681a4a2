"""What a judge is asked, and what counts as an answer.

Two kinds, because one of them must never see a response: a graph judge reads a prompt and its rubric, once, before
training; a scorer reads one response at a time.

Source: GEAR, sections 3.1 and 3.2, appendix A.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from reprise.rubric.errors import RubricError, shown
from reprise.rubric.graph import Criterion, EdgeType, Role, RubricGraph
from reprise.rubric.validate import is_share

NO_EDGE = "no_edge"


class JudgeFailed(RubricError):
    """A judge gave no usable answer: no reply, not the JSON asked for, another number of answers than questions."""


class Pair(NamedTuple):
    """A candidate edge: positions of parent and child in the rubric, and the types their roles allow."""

    parent: int
    child: int
    allowed: frozenset[EdgeType]


@dataclass(frozen=True)
class Label:
    """A judge's answer for one pair.

    Attributes:
        value: "no_edge" or the name of an edge type; any other text is kept, and counted as invalid by the builder.
        confidence: in [0, 1]; 1 if the judge gives none. Decides between edges of one type that close a cycle.
    """

    value: str
    confidence: float = 1.0

    def __post_init__(self):
        if not is_share(self.confidence):
            raise JudgeFailed(f"confidence={shown(self.confidence)}: expected 0 <= confidence <= 1")


class GraphJudge(Protocol):
    """Reads a prompt and its rubric. Each method answers in the order it was asked, or raises JudgeFailed."""

    def roles(self, prompt: str, criteria: Sequence[Criterion]) -> Sequence[Role | str | None]:
        """What each criterion is for; None, or a text that is no role, leaves it to the builder."""

    def labels(self, prompt: str, criteria: Sequence[Criterion], pairs: Sequence[Pair]) -> Sequence[Label]:
        """Whether and how each pair's child depends on its parent. `criteria` carry their roles."""


class AsyncGraphJudge(Protocol):
    """The same two questions, awaited."""

    async def aroles(self, prompt: str, criteria: Sequence[Criterion]) -> Sequence[Role | str | None]: ...

    async def alabels(self, prompt: str, criteria: Sequence[Criterion], pairs: Sequence[Pair]) -> Sequence[Label]: ...


class Scorer(Protocol):
    """Scores one response: a function, or an object whose call is one.

    Args:
        prompt, response: texts.
        graph: whose criteria are scored, in their order.

    Returns:
        [K] numbers in [0, 1], NaN or None where there is no answer; or an awaitable of them.
    """

    def __call__(self, prompt: str, response: str, graph: RubricGraph) -> Sequence[float | None] | Awaitable[Any]: ...
