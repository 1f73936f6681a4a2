"""What a recorder prints, writes, refuses and leaves behind."""

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from entries import INTERVAL, MEASURED, RECORDED, REDUCED, entry, write_registry

from reprise.errors import RepriseError
from reprise.nb import records
from reprise.nb.errors import BadPreset, ClaimNotChecked, UnknownClaim, UnknownNotebook, VerdictDisagrees
from reprise.nb.records import Recorder

STEM = "fp4/03_guidance_cost"


@pytest.fixture
def checkout(collection):
    collection.add(STEM)
    collection.add("fp4/01_rounding")
    write_registry(
        collection.root,
        entry(),
        entry(**REDUCED, id="fp4.direction"),
        entry(**RECORDED, id="fp4.cluster"),
        entry(**MEASURED, id="fp4.speed"),
        entry(**INTERVAL, id="fp4.interval"),
        entry(id="fp4.elsewhere", notebook="fp4/01_rounding"),
    )
    return collection


def check_all(rec: Recorder) -> None:
    """Every claim of the notebook at smoke, as expected."""
    rec.claim("fp4.cache.per_token", 7.549)
    rec.claim("fp4.direction", 0.1, placebo=0.3)
    rec.claim("fp4.speed", [3.1, 3.3, 3.2])


def lines(out: Path) -> list[dict]:
    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    text = (out / "records" / f"{STEM}.jsonl").read_text()
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def test_a_whole_record(checkout, tmp_path, capsys):
    rec = Recorder(STEM, str(tmp_path / "run"), SEED=3, n=np.int64(5), OUT="/elsewhere")
    check_all(rec)
    rec.claim("fp4.cluster")
    rec.skip("fp4.interval", "no browser")
    rec.value("seconds", np.float64(1.25), "s")
    rec.close()
    assert capsys.readouterr().out.splitlines() == [
        "reproduced                fp4.cache.per_token                   "
        "reported 7.5 KB                here 7.549                 rounds_to",
        "direction holds           fp4.direction                         "
        "reported 7.5 KB                here 0.1                   less 0.15",
        "measured                  fp4.speed                             "
        "reported 7.5 KB                here -                     none",
        "recorded only             fp4.cluster                           "
        "reported 7.5 KB                here -                     none",
        "not run                   fp4.interval                          "
        "reported 7.5 KB                here -                     interval less 0.15 over 5+ seeds [no browser]",
    ]
    header, first, direction, speed, cluster, skip, value, close = lines(tmp_path / "run")
    assert header["notebook"] == STEM and header["preset"] == "smoke" and header["parameters"] == {"SEED": 3, "n": 5}
    assert first == {
        "type": "claim",
        "id": "fp4.cache.per_token",
        "kind": "exact",
        "status": "reproduced",
        "holds": True,
        "placebo_holds": None,
        "agrees": True,
        "reason": "",
        "got": 7.549,
        "placebo": None,
        "here": "7.549",
    }
    assert (direction["placebo"], direction["placebo_holds"]) == (0.3, False)
    assert speed["got"] == [3.1, 3.3, 3.2] and cluster["status"] == "recorded only"
    assert skip == {"type": "skip", "id": "fp4.interval", "reason": "no browser"}
    assert value == {"type": "value", "name": "seconds", "value": 1.25, "unit": "s"}
    assert close == {"type": "close", "unchecked": [], "disagree": []}
    assert not list((tmp_path / "run").rglob("*.part"))


def test_two_runs_differ_in_their_header_only(checkout, tmp_path):
    bodies = []
    for name in "ab":
        rec = Recorder(STEM, tmp_path / name, seed=name)
        check_all(rec)
        rec.table("t", pytest.importorskip("pandas").DataFrame({"x": [1.5, 2.5]}))
        rec.close()
        bodies.append((tmp_path / name / "records" / f"{STEM}.jsonl").read_bytes().split(b"\n", 1)[1])
    assert bodies[0] == bodies[1]


def test_without_a_run_directory_all_is_judged_the_same_and_nothing_is_written(checkout, tmp_path, capsys):
    before = set(tmp_path.rglob("*"))
    for out in ("", tmp_path / "run"):
        rec = Recorder(STEM, out)
        rec.claim("fp4.cache.per_token", 9)
        with pytest.raises(UnknownClaim):
            rec.claim("fp4.elsewhere", 1)
        with pytest.raises(RepriseError, match="columns"):
            rec.figure("curve", Figure(), {"x": [1], "y": [1, 2]})
        with pytest.raises(VerdictDisagrees, match="not checked"):
            rec.close()
        if not out:
            assert set(tmp_path.rglob("*")) == before
    first, second = np.array_split(capsys.readouterr().out.splitlines(), 2)
    assert list(first) == list(second)


def test_close_lists_every_disagreement_and_every_forgotten_claim(checkout, tmp_path):
    rec = Recorder(STEM, tmp_path)
    rec.claim("fp4.cache.per_token", math.nan)
    with pytest.raises(VerdictDisagrees) as caught:
        rec.close()
    assert str(caught.value).splitlines() == [
        f"{STEM}:",
        "  fp4.cache.per_token: expected to hold: not reproduced            fp4.cache.per_token                   "
        "reported 7.5 KB                here nan                   rounds_to [NaN]",
        "  fp4.direction: not checked, and not skipped with a reason",
        "  fp4.speed: not checked, and not skipped with a reason",
    ]
    # the record stands, strict JSON in spite of the NaN
    assert lines(tmp_path)[1]["got"] == "NaN"
    assert lines(tmp_path)[-1]["disagree"] == ["fp4.cache.per_token"]


def test_forgotten_claims_alone(checkout):
    rec = Recorder(STEM)
    rec.claim("fp4.cache.per_token", 7.5)
    rec.skip("fp4.direction", "no vocabulary")
    with pytest.raises(ClaimNotChecked, match="fp4.speed: not checked"):
        rec.close()


def test_a_claim_of_a_larger_preset_is_due_there(checkout, monkeypatch):
    monkeypatch.setenv("REPRISE_PRESET", "full")
    rec = Recorder(STEM)
    check_all(rec)
    with pytest.raises(ClaimNotChecked, match="fp4.interval: not checked"):
        rec.close()
    rec.claim("fp4.interval", [0.1] * 5, placebo=[0.2] * 5)
    rec.close()
    assert rec.verdicts["fp4.interval"].status == "direction holds"


def test_a_failing_reduced_claim_is_shown_and_not_raised(checkout, capsys):
    rec = Recorder(STEM)
    check_all(rec)
    rec.claim("fp4.direction", 0.1, placebo=0.1)
    rec.close()
    assert "not reproduced" in capsys.readouterr().out
    assert rec.verdicts["fp4.direction"].reason == "placebo passes"


def test_a_reader_may_run_a_cell_twice(checkout, tmp_path):
    rec = Recorder(STEM, tmp_path)
    rec.claim("fp4.cache.per_token", 9)
    rec.skip("fp4.direction", "not now")
    check_all(rec)
    assert rec.skipped == {} and rec.verdicts["fp4.cache.per_token"].agrees
    rec.close()
    rec.close()
    record = records.read(tmp_path).notebooks[STEM]
    assert record.claims["fp4.cache.per_token"]["status"] == "reproduced"
    assert "fp4.direction" in record.claims and record.skips == {}


def test_what_a_recorder_refuses(checkout, monkeypatch):
    rec = Recorder(STEM)
    with pytest.raises(UnknownClaim, match="'fp4.elsewhere' belongs to fp4/01_rounding: expected a claim of fp4/03"):
        rec.claim("fp4.elsewhere", 1)
    with pytest.raises(UnknownClaim, match="'fp4.cache.per_tokens' is not in the registry: .*: fp4.cache.per_token"):
        rec.skip("fp4.cache.per_tokens", "x")
    with pytest.raises(ClaimNotChecked, match=r"fp4.direction: a reduced claim: .*\(shuffled labels\)"):
        rec.claim("fp4.direction", 0.1)
    with pytest.raises(ClaimNotChecked, match="fp4.interval: a reduced claim"):
        rec.claim("fp4.interval", [0.1] * 5)  # at smoke too, so that it is found early
    with pytest.raises(ClaimNotChecked, match="fp4.cache.per_token: placebo given: .* this one is exact"):
        rec.claim("fp4.cache.per_token", 7.5, placebo=1)
    with pytest.raises(ClaimNotChecked, match="reason=' ': expected why"):
        rec.skip("fp4.direction", " ")
    with pytest.raises(RepriseError, match="name='../x': expected lower-case"):
        rec.value("../x", 1)
    with pytest.raises(RepriseError, match="value 'x': object: expected numbers"):
        rec.value("x", object())
    with pytest.raises(RepriseError, match="table 't': dict: expected a DataFrame"):
        rec.table("t", {})
    with pytest.raises(RepriseError, match="figure 'f': NoneType: expected a matplotlib figure"):
        rec.figure("f", None, {})
    with pytest.raises(UnknownNotebook, match="notebook='fp4/09_x': expected one of fp4/01_rounding, fp4/03"):
        Recorder("fp4/09_x")
    monkeypatch.setenv("REPRISE_PRESET", "huge")
    with pytest.raises(BadPreset, match="REPRISE_PRESET='huge': expected one of smoke, full, gpu"):
        Recorder(STEM)


class Figure:
    """Stands for a matplotlib figure; `size` is the bytes of its picture."""

    def savefig(self, file, format, dpi, metadata):
        assert (format, dpi, metadata) == ("png", 100, {"Software": None})
        file.write(b"\x89PNG picture")


@pytest.mark.parametrize("data", [{"p": np.array([0.01, 0.03]), "bits": (14.42, 12.81)}, "frame"])
def test_a_figure_is_a_picture_and_its_numbers(checkout, tmp_path, data):
    if data == "frame":
        data = pytest.importorskip("pandas").DataFrame({"p": [0.01, 0.03], "bits": [14.42, 12.81]})
    rec = Recorder(STEM, tmp_path)
    rec.figure("bits_per_change", Figure(), data)
    folder = tmp_path / "figures" / STEM
    assert (folder / "bits_per_change.csv").read_bytes() == b"p,bits\n0.01,14.42\n0.03,12.81\n"
    assert (folder / "bits_per_change.png").read_bytes() == b"\x89PNG picture"


@pytest.mark.parametrize("data", [{}, [1], {"x": 3}, {"x": [1], "y": [1, 2]}])
def test_a_figures_numbers_are_columns_of_one_length(checkout, data):
    with pytest.raises(RepriseError, match="figure 'curve': (data is|columns of)"):
        Recorder(STEM).figure("curve", Figure(), data)


def test_a_real_figure_has_no_date_and_large_ones_get_a_palette(checkout, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure as Real

    noise = np.random.default_rng(0).random((400, 600))
    for attempt in "ab":
        rec = Recorder(STEM, tmp_path / attempt)
        for name, image in (("small", noise[:2, :2]), ("large", noise)):
            fig = Real(figsize=(6, 4))
            fig.add_axes((0, 0, 1, 1)).imshow(image, cmap="viridis", interpolation="nearest")
            rec.figure(name, fig, {"x": [1]})
    pictures = [(tmp_path / attempt / "figures" / STEM / "large.png").read_bytes() for attempt in "ab"]
    assert pictures[0] == pictures[1]
    assert matplotlib.__version__.encode() not in pictures[0] and b"Software" not in pictures[0]
    assert b"PLTE" in pictures[0] and b"PLTE" not in (tmp_path / "a/figures" / STEM / "small.png").read_bytes()


def test_a_table_is_saved_and_handed_back(checkout, tmp_path):
    pandas = pytest.importorskip("pandas")
    rec = Recorder(STEM, tmp_path)
    frame = pandas.DataFrame({"op": ["add", "xor"], "bits": [8.26, 9.07]})
    assert rec.table("plain", frame) is frame
    rec.table("indexed", frame.set_index("op"))
    folder = tmp_path / "tables" / STEM
    assert (folder / "plain.csv").read_text() == (folder / "indexed.csv").read_text() == "op,bits\nadd,8.26\nxor,9.07\n"


def test_values_are_strict_json(checkout, tmp_path):
    rec = Recorder(STEM, tmp_path)
    rec.value("mixed", {"a": (math.nan, math.inf, -math.inf), "b": np.arange(2), "c": None, "d": True, "e": "x"})
    check_all(rec)
    rec.close()
    assert lines(tmp_path)[1]["value"] == {
        "a": ["NaN", "Infinity", "-Infinity"],
        "b": [0, 1],
        "c": None,
        "d": True,
        "e": "x",
    }


def test_a_killed_run_leaves_a_readable_partial_record(checkout, tmp_path):
    script = f"""
import sys, time
from reprise.nb.records import Recorder
rec = Recorder({STEM!r}, {str(tmp_path / "run")!r})
rec.claim("fp4.cache.per_token", 7.5)
print("ready", flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout.readline().startswith("reproduced") and child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
    part = tmp_path / "run/records" / f"{STEM}.jsonl.part"
    part.write_bytes(part.read_bytes() + b'{"type": "claim", "id": "fp4.dir')  # and a line cut short
    record = records.read(tmp_path / "run").notebooks[STEM]
    assert not record.complete and list(record.claims) == ["fp4.cache.per_token"]


def test_a_new_run_removes_the_verdicts_of_the_one_before(checkout, tmp_path):
    rec = Recorder(STEM, tmp_path)
    check_all(rec)
    rec.close()
    assert records.read(tmp_path).notebooks[STEM].complete
    Recorder(STEM, tmp_path)
    record = records.read(tmp_path).notebooks[STEM]
    assert not record.complete and record.claims == {}
    assert [path.name for path in (tmp_path / "records/fp4").iterdir()] == ["03_guidance_cost.jsonl.part"]


def test_a_run_directory_that_cannot_be_written_is_named(checkout, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RepriseError, match=r"file/records/fp4/03_guidance_cost.jsonl: (Not a directory|File exists)"):
        Recorder(STEM, tmp_path / "file")
    # every write to this device fails like one to a full disk
    rec = Recorder(STEM, tmp_path / "run")
    rec._file.close()
    rec._file = open("/dev/full", "wb")  # noqa: SIM115
    with pytest.raises(RepriseError, match="/dev/full: No space left on device"):
        rec.claim("fp4.cache.per_token", 7.5)
    with pytest.raises(OSError):
        rec._file.close()


@pytest.mark.parametrize("text", ["nonsense\n", '{"type": "claim", "id": "x"}\n', "[]\n", '{"type": "header"}\n'])
def test_a_file_that_is_no_record_is_named_with_its_line(tmp_path, text):
    path = tmp_path / "records/fp4/01_x.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(RepriseError, match="01_x.jsonl: line 1 is not a record"):
        records.read(tmp_path)


def test_reading_a_run(checkout, tmp_path):
    with pytest.raises(RepriseError, match="nowhere: no such folder"):
        records.read(tmp_path / "nowhere")
    assert records.read(tmp_path).notebooks == {} and records.read(tmp_path).preset == "smoke"
    (tmp_path / "run.json").write_text('{"preset": "full"}')
    rec = Recorder(STEM, tmp_path)
    rec.figure("f", Figure(), {"x": [1]})
    rec.value("v", 3, "s")
    found = records.read(tmp_path)
    assert found.preset == "full" and found.run == {"preset": "full"}
    record = found.notebooks[STEM]
    assert record.figures == {"f": [f"figures/{STEM}/f.png", f"figures/{STEM}/f.csv"]}
    assert record.values["v"]["value"] == 3 and record.started[:4] == time.strftime("%Y")


def test_a_notebook_of_no_system_may_check_claims_of_all(checkout):
    checkout.add("00_overview")
    write_registry(checkout.root, entry(id="nb.clean", notebook="00_overview"), system="nb")
    rec = Recorder("00_overview")
    rec.claim("nb.clean", 7.5)
    rec.close()
