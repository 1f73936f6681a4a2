"""A typed graph for a rubric: roles, candidate pairs, a judge's label for each, and a projection onto acyclic graphs.

    1  roles        the rubric's own, else the judge's, else by sign (negative: penalty, otherwise foundation)
    2  candidates   ordered pairs whose roles may be related (`CHILDREN`)
    3  labels       no_edge or a type, asked in batches; a batch that fails is halved down to single pairs
    4  projection   stronger types first, then the judge's confidence, then positions; an edge that closes a cycle goes

The response is no argument of anything here: one graph serves every response to a prompt.

Source: GEAR, section 3.2 and appendix A. The paper leaves the order of projection open; ours is `project_edges`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from reprise.rubric.graph import Criterion, Edge, EdgeType, Role, RubricGraph
from reprise.rubric.judging import NO_EDGE, AsyncGraphJudge, GraphJudge, JudgeFailed, Label, Pair
from reprise.rubric.validate import Dropped, project_edges

BATCH = 8  # pairs a judge labels at once (appendix A)

_PREREQUISITE = frozenset({EdgeType.WEAK, EdgeType.STRONG})
_GATE = frozenset({EdgeType.ACTIVATION})
# parent role -> child role -> types allowed; every other pair has no edge
CHILDREN = {
    Role.FOUNDATION: dict.fromkeys((Role.FOUNDATION, Role.BONUS, Role.PENALTY), _PREREQUISITE),
    Role.TRIGGER: dict.fromkeys((Role.BONUS, Role.PENALTY), _GATE),
}

T = TypeVar("T")


@dataclass(frozen=True)
class BuildStats:
    """What happened while a graph was built; nothing is left out of it silently.

    Attributes:
        roles: criteria of each role.
        role_fallbacks: criteria whose role was decided by the sign of their weight.
        candidates: pairs asked about.
        labels: pairs by the answer that was used: no_edge, weak, strong, activation.
        invalid: (parent id, child id, label) whose label the pair's roles do not allow; no edge.
        failed: (parent id, child id, reason) of pairs that got no answer even alone; no edge.
        dropped_cycles: edges that would have closed a cycle, with the path.
        calls: requests made of the judge, failed ones included.
        edges: edges of the graph by type.
    """

    roles: dict[str, int]
    role_fallbacks: int
    candidates: int
    labels: dict[str, int] = field(default_factory=dict)
    invalid: tuple[tuple[str, str, str], ...] = ()
    failed: tuple[tuple[str, str, str], ...] = ()
    dropped_cycles: tuple[Dropped, ...] = ()
    calls: int = 0
    edges: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Question:
    """A judge's method and its arguments."""

    method: str
    arguments: tuple[Any, ...]
    expected: int


def build_graph(rubric: Sequence[Criterion], prompt: str, judge: GraphJudge) -> tuple[RubricGraph, BuildStats]:
    """Build the graph of one prompt's rubric.

    Args:
        rubric: criteria in the order of their scores. A criterion's own role is kept and not asked for.
        prompt: the query the rubric belongs to.
        judge: see `reprise.rubric.judges`.

    Returns:
        (valid graph whose criteria all have a role, what happened on the way).

    Raises:
        GraphError: the rubric is empty, an id occurs twice, or a weight is not finite; before the judge is asked.
        Anything but JudgeFailed that the judge raises.
    """
    steps = _steps(rubric, prompt)
    try:
        question = next(steps)
        while True:
            try:
                answer = getattr(judge, question.method)(*question.arguments)
                question = steps.send(_counted(answer, question))
            except JudgeFailed as error:
                question = steps.throw(error)
    except StopIteration as done:
        return done.value


async def abuild_graph(
    rubric: Sequence[Criterion], prompt: str, judge: AsyncGraphJudge
) -> tuple[RubricGraph, BuildStats]:
    """`build_graph` with a judge that is awaited; gather several to build graphs of many prompts at once."""
    steps = _steps(rubric, prompt)
    try:
        question = next(steps)
        while True:
            try:
                answer = await getattr(judge, f"a{question.method}")(*question.arguments)
                question = steps.send(_counted(answer, question))
            except JudgeFailed as error:
                question = steps.throw(error)
    except StopIteration as done:
        return done.value


def candidate_pairs(roles: Sequence[Role]) -> list[Pair]:
    """Ordered pairs that may be an edge, by position of the parent, then of the child.

    With f foundations, b bonuses, n penalties and t triggers there are f (f - 1) + (f + t) (b + n).

    >>> len(candidate_pairs([Role.FOUNDATION, Role.FOUNDATION, Role.BONUS, Role.TRIGGER]))
    5
    """
    return [
        Pair(parent, child, CHILDREN[above][below])
        for parent, above in enumerate(roles)
        for child, below in enumerate(roles)
        if parent != child and below in CHILDREN.get(above, ())
    ]


def candidate_count(foundations: int, others: int, triggers: int) -> int:
    """Number of candidate pairs with `others` bonuses and penalties, without listing them."""
    return foundations * (foundations - 1) + (foundations + triggers) * others


def _steps(rubric: Sequence[Criterion], prompt: str) -> Generator[_Question, Sequence, tuple[RubricGraph, BuildStats]]:
    """The building itself. Yields questions; is sent answers, or has JudgeFailed thrown into it."""
    RubricGraph(tuple(rubric)).validate()
    criteria, fallbacks, calls = yield from _roles(list(rubric), prompt)
    pairs = candidate_pairs([each.role for each in criteria])
    labels: dict[Pair, Label] = {}
    failed = []
    # a stack of batches, the next one last, so that halves are asked before what follows them
    waiting = [pairs[k : k + BATCH] for k in range(0, len(pairs), BATCH)][::-1]
    while waiting:
        batch = waiting.pop()
        calls += 1
        try:
            answers = yield _Question("labels", (prompt, tuple(criteria), tuple(batch)), len(batch))
            labels.update(zip(batch, answers, strict=True))
        except JudgeFailed as error:
            half = len(batch) // 2
            if half:
                waiting += [batch[half:], batch[:half]]
            else:
                failed.append((*_ends(batch[0], criteria), str(error)))
    edges, confidence, counts, invalid = _read_labels(labels, criteria)
    ids = [each.id for each in criteria]
    kept, cyclic = project_edges(ids, edges, confidence)
    graph = RubricGraph(tuple(criteria), tuple(kept)).validate().graph
    roles = Counter(str(each.role) for each in criteria)
    stats = BuildStats(
        roles={str(role): roles[role] for role in Role},
        role_fallbacks=fallbacks,
        candidates=len(pairs),
        labels=counts,
        invalid=tuple(invalid),
        failed=tuple(failed),
        dropped_cycles=tuple(cyclic),
        calls=calls,
        edges={str(type): sum(edge.type == type for edge in kept) for type in EdgeType},
    )
    return graph, stats


def _roles(criteria: list[Criterion], prompt: str) -> Generator[_Question, Sequence, tuple[list[Criterion], int, int]]:
    """(criteria that all have a role, how many got it by sign, requests made)."""
    asked = [k for k, each in enumerate(criteria) if each.role is None]
    if not asked:
        return criteria, 0, 0
    try:
        answers = yield _Question("roles", (prompt, tuple(criteria[k] for k in asked)), len(asked))
    except JudgeFailed:
        answers = [None] * len(asked)
    fallbacks = 0
    for k, answer in zip(asked, answers, strict=True):
        try:
            role = Role(answer)
        except ValueError:
            role = Role.PENALTY if criteria[k].weight < 0 else Role.FOUNDATION
            fallbacks += 1
        criteria[k] = replace(criteria[k], role=role)
    return criteria, fallbacks, 1


def _read_labels(labels: dict[Pair, Label], criteria: Sequence[Criterion]):
    """(edges, confidence of each, pairs by answer, labels that the roles do not allow)."""
    edges, confidence, invalid = [], {}, []
    counts = dict.fromkeys([NO_EDGE, *map(str, EdgeType)], 0)
    for pair, label in labels.items():
        ends = _ends(pair, criteria)
        if label.value == NO_EDGE:
            counts[NO_EDGE] += 1
            continue
        try:
            type = EdgeType(label.value)
        except ValueError:
            type = None
        if type not in pair.allowed:
            invalid.append((*ends, str(label.value)))
            continue
        counts[str(type)] += 1
        edges.append(Edge(*ends, type))
        confidence[ends] = label.confidence
    return edges, confidence, counts, invalid


def _ends(pair: Pair, criteria: Sequence[Criterion]) -> tuple[str, str]:
    return criteria[pair.parent].id, criteria[pair.child].id


def _counted(answer: Sequence[T], question: _Question) -> Sequence[T]:
    """The answers, if there is one for each thing asked."""
    found = len(answer)
    if found != question.expected:
        raise JudgeFailed(f"{question.method}: {found} answers: expected {question.expected}")
    return answer
