"""Auditors that score turns, runs that are repaired on an alarm, and the tables the notebook shows."""

import math
from pathlib import Path

import numpy as np
import pytest

from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import SAFE, alarm
from reprise.errors import RepriseError
from reprise.labs import audit_guarantee, audit_rescue, audit_stream
from reprise.labs.agent_runs import MathEnv, SearchEnv, build_corpus
from reprise.labs.audit_guarantee import METHODS, Detector, Scored
from reprise.labs.audit_scorers import LongMath, NGram, checker, noise, readable, safe_runs, scorers
from reprise.traces import Turn, read_logs

SYSTEMS = {"math": MathEnv(), "search": SearchEnv()}
EXAMPLES = Path(__file__).parents[2] / "data" / "examples" / "audit"


@pytest.fixture(scope="module")
def made():
    fit = safe_runs(list(SYSTEMS.values()), 300, 1)
    return scorers(SYSTEMS, fit)


@pytest.fixture(scope="module")
def scored(made):
    unsafe = build_corpus(25, seed=2, domains=("math", "search")).unsafe
    parts = {"safe": safe_runs(list(SYSTEMS.values()), 400, 3), "unsafe": unsafe}
    return {name: Scored.of(runs, made["checker"]) for name, runs in parts.items()}


# -- scorers -----------------------------------------------------------------------------------------------------------


def test_the_ngram_model_matches_a_hand_count():
    # a b a b c: after "a" two b; P0(b) = (2 + 3/4) / (5 + 3) with 3 kinds and 4 words, the unknown one included
    model = NGram(["a b a b c".split()], order=2)
    p0 = (2 + 3 * (1 / 4)) / (5 + 3)
    assert model.surprise(["a", "b"])[1] == pytest.approx(-math.log((2 + 1 * p0) / (2 + 1)))
    assert model.surprise(["z"])[0] == pytest.approx(-math.log(3 * (1 / 4) / 8))


def test_ngram_probabilities_sum_to_one_over_the_vocabulary():
    texts = ["a b a b c".split(), "c c a d".split()]
    for order in (1, 2, 3):
        model = NGram(texts, order)
        for history in ([], ["a"], ["a", "b"], ["z", "b"]):
            total = sum(math.exp(-model.surprise([*history, word])[-1]) for word in "abcdz")
            assert total == pytest.approx(1)


def test_scores_of_a_prefix_are_the_first_scores_of_the_run(made):
    run = safe_runs([SYSTEMS["search"]], 1, 9)[0]
    for k in (0, 3, len(run) - 1):
        part = Trajectory(run.id, run.prefix(k), run.domain, meta=run.meta)
        for scorer in made.values():
            assert scorer([part])[0] == pytest.approx(scorer([run])[0][: k + 1])


def test_the_checker_reads_an_oracle_through_noise_that_is_no_coin():
    runs = [each for each in build_corpus(30, seed=4, domains=("math",)).unsafe]
    clean, noisy = (checker(SYSTEMS, separation, 0)(runs) for separation in (0.0, 5.0))
    added = [b - a for a, b in zip(clean, noisy, strict=True)]
    assert {round(x, 9) for row in added for x in row} == {0.0, 5.0}
    assert all(row[run.decisive_step] == pytest.approx(5) for row, run in zip(added, runs, strict=True))
    pooled = np.concatenate(clean)
    assert abs(pooled.mean()) < 0.2 and abs(pooled.std() - 1) < 0.15
    run = runs[0]
    changed = Trajectory(run.id, (*run.turns[:2], Turn("x", "y", "z")), run.domain)
    assert noise(changed, 0)[:2] == pytest.approx(noise(run, 0)[:2]) and noise(changed, 0)[2] != noise(run, 0)[2]


def test_safe_runs_are_safe_distinct_and_the_same_for_a_seed():
    runs = safe_runs(list(SYSTEMS.values()), 20, 7)
    assert [run.domain for run in runs] == ["math", "search"] * 10 and len({run.id for run in runs}) == 20
    assert runs == safe_runs(list(SYSTEMS.values()), 20, 7)
    for run in runs:
        system, task = SYSTEMS[run.domain], run.meta["task"]
        assert system.omega(task, run.turns)
        assert not any(system.locally_wrong(task, run.turns, k) for k in range(len(run)))
    long = safe_runs([LongMath(p_slip=0.0, p_tool_error=0.0)], 5, 7)
    assert all(8 <= len(run.meta["task"]["operations"]) <= 12 for run in long)
    assert readable("surprise", long) and not readable("trained", long)


# -- methods -----------------------------------------------------------------------------------------------------------


def test_every_method_keeps_its_threshold_rule(scored):
    safe, unsafe = scored["safe"], scored["unsafe"]
    for method in METHODS:
        detector = Detector(method, safe, unsafe)
        thresholds = [detector.threshold(alpha) for alpha in (0.02, 0.1, 0.3)]
        assert thresholds == sorted(thresholds, reverse=True)
        first = detector.alarms(safe, 0.1)
        if method == "run maximum":
            assert np.isfinite(first).sum() <= 0.1 * (len(safe) + 1)
    either, bets = (Detector(method, safe, unsafe) for method in ("either", "martingale"))
    assert either.threshold(0.1) >= bets.threshold(0.1) == pytest.approx(math.log(10))
    with pytest.raises(RepriseError, match="^method='best'"):
        Detector("best", safe, unsafe)


def test_tables_of_rates_costs_and_gains(scored):
    safe, unsafe = scored["safe"], scored["unsafe"]
    rows = audit_guarantee.realised(safe, 100, 100, [0.05, 0.2], unsafe)
    assert len(rows) == 2 * 2 * len(METHODS) and {row["seed"] for row in rows} == {0, 1}
    far = {
        (m, a): np.mean([r["far"] for r in rows if (r["method"], r["alpha"]) == (m, a)])
        for m in METHODS
        for a in (0.05, 0.2)
    }
    assert far["per look", 0.05] > 0.25 > 0.15 > far["run maximum", 0.05] and far["per look", 0.2] > 0.7
    costs = audit_guarantee.cost({"run maximum": Detector("run maximum", safe, unsafe)}, safe, unsafe, [0.05])
    (row,) = costs
    assert row["recall"] <= row["detected"] <= 1 - row["premature"] and row["delay"] >= 0 and row["recall"] > 0.5
    gains = audit_guarantee.gain_of_ranks(safe, unsafe, 150, 200, 0.1)
    assert len(gains) == 2 and all(set(row) == {"by context", "one context"} for row in gains)
    stopped = audit_guarantee.by_turn(Detector("run maximum", safe, unsafe), safe, 0.2, 14)
    assert (np.diff(stopped) >= 0).all() and stopped[-1] <= 0.2


def test_exact_tables():
    for row in audit_guarantee.worst_share(3):
        assert row["worst"] == pytest.approx(row["allowed"]) and row["allowed"] <= row["alpha"]
    reached, mean = audit_guarantee.ville_share(4, 3, 0.25, audit_guarantee.Bet((0, 0.25, 1), (3, 1 / 3)), 0.3)
    assert 0 < reached <= 0.25 and mean == pytest.approx(1)


# -- repairs -----------------------------------------------------------------------------------------------------------


def supervised(system, judge, seed=0):
    task = system.draw_task(np.random.default_rng(seed))
    return task, audit_rescue.supervise(system, task, judge, (seed,))


def test_nobody_changes_nothing_and_the_oracle_leaves_no_wrong_turn():
    for system in SYSTEMS.values():
        for seed in range(30):
            task, alone = supervised(system, lambda prefix: SAFE, seed)
            assert alone.executed == len(alone.turns) and alone.alarms == 0
            judge = audit_rescue.oracle(system, task, "")
            _, watched = supervised(system, judge, seed)
            wrong = [k for k in range(len(alone.turns)) if system.locally_wrong(task, alone.turns, k)]
            assert watched.turns == alone.turns if not wrong else watched.turns[: wrong[0]] == alone.turns[: wrong[0]]
            assert watched.false_alarms == watched.late_alarms == 0


def test_a_clean_turn_is_drawn_again_at_most_twice_and_every_one_counts():
    system = MathEnv(p_slip=0.0, p_tool_error=0.0)
    task, watched = supervised(system, lambda prefix: alarm(2, prefix[2].role) if len(prefix) == 3 else SAFE)
    assert watched.success and watched.alarms == watched.false_alarms == audit_rescue.REPAIRS
    assert watched.executed == len(watched.turns) + audit_rescue.REPAIRS


def test_an_alarm_that_names_an_earlier_turn_takes_back_all_from_there():
    system = MathEnv(p_slip=0.0, p_tool_error=0.0)
    _, watched = supervised(system, lambda prefix: alarm(1, prefix[1].role) if len(prefix) == 4 else SAFE)
    assert watched.executed == len(watched.turns) + 3 * audit_rescue.REPAIRS and watched.success


def test_an_alarm_at_a_right_turn_behind_a_wrong_one_is_late():
    system = MathEnv(p_slip=1.0, p_check=1.0, p_tool_error=0.0)
    _, watched = supervised(system, lambda prefix: alarm(2, prefix[2].role) if len(prefix) == 3 else SAFE)
    assert watched.late_alarms == watched.alarms == audit_rescue.REPAIRS and watched.false_alarms == 0


def test_rescue_pairs_runs_and_random_alarms_rescue_less_than_the_oracle():
    makers = {"oracle": audit_rescue.oracle, "random": audit_rescue.at_random(0.1, 0), "nobody": audit_rescue.nobody}
    rows = {row["auditor"]: row for row in audit_rescue.rescue(SYSTEMS["search"], makers, 60, 1)}
    assert rows["nobody"]["gain"] == rows["nobody"]["extra"] == rows["nobody"]["rescued"] == 0
    assert rows["oracle"]["gain"] > 0.3 > rows["random"]["gain"] and rows["oracle"]["interrupted"] == 0
    for row in rows.values():
        assert row["gain"] == pytest.approx((row["rescued"] - row["broken"]) / row["runs"])
        assert row["broken_late"] <= row["broken"] and row["safe"] + row["failures"] <= row["runs"]
    # per executed turn, the rate that random alarms were asked for; those not heeded a third time are missing
    assert 0.04 < rows["random"]["rate"] < 0.14


def test_stopping_counts_what_is_not_executed(made, scored):
    detector = Detector("per look", scored["safe"], scored["unsafe"])
    found = audit_rescue.stopping(list(SYSTEMS.values()), detector, made["checker"], 0.1, 60, 5)
    assert found["failed"] <= found["failures"] and found["interrupted"] <= found["safe"]
    assert found["failures"] + found["safe"] <= 60 and found["saved"] > found["failed"]


# -- streamed logs -----------------------------------------------------------------------------------------------------


def test_the_swapped_digits_are_found_in_every_example():
    for file in sorted(EXAMPLES.iterdir()):
        for log in read_logs(file):
            rows = audit_stream.streamed(log, log.run or file.name)
            alarms = [row for row in rows if row["seen"] == "alarm"]
            if log.run.endswith("_safe"):
                assert not alarms
                continue
            (row,) = alarms
            assert row["reason"] == "238929 has no source" and row["turn"] == row["step"]
            assert [each["turn"] for each in rows if each["labelled"]] in ([], [row["turn"]])
            assert all(each["seen"] == "not asked" for each in rows[row["turn"] + 1 :])


@pytest.mark.parametrize(
    "turns, step",
    [
        ([("user", "say", "2020?"), ("a", "say", "1234 it is")], 1),
        ([("user", "say", "1000 and 250 and 4000"), ("a", "say", "1000 + 4000 = 5000, 3000 apart")], None),
        ([("user", "say", "?"), ("t", "tool:search", "7777"), ("a", "say", "7777")], None),
        ([("user", "say", "7777"), ("a", "say", "123, nothing else")], None),
    ],
)
def test_unsupported_numbers(turns, step):
    verdict = audit_stream.unsupported_number([Turn(*each) for each in turns])
    assert verdict.step == step


def test_prompt_growth_is_quadratic_without_a_cache_and_linear_with_one():
    (log,) = read_logs(EXAMPLES / "autogen.json")
    rows = [audit_stream.prompt_growth([("x", type(log)(log.turns * times, (), log.format))])[0] for times in (2, 8)]
    assert rows[1]["whole"] > 8 * rows[0]["whole"] and rows[1]["append"] < 4.5 * rows[0]["append"]
    assert all(row["append"] < row["paper"] < row["whole"] for row in rows)
