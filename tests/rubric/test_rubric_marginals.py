"""Exact marginals against enumeration, independent libraries and sampling; the size of programs."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import need
from rubric_cases import collider, enumerated, ladder, random_graph, sampled, with_ends

from reprise.rubric import Criterion, Edge, ExactTooLarge, RubricGraph, compile_batch
from reprise.rubric.elimination import eliminate
from reprise.rubric.marginals import exact_program, mean_field_program
from reprise.rubric.retention import edge_retention


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 30))
def test_moments_and_elimination_are_enumeration(seed, criteria, edges):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, criteria, edges)
    p, retention = with_ends(rng, (criteria, 2)), with_ends(rng, len(graph.edges))
    q = compile_batch([graph], "exact").marginals(p, retention)
    eliminated = eliminate(graph, p, retention) if seed % 4 == 0 else q
    for response in range(2 if criteria < 7 else 1):
        truth = enumerated(graph, p[:, response], retention)
        assert np.abs(q[:, response] - truth).max() < 1e-12
        assert np.abs(eliminated[:, response] - truth).max() < 1e-12


def test_a_complete_graph_is_enumeration():
    rng = np.random.default_rng(0)
    graph = random_graph(rng, 10, 45)
    p, retention = rng.random((10, 1)), rng.random(45)
    truth = enumerated(graph, p[:, 0], retention)
    assert np.abs(compile_batch([graph], "exact").marginals(p, retention)[:, 0] - truth).max() < 1e-12
    assert np.abs(eliminate(graph, p, retention)[:, 0] - truth).max() < 1e-12


def test_terms_are_counted_as_defined():
    assert exact_program(collider(40)).terms == 161  # 40 roots, 40 gates of 2, a product of 40, one scale
    assert exact_program(ladder(20)).terms == 332
    assert mean_field_program(collider(40)).terms == 161
    assert exact_program(collider(1)).terms == mean_field_program(collider(1)).terms == 4


def test_a_forty_node_ladder_has_its_known_marginal():
    graph, p = ladder(20), np.linspace(0.5, 0.95, 40)
    assert compile_batch([graph], "exact").marginals(p)[-1] == pytest.approx(0.685512236894586, abs=1e-14)
    assert compile_batch([graph]).marginals(p)[-1] == pytest.approx(0.670520164309319, abs=1e-14)


def test_a_forty_parent_collider_is_a_product():
    p = np.linspace(0.1, 0.9, 41)
    q = compile_batch([collider(40)], "exact").marginals(p)
    assert q[-1] == pytest.approx(p[-1] * np.prod(p[:-1] + (1 - p[:-1]) * 0.6), abs=1e-15)


def test_a_chain_longer_than_pythons_stack():
    graph = ladder(1200)
    p = np.full(len(graph), 0.9)
    lower, upper = compile_batch([graph]).bounds(p)
    q = compile_batch([graph], "exact").marginals(p)
    assert (lower <= q + 1e-12).all() and (q <= upper + 1e-12).all() and q[-1] > lower[-1]


def test_a_program_over_its_limit_says_how_far_it_came():
    graph = random_graph(np.random.default_rng(1), 16, 60)
    with pytest.raises(ExactTooLarge, match=r"^exact marginals: \d+ terms: expected at most 1000") as refused:
        exact_program(graph, max_terms=1000)
    assert refused.value.terms > refused.value.limit == 1000
    # 2^40 summands are refused before they are written down
    shared = [Edge("top", f"r{k}", "weak") for k in range(40)]
    with pytest.raises(ExactTooLarge):
        exact_program(RubricGraph([*collider(40).criteria, Criterion("top", 1)], [*collider(40).edges, *shared]))


@pytest.mark.parametrize("criteria, edges, seed", [(16, 60, 1), (30, 120, 0)])
def test_a_dense_graph_falls_back_to_elimination(criteria, edges, seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, criteria, edges)
    p = rng.beta(5, 2, (criteria, 2))
    program = compile_batch([graph, collider(2)], "exact", max_terms=2000)
    assert program.inference_used == ("elimination", "exact")
    q = program.marginals(np.concatenate([p, p[:3]]))
    lower, upper = program.bounds(np.concatenate([p, p[:3]]))
    assert (lower <= q + 1e-12).all() and (q <= upper + 1e-12).all()
    retention = edge_retention(graph.edges)
    events = sampled(graph, p[:, 0], retention, 40_000, np.random.default_rng(7))
    sigma = np.sqrt(q[:criteria, 0] * (1 - q[:criteria, 0]) / len(events))
    assert (np.abs(events.mean(0) - q[:criteria, 0]) <= 4 * sigma + 1e-12).all()
    if criteria == 16:
        assert np.abs(compile_batch([graph], "exact", 10**7).marginals(p) - q[:16]).max() < 1e-12


def test_elimination_refuses_a_table_over_its_limit():
    graph = random_graph(np.random.default_rng(1), 16, 60)
    with pytest.raises(ExactTooLarge, match="entries in a table of variable elimination: expected at most 64"):
        eliminate(graph, np.full((16, 1), 0.5), edge_retention(graph.edges), max_table=64)


def test_events_drawn_by_the_generative_view_have_these_marginals():
    rng = np.random.default_rng(3)
    for _ in range(10):
        graph = random_graph(rng, 9, 14)
        p, retention = rng.random(9), rng.random(len(graph.edges))
        q = compile_batch([graph], "exact").marginals(p, retention)
        events = sampled(graph, p, retention, 20_000, rng)
        assert (np.abs(events.mean(0) - q) <= 4 * np.sqrt(q * (1 - q) / len(events)) + 1e-12).all()


def network_cases():
    for seed, (criteria, edges) in enumerate([(8, 10), (12, 18), (20, 26), (30, 36)]):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, criteria, edges)
        yield graph, with_ends(rng, criteria), with_ends(rng, len(graph.edges))


def tables(graph, p, retention, i):
    """P(C_i = 1 | parents) over the parents' states, the last parent changing fastest, as a flat list."""
    above = graph.parents[i]
    states = product((0, 1), repeat=len(above))
    return [
        p[i] * np.prod([1.0 if s else retention[e] for s, (_, e) in zip(row, above, strict=True)]) for row in states
    ]


def test_pyagrum_agrees():
    gum = need("pyagrum", "3.3.1")
    for graph, p, retention in network_cases():
        net = gum.BayesNet()
        nodes = [net.add(gum.LabelizedVariable(id, id, 2)) for id in graph.ids]
        for i, above in enumerate(graph.parents):
            for j, _ in above:
                net.addArc(nodes[j], nodes[i])
        for i, above in enumerate(graph.parents):
            table = tables(graph, p, retention, i)
            for state, chance in zip(product((0, 1), repeat=len(above)), table, strict=True):
                named = {graph.ids[j]: true for (j, _), true in zip(above, state, strict=True)}
                net.cpt(nodes[i])[named] = [1 - chance, chance]
        engine = gum.LazyPropagation(net)
        engine.makeInference()
        truth = [engine.posterior(node)[1] for node in nodes]
        assert np.abs(compile_batch([graph], "exact").marginals(p, retention) - truth).max() < 1e-10


@pytest.mark.slow
def test_pgmpy_agrees():
    need("pgmpy", "1.1.2")
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.inference import VariableElimination
    from pgmpy.models import DiscreteBayesianNetwork

    for graph, p, retention in network_cases():
        net = DiscreteBayesianNetwork([(e.parent, e.child) for e in graph.edges])
        net.add_nodes_from(graph.ids)
        for i, above in enumerate(graph.parents):
            chances = tables(graph, p, retention, i)
            names = [graph.ids[j] for j, _ in above]
            net.add_cpds(TabularCPD(graph.ids[i], 2, [[1 - c for c in chances], chances], names, [2] * len(names)))
        engine = VariableElimination(net)
        truth = [engine.query([id], show_progress=False).values[1] for id in graph.ids]
        assert np.abs(compile_batch([graph], "exact").marginals(p, retention) - truth).max() < 1e-10
