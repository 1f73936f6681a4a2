"""Certified bounds hold, and mean field is exact where it should be."""

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rubric_cases import graph_of, random_graph, with_ends

from reprise.rubric import compile_batch
from reprise.rubric.bounds import parent_groups, reward_interval


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 24))
def test_mean_field_exact_upper_and_score_are_in_this_order(seed, criteria, edges):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, criteria, edges)
    p, retention = with_ends(rng, (criteria, 3)), with_ends(rng, len(graph.edges))
    program = compile_batch([graph], "exact")
    exact = program.marginals(p, retention)
    lower, upper = program.bounds(p, retention)
    assert (lower <= exact + 1e-14).all() and (exact <= upper + 1e-14).all() and (upper <= p + 1e-15).all()
    low, high = reward_interval(program.weights, lower, upper, program.denominators[0])
    reward = program.reward(exact)[0]
    assert (low <= reward + 1e-13).all() and (reward <= high + 1e-13).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_bounds_meet_on_polytrees(seed, criteria):
    rng = np.random.default_rng(seed)
    tree = networkx.random_labeled_tree(criteria, seed=int(seed))
    edges = [f"{a}>{b} weak" if rng.random() < 0.5 else f"{b}>{a} strong" for a, b in tree.edges]
    graph = graph_of([str(k) for k in range(criteria)], [1] * criteria, *edges)
    p = rng.random(criteria)
    program = compile_batch([graph], "exact")
    lower, upper = program.bounds(p)
    assert upper == pytest.approx(lower, abs=1e-14) and program.marginals(p) == pytest.approx(lower, abs=1e-14)


def test_parents_are_grouped_where_their_ancestors_meet():
    graph = graph_of("rabcdx", [1] * 6, "r>a weak", "r>b weak", "a>x weak", "b>x weak", "c>x weak", "d>x weak")
    groups = parent_groups(graph)[5]
    assert sorted(sorted(j for j, _ in group) for group in groups) == [[1, 2], [3], [4]]


def test_a_reward_interval_takes_the_lower_end_of_a_gain_and_the_upper_end_of_a_loss():
    low, high = reward_interval(np.array([2.0, -1.0]), np.array([[0.2], [0.3]]), np.array([[0.4], [0.8]]), 2.0)
    assert low == pytest.approx([(0.4 - 0.8) / 2]) and high == pytest.approx([(0.8 - 0.3) / 2])
