"""The reported table of auditors: what its counts leave possible, and looks at safe runs."""

import csv
import doctest
from pathlib import Path

import numpy as np
import pytest

from reprise.audit.counts import reconstruct_counts
from reprise.audit.metrics import audit_metrics
from reprise.labs import audit_reported as tables

REPORTED = Path(__file__).parents[2] / "data/reported/audit"
SIZES = {"Math": 116, "Coding": 91, "Agentic": 125}
UNSAFE = (58, 37, 68)
FALSE_ALARMS = {"AgentForesight-7B": 4, "DeepSeek-V4-Pro": 73}


def rows():
    with (REPORTED / "main.csv").open(newline="", encoding="utf-8") as file:
        return {row["auditor"]: row for row in csv.DictReader(file)}


ROWS = rows()
POSSIBLE = {name: tables.possibilities(row, SIZES, UNSAFE, FALSE_ALARMS.get(name)) for name, row in ROWS.items()}
ENDS = {name: tables.ends(each, SIZES, UNSAFE) for name, each in POSSIBLE.items()}


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(tables).failed == 0


def test_the_table_has_fifteen_rows_with_a_source():
    assert len(ROWS) == 15 and all(row["source"] for row in ROWS.values())


@pytest.mark.parametrize(
    "auditor, low",
    [
        ("Llama3.2-3B", 86.4),
        ("Gemma3-4B", 97.6),
        ("GPT-4.1", 74.6),
        ("Claude-Haiku-4.5", 57.4),
        ("Gemini-3-Flash", 53.8),
        ("DeepSeek-V4-Flash", 49.1),
    ],
)
def test_least_false_alarm_rates_by_f1_alone(auditor, low):
    assert round(ENDS[auditor].far[0], 1) == low


@pytest.mark.parametrize(
    "auditor, high, with_shift", [("Qwen2.5-7B", 44.4, 28.4), ("Qwen3-8B", 39.6, 21.9), ("Gemma3-4B", 100, 97.6)]
)
def test_greatest_false_alarm_rates(auditor, high, with_shift):
    assert (round(ENDS[auditor].far[1], 1), round(ENDS[auditor].far_with_shift[1], 1)) == (high, with_shift)


def test_f1_by_the_printed_formula_where_false_alarms_are_printed():
    ours, best = ENDS["AgentForesight-7B"].text_f1, ENDS["DeepSeek-V4-Pro"].text_f1
    assert ours[0] == ours[1] == pytest.approx(67.36, abs=0.005)
    assert best[0] == best[1] == pytest.approx(57.70, abs=0.005)


def test_shifts_narrow_every_interval():
    for each in ENDS.values():
        assert each.far[0] <= each.far_with_shift[0] <= each.far_with_shift[1] <= each.far[1]
        assert each.text_f1[0] <= each.text_f1[1]


@pytest.mark.parametrize("auditor", ROWS)
def test_runs_made_from_counts_score_what_is_printed(auditor):
    counts, shifts = POSSIBLE[auditor][0]
    scored = audit_metrics(tables.runs(counts, shifts[0], SIZES, UNSAFE))
    parts = {**scored.by, "Overall": scored}
    assert {name: part.unsafe for name, part in scored.by.items()} == dict(zip(SIZES, UNSAFE, strict=True))
    for name, part in parts.items():
        assert f"{part.exact_f1_table:.2f}" == ROWS[auditor][f"{name} F1"]
        shown = ROWS[auditor][f"{name} ASS"]
        assert part.ass is None if shown == "" else abs(part.ass - float(shown)) <= 0.005 + 1e-12
    f1 = [part.exact_f1_table for part in parts.values()]
    assert tables.f1_cells(counts) == f1
    assert tables.shift_cells(shifts[0]) == [part.ass for part in parts.values()]


def test_unsafe_runs_that_a_row_allows():
    found = {name: reconstruct_counts(tables.cells(row, "F1", SIZES), SIZES) for name, row in ROWS.items()}
    allowed = tables.unsafe_allowed(found, SIZES, "Coding", "text")
    assert ("Perplexity-7B", 64, 91) in allowed and ("DeepSeek-V4-Pro", 37, 55) in allowed
    assert ("Perplexity-7B", 37, 91) in tables.unsafe_allowed(found, SIZES, "Coding", "table")


def test_looks_compound():
    once = tables.by_chance(0.1, 2_000, 11.5, "single_look", np.random.default_rng(0))
    every = tables.by_chance(0.1, 2_000, 11.5, "replay", np.random.default_rng(0))
    assert once.far == pytest.approx(10, abs=2)
    # E[1 - 0.9^N], N = 3 + Poisson(8.5)
    assert every.far == pytest.approx(100 * (1 - 0.9**3 * np.exp(-8.5 * 0.1)), abs=3)


def test_metrics_as_text():
    counts, shifts = POSSIBLE["Gemma3-4B"][0]
    scored = audit_metrics(tables.runs(counts, shifts[0], SIZES, UNSAFE))
    assert tables.formatted(scored, ["far", "mean_delay"]) == ["97.6", "-"]
