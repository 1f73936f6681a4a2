"""Batches of tiny notebooks: every way to end, what is kept, and what stays running (nothing)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
from tiny import RECORDED, Collection

from reprise.errors import RepriseError
from reprise.nb import batch as batches
from reprise.nb import machine, rundir, runner, slots
from reprise.nb.endings import Ending, judge
from reprise.nb.errors import BadPreset, PresetUnavailable, UnknownNotebook, UnknownParameter
from reprise.nb.process import Memory

# what a notebook can rely on, checked from inside
SURROUNDINGS = """
import os, pathlib, sys, tempfile
assert pathlib.Path.cwd().name == "demo", "runs in its own folder"
assert OUT and SEED == 0
assert os.environ["REPRISE_PRESET"] == "smoke" and os.environ["PYTHONHASHSEED"] == "0"
assert os.environ["REPRISE_THREADS"] == os.environ["OMP_NUM_THREADS"] == "COUNT"
assert os.environ["REPRISE_WIDGETS"] == "0" and "JPY_SESSION_NAME" not in os.environ
_ = pathlib.Path(tempfile.mkdtemp(), "left_behind").write_text("x")
if "DRAW_NOTHING" not in os.environ:
    folder = pathlib.Path(OUT, "figures/demo/02_surroundings")
    folder.mkdir(parents=True)
    _ = (folder / "a.csv").write_text("x")
"""
ORPHANS = """
import subprocess
_ = subprocess.Popen("sleep 297 & setsid sleep 298 & sleep 299", shell=True)
"""
ENDINGS = {
    "demo/01_recorded": RECORDED.format(notebook="demo/01_recorded", system="demo", got="1 + 1"),
    "demo/02_surroundings": SURROUNDINGS.replace("COUNT", str(max(1, os.cpu_count() // 2))),
    "err/01_raises": "1/0",
    "err/02_hangs": "while True: pass",
    "err/03_killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "err/04_exits": "import sys\nsys.exit(3)",
    "err/05_waits": 'import subprocess\nsubprocess.run(["sleep", "300"])',
    "err/06_leaves_children": ORPHANS,
    "wrong/01_wrong": RECORDED.format(notebook="wrong/01_wrong", system="wrong", got="3"),
    "open/01_unclosed": RECORDED.format(notebook="open/01_unclosed", system="open", got="2").replace("rec.close()", ""),
    "silent/01_unrecorded": "pass",
}
LIMIT = 8.0  # seconds for the notebooks that never end; a kernel starts in one to three


def survivors(root) -> list[str]:
    """Commands of processes that inherited the environment of a batch in this checkout and still run."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.environ().get("REPRISE_ROOT") == str(root) and process.pid != os.getpid()
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """One batch with every kind of ending, two workers."""
    # a short path: the sockets of a kernel lie below it
    scratch = tempfile.mkdtemp(prefix="t")
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("batch") / "checkout"
        patch.setenv("REPRISE_ROOT", str(root))
        patch.setenv("JPY_SESSION_NAME", "somebody")
        patch.setattr(tempfile, "tempdir", scratch)
        collection = Collection(root)
        for stem, cell in ENDINGS.items():
            collection.add(stem, cell, claim="sum.two" in cell or stem.startswith("silent"))
        out, events = root / "runs" / "smoke", []
        jobs = runner.plan([], "smoke", out, {})
        jobs = [replace(job, timeout=LIMIT) if "/02_hangs" in job.notebook or "/05_waits" in job.notebook else job
                for job in jobs]  # fmt: skip
        outcomes = runner.run(jobs, workers=2, on_event=lambda kind, item: events.append((kind, item)))
        by_name = {outcome.job.notebook: outcome for outcome in outcomes}
        yield SimpleNamespace(
            collection=collection,
            out=out,
            outcomes=by_name,
            events=events,
            survivors=survivors(root),
            temporary=os.listdir(scratch),
        )
    shutil.rmtree(scratch)


@pytest.mark.parametrize(
    "stem, status, detail",
    [
        ("demo/01_recorded", "ok", ""),
        ("demo/02_surroundings", "ok", ""),
        ("err/01_raises", "failed", "code cell 2: ZeroDivisionError: division by zero"),
        ("err/02_hangs", "timeout", "code cell 2: no end after 8 s"),
        ("err/03_killed", "failed", "code cell 2: kernel ended by signal 9 (SIGKILL); last sample "),
        ("err/04_exits", "failed", "code cell 2: SystemExit: 3"),
        ("err/05_waits", "timeout", "code cell 2: no end after 8 s"),
        ("err/06_leaves_children", "ok", ""),
        ("wrong/01_wrong", "claims-failed", "wrong.sum.two: expected to hold: not reproduced"),
        ("open/01_unclosed", "missing-output", "finished without rec.close()"),
        ("silent/01_unrecorded", "missing-output", "finished without claim silent.sum.two"),
    ],
)
def test_every_ending_has_its_status_and_reason(batch, stem, status, detail):
    outcome = batch.outcomes[stem]
    assert f"{outcome.status}: {outcome.detail}".startswith(f"{status}: {detail}")
    assert outcome.passed is (status == "ok")


def test_a_killed_kernel_is_reported_with_its_memory_and_the_machines(batch):
    detail = batch.outcomes["err/03_killed"].detail
    assert f"of {psutil.virtual_memory().total / 1e9:.2f} GB free on the machine" in detail
    assert "(peak 0.00 GB)" not in detail


def test_nothing_a_notebook_started_survives_the_batch(batch):
    assert batch.survivors == []


def test_no_temporary_file_survives_the_batch(batch):
    assert batch.temporary == []


def test_every_executed_copy_is_kept_and_whole(batch):
    out, outcomes = batch.out, batch.outcomes
    for stem in outcomes:
        copy = json.loads((out / "notebooks" / f"{stem}.ipynb").read_bytes())
        assert copy["cells"][-1]["source"]
    assert not list(out.rglob(".*partial*")) and not list(out.rglob("*.tmp"))
    traceback = (out / "notebooks" / "err" / "01_raises.ipynb").read_text()
    assert "ZeroDivisionError" in traceback


def test_only_what_finished_is_stamped(batch):
    out, outcomes = batch.out, batch.outcomes
    stamped = {path.relative_to(out / "records").as_posix() for path in out.glob("records/*/*.done.json")}
    assert stamped == {f"{stem}.done.json" for stem, outcome in outcomes.items() if outcome.status == "ok"}


def test_the_partial_record_of_an_unclosed_notebook_is_kept(batch):
    part = batch.out / "records" / "open" / "01_unclosed.jsonl.part"
    assert [json.loads(line)["type"] for line in part.read_text().splitlines()] == ["header", "claim"]


def test_the_run_is_described(batch):
    out, outcomes = batch.out, batch.outcomes
    header = json.loads((out / "run.json").read_bytes())
    assert header["preset"] == "smoke" and header["overrides"] == {} and header["workers"] == 2
    assert {stem: entry["status"] for stem, entry in header["notebooks"].items()} == {
        stem: outcome.status for stem, outcome in outcomes.items()
    }
    assert (batch.collection.root / "runs" / "latest").resolve() == out


def test_listeners_hear_of_every_start_and_end(batch):
    outcomes, events = batch.outcomes, batch.events
    assert Counter(kind for kind, _ in events if kind != "tick") == {"start": len(outcomes), "end": len(outcomes)}
    # no more than two at a time
    running = 0
    for kind, _ in events:
        running += {"start": 1, "end": -1, "tick": 0}[kind]
        assert running <= 2


def test_a_second_batch_runs_only_what_is_incomplete_and_records_the_same(batch, monkeypatch):
    out = batch.out
    monkeypatch.setenv("REPRISE_ROOT", str(batch.collection.root))
    jobs = runner.plan(["demo", "err/06*"], "smoke", out, {})
    assert {outcome.status for outcome in runner.run(jobs)} == {"cached"}
    record, figure = out / "records/demo/01_recorded.jsonl", out / "figures/demo/02_surroundings/a.csv"
    before = record.read_bytes().splitlines()
    record.unlink()
    figure.unlink()
    # one worker and another order this time; and the same code does not draw what it drew before
    monkeypatch.setenv("DRAW_NOTHING", "1")
    monkeypatch.setattr(machine, "cores", lambda: max(1, os.cpu_count() // 2))  # as many threads each as before
    children, undrawn, recorded = runner.run(list(reversed(jobs)), workers=1)
    assert children.status == "cached"
    assert (recorded.status, record.read_bytes().splitlines()[1:]) == ("ok", before[1:])
    assert (undrawn.status, undrawn.detail) == (
        "missing-output",
        "finished without figures/demo/02_surroundings/a.csv",
    )


class Recited:
    """In place of a batch: takes note of the order and calls every job a success."""

    order: list[str] = []

    def __init__(self, root, jobs, shares, parts, on_event):
        self.jobs = jobs

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass

    def outcomes(self):
        for job in self.jobs:
            self.order.append(job.notebook)
            yield runner.Outcome(job, "ok")


def test_the_longest_starts_first_and_the_scoreboard_comes_when_all_records_are_there(collection, monkeypatch):
    monkeypatch.setattr(batches, "Batch", Recited)
    monkeypatch.setattr(Recited, "order", [])
    for stem in ("00_overview", "99_scoreboard", "demo/01_short", "demo/02_long"):
        collection.add(stem, "pass")
    jobs = runner.plan([], "smoke", collection.root / "runs" / "x", {})
    for stem, seconds in (("00_overview", 2.0), ("99_scoreboard", 90.0), ("demo/01_short", 1.0), ("demo/02_long", 9.0)):
        (jobs[0].out / "records" / "demo").mkdir(parents=True, exist_ok=True)
        (jobs[0].out / "run.json").touch()
        rundir.write_stamp(jobs[0].out, stem, "an old key", {}, seconds)
    outcomes = runner.run(jobs)
    assert Recited.order == ["demo/02_long", "00_overview", "demo/01_short", "99_scoreboard"]
    assert [outcome.job for outcome in outcomes] == jobs


@pytest.mark.parametrize(
    "arguments, error, names",
    [
        ((["nope"], "smoke", {}), UnknownNotebook, "'nope'.*demo/01_one"),
        ((["other/*"], "smoke", {}), UnknownNotebook, "demo/01_one"),
        (([], "large", {}), BadPreset, "'large'.*smoke, full, gpu"),
        (([], "smoke", {"nope": "1"}), UnknownParameter, "'nope'.*SEED, OUT"),
    ],
)
def test_what_is_unknown_is_a_usage_error_that_names_what_exists(arguments, error, names, collection):
    collection.add("demo/01_one", "pass")
    chosen, preset, overrides = arguments
    with pytest.raises(error, match=names) as raised:
        runner.plan(chosen, preset, collection.root / "runs" / "x", overrides)
    assert raised.value.exit_code == 2
    assert not list((collection.root / "runs").iterdir())


def test_notebooks_are_chosen_by_stem_system_or_pattern(collection):
    for stem in ("00_overview", "demo/01_one", "demo/02_two", "other/01_one"):
        collection.add(stem, "pass")
    assert runner.choose([]) == ["00_overview", "demo/01_one", "demo/02_two", "other/01_one"]
    assert runner.choose(["demo"]) == ["demo/01_one", "demo/02_two"]
    assert runner.choose(["*/01_*", "00_overview"]) == ["00_overview", "demo/01_one", "other/01_one"]
    for path in ("demo/01_one.ipynb", "notebooks/demo/01_one.ipynb", "./notebooks/demo/01_one.ipynb"):
        assert runner.choose([path]) == ["demo/01_one"]
    with pytest.raises(UnknownNotebook, match="'notebooks/demo/09.ipynb': expected"):
        runner.choose(["notebooks/demo/09.ipynb"])


def test_a_parameter_of_some_notebooks_only_is_refused_with_their_names(collection):
    collection.add("demo/01_one", "pass")
    collection.add("demo/02_two", "pass", parameters='SEED: int = 0\nOUT: str = ""\nsteps: int = 5\n')
    message = "^demo/01_one has no parameter 'steps': name the notebook, demo/02_two$"
    with pytest.raises(UnknownParameter, match=message):
        runner.plan(["demo"], "smoke", collection.root / "runs" / "x", {"steps": "7"})
    assert len(runner.plan(["demo/02_two"], "smoke", collection.root / "runs" / "x", {"steps": "7"})) == 1


def test_overrides_reach_the_job(collection):
    collection.add("demo/01_one", "pass", parameters='SEED: int = 0\nOUT: str = ""\nsteps: int = 5\n')
    (job,) = runner.plan([], "smoke", collection.root / "runs" / "x", {"steps": "7"})
    assert dict(job.parameters) == {"SEED": 0, "OUT": str(collection.root / "runs" / "x"), "steps": 7}


def test_the_cores_are_shared_by_the_workers(monkeypatch):
    monkeypatch.setattr("reprise.nb.machine.cores", lambda: 8)
    three = slots.slots("smoke", 3)
    assert len(three) == 3 and {share["OMP_NUM_THREADS"] for share in three} == {"2"}
    assert slots.slots("smoke", 16)[0]["REPRISE_THREADS"] == "1"
    with pytest.raises(RepriseError, match="^workers=0"):
        slots.slots("smoke", 0)


def test_each_device_gets_a_worker_of_its_own(monkeypatch):
    monkeypatch.setattr(slots, "_COUNT_DEVICES", "print(3)")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [share["CUDA_VISIBLE_DEVICES"] for share in slots.slots("gpu")] == ["0", "1", "2"]
    assert len(slots.slots("gpu", 2)) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-5,6")
    assert [share["CUDA_VISIBLE_DEVICES"] for share in slots.slots("gpu")] == ["4", "GPU-5", "6"]


def test_the_gpu_preset_without_a_device_is_refused(monkeypatch):
    monkeypatch.setattr(slots, "_COUNT_DEVICES", "print(0)")
    with pytest.raises(PresetUnavailable, match="no CUDA device") as raised:
        slots.slots("gpu")
    assert raised.value.exit_code == 2


GB = Memory(used=2_000_000_000, free=500_000_000, total=8_000_000_000)


@pytest.mark.parametrize(
    "ending, status, detail",
    [
        (
            Ending(worker_exit=-9, memory=GB, peak=2_500_000_000),
            "failed",
            "worker ended by signal 9 (SIGKILL); last sample 2.00 GB in use (peak 2.50 GB), "
            "0.50 GB of 8.00 GB free on the machine",
        ),
        (Ending(kernel_exit=3, worker_exit=0), "failed", "kernel ended with exit code 3; "),
        (Ending(kernel_exit=-64), "failed", "kernel ended by signal 64 (SIGRTMAX); "),
        (Ending(error="NoSuchKernel: python3"), "failed", "NoSuchKernel: python3"),
        (Ending(), "failed", "no executed copy was left"),
        (Ending(copy={"cells": []}), "ok", ""),
        (Ending(expired=True, kernel_exit=-9), "timeout", "no end after 60 s"),
    ],
)
def test_an_ending_is_told_from_what_was_left(ending, status, detail):
    found, told = judge(ending, timeout=60)
    assert found == status and told.startswith(detail)


# run directories


def refused(out) -> str:
    with pytest.raises(rundir.RunDirectoryUnusable) as raised, rundir.opened(out):
        raise AssertionError("opened")
    assert raised.value.exit_code == 2 and str(out) in str(raised.value)
    return str(raised.value)


def test_a_run_directory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    assert "File exists" in refused(tmp_path / "file") or "Not a directory" in refused(tmp_path / "file")
    assert "Not a directory" in refused(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_run_directory_in_use_is_refused(tmp_path):
    with rundir.opened(tmp_path):
        assert "another run is using it" in refused(tmp_path)
    with rundir.opened(tmp_path):
        pass


def test_a_run_that_stopped_before_it_described_itself_resumes_and_a_foreign_folder_is_refused(tmp_path):
    with rundir.opened(tmp_path / "run"):
        pass
    with rundir.opened(tmp_path / "run"):
        pass
    (tmp_path / "mine" / "records").mkdir(parents=True)
    assert "holds other files" in refused(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["records"]


def test_only_runs_of_the_checkout_become_the_latest(collection, tmp_path):
    runs, link = collection.root / "runs", collection.root / "runs" / "latest"
    for out in (tmp_path / "elsewhere", collection.root / "out", runs):
        rundir.point_latest(collection.root, out)
        assert not link.is_symlink()
    rundir.point_latest(collection.root, runs / "deep" / "a")
    assert os.readlink(link) == "deep/a"
    rundir.point_latest(collection.root, tmp_path / "elsewhere")
    assert os.readlink(link) == "deep/a"


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a tmpfs of the given size."""
    mounted = []

    def mount(size: str):
        folder = tmp_path / f"disk{size}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip("no mount command")
        if done.returncode:
            pytest.skip(f"cannot mount a small tmpfs: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_with_too_little_room_is_refused(small_disk):
    assert "free, expected at least 16 MB" in refused(small_disk("4m") / "run")


def test_a_disk_that_fills_up_stops_the_batch_cleanly(small_disk, collection):
    fill = "import pathlib\n_ = pathlib.Path(OUT, 'tables/demo').mkdir(parents=True, exist_ok=True)\n"
    fill += "_ = pathlib.Path(OUT, 'tables/demo/large').write_bytes(bytes(30 << 20))"
    collection.add("demo/01_fills", fill)
    collection.add("demo/02_next", "pass")
    out = small_disk("24m") / "run"
    jobs, ended = runner.plan([], "smoke", out, {}), []
    with pytest.raises(rundir.RunDirectoryFull, match="filled up"):
        runner.run(jobs, on_event=lambda kind, item: ended.append(item) if kind == "end" else None)
    assert [outcome.job.notebook for outcome in ended] == ["demo/01_fills"] and not ended[0].passed
    for path in out.rglob("*.ipynb"):
        json.loads(path.read_bytes())
    assert not list(out.rglob("*.done.json")) and not list(out.rglob("*.tmp"))


# stopping a batch from outside

HOLDS = """
import pathlib, time
_ = pathlib.Path(OUT, "reached").write_text("x")
while not pathlib.Path(OUT, "go").exists():
    time.sleep(0.1)
rec.close()
"""


def started(collection):
    """`reprise run` in a process group of its own, stopped in the middle of its second notebook."""
    collection.add("demo/01_done", RECORDED.format(notebook="demo/01_done", system="demo", got="2"), claim=True)
    opened = RECORDED.format(notebook="held/01_holds", system="held", got="2").replace("rec.close()", "")
    collection.add("held/01_holds", opened, HOLDS, claim=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "reprise.cli", "run", "--out", str(collection.root / "runs" / "x")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    patience = time.monotonic() + 60
    while not (collection.root / "runs" / "x" / "reached").exists():
        assert time.monotonic() < patience and process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_keeps_the_partial_record_and_the_same_command_resumes(number, collection):
    process, out = started(collection), collection.root / "runs" / "x"
    os.killpg(process.pid, number)
    printed, complaint = process.communicate(timeout=30)
    assert process.returncode == 130 and "interrupted" in complaint and "Traceback" not in complaint
    assert printed.splitlines()[-1] == "1 passed, 0 failed"
    assert survivors(collection.root) == []
    part = out / "records" / "held" / "01_holds.jsonl.part"
    assert [json.loads(line)["type"] for line in part.read_text().splitlines()] == ["header", "claim"]
    copy = json.loads((out / "notebooks" / "held" / "01_holds.ipynb").read_bytes())
    assert "KeyboardInterrupt" in json.dumps(copy["cells"][-1]["outputs"])
    (out / "go").touch()
    jobs = runner.plan([], "smoke", out, {})
    assert [outcome.status for outcome in runner.run(jobs)] == ["cached", "ok"]
    assert not part.exists()


@pytest.mark.slow
def test_nothing_survives_a_runner_that_is_killed_outright(collection, monkeypatch):
    scratch = tempfile.mkdtemp(prefix="t")
    monkeypatch.setenv("TMPDIR", scratch)
    process = started(collection)
    process.kill()
    process.communicate()
    patience = time.monotonic() + 15
    while (survivors(collection.root) or os.listdir(scratch)) and time.monotonic() < patience:
        time.sleep(0.2)
    assert survivors(collection.root) == [] and os.listdir(scratch) == []
    os.rmdir(scratch)
