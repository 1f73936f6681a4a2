"""Graphs built for many rubrics: their statistics, how far they agree with graphs drawn by hand, and their audits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprise.rubric.build import BuildStats, build_graph, candidate_count, candidate_pairs
from reprise.rubric.graph import Edge, EdgeType, Role, RubricGraph
from reprise.rubric.judges import GraphJudge, JudgeFailed, Label, Pair
from reprise.rubric.rubric_file import PromptRubric
from reprise.rubric.validate import project_edges


@dataclass(frozen=True)
class Built:
    """A rubric, the graph it came with (drawn by hand, or without edges), the one built for it, and what happened."""

    source: PromptRubric
    graph: RubricGraph
    stats: BuildStats


def build_all(rubrics: Iterable[PromptRubric], judge: GraphJudge) -> list[Built]:
    """Build a graph for each rubric from its texts and weights alone: the roles and edges it has are put aside."""
    made = []
    for each in rubrics:
        bare = [replace(criterion, role=None) for criterion in each.graph.criteria]
        made.append(Built(each, *build_graph(bare, each.prompt, judge)))
    return made


def statistics(built: Sequence[Built]) -> dict[str, float]:
    """Means a rubric, by the names of the paper's table of graph statistics, and shares over all rubrics."""
    sizes = np.array([[len(b.graph), b.stats.candidates, len(b.graph.edges), len(b.stats.invalid)] for b in built])
    criteria, candidates, edges, invalid = sizes.mean(0).tolist()
    return {
        "criteria": criteria,
        "candidates": candidates,
        "edges": edges,
        "update size": criteria + edges,
        "non-empty (%)": 100 * float((sizes[:, 2] > 0).mean()),
        "invalid": invalid,
        "edges / criterion": edges / criteria,
        "edges / candidate": edges / candidates if candidates else 0.0,
    }


def every_candidate(built: Sequence[Built]) -> list[Built]:
    """The same rubrics if every candidate pair became an edge, of its strongest type, before the projection."""
    made = []
    for each in built:
        criteria = each.graph.criteria
        edges = [
            Edge(criteria[pair.parent].id, criteria[pair.child].id, min(pair.allowed))
            for pair in candidate_pairs([criterion.role for criterion in criteria])
        ]
        kept, _ = project_edges(each.graph.ids, edges)
        made.append(replace(each, graph=RubricGraph(criteria, tuple(kept))))
    return made


def scattered(rubrics: Sequence[PromptRubric], rng: np.random.Generator) -> list[PromptRubric]:
    """The same rubrics with the texts of all criteria exchanged at random, signs of the weights kept together.

    What a judge still connects then, it connects for no reason.
    """
    every = [criterion for each in rubrics for criterion in each.graph.criteria]
    negative = np.array([criterion.weight < 0 for criterion in every])
    source = np.arange(len(every))
    for sign in (False, True):
        places = np.flatnonzero(negative == sign)
        source[places] = rng.permutation(places)
    texts = iter([every[k].text for k in source])
    made = []
    for each in rubrics:
        criteria = [replace(criterion, text=next(texts)) for criterion in each.graph.criteria]
        made.append(replace(each, graph=RubricGraph(criteria, each.graph.edges)))
    return made


@dataclass(frozen=True)
class Agreement:
    """Edges built against edges drawn by hand.

    Attributes:
        built, drawn, both: numbers of edges; `both` without regard to their type.
        same_type: edges of `both` with the same type.
        roles: criteria with the same role;  criteria: all of them.
    """

    built: int
    drawn: int
    both: int
    same_type: int
    roles: int
    criteria: int


def agreement(built: Sequence[Built]) -> Agreement:
    """Agreement summed over all rubrics."""
    counts = np.zeros(6, int)
    for each in built:
        ours = {(edge.parent, edge.child): edge.type for edge in each.graph.edges}
        theirs = {(edge.parent, edge.child): edge.type for edge in each.source.graph.edges}
        common = ours.keys() & theirs.keys()
        roles = [a.role == b.role for a, b in zip(each.graph.criteria, each.source.graph.criteria, strict=True)]
        same = sum(ours[pair] == theirs[pair] for pair in common)
        counts += [len(ours), len(theirs), len(common), same, sum(roles), len(roles)]
    return Agreement(*counts.tolist())


class FaultyJudge:
    """A judge that fails and errs on purpose: an outage, over-long batches, labels that no pair allows, cycles.

    Args:
        judge: whose answers are spoilt.
        broken: children whose pairs never get an answer, alone or in a batch.
        contrary: answer both directions of every pair of foundations with "strong", which must close cycles.
        outlandish: label every pair that allows only an activation "strong", which is invalid.
    """

    def __init__(self, judge: GraphJudge, broken: Iterable[str] = (), contrary=False, outlandish=False):
        self.judge, self.broken = judge, frozenset(broken)
        self.contrary, self.outlandish = contrary, outlandish

    def roles(self, prompt: str, criteria: Sequence) -> Sequence:
        return self.judge.roles(prompt, criteria)

    def labels(self, prompt: str, criteria: Sequence, pairs: Sequence[Pair]) -> list[Label]:
        if bad := sorted(self.broken & {criteria[pair.child].id for pair in pairs}):
            raise JudgeFailed(f"labels: no answer about {', '.join(bad)}")
        return [
            self._spoilt(pair, criteria, label)
            for pair, label in zip(pairs, self.judge.labels(prompt, criteria, pairs), strict=True)
        ]

    def _spoilt(self, pair: Pair, criteria: Sequence, label: Label) -> Label:
        ends = {criteria[pair.parent].role, criteria[pair.child].role}
        if self.outlandish and EdgeType.ACTIVATION in pair.allowed:
            return Label("strong", label.confidence)
        if self.contrary and ends == {Role.FOUNDATION}:
            return Label("strong", label.confidence)
        return label


# -- the audit of the reported numbers of candidates -------------------------------------------------------------------


def compositions(criteria: int) -> list[dict[str, int]]:
    """Every split of a rubric into foundations, others (bonuses and penalties) and triggers, with its candidates."""
    return [
        {
            "foundations": f,
            "triggers": t,
            "others": criteria - f - t,
            "candidates": candidate_count(f, criteria - f - t, t),
        }
        for f in range(criteria + 1)
        for t in range(criteria + 1 - f)
    ]


def most_foundations(mean_candidates: float) -> float:
    """Largest mean number of foundations a rubric that the role rule allows, given the mean number of candidates.

    f foundations are f (f - 1) candidates among themselves, however many other criteria there are; the mean over
    rubrics of a convex function is least when they all have nearly the same f, so that the bound is where its
    piecewise linear form through whole numbers reaches the mean.

    >>> most_foundations(2.0), most_foundations(4.0)
    (2.0, 2.5)
    """
    f = 1
    while (f + 1) * f <= mean_candidates:
        f += 1
    return f + (mean_candidates - f * (f - 1)) / (2 * f)


def foundations_without_triggers(mean_candidates: float, criteria: float) -> float:
    """Mean number of foundations if no criterion is a trigger and all rubrics have this many criteria.

    Then f (f - 1) + f (K - f) = f (K - 1): the candidates tell the foundations.
    """
    return mean_candidates / (criteria - 1)
