"""The parameters cell and presets.yaml."""

import pytest
import yaml

from reprise.nb import presets
from reprise.nb.errors import BadPreset, NotebookRuleBroken, UnknownNotebook, UnknownParameter
from reprise.nb.presets import Parameter, parse_parameters

FIRST = 'SEED: int = 0  # seed of every draw\nOUT: str = ""\n'
CELL = (
    FIRST
    + """n: int = 200_000  # size
lr: float = 1e-6
shapes: list = ["normal", "uniform"]
options: dict = {"a": [1, 2]}
resume: bool = False
name: str = ""
DEVICE: str = "cpu"
"""
)


@pytest.fixture
def notebook(collection):
    collection.add("refit/02_payload", parameters=CELL)
    return collection


def write(collection, text: str) -> None:
    (collection.root / "notebooks" / "presets.yaml").write_text(text)


def test_a_line_becomes_a_parameter():
    parameters, problems = parse_parameters(FIRST + "n: int = 200_000  # size")
    assert problems == []
    assert parameters[0] == Parameter("SEED", "int", 0, "seed of every draw")
    assert parameters[2] == Parameter("n", "int", 200000, "size")


def test_blank_and_comment_lines_and_negative_numbers_are_allowed():
    parameters, problems = parse_parameters(FIRST + "\n# sizes\nx: float = -1.5\ny: list = [-1, 'µ']  # é\n")
    assert problems == [] and [item.default for item in parameters[2:]] == [-1.5, [-1, "µ"]]


@pytest.mark.parametrize(
    "line, problem",
    [
        ("x: int | None = None", "expected a plain type: int, float, str, bool, list, dict"),
        ("x: 'int' = 1", "expected a plain type"),
        ("x: tuple = (1, 2)", "expected a plain type"),
        ("x = 4 * 1024", "expected `NAME: type = literal  # help`"),
        ("x: int = 4 * 1024", "expected a literal, nothing computed"),
        ("x: int = SEED + 1", "expected a literal, nothing computed"),
        ('x: str = f"{SEED}"', "expected a literal, nothing computed"),
        ("x: dict = {[]: 1}", "expected a literal, nothing computed"),
        ('x: str = "a=b"', "expected no `=` or `#` inside a text"),
        ('x: str = "a#b"', "expected no `=` or `#` inside a text"),
        ('x: list = [["a=b"]]', "expected no `=` or `#` inside a text"),
        ('x: dict = {"a#": 1}', "expected no `=` or `#` inside a text"),
        ("x: int = 1; y: int = 2", "expected one statement on one line"),
        ("x: int = 1;", "expected one statement on one line"),
        ("x: list = [\n1]", "expected one statement on one line"),
        ("x, y = 1, 2", "expected `NAME: type = literal  # help`"),
        ("x: int", "expected `NAME: type = literal  # help`"),
        ("x.y: int = 1", "expected `NAME: type = literal  # help`"),
        ("import os", "expected `NAME: type = literal  # help`"),
        ("x: float = 1", "expected a literal of type float"),
        ("x: int = True", "expected a literal of type int"),
        ("x: int = 1.0", "expected a literal of type int"),
        ("x: float = 1e999", "expected a literal of type float"),
        ("x: str = None", "expected a literal of type str"),
        ("Size: int = 1", "expected a lower-case name; only SEED, OUT, DEVICE are capitals"),
        ("SEED: int = 1", "SEED is declared twice"),
        ("x: int = ", "invalid syntax"),
    ],
)
def test_a_line_outside_the_grammar_is_named(line, problem):
    _, problems = parse_parameters(FIRST + line)
    assert problems and problems[0].startswith("line 3: ") and problem in problems[0]


@pytest.mark.parametrize("cell", ["", "n: int = 1", 'OUT: str = ""\nSEED: int = 0', 'SEED: int = 1\nOUT: str = ""'])
def test_seed_and_out_come_first(cell):
    assert parse_parameters(cell)[1] == ['expected `SEED: int = 0` and `OUT: str = ""` as the first two parameters']


def test_all_lines_are_reported_with_the_file(collection):
    path = collection.add("refit/02_payload", parameters=FIRST + "x = 1\ny: str = 2")
    with pytest.raises(
        NotebookRuleBroken, match=r"02_payload.ipynb: parameters cell:\n  line 3: x = 1: .*\n  line 4: y"
    ):
        presets.read_parameters(path)


def test_exactly_one_parameters_cell(collection):
    path = collection.add("refit/02_payload")
    collection.edit("refit/02_payload", '"tags": ["parameters"]', '"tags": []')
    with pytest.raises(NotebookRuleBroken, match="0 cells tagged `parameters`: expected exactly one"):
        presets.read_parameters(path)
    path.write_text("[]")
    with pytest.raises(NotebookRuleBroken, match="not a notebook"):
        presets.read_parameters(path)


def test_smoke_is_the_notebooks_own_literals(notebook):
    values = presets.resolve("refit/02_payload", "smoke")
    assert values == {
        "SEED": 0,
        "OUT": "",
        "n": 200000,
        "lr": 1e-6,
        "shapes": ["normal", "uniform"],
        "options": {"a": [1, 2]},
        "resume": False,
        "name": "",
        "DEVICE": "cpu",
    }


def test_preset_then_override(notebook):
    notebook.add("refit/01_plain")
    write(notebook, "all: {gpu: {DEVICE: cuda}}\nrefit/02_payload: {full: {n: 33554432}, gpu: {n: 1}}\n")
    assert presets.resolve("refit/02_payload", "full")["n"] == 2**25
    gpu = presets.resolve("refit/02_payload", "gpu", {"n": 7})
    assert (gpu["n"], gpu["DEVICE"]) == (7, "cuda")
    assert presets.resolve("refit/01_plain", "gpu") == {"SEED": 0, "OUT": ""}  # it uses no device


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("n", "1_000", 1000),
        ("lr", "1e-5", 1e-5),
        ("lr", "3", 3.0),
        ("resume", "true", True),
        ("shapes", "['normal']", ["normal"]),
        ("options", "{}", {}),
        ("name", "12", "12"),
        ("name", "a=b", "a=b"),
    ],
)
def test_a_text_of_the_command_line_is_read_as_the_parameters_type(notebook, name, text, value):
    got = presets.resolve("refit/02_payload", "smoke", {name: text})[name]
    assert got == value and type(got) is type(value)


@pytest.mark.parametrize(
    "name, value",
    [("n", "many"), ("n", "1.5"), ("lr", "nan"), ("resume", "1"), ("shapes", "{}"), ("n", 1.0), ("lr", 1)],
)
def test_a_value_of_another_type_is_refused(notebook, name, value):
    with pytest.raises(BadPreset, match=f"refit/02_payload: {name}="):
        presets.resolve("refit/02_payload", "smoke", {name: value})


def test_a_negative_seed_is_refused(notebook):
    with pytest.raises(BadPreset, match="^refit/02_payload: SEED=-1: expected 0 or more"):
        presets.resolve("refit/02_payload", "smoke", {"SEED": "-1"})


def test_unknown_names_are_answered_with_the_known_ones(notebook):
    with pytest.raises(UnknownParameter, match="'k': expected one of SEED, OUT, n, lr") as parameter:
        presets.resolve("refit/02_payload", "smoke", {"k": 1})
    with pytest.raises(BadPreset, match="'huge': expected one of smoke, full, gpu") as preset:
        presets.resolve("refit/02_payload", "huge")
    with pytest.raises(UnknownNotebook, match="'refit/09_x': expected one of refit/02_payload") as unknown:
        presets.resolve("refit/09_x", "smoke")
    assert {error.value.exit_code for error in (parameter, preset, unknown)} == {2}


def test_timeouts(notebook):
    assert [presets.timeout("refit/02_payload", name) for name in presets.PRESETS] == [120, 1200, 3600]
    write(notebook, "refit/02_payload: {timeout: {full: 60}}\n")
    assert [presets.timeout("refit/02_payload", name) for name in presets.PRESETS] == [120, 60, 3600]


@pytest.mark.parametrize(
    "config, problem",
    [
        ({"refit/09_x": {"full": {}}}, "refit/09_x: no such notebook"),
        ({"refit/02_payload": {"large": {}}}, "refit/02_payload: large: expected a mapping under one of smoke, full"),
        ({"refit/02_payload": {"full": [1]}}, "refit/02_payload: full: expected a mapping"),
        ({"refit/02_payload": {"smoke": {"n": 1}}}, "refit/02_payload: smoke: expected {}"),
        ({"refit/02_payload": {"full": {"k": 1}}}, "refit/02_payload: full: k: no such parameter, expected one of"),
        ({"refit/02_payload": {"full": {"n": True}}}, "refit/02_payload: full: n=True: expected int"),
        ({"refit/02_payload": {"full": {"lr": 1}}}, "refit/02_payload: full: lr=1: expected float"),
        ({"refit/02_payload": {"timeout": {"full": "1h"}}}, "refit/02_payload: timeout: full='1h': expected seconds"),
        ({"refit/02_payload": {"timeout": {"all": 3}}}, "refit/02_payload: timeout: all=3: expected seconds"),
        ({"all": {"timeout": {}}}, "all: timeout: expected a mapping under one of smoke, full, gpu"),
        ([], ""),
    ],
)
def test_mistakes_in_presets_yaml_are_named(notebook, config, problem):
    write(notebook, yaml.safe_dump(config))
    problems = presets.problems()
    if problem:
        assert len(problems) == 1 and problems[0].startswith(f"presets.yaml: {problem}")
    else:
        assert problems == []


def test_yamls_own_traps_are_explained(notebook):
    write(notebook, "refit/02_payload: {full: {lr: 1e-5}}\n")
    with pytest.raises(
        BadPreset, match="lr='1e-5': expected float, YAML reads a number like 1e-6 as text, write 1.0e-6"
    ):
        presets.resolve("refit/02_payload", "full")
    write(notebook, "refit/02_payload: {full")
    assert presets.problems()[0].startswith("presets.yaml: not YAML")
    write(notebook, "- 1\n")
    assert presets.problems() == ["presets.yaml: expected a mapping of notebooks to mappings of presets"]


def test_papermill_reads_the_same_parameters(notebook):
    papermill = pytest.importorskip("papermill")
    path = notebook.root / "notebooks/refit/02_payload.ipynb"
    theirs = papermill.inspect_notebook(str(path))
    ours = presets.read_parameters(path)
    assert [(name, entry["inferred_type_name"]) for name, entry in theirs.items()] == [(p.name, p.type) for p in ours]
