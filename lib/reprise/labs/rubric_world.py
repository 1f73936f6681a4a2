"""A world of rubrics: random typed graphs with the reported statistics, responses made of segments, a noisy judge.

A response is a handful of segments. A criterion is met when its segments occur: one segment for a leaf, two for a
criterion that others depend on, so that prerequisites are expensive and a short response has to choose. Whether a met
criterion counts is decided by the rubric's typed graph; the judge sees each criterion alone, with noise, and never the
graph. Scores have the layout [prompts, criteria, responses] throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from reprise.errors import RepriseError
from reprise.rubric.graph import Criterion, Edge, EdgeType, RubricGraph

# GEAR, section 4.7: dependent criteria have 1.37 parents on average; 70.0 % one, 24.4 % two, 5.6 % three or more. The
# last group averages 3.25, which a quarter of four-parent criteria gives
PARENTS = {1: 0.70, 2: 0.244, 3: 0.042, 4: 0.014}
# the paper does not report how often each type occurs; our choice
TYPE_MIX = {EdgeType.WEAK: 0.55, EdgeType.STRONG: 0.30, EdgeType.ACTIVATION: 0.15}
CRITERIA = 10  # HealthBench has 11.48 criteria and 10.92 edges on average (table 3)
EDGES = 9
PENALTIES = 2
WEIGHTS = (1, 10)
FILLERS = 6  # segments that meet no criterion
PRECISION = 0.917  # share of audited edges that are right (section 4.7)


class WorldError(RepriseError):
    """A share or count outside its range."""


@dataclass(frozen=True)
class Judge:
    """How a criterion's score comes about: from a formula, or from scores measured on a real judge.

        p = sigmoid(2 (2 C - 1) + sigma z + bias),    z standard normal

    Attributes:
        sigma: spread of the judge's log-odds around ±2.
        bias: shift of the log-odds; below 0 the judge is strict.
        blind: share of the parents that it never recognises: for those C is always 0 to it.
        unmet, met: measured scores of criteria that do not hold and that do; where given, a score is their quantile at
            z instead of the formula.
    """

    sigma: float = 1.0
    bias: float = 0.0
    blind: float = 0.0
    unmet: tuple[float, ...] = field(default=(), repr=False)
    met: tuple[float, ...] = field(default=(), repr=False)

    def __post_init__(self):
        if not 0 <= self.blind <= 1:
            raise WorldError(f"blind={self.blind}: expected a share in [0, 1]")
        if not self.sigma >= 0:
            raise WorldError(f"sigma={self.sigma}: expected at least 0")
        if bool(self.unmet) != bool(self.met):
            raise WorldError(f"unmet: {len(self.unmet)} scores, met: {len(self.met)}: expected both or neither")

    def scores(self, events: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Scores in [0, 1] for met criteria `events`, one standard normal draw of `noise` each."""
        if self.met:
            from scipy.special import ndtr

            level = ndtr(noise).ravel()
            of_met, of_unmet = (np.quantile(scores, level).reshape(noise.shape) for scores in (self.met, self.unmet))
            return np.where(events, of_met, of_unmet)
        return 1 / (1 + np.exp(-(4.0 * events - 2.0 + self.sigma * noise + self.bias)))


@dataclass(frozen=True)
class World:
    """The prompts of one rubric set. Criteria stand in topological order.

    Attributes:
        graphs: the true typed graph of each prompt.
        leaf: [prompts, criteria] bool; True where no criterion depends on it.
        blindness: [prompts, criteria] uniform draws; a judge is blind to the parents below its share, so that what a
            judge with few blind spots misses, one with more misses too.
        seed: of the rubric set.
    """

    graphs: tuple[RubricGraph, ...]
    leaf: np.ndarray
    blindness: np.ndarray
    seed: int

    def unseen(self, judge: Judge) -> np.ndarray:
        """[prompts, criteria] bool: the parents this judge never recognises."""
        return ~self.leaf & (self.blindness < judge.blind)


def make_world(seed: int, prompts: int = 12) -> World:
    """One rubric set: `prompts` random rubrics that depend on the seed alone."""
    rng = np.random.default_rng([seed, 0])
    graphs = tuple(random_rubric(rng) for _ in range(prompts))
    leaf = np.ones((prompts, CRITERIA), dtype=bool)
    for row, graph in zip(leaf, graphs, strict=True):
        row[[int(edge.parent) for edge in graph.edges]] = False
    return World(graphs, leaf, rng.random((prompts, CRITERIA)), seed)


def random_rubric(rng: np.random.Generator) -> RubricGraph:
    """A rubric of ten criteria whose graph follows PARENTS and TYPE_MIX, nine edges on average.

    The first three or four criteria depend on nothing; each later one has parents drawn among those before it. Two
    dependent leaves are penalties. Weights are whole points from 1 to 10.
    """
    mean_parents = sum(count * share for count, share in PARENTS.items())
    dependents, more = divmod(EDGES / mean_parents, 1)
    while True:
        first = CRITERIA - int(dependents) - int(rng.random() < more)
        counts = rng.choice(list(PARENTS), size=CRITERIA - first, p=list(PARENTS.values()))
        parents = [
            np.sort(rng.choice(child, size=min(count, child), replace=False))
            for child, count in enumerate(counts, start=first)
        ]
        leaves = np.setdiff1d(np.arange(first, CRITERIA), np.concatenate(parents))
        if len(leaves) >= PENALTIES:
            break
    weights = rng.integers(WEIGHTS[0], WEIGHTS[1] + 1, CRITERIA)
    weights[rng.choice(leaves, PENALTIES, replace=False)] *= -1
    types = list(TYPE_MIX)
    edges = [
        Edge(str(parent), str(child), types[rng.choice(len(types), p=list(TYPE_MIX.values()))])
        for child, group in enumerate(parents, start=first)
        for parent in group
    ]
    return RubricGraph([Criterion(str(i), float(weight)) for i, weight in enumerate(weights)], edges)


def misplace(graph: RubricGraph, share: float, rng: np.random.Generator) -> RubricGraph:
    """The graph as a builder with mistakes would draw it: each edge moved to another pair with probability `share`.

    A moved edge keeps its type; the pair is drawn among the ordered pairs that hold no edge, parent before child, so
    that the graph stays acyclic. As many draws are taken whatever the share is: a higher share moves more of the same
    edges.
    """
    if not 0 <= share <= 1:
        raise WorldError(f"share={share}: expected a share in [0, 1]")
    size = len(graph.criteria)
    taken = {(int(edge.parent), int(edge.child)) for edge in graph.edges}
    edges = []
    for edge in graph.edges:
        moved, place = rng.random() < share, rng.random()
        if moved:
            free = [(j, i) for i in range(size) for j in range(i) if (j, i) not in taken]
            pair = free[int(place * len(free))]
            taken.add(pair)
            edge = Edge(str(pair[0]), str(pair[1]), edge.type, edge.retention)
        edges.append(edge)
    return RubricGraph(graph.criteria, edges)


def built_graphs(world: World, edge_error: float) -> list[RubricGraph]:
    """The graphs that an aggregator is given: the true ones with a share of the edges in the wrong place."""
    return [
        misplace(graph, edge_error, np.random.default_rng([world.seed, 1, x])) for x, graph in enumerate(world.graphs)
    ]


def segments(criteria: int = CRITERIA) -> int:
    """Size of the vocabulary: two segments a criterion and the fillers."""
    return 2 * criteria + FILLERS


def met(tokens: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    """Which criteria the responses meet by themselves, before any dependency.

    Criterion i needs segment 2 i, and segment 2 i + 1 too if others depend on it.

    Args:
        tokens: [prompts, slots, responses] segment numbers.
        leaf: [prompts, criteria] bool.

    Returns:
        [prompts, criteria, responses] bool.
    """
    prompts, _, responses = tokens.shape
    criteria = leaf.shape[1]
    present = np.zeros((prompts, segments(criteria), responses), dtype=bool)
    present[np.arange(prompts)[:, None, None], tokens, np.arange(responses)] = True
    return present[:, 0 : 2 * criteria : 2] & (present[:, 1 : 2 * criteria : 2] | leaf[:, :, None])
