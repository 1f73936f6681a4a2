"""The rewards that are compared, one rule a method, for the rubrics of all rubric sets at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprise.labs.rubric_world import World, WorldError, built_graphs
from reprise.rubric.batch import compile_batch
from reprise.rubric.graph import RubricGraph
from reprise.rubric.rewire import rewire_random, untype

RULES = ("flat", "hard", "hard_transitive", "product", "geometric", "arithmetic", "max")
# what an aggregator is given in place of a graph as it was built, the set's seed and the prompt's number
Change = Callable[[RubricGraph, int, int], RubricGraph]


def as_built(graph: RubricGraph, seed: int, prompt: int) -> RubricGraph:
    """The graph as it was built, mistakes included."""
    return graph


def rewired(graph: RubricGraph, seed: int, prompt: int) -> RubricGraph:
    """As many edges of each type between random pairs: the control in which the graph means nothing."""
    return rewire_random(graph, seed=1000 * seed + prompt)


def untyped(graph: RubricGraph, seed: int, prompt: int) -> RubricGraph:
    """The same edges, all with the mean retention of the graph."""
    return untype(graph)


def untyped_rewired(graph: RubricGraph, seed: int, prompt: int) -> RubricGraph:
    """Random edges without types."""
    return untype(rewired(graph, seed, prompt))


def without_effect(graph: RubricGraph, seed: int, prompt: int) -> RubricGraph:
    """The control in which every retention is 1: nothing is suppressed."""
    return untype(graph, retention=1.0)


@dataclass(frozen=True)
class Method:
    """How scores become a reward.

    Attributes:
        name: in tables and figures.
        rule: one of RULES.
        graph: what the aggregator is given.
        gamma: exponent on the retentions.
    """

    name: str
    rule: str = "product"
    graph: Change = as_built
    gamma: float = 1.0

    def __post_init__(self):
        if self.rule not in RULES:
            raise WorldError(f"rule={self.rule!r}: expected one of {', '.join(RULES)}")


# table 4's rows and what else this world is asked about
FLAT = Method("flat", "flat")
HARD = Method("hard", "hard")
GEAR = Method("GEAR")
UNTYPED = Method("untyped", graph=untyped)
RANDOM = Method("random", graph=rewired)
MAIN = (FLAT, HARD, GEAR, UNTYPED, RANDOM)
# the same aggregators given a graph that means nothing
REWIRED = (Method("hard, rewired", "hard", rewired), Method("untyped, rewired", graph=untyped_rewired))

GAMMAS = tuple(Method(f"gamma {gamma:g}", gamma=gamma) for gamma in (0.0, 0.5, 1.0, 2.0, 4.0))  # table 18
PARENT_RULES = tuple(
    Method(rule, rule) for rule in ("product", "geometric", "arithmetic", "max", "flat")
)  # section 4.7


def switched_off(methods: Iterable[Method]) -> tuple[Method, ...]:
    """The same methods with every retention 1, where nothing is suppressed; hard gating knows no retention."""
    return tuple(
        replace(method, rule="flat") if method.rule.startswith("hard") else replace(method, graph=without_effect)
        for method in methods
    )


class Rewards:
    """Rewards of a row of lanes, methods x rubric sets x policies x prompts, each lane with its own graph.

    Args:
        methods: outermost in the row.
        worlds: the rubric sets.
        edge_error: share of edges in the wrong place of the graphs that are built.
        policies: repetitions of each set's prompts.
    """

    def __init__(self, methods: Sequence[Method], worlds: Sequence[World], edge_error: float, policies: int):
        built = [built_graphs(world, edge_error) for world in worlds]
        self.rules = [_rule(method, worlds, built, policies) for method in methods]

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """[lanes, responses] rewards of [lanes, criteria, responses] scores."""
        parts = scores.reshape(len(self.rules), -1, *scores.shape[1:])
        return np.concatenate([rule(part) for rule, part in zip(self.rules, parts, strict=True)])


def _rule(method: Method, worlds: Sequence[World], built, policies: int) -> Callable[[np.ndarray], np.ndarray]:
    """[lanes of one method, criteria, responses] scores -> [lanes, responses] rewards."""
    program = compile_batch(
        [
            graph
            for world, own in zip(worlds, built, strict=True)
            for graph in [method.graph(graph, world.seed, x) for x, graph in enumerate(own)] * policies
        ]
    )
    credited = {
        "flat": lambda p: p,
        "hard": program.hard,
        "hard_transitive": lambda p: program.hard(p, transitive=True),
    }.get(method.rule, lambda p: program.marginals(p, gamma=method.gamma, rule=method.rule))
    return lambda scores: program.reward(credited(scores.reshape(-1, scores.shape[-1])))
