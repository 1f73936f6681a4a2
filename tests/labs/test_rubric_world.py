"""The random rubrics have the reported statistics; criteria are met by their segments; the judge is what it says."""

from collections import Counter

import numpy as np
import pytest

from reprise.labs import rubric_world as world
from reprise.labs.rubric_world import Judge, WorldError

RUBRICS = [graph for seed in range(40) for graph in world.make_world(seed).graphs]


def test_graphs_have_the_reported_statistics():
    parents = [len(above) for graph in RUBRICS for above in graph.parents if above]
    share = {count: parents.count(count) / len(parents) for count in (1, 2)}
    assert share[1] == pytest.approx(0.700, abs=0.03)
    assert share[2] == pytest.approx(0.244, abs=0.03)
    assert np.mean(parents) == pytest.approx(1.37, abs=0.04)
    assert np.mean([len(graph.edges) for graph in RUBRICS]) == pytest.approx(world.EDGES, abs=0.4)
    types = Counter(edge.type for graph in RUBRICS for edge in graph.edges)
    for kind, expected in world.TYPE_MIX.items():
        assert types[kind] / types.total() == pytest.approx(expected, abs=0.03)


def test_each_rubric_is_valid_and_has_two_penalties_that_are_dependent_leaves():
    for graph in RUBRICS[:60]:
        graph.validate()
        assert len(graph) == world.CRITERIA
        negative = [k for k, weight in enumerate(graph.weights) if weight < 0]
        assert len(negative) == world.PENALTIES
        parents = {int(edge.parent) for edge in graph.edges}
        assert all(graph.parents[k] and k not in parents for k in negative)
        assert all(1 <= abs(weight) <= 10 for weight in graph.weights)


def test_a_world_depends_on_its_seed_alone():
    again, other = world.make_world(3), world.make_world(4)
    assert [g.fingerprint() for g in world.make_world(3).graphs] == [g.fingerprint() for g in again.graphs]
    assert again.graphs[0].fingerprint() != other.graphs[0].fingerprint()
    # a smaller set is the beginning of a larger one
    assert [g.fingerprint() for g in world.make_world(3, 4).graphs] == [g.fingerprint() for g in again.graphs[:4]]


@pytest.mark.parametrize("share, low, high", [(0.0, 0, 0), (0.083, 0.05, 0.12), (1.0, 1, 1)])
def test_misplaced_edges_keep_number_and_types(share, low, high):
    moved = 0
    for k, graph in enumerate(RUBRICS):
        wrong = world.misplace(graph, share, np.random.default_rng(k))
        wrong.validate()
        assert Counter(e.type for e in wrong.edges) == Counter(e.type for e in graph.edges)
        before = {(e.parent, e.child) for e in graph.edges}
        moved += sum((e.parent, e.child) not in before for e in wrong.edges)
    assert low <= moved / sum(len(graph.edges) for graph in RUBRICS) <= high


def test_a_higher_share_moves_more_of_the_same_edges():
    def moved(share):
        built = world.misplace(RUBRICS[0], share, np.random.default_rng(0))
        return {k for k, (a, b) in enumerate(zip(RUBRICS[0].edges, built.edges, strict=True)) if a != b}

    assert moved(0.1) <= moved(0.3) <= moved(0.7) <= moved(1.0) == set(range(len(RUBRICS[0].edges)))


def test_a_parent_needs_both_its_segments_and_a_leaf_one():
    leaf = np.array([[False, True]])
    tokens = np.array([[[0, 0, 1, 0, 2], [0, 1, 1, 2, 3]]])  # [prompt, slot, response]
    assert world.met(tokens, leaf)[0].T.tolist() == [
        [False, False],
        [True, False],
        [False, False],
        [False, True],
        [False, True],
    ]


def test_judge_scores_are_the_logistic_of_log_odds_of_two():
    events = np.array([True, False])
    quiet = Judge(sigma=0.0).scores(events, np.array([5.0, 5.0]))
    assert quiet == pytest.approx([1 / (1 + np.exp(-2)), 1 / (1 + np.exp(2))])
    assert Judge(sigma=0.5, bias=-1).scores(events, np.array([2.0, 0.0])) == pytest.approx(
        [1 / (1 + np.exp(-2)), 1 / (1 + np.exp(3))]
    )


def test_a_measured_judge_gives_its_own_scores():
    unmet, met = (0.1, 0.2, 0.6), (0.3, 0.9, 1.0)
    judge = Judge(unmet=unmet, met=met)
    rng = np.random.default_rng(0)
    events = rng.random(20_000) < 0.5
    scores = judge.scores(events, rng.standard_normal(20_000))
    assert np.median(scores[events]) == pytest.approx(0.9, abs=0.02)
    assert np.median(scores[~events]) == pytest.approx(0.2, abs=0.02)
    assert scores[events].min() >= 0.3 and scores[~events].max() <= 0.6


def test_blind_spots_are_parents_and_grow_with_the_share():
    worlds = [world.make_world(seed) for seed in range(20)]
    for share in (0.0, 0.3, 0.6, 1.0):
        unseen = np.concatenate([w.unseen(Judge(blind=share)) for w in worlds])
        parents = ~np.concatenate([w.leaf for w in worlds])
        assert not (unseen & ~parents).any()
        assert unseen.sum() / parents.sum() == pytest.approx(share, abs=0.05)
    few, many = (worlds[0].unseen(Judge(blind=share)) for share in (0.3, 0.6))
    assert (few <= many).all()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Judge(blind=1.2), "^blind=1.2"),
        (lambda: Judge(sigma=-1), "^sigma=-1"),
        (lambda: Judge(met=(0.5,)), "^unmet: 0 scores, met: 1"),
        (lambda: world.misplace(RUBRICS[0], 2.0, np.random.default_rng(0)), "^share=2.0"),
    ],
)
def test_a_value_out_of_range_is_named(make, message):
    with pytest.raises(WorldError, match=message):
        make()
