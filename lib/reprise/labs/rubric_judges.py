"""Judges and policies for measuring false credit: populations of scored responses, and a training log with a farmer.

A population says how often a policy meets criteria and what the judge makes of it; the rubrics are those of
`reprise.labs.rubric_world`. Every population is scored under every aggregation, so that differences between
aggregations are paired.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from reprise.durable import atomic_writer
from reprise.labs.rubric_world import TYPE_MIX, Judge, random_rubric
from reprise.rubric.batch import PackedProgram, compile_batch
from reprise.rubric.graph import EdgeType, RubricGraph
from reprise.rubric.leakage import EDGE_TYPES, FCPReport, Scored, fcp_metrics

GAMMAS = (0.0, 0.5, 1.0, 2.0, 4.0)  # GEAR, table 18
MET_AT = 0.7  # from which score on the public code's reward for graded benchmarks counts a criterion as met


@dataclass(frozen=True)
class Population:
    """Where scores come from.

    Attributes:
        met: probability that the policy meets a criterion by itself; used with `judge`.
        judge: turns events into scores; None where `beta` is given.
        beta: scores drawn from Beta(a, b) instead, whatever the response does.
    """

    met: float = 0.6
    judge: Judge | None = None
    beta: tuple[float, float] | None = None

    def scores(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Scores in [0, 1] of that shape."""
        if self.beta is not None:
            return rng.beta(*self.beta, shape)
        events = rng.random(shape) < self.met
        return self.judge.scores(events, rng.standard_normal(shape))


# our choice, before any of them was measured: a sharp and a blurred judge, a policy that rarely meets anything, and
# two shapes of scores without any events behind them
POPULATIONS: Mapping[str, Population] = {
    "sharp judge": Population(0.6, Judge(sigma=0.5)),
    "noisy judge": Population(0.6, Judge(sigma=2.0)),
    "weak policy": Population(0.25, Judge(sigma=1.0)),
    "uniform scores": Population(beta=(1.0, 1.0)),
    "U-shaped scores": Population(beta=(0.4, 0.4)),
}
# shares of weak, strong and activation edges
MIXES: Mapping[str, Mapping[EdgeType, float]] = {
    "mixed": TYPE_MIX,
    "mostly weak": {EdgeType.WEAK: 0.8, EdgeType.STRONG: 0.15, EdgeType.ACTIVATION: 0.05},
    "mostly strong": {EdgeType.WEAK: 0.15, EdgeType.STRONG: 0.8, EdgeType.ACTIVATION: 0.05},
}


@dataclass(frozen=True)
class Corpus:
    """Rubrics and scores: rows of `p` are the criteria of all graphs one after another, columns are responses."""

    program: PackedProgram
    p: np.ndarray

    @property
    def graphs(self) -> tuple[RubricGraph, ...]:
        return self.program.graphs

    def marginals(self, gamma: float, suppressing: bool = True) -> np.ndarray:
        """[rows, responses] under the linear update; with `suppressing=False` every retention is 1."""
        retention = None if suppressing else dict.fromkeys(EdgeType, 1.0)
        return self.program.marginals(self.p, retention, gamma)


def make_rubrics(count: int, mix: Mapping[EdgeType, float], seed: int) -> list[RubricGraph]:
    """Random rubrics whose edge types follow `mix`; wiring and weights do not depend on it."""
    rng, types = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    kinds, shares = list(mix), list(mix.values())
    made = []
    for _ in range(count):
        graph = random_rubric(rng)
        drawn = types.choice(len(kinds), len(graph.edges), p=shares)
        made.append(
            RubricGraph(graph.criteria, [replace(e, type=kinds[k]) for e, k in zip(graph.edges, drawn, strict=True)])
        )
    return made


def score(graphs: Sequence[RubricGraph], population: Population, responses: int, seed: int) -> Corpus:
    """`responses` scored responses to each rubric."""
    program = compile_batch(graphs)
    return Corpus(program, population.scores((len(program.ids), responses), np.random.default_rng([seed, 2])))


def aggregations(corpus: Corpus, gammas: Iterable[float], suppressing: bool = True) -> dict[str, np.ndarray]:
    """[rows, responses] paid under each aggregation: "hard", "hard, transitive", "hard, met at 0.7", "gear 0.5", ..."""
    hard = corpus.program.hard
    return {
        "hard": hard(corpus.p, 0.5, transitive=False),
        "hard, transitive": hard(corpus.p, 0.5, transitive=True),
        "hard, met at 0.7": hard(corpus.p, MET_AT, transitive=False),
        **{f"gear {gamma:g}": corpus.marginals(gamma, suppressing) for gamma in gammas},
    }


def measure(
    corpus: Corpus,
    gammas: Iterable[float] = GAMMAS,
    suppressing: bool = True,
    edge_types: Sequence[str] | str = EDGE_TYPES,
    resamples: int = 200,
    seed: int = 0,
) -> FCPReport:
    """Leakage and preservation of every aggregation; the bootstrap draws rubrics."""
    paid = aggregations(corpus, gammas, suppressing)
    records = [
        Scored(graph, corpus.p[rows].T, {name: q[rows].T for name, q in paid.items()}, str(number))
        for number, (graph, rows) in enumerate(zip(corpus.graphs, corpus.program.rows, strict=True))
    ]
    return fcp_metrics(records, edge_types=edge_types, cluster="prompt", resamples=resamples, seed=seed)


# -- a training log ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    """What the writer of a log did: (prompt, criterion) of the one farmed, and of one that leaks all along."""

    farmed: tuple[str, str]
    constant: tuple[str, str]


def write_log(
    path: str | Path, seed: int = 0, prompts: int = 48, steps: int = 40, rollouts: int = 8, farming: bool = True
) -> Planted:
    """A training log in the public code's layout, one line a response, paid by the flat sum.

    Every criterion is met by half of the responses. Over training the policy learns to meet one dependent criterion of
    one prompt without what licenses it; another dependent criterion is met without its parents from the start.

    Args:
        path: file to write.
        farming: False leaves the policy as it was at the start: the control.
    """
    rng = np.random.default_rng([seed, 3])
    graphs = make_rubrics(prompts, TYPE_MIX, seed)
    planted = [(x, *_plantable(graph, rng)) for x, graph in enumerate(graphs[:2])]
    with atomic_writer(path) as file:
        for step in range(steps):
            trained = step / (steps - 1) if farming else 0.0
            for x, graph in enumerate(graphs):
                met = np.full(len(graph), 0.5)
                for prompt, child, parents in planted:
                    if prompt == x:
                        met[parents] = 0.1
                        met[child] = 0.1 + 0.8 * trained if prompt == 0 else 0.9
                lines = [_line(graph, f"q{x}", step, met, rng) for _ in range(rollouts)]
                file.write("".join(lines).encode())
    return Planted(*((f"q{x}", graphs[x].ids[child]) for x, child, _ in planted))


def _plantable(graph: RubricGraph, rng: np.random.Generator) -> tuple[int, list[int]]:
    """A child of positive weight with a weak or strong edge, and all its parents."""
    children = [
        i
        for i, above in enumerate(graph.parents)
        if graph.weights[i] > 0 and any(graph.edges[k].type in EDGE_TYPES for _, k in above)
    ]
    child = int(rng.choice(children))
    return child, [j for j, _ in graph.parents[child]]


def _line(graph: RubricGraph, prompt: str, step: int, met: np.ndarray, rng: np.random.Generator) -> str:
    p = Judge().scores(rng.random(len(met)) < met, rng.standard_normal(len(met))).round(4).tolist()
    edges = [{"parent": e.parent, "child": e.child, "type": str(e.type)} for e in graph.edges]
    record = {"prompt_id": prompt, "step": step, "rubric_ids": graph.ids, "rubric_weights": graph.weights, "p_list": p}
    return json.dumps({**record, "q_list": p, "graph_edges": edges}) + "\n"
