"""Printed figures recomputed in exact arithmetic, and the tables themselves."""

import csv
import doctest
import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.errors import RepriseError
from reprise.labs import rubric_reported as tables
from reprise.printed import half_up

REPORTED = Path(__file__).parents[2] / "data/reported/rubric"


def rows_of(name):
    with (REPORTED / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(tables).failed == 0


def test_verdicts():
    assert tables.mean("", "66.4", ["56.7", "74.1", "68.4"]).verdict == tables.SAME
    # 66.0667 - 60.0333 prints as 6.0; the printed averages differ by 6.1
    assert tables.difference("", "6.0", ["66.1"], ["60.0"]) == ("", "6.0", "6.1", tables.WITHIN)
    assert tables.mean("", "66.6", ["56.7", "74.1", "68.4"]).verdict == tables.NO
    assert tables.total("", "22.40", ["11.48", "10.92"]).verdict == tables.SAME
    assert tables.share("", "71.20", 250)[2:] == ("178/250", tables.SAME)
    assert tables.share("", "71.30", 250).verdict == tables.NO


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=5))
def test_an_average_printed_from_unrounded_scores_is_never_impossible(hundredths):
    exact = [Fraction(x, 100) for x in hundredths]
    printed = half_up(sum(exact) / len(exact), 1)
    assert tables.mean("", printed, [half_up(x, 1) for x in exact]).verdict != tables.NO


def test_welch_interval_agrees_with_scipy():
    from scipy.stats import ttest_ind

    first, second = np.array([1.0, 2.0, 4.0]), np.array([0.0, 0.5, 0.25])
    theirs = ttest_ind(first, second, equal_var=False).confidence_interval()
    found = tables.welch_interval((first.mean(), first.std(ddof=1)), (second.mean(), second.std(ddof=1)), 3)
    assert found[1:] == pytest.approx((theirs.low, theirs.high))
    for deviations, runs in ((0.0, 3), (1.0, 1)):
        with pytest.raises(RepriseError, match=f"^runs={runs}"):
            tables.welch_interval((1.0, deviations), (0.0, deviations), runs)


def test_the_correlation_that_deviations_imply_is_that_of_the_sample():
    rng = np.random.default_rng(0)
    runs = rng.normal(60, 1, (3, 3)) + rng.normal(0, 1, (3, 1))
    printed = [f"{x:.3f}" for x in runs.std(axis=0, ddof=1)], f"{runs.mean(axis=1).std(ddof=1):.3f}"
    low, high = tables.implied_correlation(*printed)
    covariance = np.cov(runs.T)
    deviations = np.sqrt(np.diag(covariance))
    pairs = [(i, j) for i, j in itertools.combinations(range(3), 2)]
    mean = sum(covariance[p] for p in pairs) / sum(deviations[i] * deviations[j] for i, j in pairs)
    assert low <= mean <= high and high - low < 0.02


@pytest.mark.parametrize("criteria", [1, 2, 4, 5, 7])
def test_candidates_by_enumerating_roles(criteria):
    found = {}
    for roles in itertools.product("fbt", repeat=criteria):
        pairs = sum((a, b) in {("f", "f"), ("f", "b"), ("t", "b")} for a, b in itertools.permutations(roles, 2))
        found.setdefault(roles.count("f"), set()).add(pairs)
    assert tables.possible_candidates(criteria) == {f: sorted(counts) for f, counts in found.items()}


def test_candidates_of_all_foundations():
    assert [tables.possible_candidates(k)[k] for k in (4, 5)] == [[12], [20]]


def test_every_table_names_its_source_and_holds_numbers():
    for path in REPORTED.glob("*.csv"):
        for row in rows_of(path.stem):
            assert row["source"], path.name
    assert len(rows_of("main")) == 18
    assert sum(bool(row["gain average"]) for row in rows_of("main")) == 8
