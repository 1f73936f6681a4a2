"""Leakage and preservation: a hand example, the definition written as a loop, and what must hold."""

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import need

from reprise.rubric import leakage
from reprise.rubric.aggregate import aggregate
from reprise.rubric.errors import GraphError, RubricError, ScoreError
from reprise.rubric.graph import Criterion, Edge, EdgeType, RubricGraph
from reprise.rubric.leakage import Scored, fcp_metrics
from reprise.rubric.trend import trends

HAND = RubricGraph(
    [Criterion("a", 4), Criterion("b", 6), Criterion("c", 5), Criterion("d", -3)],
    [Edge("a", "b", "strong"), Edge("c", "b", "weak"), Edge("c", "d", "weak")],
)
HAND_P = np.array([0.2, 0.9, 0.8, 0.6])
WITH_ACTIVATION = RubricGraph(HAND.criteria, [*HAND.edges, Edge("a", "d", "activation")])


def scored(graph, p, prompt=""):
    return Scored(graph, p, {m: aggregate(graph, p, method=m).q for m in ("gear", "hard")}, prompt)


def estimates(report, name):
    found = {method: getattr(each, name) for method, each in report.methods.items()}
    return {method: None if each is None else each.estimate for method, each in found.items()}


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(leakage).failed == 0


def test_the_hand_example():
    report = fcp_metrics([scored(HAND, HAND_P)])
    assert (report.violated, report.satisfied) == (1, 2)
    # b leaks through a: 6/15 of 0.9, of .9 * .36 * .92 = .29808, of 0
    assert estimates(report, "leakage") == pytest.approx({"flat": 0.36, "gear": 0.119232, "hard": 0.0})
    # c -> b and c -> d: (.29808 / .9 + .92) / 2
    assert estimates(report, "preservation") == pytest.approx({"flat": 1.0, "gear": 0.6256, "hard": 0.5})
    assert report.reduction("gear") == pytest.approx(1 - 0.119232 / 0.36)


def test_the_hand_example_with_activation_edges():
    report = fcp_metrics([scored(WITH_ACTIVATION, HAND_P)], edge_types="all")
    assert (report.violated, report.satisfied) == (2, 2)
    assert estimates(report, "leakage") == pytest.approx({"flat": 0.24, "gear": 0.070656, "hard": 0.0})
    assert estimates(report, "preservation") == pytest.approx({"flat": 1.0, "gear": 0.2576, "hard": 0.0})


def test_edge_types_left_out_are_left_out():
    by_default, named = (
        fcp_metrics([scored(WITH_ACTIVATION, HAND_P)], edge_types=t) for t in (("weak", "strong"), "all")
    )
    assert (by_default.violated, named.violated) == (1, 2)
    alias = fcp_metrics([scored(WITH_ACTIVATION, HAND_P)], edge_types="trigger")
    assert alias.edge_types == (EdgeType.ACTIVATION,) and (alias.violated, alias.satisfied) == (1, 0)


def test_without_a_case_there_is_no_number():
    report = fcp_metrics([scored(HAND, np.array([0.9, 0.1, 0.9, 0.1]))])
    assert estimates(report, "leakage") == {"flat": None, "gear": None, "hard": None}
    assert report.reduction("gear") is None
    alone = RubricGraph([Criterion("a", 1)])
    assert fcp_metrics([Scored(alone, np.array([0.3]))]).methods["flat"].preservation is None


def test_a_rubric_without_positive_weights_counts_its_cases_and_leaks_nothing():
    graph = RubricGraph([Criterion("a", -1), Criterion("b", -2)], [Edge("a", "b", "weak")])
    report = fcp_metrics([Scored(graph, np.array([0.1, 0.9]))])
    assert report.violated == 1 and report.methods["flat"].leakage.estimate == 0


def test_a_score_at_the_threshold_is_met():
    graph = RubricGraph([Criterion("a", 1), Criterion("b", 1)], [Edge("a", "b", "weak")])
    report = fcp_metrics([Scored(graph, np.array([[0.5, 0.5], [0.49, 0.5], [0.5, 0.49]]))])
    assert (report.violated, report.satisfied) == (1, 1)


def definition(records, threshold, types):
    """L and P of one aggregation as a loop over responses and edges."""
    leaked, kept = [], []
    for graph, p, q in records:
        positive = sum(w for w in graph.weights if w > 0)
        for edge in graph.edges:
            i, j = graph.index[edge.child], graph.index[edge.parent]
            if edge.type in types and p[i] >= threshold:
                if p[j] < threshold:
                    leaked.append(abs(graph.weights[i]) / positive * q[i] if positive else 0.0)
                else:
                    kept.append(q[i] / p[i])
    return [sum(x) / len(x) if x else None for x in (leaked, kept)]


@st.composite
def graphs(draw, most=6):
    size = draw(st.integers(1, most))
    weights = draw(st.lists(st.integers(-5, 9), min_size=size, max_size=size).filter(lambda w: max(w) > 0))
    types = st.sampled_from(["", "weak", "strong", "activation"])
    edges = [Edge(f"c{j}", f"c{i}", kind) for i in range(size) for j in range(i) if (kind := draw(types))]
    return RubricGraph([Criterion(f"c{i}", w) for i, w in enumerate(weights)], edges)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(graphs(), st.integers(0, 2**32 - 1)), min_size=1, max_size=4), st.sampled_from([0.3, 0.5, 1.0])
)
def test_it_is_the_definition(drawn, threshold):
    pairs = [(graph, np.random.default_rng(seed).random(len(graph)).round(1)) for graph, seed in drawn]
    records = [Scored(graph, p, {"gear": aggregate(graph, p).q}) for graph, p in pairs]
    for types in (("weak", "strong"), ("activation",)):
        report = fcp_metrics(records, threshold, types, resamples=2)
        for method in ("flat", "gear"):
            rows = [(r.graph, r.p, r.q.get(method, r.p)) for r in records]
            leak, kept = definition(rows, threshold, types)
            assert estimates(report, "leakage")[method] == (leak if leak is None else pytest.approx(leak))
            assert estimates(report, "preservation")[method] == (kept if kept is None else pytest.approx(kept))


@settings(max_examples=30, deadline=None)
@given(graphs(), st.integers(0, 2**32 - 1))
def test_what_every_aggregation_must_do(graph, seed):
    p = np.random.default_rng(seed).random((40, len(graph)))
    report = fcp_metrics([scored(graph, p)], edge_types="all", resamples=2)
    leak, kept = estimates(report, "leakage"), estimates(report, "preservation")
    if report.violated:
        assert leak["hard"] == 0 and leak["gear"] <= leak["flat"] + 1e-12
    if report.satisfied:
        assert kept["flat"] == pytest.approx(1) and kept["gear"] <= 1 + 1e-12


def test_many_responses_in_a_record_are_as_many_records():
    p = np.random.default_rng(0).random((30, 4))
    together, apart = fcp_metrics([scored(HAND, p)]), fcp_metrics([scored(HAND, row) for row in p])
    assert together == apart


def test_prompts_drawn_whole_give_wider_intervals_when_their_responses_agree():
    rng = np.random.default_rng(1)
    records = [scored(HAND, np.tile(rng.random(4), (8, 1)), prompt=str(x)) for x in range(60)]
    rows, prompts = fcp_metrics(records), fcp_metrics(records, cluster="prompt")
    assert (rows.clusters, prompts.clusters, rows.responses) == (480, 60, 480)
    assert estimates(rows, "leakage") == pytest.approx(estimates(prompts, "leakage"))
    width = [m.methods["flat"].leakage.high - m.methods["flat"].leakage.low for m in (rows, prompts)]
    assert width[1] > 2 * width[0]


@pytest.mark.parametrize(
    "record, error, message",
    [
        (Scored(HAND, np.array([0.2, np.nan, 0.8, 0.6])), ScoreError, "^p: criterion b: nan"),
        (Scored(HAND, np.array([0.2, 1.1, 0.8, 0.6])), ScoreError, "^p: criterion b: 1.1"),
        (Scored(HAND, ["a", "b", "c", "d"]), ScoreError, "^p: expected numbers, rows of equal length"),
        (Scored(HAND, [[0.1] * 4, [0.1] * 3]), ScoreError, "^p: expected numbers, rows of equal length"),
        (
            Scored(RubricGraph(HAND.criteria, [Edge("a", "z", "weak")]), HAND_P),
            GraphError,
            "^edge a->z .weak.: z unknown",
        ),
        (Scored(HAND, HAND_P[:3]), ScoreError, r"^p: shape \(3,\): expected 4"),
        (Scored(HAND, HAND_P, {"gear": -HAND_P}), ScoreError, r"^q\[gear\]: criterion a: -0.2"),
        (Scored(HAND, HAND_P, {"gear": np.tile(HAND_P, (2, 1))}), ScoreError, r"^q\[gear\]: 2 responses: expected 1"),
    ],
)
def test_bad_scores_are_named(record, error, message):
    with pytest.raises(error, match=message):
        fcp_metrics([record])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"threshold": 0}, "^threshold=0"),
        ({"edge_types": ["weka"]}, "weka"),
        ({"edge_types": []}, "at least one"),
        ({"cluster": "rubric"}, "^cluster='rubric'"),
        ({"resamples": 0}, "^resamples=0"),
        ({"confidence": 1.0}, "^confidence=1.0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(RubricError, match=message):
        fcp_metrics([scored(HAND, HAND_P)], **options)


def test_records_must_agree_on_their_aggregations():
    with pytest.raises(RubricError, match="^record 1: aggregations flat: expected flat, gear"):
        fcp_metrics([Scored(HAND, HAND_P, {"gear": HAND_P}), Scored(HAND, HAND_P)])
    for empty in ([], [Scored(HAND, np.zeros((0, 4)))]):
        with pytest.raises(RubricError, match="^records: none"):
            fcp_metrics(empty)
    one, other = {"gear": HAND_P, "hard": 0 * HAND_P}, {"hard": 0 * HAND_P, "gear": HAND_P}
    swapped = fcp_metrics([Scored(HAND, HAND_P, one), Scored(HAND, HAND_P, other)])
    assert swapped.methods["hard"].leakage.estimate == 0 < swapped.methods["gear"].leakage.estimate


# -- trends ------------------------------------------------------------------------------------------------------------


def rows_of(values, steps, clusters):
    """Sums for each cluster and step, as `trends` takes them."""
    keys = sorted(set(zip(clusters, steps, strict=True)))
    rows = []
    for cluster, step in keys:
        own = values[(clusters == cluster) & (steps == step)]
        rows.append((0, cluster, step, len(own), own.sum(), (own**2).sum()))
    return np.array(rows).T


def test_the_slope_is_that_of_least_squares_over_responses():
    from scipy.stats import linregress

    rng = np.random.default_rng(2)
    steps, clusters = rng.integers(0, 9, 300), np.zeros(300, dtype=int)
    values = 0.3 + 0.05 * steps + rng.normal(0, 0.2, 300)
    found, line = trends(*rows_of(values, steps, clusters)), linregress(steps, values)
    assert found.growth[0] == pytest.approx(8 * line.slope)
    assert found.mean[0] == pytest.approx(values.mean())
    # pooled within steps instead of around the line: the same to a few percent when the truth is a line
    assert found.growth_high[0] - found.growth[0] == pytest.approx(8 * 1.968 * line.stderr, rel=0.05)


def test_several_clusters_get_robust_intervals():
    linear_model = need("statsmodels.regression.linear_model", "0.15.0")
    rng = np.random.default_rng(3)
    steps, clusters = np.repeat(np.arange(10), 40), np.tile(np.repeat(np.arange(8), 5), 10)
    values = 0.02 * steps + 0.3 * rng.random(8)[clusters] + rng.normal(0, 0.1, 400)
    found = trends(*rows_of(values, steps, clusters))
    design = np.stack([np.ones(400), steps - steps.mean()], axis=1)
    options = {"groups": clusters, "use_correction": True, "df_correction": True}
    fit = linear_model.OLS(values, design).fit(cov_type="cluster", cov_kwds=options, use_t=True)
    correction = np.sqrt((400 - 1) / (400 - 2))  # theirs multiplies by (N - 1) / (N - k) too
    half = (fit.conf_int()[1][1] - fit.params[1]) * 9 / correction
    assert found.growth[0] == pytest.approx(9 * fit.params[1])
    assert found.growth_high[0] - found.growth[0] == pytest.approx(half)


def test_a_series_of_one_step_has_a_mean_and_no_growth():
    found = trends([0, 1], [0, 0], [3, 3], [4, 1], [2.0, 0.5], [1.5, 0.25])
    assert found.mean.tolist() == [0.5, 0.5] and np.isnan(found.growth).all()
    assert found.mean_low[0] < 0.5 < found.mean_high[0] and np.isnan(found.mean_low[1])


def test_intervals_of_growth_cover_at_their_rate():
    # 2000 series of noise around a step function, which is not a line: the slope's own expectation is still covered
    rng = np.random.default_rng(5)
    level = np.array([0.0, 0.0, 0.5, 0.5])
    truth = 3 * np.polyfit(np.arange(4), level, 1)[0]
    noise = level[None, :, None] + rng.normal(0, 1, (2000, 4, 25))
    rows = [(s, 0, t, 25, noise[s, t].sum(), (noise[s, t] ** 2).sum()) for s in range(2000) for t in range(4)]
    found = trends(*np.array(rows).T)
    covered = np.mean((found.growth_low <= truth) & (truth <= found.growth_high))
    assert 0.935 <= covered <= 0.965  # three standard errors
