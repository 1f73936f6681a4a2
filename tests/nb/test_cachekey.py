"""What makes a notebook run again: exactly what its results depend on."""

import json

import pytest

from reprise.nb import cachekey, rundir, runner

PACKAGE = {
    "__init__.py": "",
    "errors.py": "",
    "stats.py": "def late():\n    from reprise.errors import RepriseError\n",
    "left/__init__.py": "from .one import thing\n",
    "left/one.py": "from ..stats import late\n\ndef thing():\n    import reprise.floor\n",
    "left/two.py": "",
    "left/shapes.json": "{}",
    "right/__init__.py": "def __getattr__(name):\n    ...\n",
    "right/deep/__init__.py": "",
    "right/deep/part.py": "",
    "floor.py": "from reprise import (\n    named,  # a module, not a name\n)\n",
    "named.py": "",
    "plugin.py": "",
    "loader.py": 'import importlib\nimportlib.import_module("reprise.plugin")\n',
    "circular.py": "import reprise.circle\n",
    "circle.py": "import reprise.circular\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with every way to import, in the place of this one."""
    for name, text in PACKAGE.items():
        path = tmp_path / "reprise" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(cachekey, "PACKAGE", tmp_path / "reprise")
    return tmp_path / "reprise"


@pytest.mark.parametrize(
    "cell, files",
    [
        ("import math", []),
        ("import reprise.stats", ["stats.py", "errors.py"]),
        ("from reprise.stats import late", ["stats.py", "errors.py"]),
        ("from reprise import stats", ["stats.py", "errors.py"]),
        ("def f():\n    import reprise.named", ["named.py"]),
        (
            "from reprise.left import thing",
            [
                "left/__init__.py",
                "left/one.py",
                "left/shapes.json",
                "stats.py",
                "errors.py",
                "floor.py",
                "named.py",
            ],
        ),
        (
            "import reprise.right as r",
            ["right/__init__.py", "right/deep/__init__.py", "right/deep/part.py"],
        ),
        ("import reprise.loader", ["loader.py", "plugin.py"]),
        ("import reprise.circle", ["circle.py", "circular.py"]),
        ("%matplotlib inline\nimport reprise.named", ["named.py"]),
        ("import reprise.named as", []),
        ("import reprised.named", []),
    ],
)
def test_the_import_closure(cell, files, package):
    found = {path.relative_to(package).as_posix() for path in cachekey.closure([cell])}
    assert found - {"__init__.py"} == set(files)


@pytest.fixture
def finished(collection, package):
    """Four notebooks that count as finished, and a function that names those that would run again."""
    collection.add("left/01_one", "from reprise.left import thing", "x = 1", claim=True)
    collection.add("right/01_one", "from reprise import right", claim=True)
    for stem in ("00_overview", "99_scoreboard"):
        collection.add(stem, "pass")
    for system in ("left", "right"):
        (collection.root / "data" / "reported" / system).mkdir(parents=True)
        (collection.root / "data" / "reported" / system / "t.csv").write_text("a\n1\n")
    out = collection.root / "runs" / "smoke"
    jobs = runner.plan([], "smoke", out, {})
    for job in reversed(jobs):  # the scoreboard is looked at last
        rundir.clear(out, job.notebook)
        rundir.executed(out, job.notebook).write_text("{}")
        rundir.records(out, job.notebook).write_text(json.dumps({"type": "header"}) + "\n")
    for job in jobs:
        figure = out / "figures" / job.notebook / "curve.png"
        figure.parent.mkdir(parents=True)
        figure.write_bytes(b"PNG")
        rundir.write_stamp(out, job.notebook, runner.cache_key(job), {}, 1.0)

    def stale(**overrides):
        jobs = runner.plan([], "smoke", out, overrides)
        return [job.notebook for job in jobs if not rundir.is_cached(out, job.notebook, runner.cache_key(job))]

    assert stale() == []
    stale.root, stale.out = collection.root, out
    return stale


def notebook_edit(root, stem, change):
    path = root / "notebooks" / f"{stem}.ipynb"
    document = json.loads(path.read_bytes())
    change(document["cells"])
    path.write_text(json.dumps(document))


def test_a_changed_markdown_cell_or_output_runs_nothing(finished):
    def change(cells):
        cells[0]["source"] = "# Tiny\nother words"
        cells[1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x"}]
        cells[1]["execution_count"] = 7

    notebook_edit(finished.root, "left/01_one", change)
    assert finished() == []


def test_a_changed_title_runs_the_overview_that_shows_it(finished):
    notebook_edit(finished.root, "left/01_one", lambda cells: cells[0].update(source="# Another title"))
    assert finished() == ["00_overview"]


def test_a_changed_code_cell_runs_its_notebook(finished):
    notebook_edit(finished.root, "left/01_one", lambda cells: cells[-1].update(source="x = 2"))
    assert finished() == ["left/01_one"]


def test_a_parameter_runs_the_notebooks_it_reaches(finished):
    assert finished(SEED="1") == ["00_overview", "99_scoreboard", "left/01_one", "right/01_one"]


def test_another_preset_is_another_key(finished):
    smoke, full = (runner.plan(["left"], preset, finished.out, {})[0] for preset in ("smoke", "full"))
    assert runner.cache_key(smoke) != runner.cache_key(full)


@pytest.mark.parametrize(
    "file, affected",
    [
        ("requirements.lock", ["00_overview", "99_scoreboard", "left/01_one", "right/01_one"]),
        ("data/claims/left.yaml", ["00_overview", "99_scoreboard", "left/01_one"]),
        ("data/reported/right/t.csv", ["right/01_one"]),
        ("data/reported/right/deeper/new.csv", ["right/01_one"]),
        ("data/scoreboard.smoke.json", ["00_overview", "99_scoreboard"]),
        ("figures/left/01_curve.csv", ["left/01_one"]),
        ("figures/left/01_curve.png", []),
        ("notebooks/presets.yaml", ["00_overview", "99_scoreboard"]),
        ("README.md", []),
        ("runs/smoke/records/left/01_one.jsonl", ["99_scoreboard"]),
    ],
)
def test_a_changed_file_runs_what_depends_on_it(file, affected, finished):
    path = finished.root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else ""
    path.write_text(before + ("\n# changed\n" if file.endswith(("yaml", "lock")) else "\n"))
    assert finished() == affected


@pytest.mark.parametrize(
    "file, affected",
    [
        ("named.py", ["left/01_one"]),
        ("left/shapes.json", ["left/01_one"]),
        ("left/two.py", []),
        ("right/deep/part.py", ["right/01_one"]),
        ("__init__.py", ["left/01_one", "right/01_one"]),
    ],
)
def test_a_changed_library_file_runs_the_notebooks_that_import_it(file, affected, finished, package):
    (package / file).write_text(PACKAGE[file] + "\n# changed\n")
    assert finished() == affected


def test_another_ending_of_a_notebook_runs_the_scoreboard_that_shows_it(finished):
    def ended(**statuses):
        header = {"notebooks": {stem: {"status": status} for stem, status in statuses.items()}}
        (finished.out / "run.json").write_text(json.dumps(header))

    ended(**{"99_scoreboard": "ok"})
    assert finished() == []
    ended(**{"99_scoreboard": "ok", "left/01_one": "failed"})
    assert finished() == ["99_scoreboard"]


@pytest.mark.parametrize("name", ["figures/left/01_one/curve.png", "notebooks/left/01_one.ipynb"])
def test_a_deleted_result_runs_its_notebook(name, finished):
    (finished.out / name).unlink()
    assert finished() == ["left/01_one"]


def test_an_unreadable_stamp_is_no_stamp(finished):
    (finished.out / "records" / "left" / "01_one.done.json").write_text("[1")
    assert finished() == ["left/01_one"]


def test_the_run_directory_is_no_part_of_the_key(finished, tmp_path):
    (here,), (there,) = (runner.plan(["left"], "smoke", out, {}) for out in (finished.out, tmp_path / "else"))
    assert runner.cache_key(here) == runner.cache_key(there)
