"""Rules, verdicts and the registry."""

import math
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import yaml
from entries import INTERVAL, MEASURED, RECORDED, REDUCED, claim, document, entry, write_registry
from hypothesis import given
from hypothesis import strategies as st

from reprise.nb import claims, predicates, registry
from reprise.nb.claims import judge, validate
from reprise.nb.errors import BadRegistry
from reprise.nb.registry_checks import expand_rows

numbers = st.floats(-1e9, 1e9)


# ---- rules -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "printed, got, holds",
    [
        ("7.5", 7.549, True),
        ("7.5", 7.55, True),  # half a unit is included
        ("7.5", 7.551, False),
        ("50", 50.6, False),
        ("50", 50.4, True),
        ("1.5e3", 1549.9, True),
        ("1.5e3", 1551, False),
        ("0.612", 0.6124999, True),
        ("0.612", 0.6126, False),
        ("-19.88", -19.875, True),
        ("-19.88", -19.874, False),
        ("75.30", 75.3049, True),
        ("75.30", 75.306, False),
        ("1.0", 1.05, True),  # the float 1.05 lies above, its shortest decimal does not
        ("-0.27", 0.27, False),
        (".41328", 0.41328, True),
        ("0", 0, True),
        ("7.5", Fraction(151, 20), True),
        ("7.5", Decimal("7.551"), False),
    ],
)
def test_rounds_to(printed, got, holds):
    assert judge(claim(reported=printed), got).holds is holds


@given(st.integers(-10_000, 10_000), st.integers(0, 4), st.integers(-60, 60))
def test_rounds_to_is_half_a_unit_whatever_the_scale(digits, places, hundredths):
    printed = str(Decimal(digits).scaleb(-places))
    got = Decimal(digits).scaleb(-places) + Decimal(hundredths).scaleb(-places - 2)
    assert judge(claim(reported=f"{Decimal(printed):f}"), float(got)).holds is (abs(hundredths) <= 50)


def test_arithmetic_of_a_paper_end_to_end():
    kilobytes = 2048 * 20 * 1.5 / 8 / 1024
    assert judge(claim(reported="7.5", kind="analytic"), kilobytes).status == "reproduced"
    assert judge(claim(reported="45.0"), 2048 * 40 * 4.5 / 8 / 1024).holds
    assert judge(claim(reported="6.0"), 45.0 / kilobytes).holds
    assert judge(claim(reported="7.4", unit="%"), 100 * (713 - 664) / 664).holds
    assert not judge(claim(reported="7.3", unit="%"), 100 * (713 - 664) / 664).holds


@pytest.mark.parametrize(
    "fields, good, bad",
    [
        ({"predicate": "equals", "reported": True}, True, False),
        ({"predicate": "equals", "reported": True}, np.True_, 1),
        ({"predicate": "equals", "reported": 61440}, 61440, 61440.0),
        ({"predicate": "equals", "reported": 1}, np.int64(1), True),
        ({"predicate": "equals", "reported": 2}, Fraction(4, 2), Fraction(5, 2)),
        ({"predicate": "equals", "reported": "bits"}, "bits", "bit"),
        ({"predicate": "equals", "reported": [1, 2, 3, 6]}, np.array([1, 2, 3, 6]), [1, 2, 6, 3]),
        ({"predicate": "rounds_to", "reported": ["72.9", "66.7", "78.3"]}, (72.88, 66.74, 78.27), [72.88, 66.74]),
        ({"predicate": "close", "reported": "0.5", "atol": 0.01}, 0.509, 0.511),
        ({"predicate": "close", "reported": 8, "rtol": 0.05}, 8.4, 8.43),
        ({"predicate": "close", "reported": ["1.0", "2.0"], "rtol": 1e-6}, [1.0, 2.0], [1.0, 2.1]),
        ({"predicate": "less", "bound": 0.15}, 0.1499, 0.15),
        ({"predicate": "greater", "bound": 3}, 3.0001, 3),
        ({"predicate": "between", "bound": [1.7, 2.2]}, 1.7, 1.69),
        ({"predicate": "between", "bound": [1, 1]}, 1, 1.0000001),
        ({"predicate": "order", "reported": ["add", "xor"]}, ["add", "xor"], ["xor", "add"]),
        ({"predicate": "sign", "reported": "-0.27"}, -1e-300, 0.0),
        ({"predicate": "sign", "reported": "+6.44"}, 3, -3),
    ],
)
def test_each_rule_holds_and_fails(fields, good, bad):
    assert judge(claim(**fields), good).holds is True
    assert judge(claim(**fields), bad).holds is False


def test_student_interval_agrees_with_tables():
    # W. S. Gosset's distribution at 0.975, as printed in any table
    table = {1: 12.7062, 2: 4.3027, 4: 2.7764, 5: 2.5706, 9: 2.2622, 10: 2.2281, 30: 2.0423, 99: 1.9842}
    assert {degrees: round(predicates.student_quantile(degrees), 4) for degrees in table} == table
    # closed forms at one and two degrees of freedom
    assert predicates.student_quantile(1) == pytest.approx(math.tan(math.pi * 0.475), rel=1e-13)
    assert predicates.student_quantile(2) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)), rel=1e-13)


def test_student_interval_covers_the_mean_at_its_level():
    draws = np.random.default_rng(0).normal(3.0, 2.0, (20_000, 5)).tolist()
    covered = sum(low <= 3.0 <= high for low, high in map(predicates.student_interval, draws))
    assert covered / len(draws) == pytest.approx(0.95, abs=0.005)


def test_interval_judges_the_end_and_not_the_mean():
    less = claim(**INTERVAL)
    seeds = [0.10, 0.12, 0.14, 0.11, 0.13]  # mean 0.12, upper end 0.1396
    assert judge(less, seeds, [9.0] * 5, "full").status == "direction holds"
    assert judge(claim(**{**INTERVAL, "bound": 0.139}), seeds, [9.0] * 5, "full").holds is False
    greater = {**INTERVAL, "side": "greater"}  # lower end 0.1004
    assert judge(claim(**{**greater, "bound": 0.10}), seeds, [0.0] * 5, "full").holds is True
    assert judge(claim(**{**greater, "bound": 0.101}), seeds, [0.0] * 5, "full").holds is False
    assert judge(less, seeds[:4], [9.0] * 5, "full").reason == "4 seeds, expected at least 5"
    assert judge(claim(**{**INTERVAL, "seeds": 6}), seeds, [9.0] * 6, "full").holds is False
    assert judge(less, 0.1, 0.2, "full").reason == "float, expected one number a seed"


@given(numbers, st.floats(-2, 2), st.floats(0.001, 0.05))
def test_close_mirrors_when_every_sign_swaps(reported, shift, rtol):
    got = reported * (1 + shift * rtol)
    positive, negative = (claim(predicate="close", reported=f"{sign}{abs(reported)!r}", rtol=rtol) for sign in "+-")
    assert judge(positive, abs(got)).holds == judge(negative, -abs(got)).holds


@given(numbers, numbers, numbers, st.floats(0, 1e9), st.floats(0, 1e9))
def test_between_is_monotone_in_its_bounds(got, one, other, below, above):
    low, high = sorted((one, other))
    narrow = claim(predicate="between", bound=[low, high])
    wide = claim(predicate="between", bound=[low - below, high + above])
    assert judge(wide, got).holds or not judge(narrow, got).holds


RULES = [
    {"predicate": "equals", "reported": 3},
    {"predicate": "rounds_to"},
    {"predicate": "close", "atol": 1e300},
    {"predicate": "less", "bound": 1e300},
    {"predicate": "greater", "bound": -1e300},
    {"predicate": "between", "bound": [-1e300, 1e300]},
    {"predicate": "order", "reported": ["a", "b"]},
    {"predicate": "sign"},
    {**INTERVAL, "bound": 1e300, "preset": "full"},
]


@pytest.mark.parametrize("fields", RULES, ids=lambda fields: fields["predicate"])
@pytest.mark.parametrize(
    "bad",
    [
        None,
        math.nan,
        math.inf,
        -math.inf,
        np.float64("nan"),
        [],
        [math.nan] * 5,
        [1.0] * 4 + [math.inf],
        {},
        {1, 2},
        object(),
        b"7.5",
        Decimal("sNaN"),
        Decimal("Infinity"),
        Fraction(10**400, 3),
        [[1.0], [2.0]],
        np.ones((2, 2)),
        1j,
    ],
    ids=lambda bad: repr(bad)[:20],
)
def test_a_bad_value_never_holds_and_never_raises(fields, bad):
    verdict = judge(claim(**fields), bad, placebo=1.0 if fields.get("placebo") else None, preset="full")
    assert verdict.holds is False and verdict.status == "not reproduced" and verdict.reason
    assert verdict.line.isascii()


def test_a_value_that_cannot_be_read_is_a_reason():
    assert judge(claim(), 10**400).reason == "integer beyond float64"
    assert judge(claim(), True).reason == "bool, expected a number"
    assert judge(claim(predicate="order", reported=["a", "b"]), ["a", "c"]).reason == "other names than reported"

    class Broken:
        def tolist(self):
            raise RuntimeError("no memory")

    assert judge(claim(), Broken()).reason == "Broken without values (RuntimeError)"


def test_torch_values_are_read():
    torch = pytest.importorskip("torch")
    assert judge(claim(), torch.tensor(7.5, requires_grad=True)).holds
    assert judge(claim(reported=["1.0", "2.0"]), torch.tensor([1.0, 2.0], dtype=torch.bfloat16)).holds


# ---- verdicts --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["exact", "analytic"])
@pytest.mark.parametrize(
    "expect, got, status, agrees",
    [
        ("holds", 7.5, "reproduced", True),
        ("holds", 7.6, "not reproduced", False),
        ("fails", 7.6, "inconsistent as reported", True),
        ("fails", 7.5, "reproduced", False),
        ("fails", math.nan, "not reproduced", False),  # a value that cannot be compared confirms nothing
    ],
)
def test_recomputed_claims_disagree_in_either_direction(kind, expect, got, status, agrees):
    verdict = judge(claim(kind=kind, expect=expect, explain="printed rounded"), got)
    assert (verdict.status, verdict.agrees) == (status, agrees)


@pytest.mark.parametrize(
    "got, placebo, status, reason",
    [
        (0.1, 0.2, "direction holds", ""),
        (0.2, 0.3, "not reproduced", ""),
        (0.1, 0.1, "not reproduced", "placebo passes"),
        (0.1, math.nan, "not reproduced", "placebo: NaN"),
        (None, 0.2, "not reproduced", "no value"),
    ],
)
@pytest.mark.parametrize("expect", ["holds", "fails"])
def test_reduced_claims_need_a_failing_placebo_and_are_never_red(got, placebo, status, reason, expect):
    verdict = judge(claim(**REDUCED, expect=expect, explain="x"), got, placebo)
    surprise = "holds, expected to fail" if (status, expect) == ("direction holds", "fails") else ""
    assert (verdict.status, verdict.reason, verdict.agrees) == (status, reason or surprise, True)


def test_recorded_and_measured_claims_are_not_judged():
    assert judge(claim(**RECORDED), None).status == "recorded only"
    assert judge(claim(**MEASURED), 3.7).status == "measured"
    assert judge(claim(**MEASURED), 3.7).line == judge(claim(**MEASURED), 5.1).line


@pytest.mark.parametrize(
    "preset, own, judged", [("smoke", "full", 0), ("full", "full", 1), ("gpu", "full", 1), ("full", "gpu", 0)]
)
def test_a_claim_is_judged_from_its_own_preset_upwards(preset, own, judged):
    verdict = judge(claim(preset=own), 9.0, preset=preset)
    assert verdict.status == ("not reproduced" if judged else "not run")
    assert verdict.agrees is not bool(judged)
    assert judged or verdict.line.startswith(f"checked at {own} ")


def test_the_line_has_fixed_columns():
    lines = [
        judge(claim(), 7.549).line,
        judge(claim(id="fp4.x", kind="analytic", expect="fails", explain="x"), 9.12345678).line,
        judge(claim(**REDUCED, id="fp4.y", unit=""), 0.1, 0.1).line,
        judge(claim(digits=0), 7.5).line,
    ]
    columns = [(0, 26), (26, 64), (64, 95), (95, 122), (122, None)]
    assert [[line[start:end].strip() for start, end in columns] for line in lines] == [
        ["reproduced", "fp4.cache.per_token", "reported 7.5 KB", "here 7.549", "rounds_to"],
        ["inconsistent as reported", "fp4.x", "reported 7.5 KB", "here 9.123", "rounds_to"],
        ["not reproduced", "fp4.y", "reported 7.5", "here 0.1", "less 0.15 [placebo passes]"],
        ["reproduced", "fp4.cache.per_token", "reported 7.5 KB", "here -", "rounds_to"],
    ]


@pytest.mark.parametrize(
    "fields, got, shown",
    [
        ({}, 1234567.8, "1235000"),
        ({}, 123456, "123456"),  # an integer has no noise
        ({}, 1.5e-7, "1.5e-07"),
        ({}, 2e12, "2e+12"),
        ({}, -0.0, "0"),
        ({"digits": 2}, 2.97531, "3"),
        ({"digits": 2}, 0.02439, "0.024"),
        ({"predicate": "close", "reported": "0", "atol": 1e-12}, 3.3e-17, "0"),  # rounding noise is not shown
        ({}, True, "yes"),
        ({}, [1.23456, 2, "x"], "[1.235, 2, x]"),
        ({}, "naïve\nline", "na\\xefve line"),
        ({}, list(range(100)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,...]"),
        ({}, math.nan, "nan"),
    ],
)
def test_values_are_shown_with_few_digits(fields, got, shown):
    assert claims.printed(claim(**fields), got) == shown


# ---- registry --------------------------------------------------------------------------------------------------------
def problem_of(**fields) -> str:
    problems = validate({"fp4": document(entry(**fields))})
    assert len(problems) == 1, problems
    assert problems[0].startswith(f"fp4.yaml: {entry(**fields).get('id', 'an entry without id')}: ")
    return problems[0].partition(": ")[2].partition(": ")[2]


def test_right_entries_have_no_problems():
    kinds = [{}, REDUCED, INTERVAL, RECORDED, MEASURED, {"expect": "fails", "explain": "x"}]
    entries = [entry(id=f"fp4.x.n{number}", **fields) for number, fields in enumerate(kinds)]
    assert validate({"fp4": document(*entries)}) == []


@pytest.mark.parametrize(
    "fields, problem",
    [
        ({"id": None}, "id: Field required"),
        ({"id": "Fp4.x"}, "id: expected fp4.topic.name in lower case"),
        ({"id": "refit.x.y"}, "id: expected fp4.topic.name"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"kind": "fuzzy"}, "kind='fuzzy': Input should be"),
        ({"predicate": "rounds to"}, "predicate='rounds to': Input should be"),
        ({"predicate": "__import__('os').system('true')"}, "predicate="),
        ({"reported": 7.5}, "reported: 7.5: expected quotes around it"),
        ({"reported": ["7.5", 7.6]}, "reported: 7.6: expected quotes around it"),
        ({"reported": "7,5"}, "reported='7,5': expected a number as printed, in quotes"),
        ({"reported": 7}, "reported=7: expected a number as printed, in quotes"),
        ({"reported": "NaN"}, "reported='NaN': expected a number"),
        ({"reported": "1e999"}, "reported='1e999': expected a number"),
        ({"reported": []}, "reported=[]: expected a value"),
        ({"predicate": "less", "bound": 1, "reported": "≤ 1"}, "reported='≤ 1': expected ASCII"),
        ({"unit": "µs"}, "unit='µs': expected ASCII"),
        ({"what": " "}, "what: expected a text"),
        ({"notebook": "guidance"}, "notebook='guidance': expected fp4/<NN_topic>"),
        ({"notebook": "refit/01_x"}, "notebook='refit/01_x': expected fp4/<NN_topic>"),
        ({"preset": "tiny"}, "preset='tiny': Input should be"),
        ({"expect": "fails"}, "explain: expected why it fails"),
        ({**RECORDED, "explain": ""}, "explain: expected why it fails, or why it is only recorded"),
        ({**RECORDED, "expect": "fails"}, "expect='fails': expected a claim that is judged"),
        ({"kind": "recorded", "explain": "x"}, "predicate='rounds_to': expected `none` for recorded"),
        ({"predicate": "none"}, "predicate='none': expected `none` for recorded"),
        ({**REDUCED, "placebo": ""}, "placebo='': expected what is switched off"),
        ({"placebo": "noise"}, "placebo='noise': expected what is switched off, for reduced claims and only for them"),
        ({**INTERVAL, "preset": "smoke"}, "predicate='interval': expected a reduced claim with `preset: full`"),
        ({**INTERVAL, "seeds": 4}, "side='less', seeds=4: expected less or greater, and at least 5 seeds"),
        ({**INTERVAL, "side": None}, "side=None, seeds=5: expected"),
        ({**INTERVAL, "bound": [1, 2]}, "bound=[1.0, 2.0]: expected a number"),
        ({"predicate": "less"}, "bound=None: expected a number"),
        ({"predicate": "between", "bound": [2, 1]}, "bound=[2.0, 1.0]: expected [low, high]"),
        ({"predicate": "close"}, "rtol=None, atol=None: expected at least one above 0"),
        ({"predicate": "close", "rtol": 0.1}, "rtol=0.1: expected at most 0.05, or `explain`"),
        ({"predicate": "close", "atol": -1}, "rtol=None, atol=-1.0: expected at least one above 0"),
        ({"predicate": "close", "atol": math.inf}, "atol=inf: Input should be a finite number"),
        ({"rtol": 0.01}, "rtol: not used by predicate 'rounds_to'"),
        ({"seeds": 5}, "seeds: not used by predicate 'rounds_to'"),
        ({"predicate": "order"}, "reported='7.5': expected a list of names, best first"),
        ({"predicate": "sign", "reported": "0.0"}, "reported='0.0': expected one number with a sign"),
        ({"digits": 7}, "digits=7: Input should be 0, 2 or 4"),
        ({"paper": "mnl"}, "paper='mnl': expected one of papers: none"),
    ],
)  # fmt: skip
def test_each_mistake_is_named(fields, problem):
    assert problem_of(**fields).startswith(problem)


def test_all_problems_of_all_files_are_listed_at_once(collection):
    collection.add("fp4/03_guidance_cost")
    collection.add("rubric/01_x")
    write_registry(collection.root, entry(kind="fuzzy", unit=7), entry(id="fp4.a"), entry(id="fp4.a"))
    (collection.root / "data/claims/rubric.yaml").write_text("system: rubric\ntitle: a: b: c\n")
    (collection.root / "data/claims/audit.yaml").write_text("- 1\n")
    (collection.root / "data/claims/memory.yaml").write_text(
        "system: mnemonic\ntitle: x\nclaims:\n- {id: mnemonic.x.y, id: mnemonic.x.z}\n"
    )
    with pytest.raises(BadRegistry) as caught:
        claims.load()
    message = str(caught.value)
    for part in (
        "fp4.yaml: fp4.cache.per_token: kind='fuzzy'",
        "fp4.yaml: fp4.cache.per_token: unit=7: Input should be a valid string",
        "fp4.yaml: fp4.a: id is used twice",
        "rubric.yaml: line 2: mapping values are not allowed",
        "audit.yaml: list: expected a mapping",
        "memory.yaml: line 4: key 'id' stands 2 times",
    ):
        assert part in message
    assert message.startswith("6 problems in data/claims:")


@pytest.mark.parametrize(
    "planned, built, problem",
    [
        (False, True, None),
        (True, False, None),
        (True, True, "notebook='fp4/03_guidance_cost': exists, expected no `planned`"),
        (False, False, "notebook='fp4/03_guidance_cost': does not exist, expected `planned: true`"),
    ],
)
def test_planned_means_that_the_notebook_is_not_there(collection, planned, built, problem):
    if built:
        collection.add("fp4/03_guidance_cost")
    write_registry(collection.root, entry(planned=planned))
    if problem is None:
        assert list(claims.load()) == ["fp4.cache.per_token"]
    else:
        with pytest.raises(BadRegistry, match=problem):
            claims.load()


def test_rows():
    assert expand_rows(["C1-C3", "C10-C11", "C7"]) == ["C1", "C2", "C3", "C10", "C11", "C7"]
    assert expand_rows(["E1-3", "dmad-generator", "A1-B2"]) == ["E1", "E2", "E3", "dmad-generator", "A1-B2"]


def test_every_row_needs_a_claim_and_no_claim_another_row():
    one, two = entry(row="C1"), entry(id="fp4.b", row=["C2", "C9"])
    assert validate({"fp4": document(one, two, rows=["C1-C4"])}) == [
        "fp4.yaml: rows: no claim for C3, C4",
        "fp4.yaml: fp4.b: row=C9: not among the file's rows",
    ]
    assert validate({"fp4": document(one, two, rows=["C1-C2", "C9"])}) == []
    assert validate({"fp4": document(one, rows=["C1", "C1"])}) == ["fp4.yaml: rows: C1 is listed twice"]


def test_a_file_of_several_papers():
    papers = {"mnl": {"title": "A"}, "daedalus": {"title": "B", "year": 2026}}
    assert validate({"fp4": document(entry(paper="mnl"), papers=papers)}) == []
    problem = "fp4.yaml: fp4.cache.per_token: paper='': expected one of papers: mnl, daedalus"
    assert validate({"fp4": document(entry(), papers=papers)}) == [problem]


def test_the_file_must_bear_its_systems_name():
    assert validate({"rubric": document()}) == ["rubric.yaml: system='fp4': expected the file's stem 'rubric'"]


def test_cells_of_a_reported_table_become_claims(collection):
    collection.add("fp4/03_guidance_cost")
    table = collection.root / "data/reported/fp4/main.csv"
    table.parent.mkdir(parents=True)
    table.write_text("model,AIME 24,LCB,source\nQwen3-8B,63.50,81.7,table 2\nTRACE,,78.80,table 3\n")
    generated = {
        **{name: value for name, value in entry(**RECORDED, row="C10").items() if name not in ("reported", "source")},
        "table": "main.csv",
        "id": "fp4.main.{row}.{col}",
        "what": "{col} of {row}",
    }
    write_registry(collection.root, rows=["C10"], claims_from=generated)
    found = claims.load()
    assert list(found) == ["fp4.main.qwen3_8b.aime_24", "fp4.main.qwen3_8b.lcb", "fp4.main.trace.lcb"]
    first = found["fp4.main.qwen3_8b.aime_24"]
    assert (first.reported, first.source, first.what, first.row) == ("63.50", "table 2", "AIME 24 of Qwen3-8B", "C10")

    write_registry(collection.root, claims_from=[{**generated, "table": "other.csv"}])
    with pytest.raises(BadRegistry, match="claims_from: table='other.csv': no such file"):
        claims.load()


def test_a_registry_survives_yaml(collection):
    collection.add("fp4/03_guidance_cost")
    entries = [entry(), entry(**INTERVAL, id="fp4.i"), entry(**RECORDED, id="fp4.r", reported=["0.6", "1.2"])]
    write_registry(collection.root, *entries)
    first = claims.load()
    dumped = [claim.model_dump(exclude_defaults=True) for claim in first.values()]
    write_registry(collection.root, *yaml.safe_load(yaml.safe_dump(dumped)))
    assert claims.load() == first
    assert dumped[0] == entries[0]


def test_one_system_can_be_read_alone(collection):
    collection.add("fp4/03_guidance_cost")
    write_registry(collection.root, entry())
    (collection.root / "data/claims/rubric.yaml").write_text("broken: [")
    assert list(registry.load(collection.root, ["fp4"])) == ["fp4.cache.per_token"]


def test_judging_loads_no_heavy_library():
    code = "import sys, reprise.nb.records, reprise.nb.scoreboard, reprise.nb.rules; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "pandas", "matplotlib", "torch", "papermill", "nbformat"} & set(loaded)
