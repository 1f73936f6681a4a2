"""The posterior against a grid, slopes against differences, retentions recovered from simulated annotators."""

import json

import numpy as np
import pytest

from reprise.rubric.aggregate import aggregate
from reprise.rubric.errors import RubricError
from reprise.rubric.graph import Criterion, Edge, RubricGraph
from reprise.rubric.preferences import PackedPairs, Pair, PreferenceError, read_pairs
from reprise.rubric.retention import DEFAULT_RETENTION
from reprise.rubric.retention_fit import Level, Prior, _Posterior, fit_retention

PAIR = RubricGraph([Criterion("a", 2), Criterion("b", 3)], [Edge("a", "b", "weak")])
DIAMOND = RubricGraph(
    [Criterion("a", 2), Criterion("b", 3), Criterion("c", 4), Criterion("d", 5)],
    [Edge("a", "b", "weak"), Edge("a", "c", "strong"), Edge("b", "d", "weak"), Edge("c", "d", "activation")],
)
BARE = RubricGraph([Criterion("x", 1), Criterion("y", -1)])
GRAPHS = (PAIR, DIAMOND, BARE)


def annotated(graphs, count, retention, seed, sharpness=10.0):
    """Pairs of responses with uniform scores, preferred by an annotator who goes by `retention`."""
    rng = np.random.default_rng(seed)
    pairs = []
    for n in range(count):
        graph = graphs[n % len(graphs)]
        both = rng.random((2, len(graph)))
        rewards = aggregate(graph, both, inference="exact", retention=retention).reward
        first = rng.random() < 1 / (1 + np.exp(-sharpness * (rewards[0] - rewards[1])))
        pairs.append(Pair(graph, *(both if first else both[::-1])))
    return pairs


def test_margins_are_differences_of_exact_rewards():
    pairs = annotated(GRAPHS, 20, None, seed=0)
    packed = PackedPairs(pairs)
    expected = [
        np.diff(aggregate(p.graph, np.array([p.rejected, p.chosen]), inference="exact").reward)[0] for p in pairs
    ]
    assert packed.margins(packed.own) == pytest.approx(np.array(expected), abs=1e-14)


def test_slopes_are_derivatives_of_the_margins():
    pairs = annotated(GRAPHS, 12, None, seed=1)
    packed = PackedPairs(pairs)
    retention = np.random.default_rng(2).random(len(packed.edges))
    slopes = packed.slopes(retention)
    for n, rubric in enumerate(packed.rubric):
        own = range(packed.first_edge[rubric], packed.first_edge[rubric + 1])
        for k, edge in enumerate(own):
            ends = [retention.copy(), retention.copy()]
            ends[0][edge] += 1e-4
            ends[1][edge] -= 1e-4
            difference = (packed.margins(ends[0]) - packed.margins(ends[1]))[n] / 2e-4
            assert slopes[n, k] == pytest.approx(difference, abs=1e-9)
        assert (slopes[n, len(own) :] == 0).all()


@pytest.mark.parametrize("level", [Level.TYPE, Level.EDGE])
def test_the_gradient_is_that_of_the_log_density_and_vanishes_at_the_mode(level):
    posterior = _Posterior(PackedPairs(annotated(GRAPHS, 60, None, seed=3)), level, Prior())
    point = posterior.centre + np.random.default_rng(4).normal(0, 0.5, len(posterior.centre))
    steps = 1e-5 * np.eye(len(point))
    numerical = [(posterior.log_density(point + s) - posterior.log_density(point - s)) / 2e-5 for s in steps]
    assert posterior._local(point)[0] == pytest.approx(np.array(numerical), abs=1e-6)
    mode, _ = posterior.mode()
    gradient, information = posterior._local(mode)
    assert np.linalg.solve(information, gradient) == pytest.approx(np.zeros(len(point)), abs=2e-4)


def test_draws_have_the_posterior_that_a_grid_gives():
    pairs = annotated([PAIR], 150, {"weak": 0.3}, seed=5)
    posterior = _Posterior(PackedPairs(pairs), Level.TYPE, Prior())
    logits, sharpness = np.linspace(-7, 6, 79), np.linspace(1, 3.5, 26)
    density = np.array([[posterior.log_density(np.array([x, b])) for b in sharpness] for x in logits])
    weight = np.exp(density - density.max()).sum(1)
    weight /= weight.sum()
    retention = 1 / (1 + np.exp(-logits))
    fit = fit_retention(pairs, "type", draws=2000, seed=6)
    assert fit.groups == ("weak",)
    assert fit.mean()[0] == pytest.approx(weight @ retention, abs=0.012)
    reached = np.interp(fit.interval()[0], retention, np.cumsum(weight))
    assert reached == pytest.approx([0.025, 0.975], abs=0.015)


def test_many_pairs_recover_the_annotators_retentions():
    true = {"weak": 0.25, "strong": 0.7, "activation": 0.3}
    fit = fit_retention(annotated([DIAMOND], 2000, true, seed=7, sharpness=30), "type", draws=200)
    assert dict(zip(fit.groups, fit.mean(), strict=True)) == pytest.approx(true, abs=0.15)
    for name, (low, high) in zip(fit.groups, fit.interval(0.99), strict=True):
        assert low <= true[name] <= high
    assert fit.sharpness.mean() == pytest.approx(30, rel=0.15)


def test_edges_of_one_type_are_told_apart():
    graph = RubricGraph(
        [Criterion("a", 1), Criterion("b", 5), Criterion("c", 5)],
        [Edge("a", "b", "weak", retention=0.9), Edge("a", "c", "weak", retention=0.1)],
    )
    pairs = annotated([graph], 800, None, seed=8, sharpness=20)
    fit = fit_retention(pairs, "edge", draws=200)
    assert [group[1:] for group in fit.groups] == [("a", "b"), ("a", "c")]
    assert fit.mean() == pytest.approx([0.9, 0.1], abs=0.12)


def test_more_pairs_narrow_the_interval():
    pairs = annotated([PAIR], 400, None, seed=9)
    widths = [np.diff(fit_retention(pairs[:n], "type", draws=200).interval()[0])[0] for n in (50, 400)]
    assert widths[0] > 1.5 * widths[1]


def test_fixed_learns_the_sharpness_and_leaves_the_graph_alone():
    fit = fit_retention(annotated(GRAPHS, 300, None, seed=10), Level.FIXED, draws=100)
    assert fit.groups == () and fit.draws.shape == (100, 0)
    assert fit.sharpness.mean() == pytest.approx(10, rel=0.3)
    assert fit.apply(DIAMOND) == DIAMOND


def test_a_type_applies_to_any_graph_and_an_edge_to_its_own():
    pairs = annotated([DIAMOND], 40, None, seed=11)
    by_type, by_edge = (fit_retention(pairs, level, draws=50) for level in ("type", "edge"))
    learned = dict(zip(by_type.groups, by_type.mean().tolist(), strict=True))
    assert [edge.retention for edge in by_type.apply(PAIR).edges] == [learned["weak"]]
    assert by_edge.apply(PAIR) == PAIR
    assert [edge.retention for edge in by_edge.apply(DIAMOND).edges] == by_edge.mean().tolist()


def test_probabilities_are_those_of_the_draws():
    pairs = annotated(GRAPHS, 30, None, seed=12)
    fit = fit_retention(pairs, "type", draws=20)
    pair = pairs[1]
    chances = []
    for values, beta in zip(fit.draws, fit.sharpness, strict=True):
        retention = {**DEFAULT_RETENTION, **dict(zip(fit.groups, values.tolist(), strict=True))}
        both = np.array([pair.chosen, pair.rejected])
        rewards = aggregate(pair.graph, both, inference="exact", retention=retention).reward
        chances.append(1 / (1 + np.exp(-beta * (rewards[0] - rewards[1]))))
    assert fit.probabilities(pairs)[1] == pytest.approx(np.mean(chances), abs=1e-12)


def test_the_seed_decides_the_draws():
    pairs = annotated(GRAPHS, 30, None, seed=13)
    one, same, other = (fit_retention(pairs, "type", draws=20, seed=seed).draws for seed in (1, 1, 2))
    assert (one == same).all() and not (one == other).all()


def test_an_outright_answer_overflows_nothing():
    graph = RubricGraph([Criterion("a", 1), Criterion("b", 1)], [Edge("a", "b", "activation")])
    fit = fit_retention([Pair(graph, [1, 1], [0, 0])] * 300, "edge", draws=50)
    assert np.isfinite(fit.draws).all() and ((fit.draws > 0) & (fit.draws < 1)).all()
    assert fit.probabilities([Pair(graph, [1, 1], [0, 0])])[0] > 0.99


def test_rubrics_without_edges_leave_the_sharpness_alone_to_learn():
    fit = fit_retention([Pair(BARE, [0.9, 0.1], [0.2, 0.5])] * 20, "edge", draws=20)
    assert fit.groups == () and fit.probabilities([Pair(BARE, [0.9, 0.1], [0.2, 0.5])])[0] > 0.9


@pytest.mark.parametrize(
    "pairs, message",
    [
        ([], "^pairs: none"),
        ([Pair(PAIR, [0.1, 0.2], [0.1])], r"^pair 0: rejected=.*expected 2 scores"),
        ([Pair(PAIR, [0.1, 0.2], [0.1, 0.3]), Pair(PAIR, [0.1, 1.2], [0.1, 0.3])], "^pair 1: chosen="),
        ([Pair(PAIR, [0.1, float("nan")], [0.1, 0.3])], "^pair 0: chosen="),
    ],
)
def test_pairs_that_cannot_be_fitted_are_named(pairs, message):
    with pytest.raises(PreferenceError, match=message):
        fit_retention(pairs)


def test_an_unknown_level_is_refused():
    with pytest.raises(RubricError, match="^level='both'"):
        fit_retention([Pair(PAIR, [0, 1], [1, 0])], "both")


@pytest.mark.slow
def test_intervals_cover_as_often_as_they_say():
    """Truths drawn from the prior: 95 % intervals hold them 95 times in 100."""
    rng, prior, hits = np.random.default_rng(14), Prior(), []
    for seed in range(40):
        logits = {t: np.log(v / (1 - v)) for t, v in {"weak": 0.6, "strong": 0.2, "activation": 0.05}.items()}
        true = {t: float(1 / (1 + np.exp(-x - prior.spread * rng.standard_normal()))) for t, x in logits.items()}
        sharpness = prior.sharpness * np.exp(prior.sharpness_spread * rng.standard_normal())
        fit = fit_retention(annotated([DIAMOND], 150, true, seed, sharpness), "type", draws=400)
        hits += [low <= true[name] <= high for name, (low, high) in zip(fit.groups, fit.interval(), strict=True)]
    assert np.mean(hits) == pytest.approx(0.95, abs=0.05)


def test_pairs_are_read_from_a_file(tmp_path):
    rows = [{"reward_model": DIAMOND.to_reward_model(), "chosen": [0.1, 0.2, 0.3, 0.4], "rejected": [1, 0, 1, 0]}] * 2
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n\n".join(json.dumps(row) for row in rows))
    read = read_pairs(path)
    assert [pair.graph.fingerprint() for pair in read] == [DIAMOND.fingerprint()] * 2
    assert read[1].chosen == rows[1]["chosen"] and read[1].rejected == rows[1]["rejected"]


@pytest.mark.parametrize(
    "line, message",
    [
        ("{}", "line 1: expected an object with chosen, rejected, reward_model"),
        ("[1]", "line 1: expected an object with"),
        ("{", "line 1: "),
        (
            '{"reward_model": {"rubrics": [{"points": 1}]}, "chosen": [2], "rejected": [0]}',
            "line 1: chosen=.*in .0, 1.",
        ),
        ('{"reward_model": {"rubrics": [{"points": 1}]}, "chosen": ["a"], "rejected": [0]}', "line 1: chosen="),
        ('{"reward_model": {"rubrics": [{}]}, "chosen": [1], "rejected": [0]}', "line 1: rubrics.0..points"),
    ],
)
def test_a_line_that_holds_no_pair_is_named(tmp_path, line, message):
    path = tmp_path / "pairs.jsonl"
    path.write_text(line)
    with pytest.raises(PreferenceError, match=message):
        read_pairs(path)
