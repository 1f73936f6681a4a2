"""A rubric as a typed graph: criteria, and edges from what licenses a criterion to the criterion licensed.

    weak        the parent supports the child; an unmet parent damps it mildly
    strong      the child means little without the parent
    activation  the parent decides whether the child applies at all

>>> graph = RubricGraph([Criterion("grounded", 1), Criterion("evidence", 1)], [Edge("grounded", "evidence", "weak")])
>>> graph.levels
((0,), (1,))

Source: GEAR, sections 3.1 and 3.2.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reprise.rubric.errors import GraphError

if TYPE_CHECKING:
    from reprise.rubric.validate import Validation


class EdgeType(StrEnum):
    """How strongly a child depends on its parent. The public code's names are accepted: `EdgeType("trigger")`."""

    WEAK = "weak"
    STRONG = "strong"
    ACTIVATION = "activation"

    @classmethod
    def _missing_(cls, value):
        return _EDGE_ALIASES.get(value) if isinstance(value, str) else None


class Role(StrEnum):
    """What a criterion is for; decides which edges it may have. "applicability" is accepted for TRIGGER."""

    FOUNDATION = "foundation"
    BONUS = "bonus"
    PENALTY = "penalty"
    TRIGGER = "trigger"

    @classmethod
    def _missing_(cls, value):
        return cls.TRIGGER if value == "applicability" else None


_EDGE_ALIASES = {
    "weak_prerequisite": EdgeType.WEAK,
    "strong_prerequisite": EdgeType.STRONG,
    "trigger": EdgeType.ACTIVATION,
}


@dataclass(frozen=True)
class Criterion:
    """One line of a rubric.

    Attributes:
        id: unique in its graph; a whole number is kept as text.
        weight: points, in the rubric's own scale; negative for a violation, whose event is that it happened.
        role: None if nobody said.
        text: what a judge is asked.
    """

    id: str
    weight: float
    role: Role | None = None
    text: str = ""

    def __post_init__(self):
        object.__setattr__(self, "id", _as_id(self.id, "criterion id"))
        if self.role is not None:
            try:
                object.__setattr__(self, "role", Role(self.role))
            except ValueError:
                raise GraphError(
                    f"criterion {self.id}: role={self.role!r}: expected one of {', '.join(Role)}"
                ) from None


@dataclass(frozen=True)
class Edge:
    """`parent` licenses `child`.

    Attributes:
        parent, child: ids of criteria.
        type: an EdgeType; a name that is none is kept for `RubricGraph.validate` to report.
        retention: share of the child that an unmet parent leaves, in [0, 1]; None for the value of the type.
    """

    parent: str
    child: str
    type: EdgeType
    retention: float | None = None

    def __post_init__(self):
        for name in ("parent", "child"):
            object.__setattr__(self, name, _as_id(getattr(self, name), f"edge {name}"))
        try:
            object.__setattr__(self, "type", EdgeType(self.type))
        except ValueError:
            pass

    def __str__(self) -> str:
        return f"{self.parent}->{self.child} ({self.type})"


@dataclass(frozen=True)
class RubricGraph:
    """Criteria in the order of their scores, and typed edges between them.

    Building one checks nothing but the types; `validate` does, and everything below that needs an acyclic graph calls
    it once.
    """

    criteria: tuple[Criterion, ...]
    edges: tuple[Edge, ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "criteria", tuple(self.criteria))
        object.__setattr__(self, "edges", tuple(self.edges))

    def __len__(self) -> int:
        return len(self.criteria)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(criterion.id for criterion in self.criteria)

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(criterion.weight for criterion in self.criteria)

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each id among the criteria."""
        return {id: k for k, id in enumerate(self.ids)}

    def validate(self, strict: bool = True, project: bool = False) -> Validation:
        """Check everything; see `reprise.rubric.validate.validate`."""
        from reprise.rubric.validate import validate

        return validate(self, strict=strict, project=project)

    @cached_property
    def parents(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each criterion its (parent position, edge position) pairs, in the order of the parents' positions.

        Raises:
            GraphError: the graph is not valid.
        """
        self.validate()
        found: list[list[tuple[int, int]]] = [[] for _ in self.criteria]
        for k, edge in enumerate(self.edges):
            found[self.index[edge.child]].append((self.index[edge.parent], k))
        # sums and products over parents must not depend on the order in which the edges are written
        return tuple(tuple(sorted(each)) for each in found)

    @cached_property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the criteria by the length of the longest path that leads to them; parents come first.

        Raises:
            GraphError: the graph is not valid.
        """
        depth: dict[int, int] = {}
        for start in range(len(self)):
            waiting = [start]
            while waiting:
                above = [j for j, _ in self.parents[waiting[-1]]]
                missing = [j for j in above if j not in depth]
                if missing:
                    waiting += missing
                else:
                    depth[waiting.pop()] = 1 + max((depth[j] for j in above), default=-1)
        found: list[list[int]] = [[] for _ in range(1 + max(depth.values()))]
        for k in range(len(self)):
            found[depth[k]].append(k)
        return tuple(map(tuple, found))

    def without(self, dropped: Iterable[str]) -> RubricGraph:
        """The graph less the criteria named and their edges."""
        gone = set(dropped)
        return RubricGraph(
            [each for each in self.criteria if each.id not in gone],
            [each for each in self.edges if each.parent not in gone and each.child not in gone],
        )

    def fingerprint(self) -> str:
        """32 hexadecimal digits over ids, weights, edges and their own retentions: what a reward should be logged with.

        The order of the criteria counts, as scores follow it; the order of the edges, roles and texts do not.

        Raises:
            GraphError: the graph is not valid.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        self.validate()
        content = [
            [[each.id, float(each.weight)] for each in self.criteria],
            sorted(
                [[each.parent, each.child, str(each.type), _number(each.retention)] for each in self.edges], key=str
            ),
        ]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:32]

    @classmethod
    def from_reward_model(cls, record: Mapping[str, Any]) -> RubricGraph:
        """Read the layout that training data carries for each prompt; it is not validated yet.

        Args:
            record: `rubrics`, a list of {id, points, criterion, tags}, and optionally `graph`, {nodes: [{id,
                node_type}], edges: [{parent, child, type, retention}]}. A rubric in which no line has an id gets r1,
                r2, ... A role stands in the graph's node or in the tags.

        Raises:
            GraphError: a field is missing or of the wrong type; the message names it.
        """
        from reprise.rubric.reward_model import read

        criteria, edges = read(record)
        return cls(criteria, edges)

    def to_reward_model(self) -> dict[str, Any]:
        """The graph in the layout that `from_reward_model` reads, as plain JSON types."""
        from reprise.rubric.reward_model import write

        return write(self)


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _as_id(value: Any, what: str) -> str:
    """Ids are text; numbers become text, so that edges written with numbers keep their ends."""
    if value is None or value == "" or isinstance(value, bool) or not isinstance(value, Hashable):
        raise GraphError(f"{what}={value!r}: expected a non-empty text or a number")
    return str(value)
