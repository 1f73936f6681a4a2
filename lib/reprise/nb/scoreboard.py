"""The registry joined with what was computed: one row and one status a claim.

A row comes from a run's records, from the committed results in data/scoreboard.<preset>.json, or from the registry
alone, as its `origin` says:

    run        judged in this run                    skip       the notebook skipped it, with a reason
    committed  from a committed scoreboard           registry   recorded and planned claims
    missing    its notebook ran and did not reach it ""         its notebook is not part of this run

A claim that only a larger preset checks shows the committed verdict of that preset, with its date, where its notebook
is part of the run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from reprise.nb import claims, paths, predicates, records
from reprise.nb.artifacts import csv_text, strict_json
from reprise.nb.claims import PRESETS, STATUSES, Claim
from reprise.nb.jobs import PASSED

if TYPE_CHECKING:
    import pandas

FROM_REGISTRY = ("what", "source", "kind", "reported", "unit", "notebook", "expect", "explain", "paper", "row")
FOUND = {"status": "not run", "here": "", "reason": "", "preset": "", "date": "", "origin": "", "got": None}


def rows(
    run_dir: str | Path | None = None, *, preset: str | None = None, root: Path | None = None
) -> list[dict[str, Any]]:
    """One dict a claim, in registry order.

    Args:
        run_dir: a run directory; None shows the committed results.
        preset: of the committed results shown (default smoke); a run has its own.
        root: the checkout.

    Returns:
        keys id, system, row, kind, status, reported, here, unit, predicate, notebook, preset, reason, what, source,
        expect, explain, paper, date, origin, got, deviation. `here` is the printed form of `got`; `deviation` is
        (got - reported) / tolerance of the element farthest off, for numeric rules.
    """
    root = root or paths.root()
    registry = claims.load(root)
    run = None if run_dir is None else records.read(run_dir)
    preset = run.preset if run else preset or "smoke"
    committed = {name: read_committed(name, root) for name in PRESETS}
    return [_row(claim, _found(claim, run, committed, preset)) for claim in registry.values()]


def described(run_dir: str | Path, root: Path | None = None) -> str:
    """Preset of a run and how many of the checkout's notebooks are part of it, in one line."""
    run, known = records.read(run_dir), paths.notebooks(root)
    return f"preset {run.preset}, {len(known.keys() & _endings(run).keys())} of {len(known)} notebooks"


def read_committed(preset: str, root: Path | None = None) -> dict[str, Any]:
    """data/scoreboard.<preset>.json, empty if there is none.

    Returns:
        `notebooks` by stem (date, commit, parameters, machine, versions) and `claims` by id.
    """
    path = committed_path(preset, root)
    empty = {"preset": preset, "notebooks": {}, "claims": {}}
    return json.loads(path.read_bytes()) if path.is_file() else empty


def committed_path(preset: str, root: Path | None = None) -> Path:
    """Where the committed results of a preset are."""
    return (root or paths.root()) / "data" / f"scoreboard.{preset}.json"


def table(
    run_dir: str | Path | None = None, *, preset: str | None = None, root: Path | None = None
) -> pandas.DataFrame:
    """The rows as a DataFrame."""
    import pandas

    return pandas.DataFrame(rows(run_dir, preset=preset, root=root))


def counts(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Number of claims by system and status, every status named, in the order of claims.STATUSES."""
    found: dict[str, Counter] = {}
    for row in rows:
        found.setdefault(row["system"], Counter())[row["status"]] += 1
    return {system: {status: counter[status] for status in STATUSES} for system, counter in sorted(found.items())}


def summary(table: pandas.DataFrame) -> pandas.DataFrame:
    """Counts of statuses, one line a system and one for all."""
    import pandas

    found = counts(table.to_dict("records"))
    frame = pandas.DataFrame.from_dict(found, orient="index", columns=list(STATUSES)).rename_axis("system")
    frame.loc["all"] = frame.sum()
    return frame.astype(int)


def differences(rows: Sequence[Mapping[str, Any]], committed: Sequence[Mapping[str, Any]]) -> list[str]:
    """Statuses of a run that are not the committed ones, one text each.

    Only statuses the run computed are compared: not those of notebooks outside the run, of skipped claims, and of
    claims that a larger preset checks. Where nothing was committed yet there is nothing to differ from.

    Args:
        rows: of the run.
        committed: rows(None) with the preset of the run.
    """
    known = {row["id"]: row for row in committed if row["origin"] in ("committed", "skip")}
    texts = []
    for row in rows:
        before = known.get(row["id"])
        if row["origin"] != "run" or not known or (before and before["origin"] == "skip"):
            continue
        if before is None:
            texts.append(f"{row['id']}: {row['status']}, the committed scoreboard has no status for it")
        elif before["status"] != row["status"]:
            texts.append(f"{row['id']}: {row['status']}, committed {before['status']} ({before['date']})")
    return texts


def as_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """{"claims": [...]} as strict JSON, one claim a line."""
    lines = (json.dumps(strict_json(dict(row)), allow_nan=False) for row in rows)
    return '{"claims": [\n' + ",\n".join(lines) + "\n]}\n"


def write(rows: Sequence[Mapping[str, Any]], run_dir: str | Path) -> None:
    """Write scoreboard.json, .csv and .html into a run directory."""
    from reprise.durable import atomic_write

    run_dir = Path(run_dir)
    names = list(rows[0]) if rows else []
    columns = {name: [row[name] for row in rows] for name in names}
    texts = {
        name: [json.dumps(strict_json(v)) if isinstance(v, list) else v for v in columns[name]] for name in columns
    }
    atomic_write(run_dir / "scoreboard.json", as_json(rows).encode())
    atomic_write(run_dir / "scoreboard.csv", csv_text(texts).encode() if texts else b"")
    page(rows, run_dir / "scoreboard.html")


def page(table: Any, out: str | Path) -> None:
    """Write the scoreboard as one HTML file that loads nothing else.

    Args:
        table: rows, or the DataFrame of `table`.
        out: the file.
    """
    from reprise.durable import atomic_write
    from reprise.nb import scoreboard_page

    listed = table.to_dict("records") if hasattr(table, "to_dict") else table
    atomic_write(Path(out), scoreboard_page.html(listed, counts(listed)).encode())


def commit(run_dir: str | Path, root: Path | None = None) -> list[Path]:
    """Make a run the committed one; notebooks outside the run keep their committed results.

    Returns:
        The files written: data/scoreboard.<preset>.json and, from a `full` run, figures.

    Raises:
        RepriseError: the run holds an unfinished notebook, or parameters that are not the preset's.
    """
    from reprise.nb import committing

    return committing.commit(Path(run_dir), root or paths.root())


def _row(claim: Claim, found: Mapping[str, Any]) -> dict[str, Any]:
    row = {"id": claim.id, "system": claim.system, **{name: getattr(claim, name) for name in FROM_REGISTRY}}
    deviation = predicates.deviation(claim, found.get("got"))
    return {**row, "predicate": claim.rule, **FOUND, **found, "deviation": deviation}


def _found(claim: Claim, run: records.Records | None, committed: Mapping[str, dict], preset: str) -> dict[str, Any]:
    """What is known about a claim: the part of its row that the registry does not say."""
    if claim.planned:
        return {"reason": "planned", "origin": "registry"}
    if claim.kind == "recorded":
        return {"status": "recorded only", "origin": "registry"}
    if run is not None and claim.notebook not in run.notebooks:
        return _without_record(claim, run)
    later = PRESETS.index(claim.preset) > PRESETS.index(preset)
    if later or run is None:
        found = _from_committed(claim, committed, PRESETS[PRESETS.index(preset) :])
        return found or {"reason": f"checked at {claim.preset}" if later else "not committed"}
    record = run.notebooks[claim.notebook]
    common = {"preset": record.preset, "date": record.started[:10]}
    if claim.id in record.skips:
        return {**common, "reason": record.skips[claim.id], "origin": "skip"}
    if claim.id in record.claims:
        return {**common, **from_record(claim, record.claims[claim.id]), "origin": "run"}
    return {
        **common,
        "reason": "not checked" if record.complete else "its notebook stopped before",
        "origin": "missing",
    }


def _without_record(claim: Claim, run: records.Records) -> dict[str, Any]:
    """A claim whose notebook recorded nothing: it was not run, or ended before it opened its recorder."""
    ending = _endings(run).get(claim.notebook)
    if ending is None:
        return {"reason": "not part of this run"}
    reason = "not checked" if ending in PASSED else "its notebook failed"
    return {"reason": reason, "preset": run.preset, "origin": "missing"}


def _endings(run: records.Records) -> dict[str, str]:
    """How each notebook of a run ended, by stem; "" where run.json does not say it."""
    told = {stem: entry["status"] for stem, entry in run.run.get("notebooks", {}).items()}
    return {**dict.fromkeys(run.notebooks, ""), **told}


def from_record(claim: Claim, line: Mapping[str, Any]) -> dict[str, Any]:
    """Status, printed form, reason and value of a recorded claim."""
    here = _spread(line["got"]) if claim.kind == "measured" else line["here"]
    return {"status": line["status"], "here": here, "reason": line["reason"], "got": line["got"]}


def _from_committed(claim: Claim, committed: Mapping[str, dict], presets: Iterable[str]) -> dict[str, Any] | None:
    """The committed result of the smallest of these presets that has one."""
    for preset in presets:
        if found := committed[preset]["claims"].get(claim.id):
            date = committed[preset]["notebooks"].get(found["notebook"], {}).get("date", "")
            kept = {name: found[name] for name in ("status", "here", "reason", "got")}
            origin = "skip" if found["status"] == "not run" else "committed"
            return {**kept, "preset": preset, "date": date, "origin": origin}
    return None


def _spread(got: Any) -> str:
    """A measured ratio, or the median and range of several."""
    values = [x for x in (got if isinstance(got, list) else [got]) if isinstance(x, int | float)]
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.3g}"
    return f"{median(values):.3g} ({min(values):.3g} to {max(values):.3g}, {len(values)} times)"
