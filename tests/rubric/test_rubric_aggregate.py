"""Rewards of one rubric: hand-computed cases, identities between methods, what never changes a result."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rubric_cases import enumerated, graph_of, random_graph, with_ends

from reprise.labs import rubric_peer
from reprise.rubric import METHODS, RULES, Criterion, Edge, RubricGraph, aggregate

# name: graph, scores, mean-field q, exact q, rewards flat / mean field / exact
HAND = {
    "weak": (graph_of("ab", [1, 1], "a>b weak"), [0.2, 0.9], [0.2, 0.612], None, (0.55, 0.406, 0.406)),
    "activation of a violation": (
        graph_of("ab", [4, -3], "a>b activation"),
        [0.25, 0.8],
        [0.25, 0.2],
        None,
        (-0.35, 0.1, 0.1),
    ),
    "chain": (
        graph_of("abc", [1, 1, 1], "a>b strong", "b>c strong"),
        [0.2, 0.9, 0.9],
        [0.2, 0.324, 0.41328],
        None,
        (2 / 3, 0.31242666666666667, 0.31242666666666667),
    ),
    "two independent parents": (
        graph_of("abc", [5, 3, 2], "a>c weak", "b>c strong"),
        [0.3, 0.6, 0.9],
        [0.3, 0.6, 0.44064],
        None,
        (0.51, 0.418128, 0.418128),
    ),
    "diamond": (
        graph_of("abcd", [1] * 4, "a>b strong", "a>c strong", "b>d strong", "c>d strong"),
        [0.5, 0.9, 0.9, 0.9],
        [0.5, 0.54, 0.54, 0.3594816],
        [0.5, 0.54, 0.54, 0.4341312],
        (0.8, 0.4848704, 0.5035328),
    ),
    # a negative weight: mean field overstates the reward
    "triangle": (
        graph_of("abc", [3, 2, -1], "a>b activation", "a>c weak", "b>c strong"),
        [0.5, 0.8, 0.9],
        [0.5, 0.4, 0.3744],
        [0.5, 0.4, 0.432],
        (0.44, 0.38512, 0.3736),
    ),
    "diamond of activations": (
        graph_of("abcd", [1] * 4, "a>b activation", "a>c activation", "b>d activation", "c>d activation"),
        [0.5, 1, 1, 1],
        [0.5, 0.5, 0.5, 0.25],
        [0.5, 0.5, 0.5, 0.5],
        (0.875, 0.4375, 0.5),
    ),
}
UPPER = {"diamond": 0.5688, "triangle": 0.468, "diamond of activations": 0.5}
many = settings(max_examples=60, deadline=None)
cases = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 16))


def drawn(case):
    """A graph, scores with zeros and ones among them, and a retention an edge, likewise."""
    seed, criteria, edges = case
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, criteria, edges)
    return graph, with_ends(rng, criteria), with_ends(rng, len(graph.edges)), rng


@pytest.mark.parametrize("name", HAND)
def test_hand_computed_cases(name):
    graph, p, mean_field, exact, (flat_reward, reward, exact_reward) = HAND[name]
    got = aggregate(graph, p)
    assert got.q == pytest.approx(mean_field, abs=1e-15) and got.reward == pytest.approx(reward, abs=1e-15)
    assert got.inference_used == "mean_field" and got.gap is None
    assert got.suppressed == pytest.approx(np.array(p) - mean_field) and got.fingerprint == graph.fingerprint()
    got = aggregate(graph, p, inference="exact")
    assert got.q == pytest.approx(exact or mean_field, abs=1e-15)
    assert got.reward == pytest.approx(exact_reward, abs=1e-15) and got.inference_used == "exact"
    flat = aggregate(graph, p, method="flat")
    assert flat.reward == pytest.approx(flat_reward, abs=1e-15) and flat.q.tolist() == p
    assert flat.inference_used == "none"
    bounds = aggregate(graph, p, inference="bounds")
    assert (bounds.q + bounds.gap)[-1] == pytest.approx(UPPER.get(name, mean_field[-1]), abs=1e-15)


def test_hard_gating_looks_at_direct_parents_and_its_transitive_form_further():
    chain = graph_of("abc", [1, 1, 1], "a>b weak", "b>c weak")
    scores = [[0.2, 0.9, 0.9], [0.9, 0.2, 0.9], [0.5, 0.5, 0.5]]
    assert aggregate(chain, scores, method="hard").q.tolist() == [[0.2, 0, 0.9], [0.9, 0.2, 0], [0.5] * 3]
    assert aggregate(chain, scores, method="hard_transitive").q.tolist() == [[0.2, 0, 0], [0.9, 0.2, 0], [0.5] * 3]
    assert aggregate(chain, scores, method="hard", threshold=0.6).q[2].tolist() == [0.5, 0, 0]


def test_auto_says_what_it_did():
    graph, p, mean_field, exact, _ = HAND["diamond"]
    auto = aggregate(graph, p, inference="auto")
    assert auto.inference_used == "exact" and auto.q == pytest.approx(exact) and auto.gap is None
    short = aggregate(graph, p, inference="auto", max_terms=3)
    assert short.inference_used == "mean_field" and short.q == pytest.approx(mean_field)
    assert short.gap == pytest.approx([0, 0, 0, 0.5688 - 0.3594816])
    # exact never gives up in silence: it goes another way to the same numbers
    other = aggregate(graph, p, inference="exact", max_terms=3)
    assert other.inference_used == "elimination" and other.q == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize(
    "rule, expected", [("product", 0.2 * 0.9), ("geometric", 0.18**0.5), ("arithmetic", 0.55), ("max", 0.9)]
)
def test_rules_for_several_parents(rule, expected):
    """Unmet parents with retentions .2 and .9: an edge with a better factor raises all rules but the product."""
    graph = RubricGraph(
        [Criterion(id, 1) for id in "abcd"], [Edge("a", "c", "strong", 0.2), Edge("b", "c", "weak", 0.9)]
    )
    got = aggregate(graph, [0, 0, 1, 0.7], rule=rule)
    assert got.q == pytest.approx([0, 0, expected, 0.7])
    lone = RubricGraph(graph.criteria, graph.edges[:1])
    assert aggregate(lone, [0, 0, 1, 0.7], rule=rule).q[2] == pytest.approx(0.2)


def test_a_geometric_mean_with_a_zero_factor_is_zero():
    graph = graph_of("abc", [1, 1, 1], "a>c activation", "b>c weak")
    assert aggregate(graph, [0, 0.5, 1], rule="geometric").q[2] == 0


@many
@given(cases)
def test_retentions_of_one_and_an_exponent_of_zero_are_flat(case):
    graph, p, retention, _ = drawn(case)
    for inference in ("mean_field", "exact"):
        for options in (dict(retention=np.ones(len(graph.edges))), dict(retention=retention, gamma=0), dict(gamma=0)):
            got = aggregate(graph, p, inference=inference, **options)
            assert np.allclose(got.q, p, rtol=0, atol=1e-15)
            assert got.reward == pytest.approx(aggregate(graph, p, method="flat").reward, abs=1e-14)


@many
@given(cases)
def test_binary_scores_without_retention_are_transitive_hard_gating(case):
    graph, p, _, _ = drawn(case)
    binary = p.round()
    hard = aggregate(graph, binary, method="hard_transitive").q
    for inference in ("mean_field", "exact"):
        got = aggregate(graph, binary, inference=inference, retention=np.zeros(len(graph.edges)))
        assert (got.q == hard).all()


@many
@given(cases)
def test_an_exponent_raises_retentions(case):
    graph, p, retention, _ = drawn(case)
    for gamma in (0.5, 2.0, 4.0):
        once = aggregate(graph, p, retention=retention, gamma=gamma).q
        assert np.allclose(once, aggregate(graph, p, retention=retention**gamma).q, rtol=0, atol=1e-15)


@many
@given(cases, st.sampled_from(RULES), st.data())
def test_marginals_rise_with_every_score_and_every_retention(case, rule, data):
    graph, p, retention, _ = drawn(case)
    inference = data.draw(st.sampled_from(["mean_field", "exact"])) if rule == "product" else "mean_field"
    options = dict(rule=rule, inference=inference)
    before = aggregate(graph, p, retention=retention, **options).q
    higher = p.copy()
    k = data.draw(st.integers(0, len(p) - 1))
    higher[k] += (1 - higher[k]) * data.draw(st.floats(0, 1))
    assert (aggregate(graph, higher, retention=retention, **options).q >= before - 1e-14).all()
    if len(retention):
        kept = retention.copy()
        k = data.draw(st.integers(0, len(kept) - 1))
        kept[k] += (1 - kept[k]) * data.draw(st.floats(0, 1))
        assert (aggregate(graph, p, retention=kept, **options).q >= before - 1e-14).all()


@many
@given(cases, st.sampled_from(["mean_field", "exact"]))
def test_another_edge_never_raises_a_marginal_under_the_product_rule(case, inference):
    graph, p, retention, rng = drawn(case)
    if not graph.edges:
        return
    k = int(rng.integers(len(graph.edges)))
    fewer = RubricGraph(graph.criteria, graph.edges[:k] + graph.edges[k + 1 :])
    before = aggregate(fewer, p, inference=inference, retention=np.delete(retention, k)).q
    assert (aggregate(graph, p, inference=inference, retention=retention).q <= before + 1e-14).all()


@many
@given(cases, st.sampled_from(METHODS), st.sampled_from(["mean_field", "exact", "bounds"]))
def test_names_and_orders_do_not_matter(case, method, inference):
    graph, p, retention, rng = drawn(case)
    edges = [Edge(e.parent, e.child, e.type, float(r)) for e, r in zip(graph.edges, retention, strict=True)]
    base = RubricGraph(graph.criteria, edges)
    order = rng.permutation(len(p))
    name = {criterion.id: f"n{k}" for k, criterion in enumerate(graph.criteria)}
    moved = RubricGraph(
        [Criterion(name[graph.ids[k]], graph.criteria[k].weight) for k in order],
        [
            Edge(name[e.parent], name[e.child], e.type, e.retention)
            for e in (edges[k] for k in rng.permutation(len(edges)))
        ],
    )
    one, other = (aggregate(g, s, method, inference) for g, s in ((base, p), (moved, p[order])))
    assert np.allclose(one.q[order], other.q, rtol=0, atol=1e-14)
    assert one.reward == pytest.approx(other.reward, abs=1e-13)


@many
@given(cases, st.floats(0.01, 1000))
def test_scaling_all_weights_leaves_the_reward_and_one_is_its_largest_value(case, scale):
    graph, p, _, _ = drawn(case)
    scaled = RubricGraph([Criterion(c.id, c.weight * scale) for c in graph.criteria], graph.edges)
    reward = aggregate(graph, p).reward
    assert aggregate(scaled, p).reward == pytest.approx(reward, abs=1e-12)
    assert reward <= 1 + 1e-15


@many
@given(cases, st.sampled_from(METHODS))
def test_a_criterion_by_itself_adds_its_own_term_and_its_weight_only(case, method):
    graph, p, _, rng = drawn(case)
    score = float(rng.random())
    wider = RubricGraph([*graph.criteria, Criterion("alone", 3)], graph.edges)
    before, after = aggregate(graph, p, method), aggregate(wider, [*p, score], method)
    assert np.allclose(after.q[:-1], before.q, rtol=0, atol=1e-15) and after.q[-1] == score
    positive = sum(max(w, 0) for w in graph.weights)
    assert after.reward == pytest.approx((before.reward * positive + 3 * score) / (positive + 3), abs=1e-13)


def test_the_peer_that_walks_dictionaries_agrees_on_every_method():
    rng = np.random.default_rng(5)
    for _ in range(50):
        graph = random_graph(rng, 10, 12)
        p = with_ends(rng, 10)
        peer = rubric_peer.rewards(graph.to_reward_model(), p)
        ours = {"flat": "flat", "hard": "hard", "linear": "gear"}
        assert peer == pytest.approx({name: aggregate(graph, p, ours[name]).reward for name in peer}, abs=1e-15)


@many
@given(cases)
def test_exact_rewards_are_those_of_enumeration(case):
    graph, p, retention, _ = drawn(case)
    got = aggregate(graph, p, inference="exact", retention=retention)
    assert np.abs(got.q - enumerated(graph, p, retention)).max() < 1e-12


def test_torch_in_torch_out_with_gradients():
    torch = pytest.importorskip("torch")
    graph, p, _, exact, (_, _, reward) = HAND["diamond"]
    scores = torch.tensor([p, p], dtype=torch.float64, requires_grad=True)
    got = aggregate(graph, scores, inference="exact")
    assert got.q.dtype == torch.float64 and got.q[1].tolist() == pytest.approx(exact)
    assert got.reward.tolist() == pytest.approx([reward, reward])
    got.reward.sum().backward()
    assert torch.isfinite(scores.grad).all() and (scores.grad > 0).all()
    for method in METHODS:
        single = aggregate(graph, torch.tensor(p), method)
        assert isinstance(single.reward, torch.Tensor) and single.reward.dtype == torch.float32
        assert float(single.reward) == pytest.approx(aggregate(graph, p, method).reward, abs=1e-6)
    skipped = torch.tensor([[0.5, float("nan"), 0.9, 0.9], p], dtype=torch.float64)
    one, other = (aggregate(graph, each, on_missing="skip", inference="bounds") for each in (skipped, skipped.numpy()))
    assert np.array_equal(one.q.numpy(), other.q, equal_nan=True)
    assert np.array_equal(one.gap.numpy(), other.gap, equal_nan=True)
