"""Random graphs of reported sizes, the peers that times are compared with, and what table 8 and section 4.7 imply."""

import networkx
import numpy as np
import pytest

from reprise.labs import rubric_inference as lab
from reprise.labs import rubric_peer, rubric_speed
from reprise.labs.rubric_example import FARMED, MEDICAL
from reprise.rubric import aggregate


@pytest.mark.parametrize("name", lab.BENCHMARKS)
def test_graphs_have_the_reported_sizes(name):
    bench = lab.BENCHMARKS[name]
    rng = np.random.default_rng(0)
    graphs = [lab.benchmark_graph(bench, rng) for _ in range(600)]
    assert np.mean([len(graph) for graph in graphs]) == pytest.approx(bench.criteria, rel=0.05)
    assert np.mean([bool(graph.edges) for graph in graphs]) == pytest.approx(bench.nonempty, abs=0.06)
    # a parent that is not there yet cannot be drawn, so small graphs lose a few edges
    assert 0.85 * bench.edges <= np.mean([len(graph.edges) for graph in graphs]) <= 1.05 * bench.edges


def test_wirings_differ_in_how_related_parents_are():
    def related(wiring):
        rng = np.random.default_rng(1)
        rows = [lab.agreement("HealthBench", 150, 3, wiring=wiring)]
        graphs = [lab.wired(12, 14, rng, wiring) for _ in range(100)]
        trees = [networkx.Graph([(e.parent, e.child) for e in g.edges]) for g in graphs]
        return rows[0]["marginal_mae"], all(networkx.is_forest(tree) for tree in trees if tree)

    errors = {wiring: related(wiring) for wiring in lab.WIRINGS}
    assert errors["polytree"] == (pytest.approx(0, abs=1e-15), True)
    assert errors["shared"][0] > errors["spread"][0] > 1e-4
    assert not errors["spread"][1]


def test_a_ranking_puts_equal_errors_in_the_order_of_the_alphabet():
    rows = [{"benchmark": name, "marginal_mae": error} for name, error in (("P", 0.1), ("H", 0.3), ("W", 0.2))]
    assert lab.ranking(rows) == ["H", "W", "P"]
    assert lab.ranking([row | {"marginal_mae": k * 1e-17} for k, row in enumerate(rows)]) == ["H", "P", "W"]


def test_the_last_group_of_parents_follows_from_the_printed_figures():
    assert lab.implied_last_group() == pytest.approx((1.37 - 0.7 - 0.488) / 0.056)
    low, high = lab.implied_last_group(rounding=True)
    # the corners: the mean and two shares at an end of their rounding, the third one making up the sum
    assert low == pytest.approx((1.365 - 0.6995 - 2 * 0.244) / 0.0565)
    assert high == pytest.approx((1.375 - 0.7005 - 2 * 0.244) / 0.0555)


def test_errors_do_not_depend_on_anything_but_the_seed():
    one, other = (lab.agreement("PLawBench", 40, 7) for _ in range(2))
    assert one == other != lab.agreement("PLawBench", 40, 8)
    assert one["marginal_se"] > 0 and one["reward_se"] > 0 and one["correlation"] <= 1


def test_intervals_and_sizes_are_those_of_their_graphs():
    for row in lab.interval_rows(10, 0):
        assert row["parents"] > 1
        assert row["mean_field"] <= row["exact"] + 1e-14 <= row["upper"] + 2e-14 <= row["score"] + 3e-14
    rows = lab.program_sizes([(6, 6), (12, 60)], 3, 0, limit=2000)
    assert {row["terms"] for row in rows if row["criteria"] == 12} == {2001}
    assert all(0 < row["terms"] < 200 and row["enumeration"] == 6 * 64 for row in rows if row["criteria"] == 6)


def test_the_peer_enumerates_what_we_compute():
    rng = np.random.default_rng(2)
    for _ in range(5):
        graph = lab.scattered(7, 10, rng)
        p = rng.random(7)
        states = rubric_peer.enumerate_states(
            rubric_peer.parse(graph.to_reward_model()), dict(zip(graph.ids, p, strict=True))
        )
        assert aggregate(graph, p, inference="exact").q == pytest.approx([states[id] for id in graph.ids], abs=1e-14)


def test_both_sides_of_the_speed_ratio_compute_the_same_rewards():
    graphs, p = rubric_speed.training_step(1)
    tasks = rubric_speed.step_tasks(graphs[:5], p[: sum(map(len, graphs[:5]))])
    results = {name: np.array(task()) for name, (task, _) in tasks.items()}
    assert results["dictionaries"].shape == (5, 8)
    for name in ("dictionaries, read once", "mean field"):
        assert np.allclose(results[name], results["dictionaries"], rtol=0, atol=1e-14)
    seconds = rubric_speed.cpu_seconds({"nothing": (lambda: None, 2)}, rounds=3)
    assert len(seconds["nothing"]) == 3 and min(seconds["nothing"]) >= 0
    assert [row["size"] for row in rubric_speed.walk_seconds([5, 10], 1)] == [10, 20]


def test_the_example_holds_every_type_of_edge_and_loses_reward():
    assert {edge.type for edge in MEDICAL.edges} == {"weak", "strong", "activation"}
    flat, gear = (aggregate(MEDICAL, FARMED, method).reward for method in ("flat", "gear"))
    assert gear < flat
