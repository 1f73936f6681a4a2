"""Notebook commands: what they print, and with which exit code they end."""

import json
import resource
import shutil
import subprocess
import sys

import pytest
from tiny import RECORDED

from reprise import cli
from reprise.nb import doctor, progress, publish, rundir, runner
from reprise.nb.jobs import Outcome


@pytest.fixture
def reprise(monkeypatch, capsys):
    """Runs `reprise` in this process; (exit code, standard output, standard error)."""

    def invoke(*arguments: str):
        monkeypatch.setattr(sys, "argv", ["reprise", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code or 0
        return code, *capsys.readouterr()

    return invoke


@pytest.fixture
def judged(collection):
    """A notebook whose claim holds, as if it had run: its record and stamp are there."""
    stem = "demo/01_recorded"
    collection.add(stem, RECORDED.format(notebook=stem, system="demo", got="2"), claim=True, title="# One and one")
    out = collection.root / "runs" / "smoke"
    (job,) = runner.plan([], "smoke", out, {})
    with rundir.opened(out):
        rundir.clear(out, stem)
    shutil.copy(job.path, rundir.executed(out, stem))
    header = {"type": "header", "notebook": stem, "preset": "smoke", "parameters": {"SEED": 0}, "started": "2026-01-02"}
    claim = {"type": "claim", "id": "demo.sum.two", "kind": "exact", "status": "reproduced", "holds": True}
    claim |= {"placebo_holds": None, "agrees": True, "reason": "", "got": 2, "placebo": None, "here": "2"}
    lines = [header, claim, {"type": "close", "unchecked": [], "disagree": []}]
    rundir.records(out, stem).write_text("".join(json.dumps(line) + "\n" for line in lines))
    rundir.write_stamp(out, stem, runner.cache_key(job), {}, 3.5)
    rundir.point_latest(collection.root, out)
    return collection


def test_list_names_notebooks_titles_presets_and_what_they_change(reprise, judged):
    (judged.root / "notebooks" / "presets.yaml").write_text(
        "demo/01_recorded: {full: {SEED: 5}, timeout: {full: 77}}\n"
    )
    assert reprise("list") == (
        0,
        "demo/01_recorded\n  One and one\n  smoke  up to 120 s\n  full   up to 77 s  SEED=5\n  gpu    up to 3600 s\n",
        "",
    )


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["run", "nope"], "error: notebook 'nope': expected a system, a pattern, or one of demo/01_recorded\n"),
        (["run", "--preset", "big"], "error: preset 'big': expected one of smoke, full, gpu\n"),
        (["run", "-p", "n=1"], "error: demo/01_recorded has no parameter 'n': expected one of SEED, OUT\n"),
        (["run", "-p", "SEED=x"], "error: demo/01_recorded: SEED='x': expected int\n"),
        (["run", "-p", "SEED=-1"], "error: demo/01_recorded: SEED=-1: expected 0 or more"),
        (["run", "-p", "SEED"], "-p SEED: expected NAME=VALUE"),
        (["run", "-j", "0"], "Invalid value for '-j'"),
        (["refresh", "nope"], "error: notebook 'nope'"),
    ],
)
def test_a_usage_error_starts_nothing_and_ends_with_2(arguments, complaint, reprise, judged):
    code, printed, complained = reprise(*arguments)
    assert (code, printed) == (2, "") and complaint in complained


def test_a_run_directory_that_is_a_file_starts_nothing_and_ends_with_2(reprise, judged, tmp_path):
    (tmp_path / "file").touch()
    code, printed, complained = reprise("run", "--out", str(tmp_path / "file"))
    assert (code, printed) == (2, "") and complained.startswith(f"error: run directory {tmp_path / 'file'}: ")


def test_a_folder_that_is_no_run_directory_starts_nothing_and_ends_with_2(reprise, judged, tmp_path):
    mine = tmp_path / "mine" / "notebooks" / "demo" / "01_recorded.ipynb"
    mine.parent.mkdir(parents=True)
    mine.write_text("{}")
    code, printed, complained = reprise("run", "--out", str(tmp_path / "mine"))
    assert (code, printed) == (2, "")
    assert complained == f"error: run directory {tmp_path / 'mine'}: holds other files, " + (
        "expected an empty folder or a run's\n"
    )
    assert [path for path in (tmp_path / "mine").rglob("*") if path.is_file()] == [mine]


def test_run_prints_where_the_scoreboard_is_and_ends_with_the_count(reprise, judged, monkeypatch):
    monkeypatch.chdir(judged.root)
    code, printed, _ = reprise("run")
    assert code == 0
    assert printed.splitlines() == [
        "cached         demo/01_recorded",
        "scoreboard: runs/smoke/scoreboard.html",
        "1 passed, 0 failed",
    ]
    out = judged.root / "runs" / "smoke"
    assert json.loads((out / "scoreboard.json").read_bytes())["claims"][0]["status"] == "reproduced"
    assert "demo.sum.two" in (out / "scoreboard.html").read_text()
    assert (out / "scoreboard.csv").read_text().startswith("id,system,")


def test_compare_lists_statuses_that_differ_from_the_committed_ones(reprise, judged):
    assert reprise("run", "--compare")[0] == 0, "nothing is committed yet"
    code, printed, _ = reprise("scoreboard", "--commit")
    committed = judged.root / "data" / "scoreboard.smoke.json"
    assert code == 0 and "scoreboard.smoke.json" in printed and committed.exists()
    assert reprise("run", "--compare")[0] == 0
    committed.write_text(committed.read_text().replace("reproduced", "not reproduced"))
    code, printed, _ = reprise("run", "--compare")
    assert code == 1
    assert "  demo.sum.two: reproduced, committed not reproduced (2026-01-02)" in printed.splitlines()
    assert printed.splitlines()[-1] == "1 passed, 0 failed"
    assert reprise("run", "--compare")[0] == 1, "also when nothing was written anew"
    assert reprise("run")[0] == 0, "statuses are compared on request only"


CACHED = """
import sys
from reprise.cli import main
sys.argv = ["reprise", "run", "--compare"]
try:
    main()
except SystemExit as ended:
    assert not ended.code
heavy = {"numpy", "pandas", "matplotlib", "torch", "papermill", "nbformat", "pydantic", "psutil"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


def test_a_cached_run_loads_nothing_heavy(reprise, judged):
    reprise("run")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", CACHED], check=True, stdout=subprocess.DEVNULL, cwd=judged.root)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1


def test_a_failed_notebook_is_told_with_its_cell_and_ends_with_1(reprise, collection):
    collection.add("demo/01_raises", "{}['key']", claim=True)
    code, printed, _ = reprise("run", "-p", "SEED=4")
    first, *_, last = printed.splitlines()
    assert code == 1 and last == "0 passed, 1 failed"
    assert first.startswith("failed         demo/01_raises") and first.endswith("code cell 2: KeyError: 'key'")
    out = collection.root / "runs" / "smoke"
    header = json.loads((out / "run.json").read_bytes())
    assert header["overrides"] == {"demo/01_raises": {"SEED": 4}}
    failed = [["not", "run", "demo.sum.two", "its", "notebook", "failed"]]
    assert [line.split() for line in reprise("claims")[1].splitlines()] == failed
    assert json.loads(reprise("claims", "--json")[1])["claims"][0]["reason"] == "its notebook failed"
    assert json.loads((out / "scoreboard.json").read_bytes())["claims"][0]["reason"] == "its notebook failed"
    # the ending alone changes what the files show
    (out / "run.json").write_text(json.dumps({**header, "notebooks": {}}))
    publish.update(out, "smoke")
    assert json.loads((out / "scoreboard.json").read_bytes())["claims"][0]["reason"] == "not part of this run"


def test_claims_come_from_the_named_run_else_the_latest_else_the_committed(reprise, judged):
    def statuses(*arguments):
        code, printed, _ = reprise("claims", "--json", *arguments)
        assert code == 0
        return {entry["id"]: (entry["status"], entry["origin"]) for entry in json.loads(printed)["claims"]}

    assert statuses() == {"demo.sum.two": ("reproduced", "run")}
    reprise("scoreboard", "--commit")
    shutil.move(judged.root / "runs" / "smoke", judged.root / "elsewhere")
    assert statuses() == {"demo.sum.two": ("reproduced", "committed")}
    assert statuses(str(judged.root / "elsewhere")) == {"demo.sum.two": ("reproduced", "run")}
    code, printed, which = reprise("claims")
    assert printed.split() == ["reproduced", "demo.sum.two", "2", "smoke", "2026-01-02"]
    assert which == "the committed results, no run\n"
    code, _, complained = reprise("claims", str(judged.root / "nowhere"))
    assert code == 1 and "nowhere" in complained


def test_text_names_the_run_shown_and_marks_what_it_did_not_compute(reprise, judged, monkeypatch):
    monkeypatch.chdir(judged.root)
    registry = judged.root / "data" / "claims" / "demo.yaml"
    entry = registry.read_text().partition("claims:")[2].rstrip()
    registry.write_text(registry.read_text().rstrip() + entry.replace("sum.two", "sum.later") + "\n    preset: full\n")
    verdict = {"notebook": "demo/01_recorded", "status": "not reproduced", "here": "3", "reason": "", "got": 3}
    committed = {"notebooks": {"demo/01_recorded": {"date": "2026-01-03"}}, "claims": {"demo.sum.later": verdict}}
    (judged.root / "data" / "scoreboard.full.json").write_text(json.dumps(committed))
    shown = "runs/smoke: preset smoke, 1 of 1 notebooks\n"
    code, printed, which = reprise("claims")
    assert [line.split() for line in printed.splitlines()] == [
        ["reproduced", "demo.sum.two", "2"],
        ["not", "reproduced", "demo.sum.later", "3", "full", "2026-01-03"],
    ]
    assert (code, which) == (0, shown)
    code, printed, which = reprise("scoreboard")
    assert (code, which) == (0, shown)
    assert printed.splitlines()[2:] == [
        "1 of these statuses are committed ones of a larger preset",
        "not reproduced: demo.sum.later: reported 2, here 3, full 2026-01-03",
    ]
    assert reprise("claims", "--json")[2] == ""


def test_scoreboard_counts_statuses_and_compares_two_runs(reprise, judged):
    run, other = judged.root / "runs" / "smoke", judged.root / "runs" / "other"
    shutil.copytree(run, other)
    record = rundir.records(other, "demo/01_recorded")
    record.write_text(
        record.read_text().replace('"reproduced"', '"not reproduced"').replace('"here": "2"', '"here": "3"')
    )
    code, printed, _ = reprise("scoreboard")
    head, row = printed.splitlines()
    assert code == 0 and head.split()[:2] == ["system", "reproduced"] and row.split()[:3] == ["demo", "1", "0"]
    assert reprise("scoreboard", str(other))[1].splitlines()[-1] == "not reproduced: demo.sum.two: reported 2, here 3"
    printed = reprise("scoreboard", str(run), str(other))[1]
    assert [line.split() for line in printed.splitlines()] == [
        ["demo.sum.two", "reproduced", "2", "not", "reproduced", "3"],
        "0 of 1 claims have the same status and value".split(),
    ]
    assert reprise("scoreboard", str(run), str(run))[1] == "1 of 1 claims have the same status and value\n"


def test_check_lists_problems_and_ends_with_1(reprise, judged):
    code, printed, _ = reprise("check")
    assert code == 1
    assert "demo/01_recorded: cell 2 (tn01): execution count None: expected 1" in printed
    shutil.rmtree(judged.root / "notebooks" / "demo")
    (judged.root / "data" / "claims" / "demo.yaml").unlink()
    assert reprise("check") == (0, "0 problems in 0 notebooks and the registry\n", "")


def test_doctor_describes_the_machine_and_the_checkout(reprise, judged, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # it takes three seconds to say little
    code, printed, _ = reprise("doctor")
    facts = dict(line.split(None, 1) for line in printed.splitlines() if not line.startswith("extra"))
    assert code == 0 and facts["checkout"] == f"{judged.root}, 1 notebooks" and sys.executable in facts["python"]
    assert facts["torch"] == "not installed" and "numpy=" in facts["packages"]
    assert any(line.startswith("extra       nb: ") for line in printed.splitlines())


def test_doctor_names_what_an_extra_lacks(tmp_path, monkeypatch):
    (tmp_path / "made_up-1.dist-info").mkdir()
    (tmp_path / "made_up-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: made_up\nVersion: 1\n"
        "Provides-Extra: new\nProvides-Extra: old\nProvides-Extra: all\n"
        'Requires-Dist: click>=8\nRequires-Dist: click>=99; extra == "new"\n'
        'Requires-Dist: nosuchpackage; extra == "new"\nRequires-Dist: click; extra == "old"\n'
        'Requires-Dist: made_up[new,old]; extra == "all"\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert doctor.missing_extras("made_up") == {"new": ["click>=99", "nosuchpackage"], "old": [], "all": []}


def test_progress_estimates_from_the_last_run(judged, capsys, monkeypatch):
    (job,) = runner.plan([], "smoke", judged.root / "runs" / "smoke", {})
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    shown = progress.Progress([job], workers=1)
    shown("start", job)
    clock[0] += 1.0
    assert shown._left() == "about 2 s left"
    shown("end", Outcome(job, "timeout", 4.25, "code cell 2: no end after 4 s", 150_000_000))
    assert shown._left() == ""
    assert capsys.readouterr().out == (
        "timeout        demo/01_recorded                             4.2 s   0.15 GB  code cell 2: no end after 4 s\n"
    )
