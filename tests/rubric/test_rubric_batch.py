"""Packed programs: the same numbers as one graph at a time, in both libraries and precisions, with gradients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rubric_cases import collider, graph_of, ladder, random_graph, with_ends

from reprise.rubric import INFERENCES, RULES, Edge, RubricGraph, ScoreError, aggregate, compile_batch, programs


def ragged_graphs(rng, count=7):
    return [random_graph(rng, int(rng.integers(1, 12)), int(rng.integers(0, 16))) for _ in range(count)]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(INFERENCES))
def test_a_batch_is_its_graphs_one_by_one_and_may_be_split_anywhere(seed, inference):
    rng = np.random.default_rng(seed)
    graphs = ragged_graphs(rng)
    program = compile_batch(graphs, inference)
    p = with_ends(rng, (len(program.ids), 3))
    q = program.marginals(p)
    rewards = program.reward(q)
    for graph, rows, reward in zip(graphs, program.rows, rewards, strict=True):
        one = aggregate(graph, p[rows].T, inference=inference)
        assert np.allclose(one.q.T, q[rows], rtol=0, atol=1e-15) and np.allclose(one.reward, reward, rtol=0, atol=1e-14)
    cut = int(rng.integers(1, len(graphs)))
    at = program.rows[cut].start
    parts = [compile_batch(half, inference) for half in (graphs[:cut], graphs[cut:])]
    split = np.concatenate([parts[0].marginals(p[:at]), parts[1].marginals(p[at:])])
    assert np.allclose(split, q, rtol=0, atol=1e-15)
    assert np.allclose(program.marginals(p[:, 1]), q[:, 1], rtol=0, atol=1e-15)
    assert np.allclose(program.reward(q[:, 1]), rewards[:, 1], rtol=0, atol=1e-15)


def test_hard_gating_of_a_batch():
    chain, pair = graph_of("abc", [1] * 3, "a>b weak", "b>c weak"), graph_of("ab", [1, 1], "a>b weak")
    program = compile_batch([chain, pair])
    p = np.array([0.2, 0.9, 0.9, 0.6, 0.7])
    assert program.hard(p).tolist() == [0.2, 0, 0.9, 0.6, 0.7]
    assert program.hard(p, transitive=True).tolist() == [0.2, 0, 0, 0.6, 0.7]
    assert program.hard(p, threshold=0.65).tolist() == [0.2, 0, 0.9, 0.6, 0]


@pytest.mark.parametrize("inference", ["mean_field", "exact"])
def test_float32_stays_float32_within_a_millionth(inference):
    rng = np.random.default_rng(0)
    program = compile_batch([random_graph(rng, 11, 12) for _ in range(112)], inference)
    p = rng.beta(5, 2, (len(program.ids), 8))
    wide, narrow = program.marginals(p), program.marginals(p.astype(np.float32))
    assert narrow.dtype == program.reward(narrow).dtype == np.float32
    assert np.abs(narrow - wide).max() < 1e-6
    assert np.abs(program.reward(narrow) - program.reward(wide)).max() < 1e-6


def test_integers_are_scores():
    assert compile_batch([collider(1)]).marginals(np.array([0, 1])).tolist() == [0, 0.6]


def test_prompts_with_different_numbers_of_responses_are_padded_and_masked():
    rng = np.random.default_rng(1)
    graphs = ragged_graphs(rng, 4)
    program = compile_batch(graphs, "exact")
    scores = [rng.random((count, len(graph))) for count, graph in zip((3, 1, 5, 0), graphs, strict=True)]
    p, mask = program.pad(scores)
    assert p.shape == (len(program.ids), 5) and mask.sum(1).tolist() == [3, 1, 5, 0]
    reward = program.reward(program.marginals(p), mask)
    assert (reward[~mask] == 0).all()
    for graph, block, row, own in zip(graphs, scores, reward, mask, strict=True):
        assert np.allclose(row[own], aggregate(graph, block, inference="exact").reward, rtol=0, atol=1e-14)
    with pytest.raises(ScoreError, match=r"^scores: 3 blocks: expected one for each of 4 graphs"):
        program.pad(scores[:3])
    with pytest.raises(
        ScoreError, match=rf"^scores\[1\]: shape \(2, 99\): expected \(responses, {len(graphs[1])} criteria"
    ):
        program.pad([scores[0], np.zeros((2, 99)), *scores[2:]])


def test_programs_are_kept_by_the_shape_of_their_graph(monkeypatch):
    monkeypatch.setattr(programs, "_kept", programs._Kept())
    kept = programs._kept.programs
    compile_batch([ladder(3)], "exact")
    compile_batch([RubricGraph(ladder(3).criteria, ladder(3).edges)], "exact")
    assert len(kept) == 1
    # the same edges in another order number their retentions in another way
    turned = RubricGraph(ladder(3).criteria, ladder(3).edges[::-1])
    p = np.linspace(0.3, 0.9, 6)
    assert np.allclose(compile_batch([turned], "exact").marginals(p), compile_batch([ladder(3)], "exact").marginals(p))
    assert len(kept) == 2
    monkeypatch.setattr(programs, "KEPT_TERMS", 200)
    for size in range(20, 40):
        compile_batch([collider(size)], "exact")
    assert programs._kept.terms == sum(each.terms for each in kept.values()) <= 200


# -- torch -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("inference", INFERENCES)
def test_tensors_give_what_arrays_do(torch, inference):
    rng = np.random.default_rng(2)
    graphs = [*ragged_graphs(rng), random_graph(rng, 8, 24)]
    program = compile_batch(graphs, inference, max_terms=500)
    p = with_ends(rng, (len(program.ids), 2))
    tensor = torch.tensor(p)
    q = program.marginals(tensor)
    assert np.allclose(q.numpy(), program.marginals(p), rtol=0, atol=1e-15)
    assert np.allclose(program.reward(q).numpy(), program.reward(q.numpy()), rtol=0, atol=1e-15)
    assert program.marginals(tensor.float()).dtype == torch.float32
    for rule in RULES if inference == "mean_field" else ():
        both = program.marginals(tensor, rule=rule).numpy(), program.marginals(p, rule=rule)
        assert np.allclose(*both, rtol=0, atol=1e-15)
    for transitive in (False, True):
        assert (program.hard(tensor, transitive=transitive).numpy() == program.hard(p, transitive=transitive)).all()
    blocks = [torch.rand(count, len(graph)) for count, graph in zip((2, 1, 3, 1, 1, 1, 1, 2), graphs, strict=True)]
    padded, mask = program.pad(blocks)
    assert (padded.numpy() == program.pad([block.numpy() for block in blocks])[0]).all()
    assert program.reward(program.marginals(padded), mask)[~mask].abs().sum() == 0


def compiled(graphs, used):
    """A program that comes to its marginals in this way."""
    inference, limit = ("exact", 3) if used == "elimination" else (used, 10**6)
    program = compile_batch(graphs, inference, max_terms=limit)
    assert set(program.inference_used) == {used}
    return program


WAYS = [("exact", "product"), ("elimination", "product"), *(("mean_field", rule) for rule in RULES)]


@pytest.mark.parametrize("inference, rule", WAYS)
def test_gradients_are_those_of_finite_differences(torch, inference, rule):
    rng = np.random.default_rng(3)
    graphs = [graph_of("abcd", [1, 1, 2, -1], "a>b strong", "a>c strong", "b>d strong", "c>d weak"), collider(3)]
    program = compiled(graphs, inference)
    p = torch.tensor(rng.uniform(0.2, 0.8, (len(program.ids), 2)), requires_grad=True)
    retention = torch.tensor(rng.uniform(0.2, 0.8, len(program.edges)), requires_grad=True)

    def rewards(p, retention, gamma=1.0):
        return program.reward(program.marginals(p, retention, gamma, rule))

    assert torch.autograd.gradcheck(rewards, (p, retention))
    if rule == "product":
        assert torch.autograd.gradcheck(lambda p, retention: rewards(p, retention, 2.0), (p, retention))


@pytest.mark.parametrize("inference, rule", WAYS)
@pytest.mark.parametrize("score", [0.0, 1.0])
@pytest.mark.parametrize("kept", [0.0, 1.0])
def test_gradients_are_finite_at_the_ends(torch, inference, rule, score, kept):
    program = compiled([ladder(4), collider(4)], inference)
    p = torch.full((len(program.ids), 2), score, dtype=torch.float64, requires_grad=True)
    retention = torch.full((len(program.edges),), kept, dtype=torch.float64, requires_grad=True)
    program.reward(program.marginals(p, retention, rule=rule)).sum().backward()
    assert torch.isfinite(p.grad).all() and torch.isfinite(retention.grad).all()


def test_a_slope_at_the_ends_is_right_and_not_only_finite(torch):
    """q is linear in each score and each retention: the slope is a difference between the ends."""
    graph = graph_of("abcd", [1] * 4, "a>b strong", "a>c strong", "b>d strong", "c>d weak")
    program = compile_batch([graph], "exact")
    rng = np.random.default_rng(4)
    for _ in range(10):
        p, retention = rng.integers(0, 2, 4).astype(float), rng.integers(0, 2, 4).astype(float)
        tensors = [torch.tensor(each, requires_grad=True) for each in (p, retention)]
        program.marginals(*tensors)[3].backward()
        for k in range(4):
            for values, tensor in zip((p, retention), tensors, strict=True):
                ends = []
                for end in (0.0, 1.0):
                    changed = values.copy()
                    changed[k] = end
                    pair = (changed, retention) if values is p else (p, changed)
                    ends.append(program.marginals(*pair)[3])
                assert float(tensor.grad[k]) == pytest.approx(ends[1] - ends[0], abs=1e-14)


def test_a_retention_that_is_learned_makes_tensors_of_arrays(torch):
    retention = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    q = compile_batch([RubricGraph(collider(1).criteria, [Edge("r0", "child", "weak")])]).marginals(
        np.array([0.0, 1.0]), retention
    )
    q.sum().backward()
    assert q.tolist() == [0, 0.5] and retention.grad.tolist() == [1.0]
