"""What goes in and comes out at the edges: whole numbers, narrow floats, masks, no responses, options without a use."""

import numpy as np
import pytest
from rubric_cases import graph_of

from reprise.rubric import GraphError, RetentionError, RubricError, ScoreError, aggregate, compile_batch
from reprise.rubric.bounds import reward_interval
from reprise.rubric.marginals import exact_program

NAN = float("nan")
PAIR = graph_of("ab", [1, 1], "a>b weak")
DIAMOND = graph_of("abcd", [1, 1, 1, -1], "a>b strong", "a>c strong", "b>d strong", "c>d strong")
SCORES = np.array([[0.5, 0.9, 0.9, 0.9], [0.2, 0.7, 1.0, 0.4]])


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


# -- kinds of numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int64", "uint8", "bool"])
def test_whole_numbers_do_not_make_whole_numbers_of_retentions_and_shares(torch, kind):
    program = compile_batch([PAIR])
    for scores in (torch.tensor([0, 1]).to(getattr(torch, kind)), np.array([0, 1]).astype(kind)):
        assert program.marginals(scores).tolist() == [0, 0.6]
        assert program.reward(scores).tolist() == [0.5]
        assert program.bounds(scores)[0].tolist() == [0, 0.6]


@pytest.mark.parametrize("method", ["hard", "hard_transitive"])
def test_hard_gating_takes_bfloat16(torch, method):
    got = aggregate(PAIR, torch.tensor([0.25, 0.75], dtype=torch.bfloat16), method)
    assert got.q.dtype == torch.bfloat16 and got.q.tolist() == [0.25, 0]
    bounds = aggregate(PAIR, torch.tensor([0.0, 0.5], dtype=torch.bfloat16), inference="bounds")
    assert bounds.gap.dtype == bounds.reward_interval.dtype == torch.bfloat16


@pytest.mark.parametrize("scores", [[0.0, 1.0], [[0.0, 1.0], [NAN, 0.5]], np.array([[0.0, 1.0], [NAN, 0.5]])])
def test_a_learned_retention_makes_tensors_of_scores_that_are_none(torch, scores):
    retention = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    got = aggregate(PAIR, scores, retention=retention, on_missing="skip")
    for each in (got.reward, got.q, got.p, got.suppressed):
        assert isinstance(each, torch.Tensor)
    got.reward.sum().backward()
    assert retention.grad.tolist() == [0.5]
    # flat and hard have no use for a retention: arrays stay arrays
    assert isinstance(aggregate(PAIR, scores, "flat", retention=retention, on_missing="zero").q, np.ndarray)


def test_slopes_are_finite_but_for_an_exponent_between_0_and_1_at_a_retention_of_0(torch):
    program = compile_batch([PAIR])
    for gamma, finite in ((0, True), (0.5, False), (1, True), (2, True)):
        retention = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        program.marginals(torch.tensor([0.2, 0.9], dtype=torch.float64), retention, gamma)[1].backward()
        assert bool(torch.isfinite(retention.grad).all()) == finite


# -- rows that do not fit ----------------------------------------------------------------------------------------------


RAGGED = [[0.5, 0.5], [0.5]]


def test_marginals_and_rewards_of_what_is_no_block_of_scores(torch):
    program = compile_batch([PAIR])
    for name, call in (("p", program.marginals), ("p", program.bounds), ("p", program.hard), ("q", program.reward)):
        for bad in (RAGGED, [torch.zeros(2), torch.zeros(1)], [torch.zeros(2), [0.5]]):
            with pytest.raises(ScoreError, match=f"^{name}: expected rows of equal length"):
                call(bad)
        for bad in ("high", [0.5] * 3, np.zeros((3, 2)), torch.zeros(1, 2), None):
            with pytest.raises(ScoreError, match=rf"^{name}: shape \(.*\): expected 2 rows"):
                call(bad)
    with pytest.raises(ScoreError, match="^score of criterion b, response 0: missing"):
        program.marginals([0.5, "high"])
    assert program.reward([0.5, 1]).tolist() == program.marginals([0.75, 0]).tolist()[:1] == [0.75]


@pytest.mark.parametrize("bad", ["high", RAGGED, [], None, [0.5, 0.5]])
def test_a_block_that_cannot_be_padded_is_named(bad):
    with pytest.raises(ScoreError, match=r"^scores\[1\]: "):
        compile_batch([PAIR, PAIR]).pad([np.zeros((1, 2)), bad])


def test_padding_takes_one_kind_of_blocks(torch):
    program = compile_batch([PAIR, PAIR])
    with pytest.raises(ScoreError, match=r"^scores\[1\]: no tensor: expected tensors only"):
        program.pad([torch.zeros(1, 2), np.zeros((1, 2))])
    p, mask = program.pad([[[0, 1]], [[0.5, 1], [1, 1]]])
    assert p.tolist() == [[0, 0], [1, 0], [0.5, 1], [1, 1]] and mask.tolist() == [[True, False], [True, True]]


# -- masks -------------------------------------------------------------------------------------------------------------


def test_a_response_that_is_not_there_has_reward_0_whatever_its_q(torch):
    program = compile_batch([PAIR, PAIR])
    q = np.array([[0.5, NAN]] * 4)
    mask = np.array([[True, False], [False, False]])
    assert program.reward(q, mask).tolist() == [[0.5, 0], [0, 0]]
    assert program.reward(q[:, 0], [True, False]).tolist() == program.reward(q[:, 0], [[1], [0]]).tolist() == [0.5, 0]
    tensor = torch.tensor(q, requires_grad=True)
    reward = program.reward(tensor, torch.tensor(mask))
    assert reward.tolist() == [[0.5, 0], [0, 0]]
    reward.sum().backward()
    assert tensor.grad.tolist() == [[0.5, 0], [0.5, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize(
    "mask", [[True, True], [[True], [True]], True, [[1, 0.5], [1, 1]], [[True] * 2] * 3, "yes", None]
)
def test_a_mask_of_another_shape_or_of_other_values_is_refused(mask):
    program, q = compile_batch([PAIR, PAIR]), np.full((4, 2), 0.5)
    if mask is None:
        assert program.reward(q, mask).tolist() == [[0.5, 0.5]] * 2
        return
    with pytest.raises(ScoreError, match="^mask.*: expected True or False for each reward"):
        program.reward(q, mask)


# -- no responses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_missing", ["error", "zero", "skip", "none"])
@pytest.mark.parametrize("options", [{}, {"inference": "bounds"}, {"inference": "exact", "max_terms": 1}])
def test_no_responses_have_no_rewards(torch, on_missing, options):
    for scores in (np.zeros((0, 4)), torch.zeros(0, 4)):
        got = aggregate(DIAMOND, scores, on_missing=on_missing, **options)
        assert tuple(got.reward.shape) == (0,) and tuple(got.q.shape) == (0, 4)


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [NAN, 1.5, -0.1, None, "0.5", True])
def test_a_threshold_is_a_number_in_0_to_1(threshold):
    with pytest.raises(RubricError, match="^threshold=.*: expected 0 <= threshold <= 1"):
        aggregate(PAIR, [0.2, 0.9], "hard", threshold=threshold)
    with pytest.raises(RubricError, match="^threshold="):
        compile_batch([PAIR]).hard(np.zeros(2), threshold)


@pytest.mark.parametrize("limit", [None, NAN, "9", True, []])
def test_a_limit_of_terms_is_a_number(limit):
    calls = (
        lambda: aggregate(PAIR, [0.2, 0.9], max_terms=limit),
        lambda: compile_batch([PAIR], max_terms=limit),
        lambda: exact_program(PAIR, limit),
    )
    for call in calls:
        with pytest.raises(RubricError, match="^max_terms=.*: expected a number of terms"):
            call()


@pytest.mark.parametrize("method", ["flat", "hard", "hard_transitive"])
@pytest.mark.parametrize("options", [{"retention": {"weak": 2}}, {"retention": [0.5, 0.5]}, {"gamma": -1}])
def test_a_method_without_retentions_refuses_wrong_ones(method, options):
    with pytest.raises(RetentionError):
        aggregate(PAIR, [0.2, 0.9], method, **options)


# -- which response, which graph ---------------------------------------------------------------------------------------


def test_a_response_that_skipping_leaves_without_a_scale_is_named():
    graph = graph_of("abc", [1, -1, -2])
    with pytest.raises(GraphError, match=r"^scores of response 1, a missing: weights \[-1, -2\]: none is positive"):
        aggregate(graph, [[1, 1, 1], [NAN, 1, 1], [1, NAN, 1]], on_missing="skip")


@pytest.mark.parametrize("bad", [graph_of("ab", [1, 1], "a>b weak", "b>a weak"), graph_of("a", [-1])])
def test_a_batch_names_the_graph_that_is_not_valid(bad):
    with pytest.raises(GraphError, match=r"^graphs\[1\]: (edges form a cycle|weights)"):
        compile_batch([PAIR, bad])
    with pytest.raises(GraphError, match="^(edges form a cycle|weights)"):
        compile_batch([bad])


# -- what bounds say of a reward ---------------------------------------------------------------------------------------


def test_an_aggregation_with_a_gap_has_the_interval_of_its_reward(torch):
    exact = aggregate(DIAMOND, SCORES, inference="exact").reward
    for options in ({"inference": "bounds"}, {"inference": "auto", "max_terms": 3}):
        got = aggregate(DIAMOND, SCORES, **options)
        low, high = got.reward_interval.T
        expected = reward_interval(np.array(DIAMOND.weights), got.q.T, (got.q + got.gap).T, 3)
        assert [low, high] == pytest.approx(np.array(expected)) and (low < exact).all() and (exact <= high).all()
        one = aggregate(DIAMOND, torch.tensor(SCORES[0]), **options).reward_interval
        assert one.tolist() == pytest.approx([low[0], high[0]])
    for options in ({}, {"inference": "exact"}, {"method": "flat", "inference": "bounds"}):
        assert aggregate(DIAMOND, SCORES, **options).reward_interval is None


def test_a_response_without_a_reward_has_no_interval_either():
    scores = [SCORES[0], [0.5, NAN, 0.9, 0.9]]
    got = aggregate(DIAMOND, scores, inference="bounds", on_missing="none")
    assert np.isnan(got.gap[1]).all() and np.isnan(got.reward_interval[1]).all()
    assert got.gap[0, 3] > 0 and got.reward_interval[0] == pytest.approx(
        aggregate(DIAMOND, SCORES[0], inference="bounds").reward_interval
    )
    # without b it is a chain: the interval is a point, in a batch as well
    skipped = aggregate(DIAMOND, scores, inference="bounds", on_missing="skip")
    assert skipped.reward_interval[1] == pytest.approx([skipped.reward[1]] * 2)
    mixed = aggregate(DIAMOND, scores, inference="auto", on_missing="skip", max_terms=12)
    assert mixed.inference_used == "exact+mean_field" and (mixed.reward_interval[1] == mixed.reward[1]).all()
