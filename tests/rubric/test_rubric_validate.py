"""Every kind of degenerate input has one answer, and an error names the criterion and the edge."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rubric_cases import graph_of

from reprise.rubric import (
    Criterion,
    Edge,
    GraphError,
    RetentionError,
    RubricError,
    RubricGraph,
    ScoreError,
    aggregate,
    compile_batch,
    normalise_verdict,
    project_edges,
)

PAIR = graph_of("ab", [1, 1], "a>b weak")
NAN, INF = float("nan"), float("inf")
# beyond float64; beyond what Python prints
HUGE, HUGEST = pytest.param(10**400, id="400 digits"), pytest.param(-(10**5000), id="5000 digits")


def criteria(*ids):
    return [Criterion(id, 1) for id in ids]


# -- retentions --------------------------------------------------------------------------------------------------------


def test_no_map_means_the_defaults_and_a_partial_map_replaces_what_it_names():
    assert aggregate(PAIR, [0.2, 0.9]).q[1] == pytest.approx(0.612)
    assert aggregate(PAIR, [0.2, 0.9], retention={"strong": 0.5}).q[1] == pytest.approx(0.612)
    assert aggregate(PAIR, [0.2, 0.9], retention={"weak_prerequisite": 0.5}).q[1] == pytest.approx(0.9 * 0.6)


def test_an_edges_own_retention_goes_before_that_of_its_type_and_a_vector_before_both():
    graph = RubricGraph(criteria("a", "b"), [Edge("a", "b", "weak", 0.1)])
    assert aggregate(graph, [0, 1], retention={"weak": 0.5}).q[1] == pytest.approx(0.1)
    assert aggregate(graph, [0, 1], retention=[0.3]).q[1] == pytest.approx(0.3)


@pytest.mark.parametrize("value", [NAN, None, -0.1, 1.1, INF, "0.5", True, HUGE, HUGEST])
def test_a_retention_that_is_no_share_is_refused_by_the_name_of_its_type(value):
    with pytest.raises(RetentionError, match=r"^retention\[weak\]="):
        aggregate(PAIR, [0.2, 0.9], retention={"weak": value})
    if value is not None:
        with pytest.raises(GraphError, match=r"^edge a->b \(weak\): retention="):
            RubricGraph(criteria("a", "b"), [Edge("a", "b", "weak", value)]).validate()


@pytest.mark.parametrize("values", [[NAN], [-0.1], [1.5], [0.5, 0.5], 0.5])
def test_a_vector_of_retentions_is_checked(values):
    with pytest.raises(RetentionError, match="^retention"):
        aggregate(PAIR, [0.2, 0.9], retention=values)


@pytest.mark.parametrize("retention", ["weak", ["x"], [[0.5], [0.5, 0.5]], [10**400], object()])
def test_what_is_neither_a_map_nor_numbers_is_refused(retention):
    with pytest.raises(RetentionError, match="^retention.*: expected"):
        aggregate(PAIR, [0.2, 0.9], retention=retention)


@pytest.mark.parametrize("gamma", [-1, NAN, INF, "1", None, True, HUGE])
def test_an_exponent_is_a_finite_number_from_0_on(gamma):
    with pytest.raises(RetentionError, match="^gamma="):
        aggregate(PAIR, [0.2, 0.9], gamma=gamma)


def test_an_unknown_type_in_the_map_is_refused():
    with pytest.raises(RetentionError, match="'medium': expected one of weak, strong, activation"):
        aggregate(PAIR, [0.2, 0.9], retention={"medium": 0.5})


# -- scores ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [NAN, None, "high", {}])
def test_a_missing_score_by_each_policy(missing):
    chain = graph_of("abc", [1, 1, 2], "a>b strong", "b>c strong")
    scores = [0.5, missing, 0.8]
    with pytest.raises(ScoreError, match="^score of criterion b, response 0: missing"):
        aggregate(chain, scores)
    zero = aggregate(chain, scores, on_missing="zero")
    assert zero.q == pytest.approx([0.5, 0, 0.16]) and zero.reward == pytest.approx((0.5 + 0.32) / 4)
    # without b the child of b is free, and the denominator loses its weight
    skip = aggregate(chain, scores, on_missing="skip")
    assert skip.q == pytest.approx([0.5, NAN, 0.8], nan_ok=True) and skip.reward == pytest.approx(2.1 / 3)
    none = aggregate(chain, scores, on_missing="none")
    assert none.reward is None and np.isnan(none.q).all()


def test_policies_act_on_each_response_by_itself():
    scores = np.array([[0.2, 0.9], [NAN, 0.9], [0.2, NAN], [0.3, 0.9]])
    assert aggregate(PAIR, scores, on_missing="none").reward == pytest.approx(
        [0.406, NAN, NAN, (0.3 + 0.9 * 0.72) / 2], nan_ok=True
    )
    assert aggregate(PAIR, scores, on_missing="skip").reward == pytest.approx([0.406, 0.9, 0.2, (0.3 + 0.9 * 0.72) / 2])
    per_edge = aggregate(PAIR, scores, on_missing="skip", retention=[0.6], inference="bounds")
    assert per_edge.reward == pytest.approx([0.406, 0.9, 0.2, (0.3 + 0.9 * 0.72) / 2])
    with pytest.raises(ScoreError, match="^scores of response 1: all missing"):
        aggregate(PAIR, [[0.2, 0.9], [NAN, NAN]], on_missing="skip")


@pytest.mark.parametrize("value", [INF, -INF, -0.1, 1.1])
def test_a_score_outside_its_range_is_refused_or_clamped_on_request(value):
    with pytest.raises(ScoreError, match=rf"^score of criterion b, response 1: {value}: expected 0 <= score <= 1"):
        aggregate(PAIR, [[0.2, 0.9], [0.2, value]])
    assert aggregate(PAIR, [1, value], clamp=True).p[1] == (1 if value > 1 else 0)


def test_an_integer_beyond_floats_is_outside_too():
    with pytest.raises(ScoreError, match="^score of criterion a, response 0: inf"):
        aggregate(PAIR, [10**400, 0.5])
    assert aggregate(PAIR, [10**400, -(10**400)], clamp=True).p.tolist() == [1, 0]


@pytest.mark.parametrize(
    "scores", [[np.True_, np.False_], [np.array(1.0), np.array(0)], [[np.float32(1), np.int64(0)]]]
)
def test_numbers_of_numpy_in_a_list_are_no_missing_scores(scores):
    assert aggregate(PAIR, scores).p.ravel().tolist() == [1, 0]


def test_a_list_of_tensors_is_a_tensor():
    torch = pytest.importorskip("torch")
    p = torch.tensor([0.2, 0.9], dtype=torch.float64, requires_grad=True)
    for scores in ([p[0], p[1]], [p]):
        result = aggregate(PAIR, scores)
        assert result.q.ravel().tolist() == pytest.approx([0.2, 0.612])
        assert torch.autograd.grad(result.reward.sum(), p)[0].tolist() == pytest.approx([(1 + 0.9 * 0.4) / 2, 0.34])
    with pytest.raises(ScoreError, match="^scores: expected rows of equal length"):
        aggregate(PAIR, [p, p[:1]])


def test_rounding_is_forgiven():
    result = aggregate(PAIR, [-1e-7, 1 + 1e-7])
    assert result.p.tolist() == [0, 1]


@pytest.mark.parametrize("scores", [[0.5], [0.5, 0.5, 0.5], [[0.5], [0.5]], 0.5, [], np.zeros((1, 1, 2))])
def test_too_few_and_too_many_scores_are_told_with_both_numbers(scores):
    with pytest.raises(ScoreError, match=r"^scores: shape \(.*\): expected 2 scores"):
        aggregate(PAIR, scores)


def test_rows_of_different_length_are_no_scores():
    with pytest.raises(ScoreError, match="^scores: expected rows of equal length"):
        aggregate(PAIR, [[0.5, 0.5], [0.5]])


# -- criteria ----------------------------------------------------------------------------------------------------------


def test_an_id_that_occurs_twice_is_refused_also_as_number_and_text():
    for ids in (("a", "b", "a"), (1, "1")):
        with pytest.raises(GraphError, match=f"^criterion {ids[0]}: id occurs more than once"):
            RubricGraph(criteria(*ids)).validate()


def test_ids_that_are_numbers_keep_their_edges():
    graph = RubricGraph(criteria(1, 2), [Edge(1, 2, "weak")])
    assert graph.ids == ("1", "2") and aggregate(graph, [0.2, 0.9]).q[1] == pytest.approx(0.612)


@pytest.mark.parametrize("id", [None, "", True, ["a"]])
def test_what_is_no_id_is_refused(id):
    with pytest.raises(GraphError, match="^criterion id="):
        Criterion(id, 1)
    with pytest.raises(GraphError, match="^edge child="):
        Edge("a", id, "weak")


@pytest.mark.parametrize("weight", [NAN, INF, "5", None, True, HUGE, HUGEST])
def test_a_weight_is_a_finite_number(weight):
    with pytest.raises(GraphError, match="^criterion b: weight="):
        RubricGraph([Criterion("a", 1), Criterion("b", weight)]).validate()


def test_weights_have_a_finite_sum():
    with pytest.raises(GraphError, match=r"^weights \[1e\+308, 1e\+308\]: expected a finite sum"):
        aggregate(graph_of("ab", [1e308, 1e308]), [1, 1])
    assert aggregate(graph_of("ab", [10**300, 1e300]), [1, 1]).reward == 1


def test_an_empty_rubric_has_no_reward():
    empty = RubricGraph([])
    with pytest.raises(GraphError, match="^criteria: the rubric is empty"):
        aggregate(empty, [])
    assert aggregate(empty, [], on_missing="none").reward is None


def test_a_reward_without_a_scale_is_refused():
    violations = graph_of("ab", [-2, -8])
    with pytest.raises(GraphError, match=r"^weights \[-2, -8\]: none is positive"):
        aggregate(violations, [1, 0.7])
    assert aggregate(violations, [1, 0.7], denominator="abs").reward == pytest.approx(-7.6 / 10)
    for denominator in ("positive", "abs"):
        with pytest.raises(GraphError, match="^weights of a, b are all 0"):
            aggregate(graph_of("ab", [0, 0]), [1, 1], denominator=denominator)


# -- edges -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edge, message",
    [
        (Edge("a", "z", "weak"), r"^edge a->z \(weak\): z unknown"),
        (Edge("y", "z", "weak"), r"^edge y->z \(weak\): y and z unknown"),
        (Edge("b", "b", "weak"), r"^edge b->b \(weak\): expected two different criteria"),
        (Edge("a", "c", "soft"), r"^edge a->c \(soft\): type='soft': expected one of weak, strong, activation"),
        (Edge("a", "b", "strong"), r"^edge a->b \(weak\): the pair has an edge of type strong"),
    ],
)
def test_a_bad_edge_is_refused_or_dropped_and_reported(edge, message):
    graph = RubricGraph(criteria("a", "b", "c"), [Edge("a", "b", "weak"), edge])
    with pytest.raises(GraphError, match=message):
        aggregate(graph, [1, 1, 1])
    found = graph.validate(strict=False)
    assert len(found.graph.edges) == len(found.dropped) == 1
    with pytest.raises(GraphError, match=message):
        raise GraphError(str(found.dropped[0]))
    assert aggregate(found.graph, [0, 1, 1]).q[1] == (0.2 if edge.type == "strong" else 0.6)


def test_all_bad_edges_are_listed_at_once():
    graph = RubricGraph(criteria("a"), [Edge("a", "a", "weak"), Edge("a", "b", "weak")])
    with pytest.raises(GraphError, match=r"a->a.*; edge a->b"):
        graph.validate()


CYCLE = [Edge("a", "b", "strong"), Edge("b", "c", "weak"), Edge("c", "a", "weak")]


@pytest.mark.parametrize("turn", range(3))
def test_a_cycle_is_refused_or_broken_the_same_way_whatever_the_order_of_edges(turn):
    graph = RubricGraph(criteria("a", "b", "c", "d"), [Edge("c", "d", "weak"), *CYCLE[turn:], *CYCLE[:turn]])
    with pytest.raises(GraphError, match="^edges form a cycle: a -> b -> c -> a"):
        aggregate(graph, [1, 1, 1, 1])
    found = graph.validate(project=True)
    assert {str(each) for each in found.dropped} == {"edge c->a (weak): closes the cycle c -> a -> b -> c"}
    assert set(found.graph.edges) == {*CYCLE[:2], Edge("c", "d", "weak")}


def test_projection_prefers_types_then_confidence_then_positions():
    edges = [Edge("a", "b", "weak"), Edge("b", "a", "weak")]
    assert project_edges("ab", edges)[0] == edges[:1]
    assert project_edges("ba", edges)[0] == edges[1:]
    assert project_edges("ab", edges, {("b", "a"): 0.9, ("a", "b"): 0.8})[0] == edges[1:]
    stronger = [edges[0], Edge("b", "a", "strong")]
    assert project_edges("ab", stronger, {("b", "a"): 0.1})[0] == stronger[1:]


@given(st.lists(st.tuples(*[st.sampled_from("abcdef")] * 2, st.sampled_from(["weak", "strong"])), max_size=25))
def test_projection_leaves_an_acyclic_graph_and_drops_only_what_closes_a_cycle(edges):
    graph = RubricGraph(criteria(*"abcdef"), [Edge(*each) for each in edges])
    found = graph.validate(project=True)
    found.graph.validate()
    assert len(found.graph.edges) + len(found.dropped) == len(edges)
    for each in found.dropped:
        if "cycle" in each.reason:
            with pytest.raises(GraphError, match="cycle"):
                RubricGraph(graph.criteria, [*found.graph.edges, each.edge]).validate()


# -- choices and verdicts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["method", "inference", "rule", "on_missing", "denominator"])
def test_a_choice_with_a_typing_error_lists_the_choices(name):
    with pytest.raises(RubricError, match=f"^{name}='harrd': expected one of "):
        aggregate(PAIR, [0.2, 0.9], **{name: "harrd"})


@pytest.mark.parametrize("inference", ["exact", "auto", "bounds"])
def test_rules_other_than_the_product_are_mean_field_only(inference):
    for limit in (1, 1000):
        with pytest.raises(RubricError, match="^rule='max': expected 'product'"):
            aggregate(PAIR, [0.2, 0.9], rule="max", inference=inference, max_terms=limit)
    with pytest.raises(RubricError, match="^rule='max': expected 'product'"):
        compile_batch([PAIR], "exact").marginals(np.zeros(2), rule="max")


def test_a_batch_refuses_what_a_single_graph_does():
    with pytest.raises(RubricError, match="^graphs: expected at least one"):
        compile_batch([])
    program = compile_batch([PAIR, PAIR])
    with pytest.raises(ScoreError, match=r"^p: shape \(2, 1\): expected 4 rows"):
        program.marginals(np.zeros((2, 1)))
    for bad, what in ((NAN, "missing"), (2.0, "2.0")):
        with pytest.raises(ScoreError, match=f"^score of criterion b of graph 1, response 1: {what}"):
            program.marginals(np.array([[0.0, 0.0]] * 3 + [[0.0, bad]]))


@pytest.mark.parametrize(
    "met, prob, flip, keep",
    [(False, 0.75, 0.25, 0.75), (True, 0.25, 0.75, 0.25), (True, 0.75, 0.75, 0.75), (False, 0.25, 0.25, 0.25)],
)
def test_a_verdict_that_contradicts_its_probability(met, prob, flip, keep):
    contradicts = flip != keep
    assert normalise_verdict(met, prob) == (flip, contradicts)
    assert normalise_verdict(met, prob, "keep") == (keep, contradicts)
    if contradicts:
        with pytest.raises(ScoreError, match=f"^met={met}, prob={prob}: expected"):
            normalise_verdict(met, prob, "error")
    else:
        assert normalise_verdict(met, prob, "error") == (prob, False)


def test_a_verdict_at_one_half_contradicts_nothing_and_a_wrong_probability_is_refused():
    assert normalise_verdict(True, 0.5) == normalise_verdict(False, 0.5) == (0.5, False)
    for prob in (NAN, 1.5, None):
        with pytest.raises(ScoreError, match="^prob="):
            normalise_verdict(True, prob)
    for met in ("false", None, 0):
        with pytest.raises(ScoreError, match="^met="):
            normalise_verdict(met, 0.9)
    with pytest.raises(ScoreError, match="^policy='drop'"):
        normalise_verdict(True, 0.5, "drop")
