"""Methods are paired and independent of their company; controls coincide; utilities are those of an enumeration."""

from itertools import product

import numpy as np
import pytest

from reprise.labs import rubric_rewards as rr
from reprise.labs.rubric_rl import Setting, train
from reprise.labs.rubric_truth import SWEEP, Truth
from reprise.labs.rubric_world import CRITERIA, Judge, WorldError, make_world
from reprise.rubric.aggregate import aggregate
from reprise.rubric.retention import DEFAULT_RETENTION

SMALL = Setting(prompts=3, policies=1, steps=12, every=12, samples=16)


def at_end(rows, metric="typed"):
    return {(row["method"], row["seed"]): row[metric] for row in rows if row["step"] == SMALL.steps}


def enumerated(graph, met, retention):
    """Utility of met criteria by summing over all outcomes of the graph's events."""
    scale = sum(weight for weight in graph.weights if weight > 0)
    free = [k for k in range(len(graph)) if met[k] and graph.parents[k]]
    total = 0.0
    for outcome in product((0, 1), repeat=len(free)):
        events = np.array(met, dtype=float)
        events[free] = outcome
        chance = 1.0
        for k in free:
            alpha = np.prod([retention[graph.edges[e].type] ** (1 - events[j]) for j, e in graph.parents[k]])
            chance *= alpha if events[k] else 1 - alpha
        total += chance * float(events @ graph.weights)
    return 100 * total / scale


@pytest.mark.parametrize("exponent", [1.0, 0.5, 4.0])
def test_utility_is_that_of_the_enumerated_events(exponent):
    world = make_world(1, prompts=3)
    events = np.random.default_rng(0).random((3, CRITERIA, 2)) < 0.6
    measured = Truth([world], policies=1).measure(events, sweep=True)
    retention = {kind: value**exponent for kind, value in DEFAULT_RETENTION.items()}
    for x, graph in enumerate(world.graphs):
        expected = np.mean([enumerated(graph, events[x, :, r], retention) for r in range(2)])
        assert measured[f"truth_{exponent:g}"][x] == pytest.approx(expected, abs=1e-10)


def test_the_ends_of_the_sweep_are_plain_and_strict():
    world = make_world(2, prompts=4)
    events = np.random.default_rng(1).random((4, CRITERIA, 32)) < 0.5
    measured = Truth([world], policies=1).measure(events, sweep=True)
    assert SWEEP[0] == 0 and measured["truth_0"] == pytest.approx(measured["plain"], abs=1e-12)
    assert measured["truth_1"] == pytest.approx(measured["typed"], abs=1e-12)
    for x, graph in enumerate(world.graphs):
        licensed = aggregate(graph, events[x].T.astype(float), method="hard_transitive")
        assert measured["strict"][x] == pytest.approx(100 * licensed.reward.mean(), abs=1e-10)
        weights = np.array(graph.weights)
        lost = ((events[x].T - licensed.q) * abs(weights)).sum(-1) / weights[weights > 0].sum()
        assert measured["leaked"][x] == pytest.approx(100 * lost.mean(), abs=1e-10)


@pytest.mark.parametrize("rule", rr.RULES)
def test_a_method_gives_the_reward_of_aggregate(rule):
    worlds = [make_world(seed, prompts=2) for seed in (1, 2)]
    rewards = rr.Rewards([rr.GEAR, rr.Method(rule, rule)], worlds, edge_error=0.0, policies=2)
    scores = np.random.default_rng(3).random((2 * 2 * 2 * 2, CRITERIA, 5))
    found = rewards(scores).reshape(2, 2, 2, 2, 5)  # method, rubric set, policy, prompt, response
    how = (
        {"method": "gear", "rule": rule} if rule in ("product", "geometric", "arithmetic", "max") else {"method": rule}
    )
    for s, policy, x in product(range(2), repeat=3):
        own = scores.reshape(2, 2, 2, 2, CRITERIA, 5)[1, s, policy, x].T
        assert found[1, s, policy, x] == pytest.approx(aggregate(worlds[s].graphs[x], own, **how).reward, abs=1e-12)


def test_a_rubric_sets_rows_depend_on_itself_alone():
    alone = at_end(train([8], [rr.GEAR], SMALL))
    together = at_end(train([7, 8], [rr.HARD, rr.GEAR], SMALL))
    assert together["GEAR", 8] == pytest.approx(alone["GEAR", 8], abs=1e-12)


def test_suppressing_nothing_is_flat_whichever_way_it_is_said():
    off = rr.switched_off((rr.HARD, *rr.GAMMAS[1:], *rr.PARENT_RULES[:-1]))
    rows = at_end(train([5], (rr.FLAT, rr.GAMMAS[0], *off), SMALL))
    assert list(rows.values()) == pytest.approx([rows["flat", 5]] * len(rows), abs=1e-12)
    assert len(rows) == 11


def test_training_raises_what_the_reward_stands_for():
    setting = Setting(judge=Judge(sigma=0.0), edge_error=0.0, prompts=4, policies=1, steps=60, every=60)
    rows = {(r["method"], r["step"]): r for r in train([3, 4], [rr.FLAT, rr.HARD, rr.GEAR], setting)}
    assert rows["flat", 60]["plain"] > rows["flat", 0]["plain"] + 5
    assert rows["GEAR", 60]["typed"] > rows["GEAR", 0]["typed"] + 5
    assert rows["flat", 60]["leaked"] > rows["GEAR", 60]["leaked"] > rows["hard", 60]["leaked"]
    # all methods start from the same policy and the same samples
    assert rows["flat", 0] | {"method": ""} == rows["hard", 0] | {"method": ""}


def test_graph_changes_keep_what_they_promise():
    graph = make_world(6).graphs[0]
    kinds = sorted(edge.type for edge in graph.edges)
    assert sorted(edge.type for edge in rr.rewired(graph, 6, 0).edges) == kinds
    assert rr.rewired(graph, 6, 0) != rr.rewired(graph, 6, 1)
    assert {(e.parent, e.child) for e in rr.untyped(graph, 6, 0).edges} == {(e.parent, e.child) for e in graph.edges}
    assert len({edge.retention for edge in rr.untyped(graph, 6, 0).edges}) == 1


def test_an_unknown_rule_is_refused():
    with pytest.raises(WorldError, match="^rule='soft'"):
        rr.Method("mine", rule="soft")
