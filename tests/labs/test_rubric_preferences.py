"""Simulated annotators prefer what is worth more; learned retentions pay where the fixed ones are wrong."""

import numpy as np
import pytest

from reprise.labs import rubric_preferences as rp
from reprise.labs.rubric_world import Judge, WorldError, built_graphs, make_world
from reprise.rubric.aggregate import aggregate
from reprise.rubric.retention import DEFAULT_RETENTION

WORLD = make_world(11, prompts=4)
EXACT = Judge(sigma=0.0, unmet=(0.0,), met=(1.0,))  # the judge's score is the event itself


def pairs(count, seed=0, judge=EXACT):
    built = built_graphs(WORLD, 0.0)
    rng = np.random.default_rng(seed)
    return rp.draw_pairs(WORLD, count, rng, truth=WORLD.graphs, built=built, judge=judge)


def test_pairs_are_spread_over_the_prompts_and_carry_the_graph_that_was_built():
    drawn = pairs(10)
    assert [pair.graph for pair in drawn] == [WORLD.graphs[n % 4] for n in range(10)]


def test_the_annotator_follows_bradley_and_terry():
    margins = []
    for pair in pairs(1600):
        reward = aggregate(pair.graph, np.array([pair.chosen, pair.rejected]), inference="exact").reward
        margins.append(reward[0] - reward[1])
    margins = np.array(margins)
    for low, high in [(0.02, 0.08), (0.1, 0.16), (0.2, 0.3)]:
        wins, losses = ((margins > low) & (margins < high)).sum(), ((-margins > low) & (-margins < high)).sum()
        expected = 1 / (1 + np.exp(-rp.SHARPNESS * (low + high) / 2))
        assert wins / (wins + losses) == pytest.approx(expected, abs=0.08)


@pytest.mark.parametrize("truth, exponent", [("fixed values", 1.0), ("weaker types", 0.25), ("stronger types", 4.0)])
def test_a_truth_by_type_is_a_power_of_the_fixed_values(truth, exponent):
    graph = rp.true_retentions(WORLD.graphs[0], truth, np.random.default_rng(0))
    assert [e.retention for e in graph.edges] == pytest.approx(
        [DEFAULT_RETENTION[e.type] ** exponent for e in graph.edges]
    )


def test_own_edges_differ_within_a_type():
    graph = rp.true_retentions(WORLD.graphs[0], "own edges", np.random.default_rng(0))
    assert len({edge.retention for edge in graph.edges}) == len(graph.edges)
    assert all(0 < edge.retention < 1 for edge in graph.edges)


def test_an_unknown_truth_is_refused():
    with pytest.raises(WorldError, match="^truth='none'"):
        rp.Condition("none", EXACT)


def test_fewer_pairs_are_the_first_of_more():
    condition = rp.Condition("fixed values", Judge(), prompts=2, held_out=4, draws=5)
    few, many = (rp.fit_world(11, n, ["fixed"], condition) for n in (6, 12))
    assert all((a.chosen == b.chosen).all() for a, b in zip(few[1], many[1], strict=True))
    assert few[0]["fixed"].seen == 6 and many[0]["fixed"].seen == 12


def test_learning_pays_where_the_fixed_values_are_wrong():
    condition = rp.Condition("stronger types", Judge(), prompts=4, held_out=400, draws=60)
    rows = rp.learning_curve([11, 12], [300], condition)
    assert min(row["gain"] for row in rows if row["level"] == "type") > 0
    assert all(row["gain"] == 0 for row in rows if row["level"] == "fixed")


def test_a_learned_method_gives_the_aggregator_the_posterior_means():
    condition = rp.Condition("fixed values", Judge(), prompts=2, held_out=2, draws=10)
    (method,) = rp.learned_methods([11], 20, ["type"], condition)
    fit = rp.fit_world(11, 20, ["type"], condition)[0]["type"]
    changed = method.graph(WORLD.graphs[0], 11, 0)
    learned = dict(zip(fit.groups, fit.mean().tolist(), strict=True))
    assert [edge.retention for edge in changed.edges] == [learned[edge.type] for edge in changed.edges]
