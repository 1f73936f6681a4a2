"""The audit of a training log: sums by hand, a farmed criterion found in a long log, and the command."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

from reprise.labs.rubric_judges import write_log
from reprise.rubric import farming_sums
from reprise.rubric.cli import cli, one_sentence
from reprise.rubric.errors import RubricError
from reprise.rubric.farming import audit
from reprise.rubric.graph import Criterion, Edge, RubricGraph
from reprise.rubric.leakage import Scored, fcp_metrics
from reprise.rubric.rollout_log import Rollout, read_log

GRAPH = RubricGraph(
    [Criterion("a", 4), Criterion("b", 6), Criterion("c", 5), Criterion("d", -3)],
    [Edge("a", "b", "strong"), Edge("c", "b", "weak"), Edge("c", "d", "weak")],
)


def rollout(p, step=0, prompt="q", graph=GRAPH, paid=None, **q):
    p = np.array(p, dtype=float)
    return Rollout(graph, p, p if paid is None else np.array(paid), q, step, prompt, "")


@pytest.fixture(scope="module")
def long_log(tmp_path_factory):
    """20,000 responses: 25 steps of 100 prompts with 8 responses each."""
    path = tmp_path_factory.mktemp("log") / "long.jsonl"
    return path, write_log(path, seed=1, prompts=100, steps=25, rollouts=8)


def test_a_criterion_with_two_unmet_parents_leaks_once_and_each_edge_once():
    found = audit([rollout([0.2, 0.9, 0.3, 0.6]), rollout([0.9, 0.9, 0.9, 0.9])])
    leaks = {each.criterion.id: each for each in found.criteria}
    # b holds 6 of 15 points, d 3; each leaks in one of two responses
    assert {id: each.leak.estimate for id, each in leaks.items()} == pytest.approx(
        {"b": 0.9 * 0.4 / 2, "d": 0.6 * 0.2 / 2}
    )
    assert [(str(e.edge), e.violated, e.satisfied) for e in found.edges] == [
        ("a->b (strong)", 1, 1),
        ("c->b (weak)", 1, 1),
        ("c->d (weak)", 1, 1),
    ]
    assert [e.leakage for e in found.edges] == pytest.approx([0.36, 0.36, 0.12])
    assert leaks["b"].share == pytest.approx(0.36 / 0.48)
    assert found.steps[0].leak.estimate == pytest.approx(0.48 / 2) and found.steps[0].leakage == pytest.approx(0.28)
    assert found.growth is None and not any(each.farmed for each in found.criteria)


def test_what_leaks_is_what_was_paid():
    found = audit([rollout([0.2, 0.9, 0.8, 0.6], paid=[0.2, 0.3, 0.8, 0.5], mine=np.array([0.2, 0.1, 0.8, 0.6]))])
    leakage = {name: each.leakage.estimate for name, each in found.fcp.methods.items()}
    # the rule of the paper is computed: .9 (.2 + .8 * .2) (.8 + .2 * .6) = .29808
    expected = {"paid": 0.4 * 0.3, "flat": 0.36, "mine": 0.4 * 0.1, "gear": 0.4 * 0.29808}
    assert leakage == pytest.approx(expected)


def test_an_aggregation_counts_only_where_every_response_has_it():
    found = audit([rollout([0.2, 0.9, 0.8, 0.6], mine=np.zeros(4)), rollout([0.2, 0.9, 0.8, 0.6])])
    assert list(found.fcp.methods) == ["paid", "flat", "gear"]


def test_the_totals_are_those_of_the_metrics_and_the_order_of_rollouts_does_not_matter(monkeypatch):
    rng = np.random.default_rng(0)
    rows = [rollout(rng.random(4), step=int(rng.integers(5)), prompt=f"q{rng.integers(12)}") for _ in range(400)]
    found = audit(rows)
    metrics = fcp_metrics([Scored(r.graph, r.p) for r in rows]).methods["flat"]
    assert found.fcp.methods["paid"].leakage.estimate == pytest.approx(metrics.leakage.estimate)
    assert found.fcp.methods["paid"].preservation.estimate == pytest.approx(metrics.preservation.estimate)
    assert (found.fcp.unit, found.fcp.clusters, found.prompts) == ("prompt", 12, 12)
    monkeypatch.setattr(farming_sums, "ROWS_HELD", 7)
    again = audit(sorted(rows, key=lambda r: (r.prompt, r.step)))
    by_key = [{(c.prompt, c.criterion.id): c.leak.estimate for c in each.criteria} for each in (found, again)]
    assert by_key[0] == pytest.approx(by_key[1])
    assert [s.leak.estimate for s in found.steps] == pytest.approx([s.leak.estimate for s in again.steps])


def test_criteria_are_shared_where_the_log_has_one_rubric_or_where_asked():
    other = RubricGraph([*GRAPH.criteria[:3], Criterion("d", -4)], GRAPH.edges)
    rows = [rollout([0.2, 0.9, 0.3, 0.6], prompt="x"), rollout([0.2, 0.9, 0.3, 0.6], prompt="y")]
    mixed = [rows[0], rollout([0.2, 0.9, 0.3, 0.6], prompt="y", graph=other)]
    assert audit(rows).shared and not audit(mixed).shared
    assert [len(audit(mixed, shared=shared).criteria) for shared in (False, True)] == [4, 2]
    assert audit(mixed, shared=True).criteria[0].responses == 2


def test_the_farmed_criterion_of_a_long_log_comes_first(long_log):
    path, planted = long_log
    found = audit(read_log(path))
    assert found.fcp.responses == 20_000 and len(found.steps) == 25
    first = found.criteria[0]
    assert (first.prompt, first.criterion.id) == planted.farmed
    assert [each for each in found.criteria if each.farmed] == [first]
    # over training its probability without its parents goes from .1 to .9
    assert first.growth.low > 0 and first.leak.low > 0
    steady = next(each for each in found.criteria if (each.prompt, each.criterion.id) == planted.constant)
    assert not steady.farmed and steady.growth.low < 0 < steady.growth.high
    assert steady.leak.estimate > 0.6 * steady.criterion.weight / 60


def test_without_farming_nothing_is_called_farmed(tmp_path):
    for seed in range(2):
        write_log(tmp_path / "still.jsonl", seed=seed, prompts=12, steps=12, farming=False)
        assert not any(each.farmed for each in audit(read_log(tmp_path / "still.jsonl")).criteria)


@pytest.mark.parametrize("prompts, steps, responses", [(1, 2, 2), (1, 5, 2), (1, 2, 4), (3, 2, 8), (1, 12, 8)])
def test_verdicts_of_zero_and_one_name_none_of_forty_criteria_by_chance(prompts, steps, responses):
    """Few responses often agree within a step; that is no evidence that their rate moved."""
    ids = [f"c{k}" for k in range(40)]
    graph = RubricGraph(
        [Criterion("top", 1), *(Criterion(id, 1) for id in ids)], [Edge("top", id, "weak") for id in ids]
    )
    rng = np.random.default_rng(7)
    named = 0
    for _ in range(20):
        draws = rng.random((prompts, steps, responses, 40)) < 0.5
        rows = [rollout([0, *p], s, graph=graph, prompt=str(x)) for (x, s, _), p in each_response(draws)]
        named += any(leak.farmed for leak in audit(rows, shared=True, resamples=1).criteria)
    assert named <= 2  # a run of twenty at 2.5 % exceeds it once in a hundred


def each_response(draws):
    places = np.ndindex(draws.shape[:-1])
    return ((place, draws[place].astype(float)) for place in places)


def test_a_criterion_met_by_nobody_and_then_by_all_is_farmed():
    rows = [rollout([0.0, float(s > 4), 1.0, 0.0], s) for s in range(10) for _ in range(8)]
    (leak,) = audit(rows).criteria
    assert leak.farmed and leak.growth.low > 0


def test_a_prompt_whose_rubric_changes_is_one_prompt():
    graphs = [RubricGraph([*GRAPH.criteria[:3], Criterion("d", -3 - k)], GRAPH.edges) for k in range(4)]
    rows = [rollout([0.2, 0.9, 0.8, 0.6], prompt=str(x), graph=g) for x in range(12) for g in graphs]
    found = audit(rows)
    assert found.prompts == found.fcp.clusters == 12


def test_a_rubric_without_any_weight_leaks_nothing():
    none = RubricGraph([Criterion("a", 0), Criterion("b", 0)], [Edge("a", "b", "weak")])
    found = audit([rollout([0.2, 0.9], graph=none), rollout([0.2, 0.9, 0.8, 0.6], prompt="r")])
    assert found.fcp.violated == 2 and [each.criterion.id for each in found.criteria] == ["b"]


def test_an_aggregation_that_is_called_paid_does_not_replace_what_was_paid():
    p, paid = np.array([0.2, 0.9, 0.8, 0.6]), np.array([0.2, 0.3, 0.8, 0.6])
    found = audit([Rollout(GRAPH, p, paid, {"paid": np.zeros(4)}, 0, "q", "")])
    assert found.fcp.methods["paid"].leakage.estimate == pytest.approx(0.4 * 0.3)


def test_a_growing_penalty_is_no_farming():
    graph = RubricGraph([Criterion("a", 4), Criterion("d", -4)], [Edge("a", "d", "weak")])
    rng = np.random.default_rng(1)
    rows = [rollout([0.1, 0.9 if rng.random() < s / 10 else 0.1], s, graph=graph) for s in range(11) for _ in range(20)]
    (leak,) = audit(rows).criteria
    assert leak.growth.low > 0 and not leak.farmed


def test_nothing_to_account_for():
    with pytest.raises(RubricError, match="^rollouts: none"):
        audit([])
    found = audit([rollout([0.9, 0.9, 0.9, 0.9])])
    assert found.criteria == found.edges == () and found.fcp.methods["paid"].leakage is None


# -- the command -------------------------------------------------------------------------------------------------------


def run(*args):
    return CliRunner().invoke(cli, ["audit", *map(str, args)], catch_exceptions=False)


def test_the_command_names_the_farmed_criterion_first(tmp_path):
    planted = write_log(tmp_path / "log.jsonl", seed=2, prompts=12, steps=25)
    lines = run(tmp_path / "log.jsonl").stdout.splitlines()
    assert lines[0] == "2400 responses to 12 prompts in 25 steps"
    heading = next(k for k, line in enumerate(lines) if line.startswith("farmed: 1 criteri"))
    prompt, criterion = planted.farmed
    assert re.match(rf"{criterion}\s+{prompt}\b", lines[heading + 2])


def test_the_command_as_json(tmp_path, long_log):
    path = tmp_path / "few.jsonl"
    path.write_text("".join(open(long_log[0]).readlines()[:60]) + "{\n")
    found = json.loads(run(path, "--json", "--skip-bad-lines").stdout)
    assert found["fcp"]["responses"] == 60 and len(found["bad_lines"]) == 1
    assert {"estimate", "low", "high"} == set(found["criteria"][0]["leak"])
    assert found["steps"][0]["step"] == 0 and found["edges"][0]["edge"]["type"] in ("weak", "strong")
    assert found["growth"] is None


def test_the_command_refuses_in_one_line(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"rubric_ids": ["a"], "rubric_weights": [1], "p_list": [2]}\n')
    with pytest.raises(RubricError, match=r"bad\.jsonl, line 1: p_list: criterion a: 2: expected a score in \[0, 1\]"):
        run(tmp_path / "bad.jsonl")
    with pytest.raises(RubricError, match="no such file"):
        run(tmp_path / "absent.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"rubric_ids": ["a\\u001b[2J"], "rubric_weights": [1], "p_list": [1]}\n')
    assert "\x1b" not in run(tmp_path / "bad.jsonl").output


def test_the_command_says_when_nothing_leaked(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"rubric_ids": ["a"], "rubric_weights": [1], "p_list": [1]}\n')
    assert run(tmp_path / "log.jsonl").stdout.rstrip().endswith("nothing leaked")


def test_scores_of_a_log_become_rewards(tmp_path):
    edges = [{"parent": "a", "child": "b", "type": "weak"}]
    line = {"step": 2, "rubric_ids": ["a", "b"], "rubric_weights": [1, 1], "p_list": [0.2, 0.9], "graph_edges": edges}
    (tmp_path / "log.jsonl").write_text(json.dumps(line | {"q_list": [0.2, 0.0]}) + "\n")
    result = CliRunner().invoke(cli, ["score", str(tmp_path / "log.jsonl")], catch_exceptions=False)
    found = json.loads(result.stdout)
    rewards = {name: found[name] for name in ("paid", "flat", "hard", "hard_transitive", "gear")}
    assert rewards == pytest.approx({"paid": 0.1, "flat": 0.55, "hard": 0.1, "hard_transitive": 0.1, "gear": 0.406})
    assert (found["step"], found["inference"], len(found["fingerprint"])) == (2, "exact", 32)
    (tmp_path / "log.jsonl").write_text(json.dumps(line | {"rubric_weights": [-1, -1], "prompt_id": "x"}) + "\n")
    with pytest.raises(RubricError, match="^prompt x, step 2: weights .*none is positive"):
        CliRunner().invoke(cli, ["score", str(tmp_path / "log.jsonl")], catch_exceptions=False)


def test_a_reader_that_has_seen_enough_is_no_error():
    with pytest.raises(BrokenPipeError), one_sentence():
        raise BrokenPipeError
