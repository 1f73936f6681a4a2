"""Preference pairs over the rubrics of a world, and what retentions learned from them are worth on held-out pairs.

An annotator compares two responses by their true utility, under the true graph and the true retentions, and errs as
Bradley and Terry have it. The fit sees the judge's scores and the graph as it was built, mistakes included: what it
learns is the retention that predicts the annotator best through this judge and this graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprise.labs.rubric_rewards import Method
from reprise.labs.rubric_world import Judge, World, WorldError, built_graphs, make_world
from reprise.rubric.batch import compile_batch
from reprise.rubric.graph import RubricGraph
from reprise.rubric.preferences import Pair
from reprise.rubric.retention import DEFAULT_RETENTION
from reprise.rubric.retention_fit import Level, RetentionFit, fit_retention

SHARPNESS = 10.0  # of the annotator: a utility difference of 0.1 is preferred 73 times in 100
# exponent on the fixed values; None: every edge has its own
TRUTHS = {"fixed values": 1.0, "weaker types": 0.25, "stronger types": 4.0, "own edges": None}
EDGE_SPREAD = 1.5  # standard deviation of the logit of an edge's true retention, where edges have their own
MARGIN = 0.05  # retentions 0 and 1 have no logit
MOST_PAIRS = 2400  # drawn for every fit, so that fewer pairs are the first of more


@dataclass(frozen=True)
class Condition:
    """Where preferences come from and what the fit sees of them.

    Attributes:
        truth: one of TRUTHS, see `true_retentions`.
        judge: whose scores the pairs carry.
        edge_error: share of edges in the wrong place of the graphs that the pairs carry.
        prompts: of a rubric set.
        held_out: pairs that no fit sees.
        draws: from each posterior.
    """

    truth: str
    judge: Judge
    edge_error: float = 0.0
    prompts: int = 12
    held_out: int = 600
    draws: int = 200

    def __post_init__(self):
        if self.truth not in TRUTHS:
            raise WorldError(f"truth={self.truth!r}: expected one of {', '.join(TRUTHS)}")


def true_retentions(graph: RubricGraph, truth: str, rng: np.random.Generator) -> RubricGraph:
    """The graph with the retentions the annotator goes by.

    Args:
        truth: "fixed values" as the aggregator has them; "weaker types" and "stronger types" are their powers 0.25
            and 4 (activation stays 0); "own edges" draws each edge's logit around its type's with EDGE_SPREAD.
    """
    values = np.array([DEFAULT_RETENTION[edge.type] for edge in graph.edges])
    if TRUTHS[truth] is None:
        centre = np.clip(values, MARGIN, 1 - MARGIN)
        logits = np.log(centre / (1 - centre)) + EDGE_SPREAD * rng.standard_normal(len(values))
        values = 1 / (1 + np.exp(-logits))
    else:
        values = values ** TRUTHS[truth]
    edges = [replace(edge, retention=float(value)) for edge, value in zip(graph.edges, values, strict=True)]
    return RubricGraph(graph.criteria, edges)


def draw_pairs(
    world: World,
    pairs: int,
    rng: np.random.Generator,
    *,
    truth: Sequence[RubricGraph],
    built: Sequence[RubricGraph],
    judge: Judge,
) -> list[Pair]:
    """Compared responses, spread evenly over a world's prompts. Every criterion is met with probability one half.

    Args:
        world: decides which parents the judge is blind to.
        pairs: their number.
        truth: the graph the annotator goes by, for each prompt.
        built: the graph that the pairs carry, for each prompt.
    """
    each = -(-pairs // len(truth))
    shape = (len(truth), len(truth[0]), 2 * each)
    events = rng.random(shape) < 0.5
    program = compile_batch(truth, inference="exact")
    utility = program.reward(program.marginals(events.astype(float).reshape(-1, 2 * each)))
    first_wins = rng.random((len(truth), each)) < 1 / (1 + np.exp(-SHARPNESS * (utility[:, :each] - utility[:, each:])))
    scores = judge.scores(events & ~world.unseen(judge)[:, :, None], rng.standard_normal(shape))
    order = [(c, x) for c in range(each) for x in range(len(truth))][:pairs]
    sides = [(c, each + c) if first_wins[x, c] else (each + c, c) for c, x in order]
    return [Pair(built[x], scores[x, :, a], scores[x, :, b]) for (_, x), (a, b) in zip(order, sides, strict=True)]


def fit_world(
    seed: int, pairs: int, levels: Iterable[Level | str], condition: Condition
) -> tuple[dict[str, RetentionFit], list[Pair]]:
    """Fits from `pairs` preferences over one rubric set, by level, and the pairs that they have not seen.

    More pairs contain the fewer; the held-out ones are the same for all.
    """
    world = make_world(seed, condition.prompts)
    rng = np.random.default_rng([seed, 4])
    graphs = [true_retentions(graph, condition.truth, rng) for graph in world.graphs]
    how = {"truth": graphs, "built": built_graphs(world, condition.edge_error), "judge": condition.judge}
    held = draw_pairs(world, condition.held_out, np.random.default_rng([seed, 5]), **how)
    seen = draw_pairs(world, MOST_PAIRS, np.random.default_rng([seed, 6]), **how)[:pairs]
    return {str(level): fit_retention(seen, level, draws=condition.draws, seed=seed) for level in levels}, held


def learning_curve(seeds: Iterable[int], sizes: Iterable[int], condition: Condition) -> list[dict]:
    """How well held-out preferences are predicted, at every level of sharing.

    Returns:
        one row a rubric set, number of pairs and level: seed, truth, pairs, level, log_loss (mean over the held-out
        pairs, in nats), accuracy, and gain: how much lower the log loss is than that of the fixed values, whose
        sharpness is fitted on the same pairs.
    """
    rows = []
    for seed in seeds:
        for size in sizes:
            fits, held = fit_world(seed, size, Level, condition)
            chances = {level: fit.probabilities(held) for level, fit in fits.items()}
            losses = {level: float(-np.log(chance).mean()) for level, chance in chances.items()}
            setting = {"seed": seed, "truth": condition.truth, "pairs": size}
            rows += [
                setting
                | {
                    "level": level,
                    "log_loss": loss,
                    "accuracy": float((chances[level] > 0.5).mean()),
                    "gain": losses[Level.FIXED] - loss,
                }
                for level, loss in losses.items()
            ]
    return rows


def learned_methods(
    seeds: Iterable[int], pairs: int, levels: Iterable[Level | str], condition: Condition
) -> list[Method]:
    """GEAR with retentions learned from each rubric set's own preference pairs, one method a level."""
    levels = tuple(map(str, levels))
    fits = {seed: fit_world(seed, pairs, levels, condition)[0] for seed in seeds}

    def at(level: str) -> Method:
        return Method(f"learned, {level}", graph=lambda graph, seed, prompt: fits[seed][level].apply(graph))

    return [at(level) for level in levels]
