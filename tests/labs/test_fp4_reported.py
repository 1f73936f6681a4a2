"""Arithmetic on printed scores, and the reported tables themselves."""

import csv
from math import comb, sqrt
from pathlib import Path

import pytest

from reprise.errors import RepriseError
from reprise.labs import fp4_reported as arithmetic
from reprise.nb import claims

ROOT = Path(__file__).parents[2]
BENCHMARKS = ["LCB", "AIME24", "AIME25", "HMMT25"]


def table(name, key):
    with (ROOT / "data/reported/fp4" / name).open(newline="", encoding="utf-8") as stream:
        return {line[key]: line for line in csv.DictReader(stream)}


def test_gain_is_exact_where_floats_are_not():
    assert arithmetic.gain("66.4", "60.4") == "6.0"
    assert arithmetic.gain("83.1", "83.3") == "-0.2"
    assert 66.4 - 60.4 != 6.0


def test_sampling_error_is_an_upper_bound():
    """Two problems solved with 0.9 and 0.5: the exact variance of the mean of 3 answers each, by enumeration."""
    solved, samples = (0.9, 0.5), 3
    mass = [[comb(samples, k) * p**k * (1 - p) ** (samples - k) for k in range(samples + 1)] for p in solved]
    outcomes = [((i + j) / (2 * samples), a * b) for i, a in enumerate(mass[0]) for j, b in enumerate(mass[1])]
    mean = sum(x * w for x, w in outcomes)
    exact = 100 * sqrt(sum((x - mean) ** 2 * w for x, w in outcomes))
    assert mean == pytest.approx(0.7)
    assert exact < arithmetic.sampling_error(70, 2, samples) == pytest.approx(100 * sqrt(0.7 * 0.3 / 6))


def test_difference_error_adds_variances():
    one = arithmetic.sampling_error(60, 30, 4)
    assert arithmetic.difference_error(["60"], ["40"], 30, 4, of=1) == pytest.approx(sqrt(2) * one)
    assert arithmetic.difference_error(["60", "60"], ["40", "40"], 30, 4, of=4) == pytest.approx(2 * one / 4)
    assert arithmetic.difference_error([], [], 30, 4) == 0


def test_every_printed_average_and_gain_follows_but_one_needs_rounding_first():
    scores = {
        row: {name: line[name] for name in [*BENCHMARKS, "average"]} for row, line in table("scores.csv", "row").items()
    }
    found = arithmetic.audit(scores, table("gains.csv", "row"))
    assert len(found) == 21 + 47 + 12 + 12
    far = [(one["kind"], one["row"]) for one in found if abs(one["offset"]) > 0.5]
    assert far == [("gain of exact averages", "wa_trace")]
    assert all(one["offset"] == 0 for one in found if one["kind"] in ("gain", "gain of printed averages"))


def test_registry_and_tables_print_the_same_scores():
    registry = claims.load(ROOT, ["fp4"])
    for row, line in table("scores.csv", "row").items():
        assert registry[f"fp4.scores.{row}"].reported == [line[name] for name in [*BENCHMARKS, "average"]], row
    names = {"Qwen3.5-122B-A10B": "m122b", "Qwen3.8-Flash-Next": "flash_next", "Qwen3.8-2.4T-A95B": "m2400b"}
    for model, line in table("larger_models.csv", "model").items():
        reported = registry[f"fp4.scores.{names[model]}"].reported
        assert reported == [line[name] for name in ("BF16", "QAT", "QUADS", "TRACE")]


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: arithmetic.mean([]), "printed="),
        (lambda: arithmetic.sampling_error(101, 30, 1), "percent=101"),
        (lambda: arithmetic.sampling_error(50, 30, 0), "problems=30, samples=0"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(RepriseError, match=f"^{name}"):
        call()
