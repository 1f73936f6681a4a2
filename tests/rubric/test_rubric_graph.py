"""Types, order, content hash and the record of a rubric graph."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rubric_cases import graph_of, ladder, random_graph

from reprise.rubric import Criterion, Edge, EdgeType, GraphError, Role, RubricGraph

DIAMOND = graph_of("abcd", [1, 2, 3, -1], "a>b strong", "a>c strong", "b>d weak", "c>d activation")


@pytest.mark.parametrize(
    "name, type",
    [
        ("weak", EdgeType.WEAK),
        ("weak_prerequisite", EdgeType.WEAK),
        ("strong_prerequisite", EdgeType.STRONG),
        ("trigger", EdgeType.ACTIVATION),
        ("activation", EdgeType.ACTIVATION),
    ],
)
def test_names_of_the_public_code_are_read_and_canonical_ones_written(name, type):
    edge = Edge("a", "b", name)
    assert edge.type is type
    graph = RubricGraph([Criterion("a", 1, "applicability"), Criterion("b", 1)], [edge])
    assert graph.criteria[0].role is Role.TRIGGER
    assert graph.to_reward_model()["graph"]["edges"] == [{"parent": "a", "child": "b", "type": str(type)}]


def test_levels_are_longest_paths_whatever_the_order_of_criteria():
    assert DIAMOND.levels == ((0,), (1, 2), (3,))
    assert graph_of("cba", [1, 1, 1], "a>b weak", "b>c weak", "a>c weak").levels == ((2,), (1,), (0,))
    assert len(ladder(400).levels) == 400
    assert RubricGraph([Criterion("a", 1)]).levels == ((0,),)


def test_parents_do_not_depend_on_the_order_of_edges():
    turned = RubricGraph(DIAMOND.criteria, DIAMOND.edges[::-1])
    assert [[j for j, _ in each] for each in DIAMOND.parents] == [[], [0], [0], [1, 2]]
    assert [[j for j, _ in each] for each in turned.parents] == [[], [0], [0], [1, 2]]


def test_fingerprint_follows_content_and_not_the_order_of_edges():
    def variant(weights=(1, 2, 3, -1), edges=DIAMOND.edges, ids="abcd"):
        return RubricGraph([Criterion(i, w) for i, w in zip(ids, weights, strict=True)], edges).fingerprint()

    same = variant()
    assert same == DIAMOND.fingerprint() == variant(edges=DIAMOND.edges[::-1]) == variant((1.0, 2.0, 3.0, -1.0))
    # fixed for good: logs of earlier runs refer to it
    assert same == "2776f9e2055fbdbc9e7b918ffdea5669"
    others = [
        variant((1, 2, 3, -2)),
        variant(edges=DIAMOND.edges[:3]),
        variant(edges=[*DIAMOND.edges[:3], Edge("c", "d", "strong")]),
        variant(edges=[*DIAMOND.edges[:3], Edge("c", "d", "activation", 0.1)]),
        RubricGraph(DIAMOND.criteria[::-1], DIAMOND.edges).fingerprint(),
    ]
    assert len({same, *others}) == 6
    told = [Criterion(c.id, c.weight, "foundation", "a text") for c in DIAMOND.criteria]
    assert RubricGraph(told, DIAMOND.edges).fingerprint() == same


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 20))
def test_a_record_reads_back_as_the_same_graph(seed, criteria, edges):
    graph = random_graph(np.random.default_rng(seed), criteria, edges)
    again = RubricGraph.from_reward_model(graph.to_reward_model())
    assert again == graph and again.fingerprint() == graph.fingerprint()


def test_a_record_as_trainers_carry_it():
    """Parquet turns lists into arrays; ids may be missing or numbers; HealthBench's tags are lists of names."""
    rubrics = [{"points": 5, "criterion": "x", "tags": ["axis:accuracy"]}, {"points": -3.0, "criterion": None}]
    graph = RubricGraph.from_reward_model({"rubrics": np.array(rubrics, object), "graph": None})
    assert graph.ids == ("r1", "r2") and graph.weights == (5, -3.0) and graph.edges == ()

    numbered = {
        "rubrics": [{"id": 1, "points": 1, "tags": {"node_type": "trigger"}}, {"id": 2, "points": 1}],
        "graph": {
            "nodes": np.array([{"id": 2, "node_type": "bonus"}], object),
            "edges": np.array([{"parent": 1, "child": 2, "type": "trigger", "retention": 0.1}], object),
        },
    }
    graph = RubricGraph.from_reward_model(numbered)
    assert graph.edges == (Edge("1", "2", "activation", 0.1),)
    assert [criterion.role for criterion in graph.criteria] == [Role.TRIGGER, Role.BONUS]


@pytest.mark.parametrize(
    "record, message",
    [
        ([], "reward_model: list"),
        ({"rubrics": {"id": 1}}, "rubrics: dict: expected a list"),
        ({"rubrics": ["a"]}, r"rubrics\[0\]: str: expected an object"),
        ({"rubrics": [{"id": "a"}]}, r"rubrics\[0\].points: expected a value"),
        ({"rubrics": [{"id": "a", "points": 1}, {"points": 1}]}, r"rubrics\[1\].id: expected a value"),
        ({"rubrics": [], "graph": [1]}, "graph: list: expected an object"),
        ({"rubrics": [{"id": "a", "points": 1}], "graph": {"edges": [{"parent": "a"}]}}, r"graph.edges\[0\].child"),
        ({"rubrics": [{"id": "a", "points": 1, "tags": {"node_type": "base"}}]}, "criterion a: role='base'"),
    ],
)
def test_a_record_that_is_none_says_where(record, message):
    with pytest.raises(GraphError, match=message):
        RubricGraph.from_reward_model(record)


def test_leaving_criteria_out_takes_their_edges_along():
    left = DIAMOND.without(["b"])
    assert left.ids == ("a", "c", "d") and left.edges == (DIAMOND.edges[1], DIAMOND.edges[3])
