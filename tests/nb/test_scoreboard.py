"""The registry joined with runs and committed results."""

import contextlib
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from entries import INTERVAL, MEASURED, RECORDED, REDUCED, claim, entry, write_registry

from reprise.errors import RepriseError
from reprise.nb import claims, predicates, scoreboard
from reprise.nb.claims import STATUSES
from reprise.nb.errors import VerdictDisagrees
from reprise.nb.records import Recorder

STEM, OTHER = "fp4/03_guidance_cost", "fp4/01_rounding"
NUMBERS = [0.1, 0.11, 0.12, 0.13, 0.14]


@pytest.fixture
def checkout(collection):
    collection.add(STEM)
    collection.add(OTHER)
    write_registry(
        collection.root,
        entry(row="C1"),
        entry(**REDUCED, id="fp4.direction", row=["C2", "C3"]),
        entry(**RECORDED, id="fp4.cluster", row="C4", reported=["0.6", "1.2"]),
        entry(**MEASURED, id="fp4.speed"),
        entry(**INTERVAL, id="fp4.interval"),
        entry(id="fp4.elsewhere", notebook=OTHER),
        entry(id="fp4.later", notebook="fp4/09_later", planned=True),
        rows=["C1-C4"],
    )
    return collection


@pytest.fixture
def run(checkout, tmp_path, monkeypatch):
    """Runs the notebooks' recorders: run(name, preset, got) -> run directory."""

    def make(name, preset="smoke", got=7.5, other=7.5, close=True, **header):
        monkeypatch.setenv("REPRISE_PRESET", preset)
        out = tmp_path / name
        rec = Recorder(STEM, out, SEED=1)
        rec.claim("fp4.cache.per_token", got)
        rec.claim("fp4.direction", 0.1, placebo=0.3)
        rec.claim("fp4.speed", [3.0, 3.4, 3.2])
        rec.claim("fp4.interval", NUMBERS, placebo=[9.0] * 5)
        rec.figure("curve", Figure(), {"x": [1, 2]})
        if close:
            with contextlib.nullcontext() if got == 7.5 else pytest.raises(VerdictDisagrees):
                rec.close()
        if other is not None:
            rec = Recorder(OTHER, out)
            rec.claim("fp4.elsewhere", other) if other else rec.skip("fp4.elsewhere", "no browser")
            rec.close()
        (out / "run.json").write_text(json.dumps({"preset": preset, "overrides": {}, **header}))
        return out

    return make


class Figure:
    def savefig(self, file, **options):
        file.write(b"picture")


def by_id(rows) -> dict:
    return {row["id"]: row for row in rows}


def found(rows) -> dict:
    return {row["id"]: (row["status"], row["here"], row["reason"], row["preset"], row["origin"]) for row in rows}


def test_rows_of_a_smoke_run(run):
    rows = scoreboard.rows(run("a"))
    assert found(rows) == {
        "fp4.cache.per_token": ("reproduced", "7.5", "", "smoke", "run"),
        "fp4.direction": ("direction holds", "0.1", "", "smoke", "run"),
        "fp4.cluster": ("recorded only", "", "", "", "registry"),
        "fp4.speed": ("measured", "3.2 (3 to 3.4, 3 times)", "", "smoke", "run"),
        "fp4.interval": ("not run", "", "checked at full", "", ""),
        "fp4.elsewhere": ("reproduced", "7.5", "", "smoke", "run"),
        "fp4.later": ("not run", "", "planned", "", "registry"),
    }
    first = by_id(rows)["fp4.cache.per_token"]
    assert {name: first[name] for name in ("system", "row", "kind", "reported", "unit", "predicate", "notebook")} == {
        "system": "fp4",
        "row": "C1",
        "kind": "exact",
        "reported": "7.5",
        "unit": "KB",
        "predicate": "rounds_to",
        "notebook": STEM,
    }
    assert (
        first["what"] and first["source"] and first["expect"] == "holds" and first["date"] and first["deviation"] == 0
    )
    assert by_id(rows)["fp4.direction"]["row"] == ["C2", "C3"]


@pytest.mark.parametrize(
    "fields, got, deviation",
    [
        ({"reported": "7.5"}, 7.525, 0.5),
        ({"reported": "50"}, 49.0, -2.0),
        ({"reported": ["1.0", "2.0"]}, [1.01, 1.96], -0.8),
        ({"predicate": "close", "reported": "0.5", "atol": 0.1}, 0.55, 0.5),
        ({"predicate": "close", "reported": "10", "rtol": 0.05}, 10.0, 0.0),
        ({"predicate": "less", "bound": 1}, 0.5, None),
        ({}, None, None),
    ],
)
def test_deviation_is_in_units_of_the_tolerance(fields, got, deviation):
    found = predicates.deviation(claim(**fields), got)
    assert found is None if deviation is None else found == pytest.approx(deviation)


def test_what_a_run_did_not_reach(run, checkout):
    rows = found(scoreboard.rows(run("a", got=7.5, other=None)))
    assert rows["fp4.elsewhere"] == ("not run", "", "not part of this run", "", "")
    rows = found(scoreboard.rows(run("b", other=0, close=False)))
    assert rows["fp4.elsewhere"] == ("not run", "", "no browser", "smoke", "skip")
    # a notebook that was stopped keeps what it had recorded
    path = next((run("c", close=False) / "records").rglob("*.part"))
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    rows = found(scoreboard.rows(path.parents[2]))
    assert rows["fp4.cache.per_token"][0] == "reproduced"
    assert rows["fp4.direction"] == ("not run", "", "its notebook stopped before", "smoke", "missing")


@pytest.mark.parametrize(
    "ending, reason",
    [("failed", "its notebook failed"), ("timeout", "its notebook failed"), ("ok", "not checked")],
)
def test_a_notebook_of_the_run_without_a_record_is_told_from_one_outside_it(ending, reason, run):
    out = run("a", other=None, notebooks={STEM: {"status": "ok"}, OTHER: {"status": ending}})
    assert found(scoreboard.rows(out))["fp4.elsewhere"] == ("not run", "", reason, "smoke", "missing")
    assert scoreboard.described(out) == "preset smoke, 2 of 2 notebooks"
    assert scoreboard.described(run("b", other=None)) == "preset smoke, 1 of 2 notebooks"
    assert json.loads(scoreboard.as_json(scoreboard.rows(out)))["claims"][5]["reason"] == reason


def test_a_notebook_outside_the_run_shows_no_committed_verdict(run):
    scoreboard.commit(run("full", preset="full"))
    out = run("part")
    next((out / "records").rglob("03*.jsonl")).unlink()
    rows = found(scoreboard.rows(out))
    outside = ("not run", "", "not part of this run", "", "")
    assert {id for id, row in rows.items() if row == outside} == {
        "fp4.cache.per_token",
        "fp4.direction",
        "fp4.speed",
        "fp4.interval",
    }
    assert rows["fp4.cluster"][0] == "recorded only" and rows["fp4.later"][2] == "planned"
    assert rows["fp4.elsewhere"][4] == "run"
    # neither does one that failed before it recorded anything
    (out / "run.json").write_text(json.dumps({"preset": "smoke", "notebooks": {STEM: {"status": "failed"}}}))
    assert found(scoreboard.rows(out))["fp4.interval"] == ("not run", "", "its notebook failed", "smoke", "missing")
    assert scoreboard.differences(scoreboard.rows(out), scoreboard.rows(None, preset="smoke")) == []


def test_committing_and_reading_back(run, checkout):
    assert {row["origin"] for row in scoreboard.rows(None)} == {"", "registry"}
    out = run("a", python="3.11.7", commit="0123456789abcdef", dirty=True, cores=2, packages={"numpy": "2.4.6"})
    assert scoreboard.commit(out) == [checkout.root / "data/scoreboard.smoke.json"]
    rows = found(scoreboard.rows(None))
    assert rows["fp4.cache.per_token"] == ("reproduced", "7.5", "", "smoke", "committed")
    assert rows["fp4.speed"] == ("measured", "3.2 (3 to 3.4, 3 times)", "", "smoke", "committed")
    assert rows["fp4.interval"] == ("not run", "", "checked at full", "", "")
    stored = scoreboard.read_committed("smoke")
    assert set(stored["claims"]) == {"fp4.cache.per_token", "fp4.direction", "fp4.speed", "fp4.elsewhere"}
    assert {id for id, kept in stored["claims"].items() if "placebo" in kept} == {"fp4.direction"}
    assert stored["claims"]["fp4.direction"]["placebo"] == 0.3
    place = stored["notebooks"][STEM]
    assert (place["commit"], place["parameters"], place["machine"], place["versions"]) == (
        "0123456789ab+changes",
        {"SEED": 1},
        "2 cores",
        "python=3.11.7 numpy=2.4.6",
    )
    # one line a claim, so that a diff shows what changed
    text = (checkout.root / "data/scoreboard.smoke.json").read_text()
    assert sum("fp4.cache.per_token" in line for line in text.splitlines()) == 1
    assert scoreboard.commit(out) and (checkout.root / "data/scoreboard.smoke.json").read_text() == text


def test_a_claim_of_a_larger_preset_shows_its_committed_verdict_with_its_date(run):
    scoreboard.commit(run("full", preset="full"))
    interval = by_id(scoreboard.rows(run("smoke")))["fp4.interval"]
    assert (interval["status"], interval["preset"], interval["origin"]) == ("direction holds", "full", "committed")
    assert len(interval["date"]) == 10 and interval["got"] == NUMBERS
    assert scoreboard.differences(scoreboard.rows(run("b")), scoreboard.rows(None)) == []


def test_a_partial_run_is_merged(run, checkout):
    scoreboard.commit(run("a", got=7.5, other=7.5))
    before = scoreboard.read_committed("smoke")["claims"]["fp4.elsewhere"]
    out = run("b", got=9.0, other=None)
    scoreboard.commit(out)
    after = scoreboard.read_committed("smoke")
    assert after["claims"]["fp4.elsewhere"] == before and set(after["notebooks"]) == {STEM, OTHER}
    assert after["claims"]["fp4.cache.per_token"]["status"] == "not reproduced"
    # a claim that its notebook no longer checks is dropped
    path = next((out / "records").rglob("03*.jsonl"))
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "speed" not in line))
    scoreboard.commit(out)
    assert set(scoreboard.read_committed("smoke")["claims"]) == set(after["claims"]) - {"fp4.speed"}
    # a claim that left the registry leaves the committed results with the next commit
    write_registry(checkout.root, entry(), entry(**REDUCED, id="fp4.direction"))
    scoreboard.commit(out)
    assert set(scoreboard.read_committed("smoke")["claims"]) == {"fp4.cache.per_token", "fp4.direction"}


def test_what_cannot_be_committed(run):
    with pytest.raises(RepriseError, match=f"{STEM} did not finish"):
        scoreboard.commit(run("a", close=False))
    with pytest.raises(RepriseError, match="ran with {'n': 5}: expected the preset's own parameters"):
        scoreboard.commit(run("b", overrides={"n": 5}))


def test_a_full_run_commits_its_figures(run, checkout):
    out = run("a", preset="full")
    folder = checkout.root / "figures/fp4"
    written = scoreboard.commit(out)
    assert {path.relative_to(checkout.root).as_posix() for path in written} == {
        "data/scoreboard.full.json",
        "figures/fp4/03_curve.png",
        "figures/fp4/03_curve.csv",
        "figures/fp4/manifest.json",
    }
    assert (folder / "03_curve.csv").read_text() == "x\n1\n2\n"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["03_curve.png"]["notebook"] == STEM and manifest["03_curve.png"]["bytes"] == 7
    # a figure that its notebook no longer draws goes, those of other notebooks stay
    (folder / "01_other.png").write_bytes(b"x")
    path = next((out / "records").rglob("03*.jsonl"))
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if '"figure"' not in line))
    scoreboard.commit(out)
    assert {path.name for path in folder.iterdir()} == {"01_other.png", "manifest.json"}
    assert json.loads((folder / "manifest.json").read_text()) == {}


def test_a_smoke_run_commits_no_figures(run, checkout):
    scoreboard.commit(run("a"))
    assert not (checkout.root / "figures").exists()


def test_differences(run):
    same = run("a")
    assert scoreboard.differences(scoreboard.rows(same), scoreboard.rows(None)) == []  # nothing committed yet
    scoreboard.commit(same)
    committed = scoreboard.rows(None)
    assert scoreboard.differences(scoreboard.rows(same), committed) == []
    changed = scoreboard.differences(scoreboard.rows(run("b", got=9.0)), committed)
    assert len(changed) == 1
    assert changed[0].startswith("fp4.cache.per_token: not reproduced, committed reproduced (20")
    # neither a skipped claim nor a notebook outside the run is a status computed
    assert scoreboard.differences(scoreboard.rows(run("c", other=0)), committed) == []
    assert scoreboard.differences(scoreboard.rows(run("d", other=None)), committed) == []
    scoreboard.commit(run("e", other=0))
    assert scoreboard.differences(scoreboard.rows(same), scoreboard.rows(None)) == []
    less = [row for row in committed if row["id"] != "fp4.elsewhere"]
    assert scoreboard.differences(scoreboard.rows(same), less) == [
        "fp4.elsewhere: reproduced, the committed scoreboard has no status for it"
    ]


def test_counts_and_frames(run):
    out = run("a")
    counts = scoreboard.counts(scoreboard.rows(out))
    assert list(counts["fp4"].items()) == list(zip(STATUSES, [2, 1, 0, 0, 1, 1, 2], strict=True))
    pytest.importorskip("pandas")
    table = scoreboard.table(out)
    assert list(table["id"])[:2] == ["fp4.cache.per_token", "fp4.direction"]
    summary = scoreboard.summary(table)
    assert summary.loc["fp4"].tolist() == summary.loc["all"].tolist() == [2, 1, 0, 0, 1, 1, 2]


def test_files_beside_a_run(run):
    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    out = run("a", got=float("nan"))
    scoreboard.write(scoreboard.rows(out), out)
    claims = json.loads((out / "scoreboard.json").read_text(), parse_constant=refuse)["claims"]
    assert claims[0].items() >= {"id": "fp4.cache.per_token", "system": "fp4", "row": "C1", "kind": "exact"}.items()
    assert claims[0]["status"] == "not reproduced" and claims[0]["got"] == "NaN"
    lines = (out / "scoreboard.csv").read_text().splitlines()
    assert len(lines) == 8 and lines[0].startswith("id,system,what,")
    assert (out / "scoreboard.html").read_text().count("<tr>") == 1 + 1 + 1 + 7


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_one_file_and_escapes_what_it_shows(run, checkout, tmp_path):
    write_registry(checkout.root, entry(what="a <b> & c", explain="why <script>"))
    scoreboard.page(scoreboard.rows(None), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "a &lt;b&gt; &amp; c" in text and "why &lt;script&gt;" in text
    links = Links()
    links.feed(text)
    assert links.found == ["#fp4"] and links.open == [] and "http" not in text


@pytest.mark.parametrize("preset", ["smoke", "full"])
def test_the_committed_statuses_are_what_the_rules_make_of_the_committed_values(preset):
    root = Path(__file__).resolve().parents[2]
    registry, committed = claims.load(root), scoreboard.read_committed(preset, root)["claims"]
    wrong = {}
    for id, kept in committed.items():
        if kept["status"] == "not run":
            continue
        verdict = claims.judge(registry[id], kept["got"], kept.get("placebo"), preset)
        if (verdict.status, verdict.reason) != (kept["status"], kept["reason"]):
            wrong[id] = (kept["status"], kept["reason"], verdict.status, verdict.reason)
        # the effect is there and, with its mechanism switched off, is not
        assert kept["status"] != "direction holds" or verdict.holds and verdict.placebo_holds is False, id
    assert committed and not wrong
