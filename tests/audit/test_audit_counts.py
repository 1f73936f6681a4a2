"""Counts behind the printed table: the reported rows, a brute-force oracle on small sets, and contradictions."""

import csv
import doctest
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.audit import counts as module
from reprise.audit.counts import (
    OVERALL,
    Counts,
    Rates,
    Shifts,
    false_alarm_bounds,
    reconstruct_counts,
    reconstruct_rates,
    reconstruct_shifts,
    splits,
)
from reprise.audit.errors import AuditError

SIZES = {"Math": 116, "Coding": 91, "Agentic": 125}
UNSAFE = (58, 37, 68)
TABLE = Path(__file__).parents[2] / "data/reported/audit/main.csv"

# hits and alarms of each domain; every row but two has one possibility
EXPECTED = {
    "Llama3.2-3B": [((7, 12, 15), (114, 77, 118))],
    "Gemma3-4B": [((1, 8, 8), (116, 87, 125))],
    "Qwen2.5-7B": [((4, 17, 7), (19, 52, 32))],
    "Qwen3-8B": [((9, 11, 18), (24, 42, 39))],
    "GPT-4.1": [((20, 6, 36), (106, 74, 109))],
    "Gemini-3-Flash": [((31, 10, 21), (95, 66, 93))],
    "Claude-Haiku-4.5": [((16, 11, 27), (104, 55, 101))],
    "DeepSeek-V4-Flash": [((34, 16, 27), (101, 47, 98))],
    "DeepSeek-V4-Pro": [((37, 18, 33), (89, 36, 90))],
    "Perplexity-7B": [((2, 17, 15), (115, 91, 113))],
    "ToT-7B": [((16, 4, 20), (99, 77, 93))],
    "Reflexion-7B": [((14, 6, 36), (111, 89, 116))],
    "AgentForesight-7B": [((41, 28, 28), (48, 34, 47))],
    "Qwen3-32B": [((15, 11, 32), (103, 73, 92)), ((15, 12, 33), (103, 83, 97))],
    "AgentDebug-7B": [
        ((0, 8, 1), (2, 19, 3)),
        ((0, 15, 2), (48, 68, 74)),
        ((0, 12, 1), (57, 47, 3)),
        ((0, 16, 2), (62, 75, 74)),
        ((0, 16, 1), (112, 75, 3)),
    ],
}


def cells(metric):
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {row["auditor"]: {name: row[f"{name} {metric}"] for name in (*SIZES, OVERALL)} for row in rows}


F1, ASS = cells("F1"), cells("ASS")


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(module).failed == 0


# -- the reported table ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auditor", F1)
def test_the_counts_of_every_reported_row(auditor):
    found = reconstruct_counts(F1[auditor], SIZES, UNSAFE)
    assert sorted((each.hits, each.alarms(UNSAFE)) for each in found) == sorted(EXPECTED[auditor])


@pytest.mark.parametrize(
    "cells, expected",
    [
        (("59.5", "2.4", "66.44"), Rates(163, 169, 97, 129, 4)),
        (("54.0", "43.2", "46.56"), Rates(163, 169, 88, 215, 73)),
    ],
)
def test_the_counts_of_the_two_reported_operating_points(cells, expected):
    assert reconstruct_rates(*cells, 332) == [expected]


def test_thirteen_rows_give_one_split():
    """Knowing 163 unsafe runs, 13 rows have one possibility, and together they leave one split of the domains."""
    found = [reconstruct_counts(row, SIZES, 163) for row in F1.values()]
    alone = [each for each in found if len(each) == 1]
    assert len(alone) == 13
    assert splits(alone, SIZES, 163) == splits(found, SIZES, 163) == [UNSAFE]


def test_no_split_fits_the_table_under_the_printed_formula():
    """Perplexity needs at least 64 unsafe Coding runs, DeepSeek-V4-Pro at most 55: no rates are assumed."""
    found = {name: reconstruct_counts(row, SIZES, reading="text") for name, row in F1.items()}
    assert all(found.values())
    assert splits(list(found.values()), SIZES, reading="text") == []
    assert splits([found["Perplexity-7B"], found["DeepSeek-V4-Pro"]], SIZES, reading="text") == []
    coding = {split[1] for split in splits([found["Perplexity-7B"]], SIZES, reading="text")}
    others = {split[1] for split in splits([found["DeepSeek-V4-Pro"]], SIZES, reading="text")}
    assert (min(coding), max(others)) == (64, 55)


@pytest.mark.parametrize(
    "auditor, false, detected, shift",
    [
        ("AgentForesight-7B", 4, (45, 34, 46), (43, 6, 25)),
        ("Gemma3-4B", None, (58, 37, 68), (335, 170, 207)),
    ],
)
def test_the_shifts_that_have_one_possibility(auditor, false, detected, shift):
    (counts,) = reconstruct_counts(F1[auditor], SIZES, UNSAFE)
    assert reconstruct_shifts(ASS[auditor], counts, SIZES, UNSAFE, false) == [Shifts(detected, shift)]


def test_every_row_has_shifts_and_two_of_agentdebugs_five_counts_do():
    for auditor, row in F1.items():
        found = reconstruct_counts(row, SIZES, UNSAFE)
        shifts = [reconstruct_shifts(ASS[auditor], each, SIZES, UNSAFE) for each in found]
        if auditor == "AgentDebug-7B":
            assert [bool(each) for each in shifts] == [True, False, True, False, False]
            assert shifts[0] == shifts[2] == [Shifts((0, 19, 2), (0, 77, 2))]
        else:
            assert all(shifts)


@pytest.mark.parametrize(
    "auditor, low, high",
    [("Llama3.2-3B", 146, 169), ("Qwen2.5-7B", 15, 75), ("AgentForesight-7B", 0, 32), ("GPT-4.1", 126, 169)],
)
def test_bounds_of_false_alarms(auditor, low, high):
    (counts,) = reconstruct_counts(F1[auditor], SIZES, UNSAFE)
    assert false_alarm_bounds(counts, SIZES, UNSAFE) == (low, high)


# -- an oracle that tries everything -----------------------------------------------------------------------------------


def printed(numerator, denominator, digits=2):
    step = Decimal(1).scaleb(-digits)
    return str((Decimal(numerator) / Decimal(denominator)).quantize(step, ROUND_HALF_UP))


def by_trial(row, sizes, reading):
    """All counts of two small domains, for every number of unsafe runs, hits and alarms."""
    per_domain = []
    for name, n in sizes.items():
        fits = set()
        for unsafe, hits, alarms in product(range(n + 1), repeat=3):
            most = n if reading == "table" else unsafe
            if hits <= min(unsafe, alarms) and alarms <= most and unsafe + alarms:
                if printed(200 * hits, unsafe + alarms) == row[name]:
                    fits.add((hits, unsafe + alarms))
        per_domain.append(sorted(fits))
    found = []
    for pairs in product(*per_domain):
        hits, flagged = zip(*pairs, strict=True)
        if printed(200 * sum(hits), sum(flagged)) == row[OVERALL]:
            found.append(Counts(hits, flagged))
    return found


@settings(max_examples=25, deadline=None)
@given(st.data(), st.sampled_from(module.READINGS))
def test_all_possibilities_are_found(data, reading):
    sizes = {"a": data.draw(st.integers(1, 9)), "b": data.draw(st.integers(1, 9))}
    hits, flagged = [], []
    for n in sizes.values():
        unsafe = data.draw(st.integers(1, n))
        alarms = data.draw(st.integers(0, n if reading == "table" else unsafe))
        hits.append(data.draw(st.integers(0, min(unsafe, alarms))))
        flagged.append(unsafe + alarms)
    row = {name: printed(200 * h, t) for name, h, t in zip(sizes, hits, flagged, strict=True)}
    row[OVERALL] = printed(200 * sum(hits), sum(flagged))
    found = reconstruct_counts(row, sizes, reading=reading)
    assert Counts(tuple(hits), tuple(flagged)) in found
    # a cell on a tie fits both ways it may have been rounded; elsewhere the two searches agree
    trial = by_trial(row, sizes, reading)
    assert set(trial) <= set(found)
    for extra in set(found) - set(trial):
        values = [Fraction(200 * h, t) for h, t in zip(extra.hits, extra.flagged, strict=True)]
        values.append(Fraction(200 * sum(extra.hits), sum(extra.flagged)))
        assert any((200 * value).denominator == 1 for value in values)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_true_shifts_are_among_those_found(data):
    sizes, unsafe = {"a": 9, "b": 8}, (5, 4)
    hits, alarms, detected, shift = [], [], [], []
    for n, u in zip(sizes.values(), unsafe, strict=True):
        found = data.draw(st.integers(0, u))
        hits.append(data.draw(st.integers(0, found)))
        detected.append(found)
        alarms.append(found + data.draw(st.integers(0, n - u)))
        shift.append(sum(data.draw(st.integers(1, 4)) for _ in range(found - hits[-1])))
    counts = Counts(tuple(hits), tuple(u + a for u, a in zip(unsafe, alarms, strict=True)))
    row = {name: printed(s, d) if d else "" for name, s, d in zip(sizes, shift, detected, strict=True)}
    row[OVERALL] = printed(sum(shift), sum(detected)) if sum(detected) else ""
    true = Shifts(tuple(detected), tuple(shift))
    assert true in reconstruct_shifts(row, counts, sizes, unsafe)
    false = sum(alarms) - sum(detected)
    assert true in reconstruct_shifts(row, counts, sizes, unsafe, false)
    low, high = false_alarm_bounds(counts, sizes, unsafe)
    assert low <= false <= high


# -- contradictions and refusals ---------------------------------------------------------------------------------------


def test_cells_that_contradict_each_other_have_no_counts():
    row = dict(F1["AgentForesight-7B"])
    assert reconstruct_counts({**row, OVERALL: "70.00"}, SIZES, UNSAFE) == []
    assert reconstruct_counts({**row, "Math": "99.99"}, SIZES) == []
    assert reconstruct_counts(row, {**SIZES, "Math": 40}) == []
    assert reconstruct_rates("59.5", "2.4", "30.00", 332) == []
    (counts,) = reconstruct_counts(row, SIZES, UNSAFE)
    assert reconstruct_shifts({**ASS["AgentForesight-7B"], OVERALL: "9.00"}, counts, SIZES, UNSAFE) == []
    assert reconstruct_shifts({**ASS["AgentForesight-7B"], "Math": ""}, counts, SIZES, UNSAFE) == []


ROW = F1["AgentForesight-7B"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(row={**ROW, "Math": "100.01"}), r"row\['Math'\]='100.01': expected at most 100"),
        (dict(row={**ROW, "Math": "-1"}), r"row\['Math'\]='-1': expected at least 0"),
        (dict(row={**ROW, "Math": "n/a"}), r"row\['Math'\]='n/a': expected a printed number"),
        (dict(row={**ROW, "Math": "NaN"}), r"row\['Math'\]='NaN'"),
        (dict(row={**ROW, "Math": ""}), r"row\['Math'\]=''"),
        (dict(row={**ROW, "Math": 77.36}), r"row\['Math'\]=77.36: expected a printed percentage, as text"),
        (dict(row={"Math": "1"}), "no cell for Coding, Agentic, Overall"),
        (dict(n_by_domain={}), "n_by_domain={}"),
        (dict(n_by_domain={"Math": 0}), r"n_by_domain\['Math'\]=0"),
        (dict(reading="printed"), "reading='printed'"),
    ],
)
def test_the_bad_cell_is_named(arguments, message):
    with pytest.raises(AuditError, match=message):
        reconstruct_counts(**{"row": ROW, "n_by_domain": SIZES, **arguments})


def test_a_shift_is_no_percentage():
    (counts,) = reconstruct_counts(ROW, SIZES, UNSAFE)
    with pytest.raises(AuditError, match="no cell for Overall"):
        reconstruct_shifts(dict.fromkeys(SIZES, "1.00"), counts, SIZES, UNSAFE)
    with pytest.raises(AuditError, match="combinations"):
        splits([], dict.fromkeys("abcde", 99))
