"""Controls of the ablation keep what they promise to keep."""

import doctest
from collections import Counter

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.rubric import rewire
from reprise.rubric.aggregate import aggregate
from reprise.rubric.errors import GraphError, RetentionError
from reprise.rubric.graph import Criterion, Edge, RubricGraph
from reprise.rubric.rewire import mean_retention, rewire_random, untype

PLAIN = RubricGraph(
    [Criterion(id, 1) for id in "abcd"], [Edge("a", "b", "weak"), Edge("b", "c", "strong"), Edge("a", "c", "weak")]
)


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(rewire).failed == 0


@st.composite
def graphs(draw):
    size = draw(st.integers(1, 8))
    kinds = st.sampled_from(["", "weak", "strong", "activation"])
    own = st.sampled_from([None, 0.0, 0.35])
    edges = [Edge(str(j), str(i), k, draw(own)) for i in range(size) for j in range(i) if (k := draw(kinds))]
    return RubricGraph([Criterion(str(i), i + 1) for i in range(size)], edges)


@settings(max_examples=40, deadline=None)
@given(graphs(), st.integers(0, 100))
def test_random_rewiring_keeps_counts_types_and_acyclicity(graph, seed):
    other = rewire_random(graph, seed)
    other.validate()
    assert other.criteria == graph.criteria
    assert Counter((e.type, e.retention) for e in other.edges) == Counter((e.type, e.retention) for e in graph.edges)
    assert nx.is_directed_acyclic_graph(nx.DiGraph([(e.parent, e.child) for e in other.edges]))
    assert other == rewire_random(graph, seed)


def test_every_wiring_of_three_nodes_and_one_edge_is_as_likely():
    graph = RubricGraph([Criterion(id, 1) for id in "abc"], [Edge("a", "b", "weak")])
    seen = Counter(str(rewire_random(graph, seed).edges[0]) for seed in range(1200))
    assert len(seen) == 6 and min(seen.values()) > 140  # 200 expected, standard deviation 13


def test_untyped_edges_share_the_mean_retention():
    assert mean_retention([PLAIN]) == pytest.approx((0.6 + 0.2 + 0.6) / 3)
    flat = untype(PLAIN)
    assert [e.retention for e in flat.edges] == pytest.approx([1.4 / 3] * 3)
    assert [(e.parent, e.child) for e in flat.edges] == [(e.parent, e.child) for e in PLAIN.edges]
    # one edge, so that the parent is independent: q = p (q_a + (1 - q_a) * mean)
    assert aggregate(untype(PLAIN), [0.5, 1, 1, 1]).q[1] == pytest.approx(0.5 + 0.5 * 1.4 / 3)
    assert {e.retention for e in untype(PLAIN, 0.25).edges} == {0.25}


def test_untyping_what_has_no_edges_changes_nothing():
    alone = RubricGraph([Criterion("a", 1)])
    assert untype(alone) == alone == rewire_random(alone, 3)
    with pytest.raises(RetentionError, match="no edges"):
        mean_retention([alone])


def test_bad_input_is_refused():
    with pytest.raises(RetentionError, match="^retention=1.5"):
        untype(PLAIN, 1.5)
    cyclic = RubricGraph(PLAIN.criteria, [Edge("a", "b", "weak"), Edge("b", "a", "weak")])
    with pytest.raises(GraphError, match="cycle"):
        rewire_random(cyclic, 0)
