"""What a notebook run leaves behind: one JSON line for each claim, value, table and figure.

A recorder judges every claim it is given, prints the verdict line and, inside a run, writes

    records/<stem>.jsonl            one line a record; <stem>.jsonl.part until the notebook closes it
    figures/<stem>/<name>.png|csv   the picture, and the numbers in it
    tables/<stem>/<name>.csv

below the run directory. With no run directory nothing is written, and everything is checked and printed all the same:
that is how a reader, or a test, runs the notebook. Lines are strict JSON; a value that is not finite becomes the text
"NaN", "Infinity" or "-Infinity". Apart from the header, two runs of the same notebook write the same bytes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from reprise.errors import RepriseError
from reprise.nb import claims, paths
from reprise.nb.artifacts import csv_text, png_bytes, strict_json
from reprise.nb.errors import BadPreset, ClaimNotChecked, UnknownClaim, UnknownNotebook, VerdictDisagrees

NAME = re.compile(r"[a-z0-9_]+")


class Recorder:
    """Judges and records what one notebook shows.

    Args:
        notebook: its stem, `<system>/<NN_topic>` or a top-level `<NN_topic>`.
        out: the run directory, or "" to write nothing.
        params: the parameters the notebook ran with, for the record's header.

    The preset comes from the environment variable REPRISE_PRESET, which the runner sets (default `smoke`).

    Raises:
        UnknownNotebook: the checkout has no such notebook.
        BadRegistry: the registry of the notebook's system has problems.
        BadPreset: REPRISE_PRESET is no preset.
        RepriseError: the run directory cannot be written.
    """

    def __init__(self, notebook: str, out: str | Path = "", **params: Any):
        root = paths.root()
        if notebook not in (known := paths.notebooks(root)):
            raise UnknownNotebook(f"notebook={notebook!r}: expected one of {', '.join(known) or '(there are none)'}")
        self.notebook = notebook
        self.preset = os.environ.get("REPRISE_PRESET", "smoke")
        if self.preset not in claims.PRESETS:
            raise BadPreset(f"REPRISE_PRESET={self.preset!r}: expected one of {', '.join(claims.PRESETS)}")
        self.registry = claims.load(root, [notebook.split("/")[0]] if "/" in notebook else None)
        self.verdicts: dict[str, claims.Verdict] = {}
        self.skipped: dict[str, str] = {}
        self._out = Path(out) if str(out) else None
        self._file = self._start()
        parameters = {name: value for name, value in params.items() if name != "OUT"}
        self._write("header", notebook=notebook, preset=self.preset, parameters=parameters, started=_now())

    def claim(self, id: str, got: Any = None, placebo: Any = None) -> None:
        """Judge `got` by the claim's rule, record it and print the verdict line.

        A verdict the registry does not expect is raised by `close`, so that one run lists them all.

        Args:
            id: a claim of this notebook.
            got: what was computed; a recorded claim needs none.
            placebo: the same quantity with the mechanism switched off, for reduced claims and only for them.

        Raises:
            UnknownClaim: no claim of this notebook has this id.
            ClaimNotChecked: a reduced claim without its placebo, or another kind with one.
        """
        claim = self._own(id)
        if claim.kind == "reduced" and placebo is None:
            raise ClaimNotChecked(f"{id}: a reduced claim: expected the control run too, placebo=... ({claim.placebo})")
        if claim.kind != "reduced" and placebo is not None:
            raise ClaimNotChecked(f"{id}: placebo given: only reduced claims have one, this one is {claim.kind}")
        verdict = claims.judge(claim, got, placebo, self.preset)
        self.verdicts[id] = verdict
        self.skipped.pop(id, None)
        names = ("status", "holds", "placebo_holds", "agrees", "reason", "got", "placebo", "here")
        self._write("claim", id=id, kind=claim.kind, **{name: getattr(verdict, name) for name in names})
        print(verdict.line)

    def skip(self, id: str, reason: str) -> None:
        """Record that a claim cannot be checked here (no browser, no vocabulary); its status is `not run`.

        The reason is printed, so it must read the same on every machine where the claim is skipped.
        """
        claim = self._own(id)
        if not reason.strip():
            raise ClaimNotChecked(f"{id}: reason={reason!r}: expected why the claim cannot be checked")
        self.skipped[id] = reason
        self.verdicts.pop(id, None)
        self._write("skip", id=id, reason=reason)
        print(claims.verdict_line(claim, "not run", "", reason))

    def value(self, name: str, v: Any, unit: str = "") -> None:
        """Record a number, text or list that the page does not show: a timing, a version, a size."""
        self._write("value", name=_name(name), value=strict_json(v, f"value {name!r}"), unit=unit)

    def table(self, name: str, df: Any) -> Any:
        """Save a DataFrame as CSV and return it, so that a cell can end with it."""
        if not hasattr(df, "to_csv"):
            raise RepriseError(f"table {name!r}: {type(df).__name__}: expected a DataFrame")
        file = f"tables/{self.notebook}/{_name(name)}.csv"
        self._save(file, lambda: csv_text(df))
        self._write("table", name=name, file=file, rows=len(df), columns=[str(column) for column in df.columns])
        return df

    def figure(self, name: str, fig: Any, data: Any) -> None:
        """Save a matplotlib figure as PNG, and the numbers it draws as CSV.

        Args:
            name: lower-case file name without extension.
            fig: the figure.
            data: what is drawn, a DataFrame or a dict of equally long columns.
        """
        if not hasattr(fig, "savefig"):
            raise RepriseError(f"figure {name!r}: {type(fig).__name__}: expected a matplotlib figure")
        text = csv_text(data, f"figure {name!r}")
        stem = f"figures/{self.notebook}/{_name(name)}"
        self._save(f"{stem}.csv", lambda: text)
        self._save(f"{stem}.png", lambda: png_bytes(fig))
        self._write("figure", name=name, files=[f"{stem}.png", f"{stem}.csv"])

    def close(self) -> None:
        """Finish the record and say what is wrong with the run. The record stands in every case.

        Raises:
            VerdictDisagrees: exact or analytic claims whose verdict is not the expected one; all are listed.
            ClaimNotChecked: claims of this notebook and preset neither checked nor skipped.
        """
        unchecked = [claim.id for claim in self._due() if claim.id not in {**self.verdicts, **self.skipped}]
        disagreeing = [verdict for verdict in self.verdicts.values() if not verdict.agrees]
        self._write("close", unchecked=unchecked, disagree=[verdict.claim.id for verdict in disagreeing])
        self._finish()
        texts = [
            f"{verdict.claim.id}: expected to {verdict.claim.expect[:-1]}: {verdict.line}" for verdict in disagreeing
        ]
        texts += [f"{id}: not checked, and not skipped with a reason" for id in unchecked]
        if texts:
            raise (VerdictDisagrees if disagreeing else ClaimNotChecked)("\n  ".join([f"{self.notebook}:", *texts]))

    def _own(self, id: str) -> claims.Claim:
        claim = self.registry.get(id)
        if claim is None or claim.notebook != self.notebook:
            own = [name for name, entry in self.registry.items() if entry.notebook == self.notebook]
            near = get_close_matches(id, own, n=3) or own
            why = f"belongs to {claim.notebook}" if claim else "is not in the registry"
            raise UnknownClaim(f"{id!r} {why}: expected a claim of {self.notebook}: {', '.join(near) or 'it has none'}")
        return claim

    def _due(self) -> list[claims.Claim]:
        """Claims this notebook must check at this preset; recorded ones have nothing to check."""
        reached = claims.PRESETS[: claims.PRESETS.index(self.preset) + 1]
        own = (claim for claim in self.registry.values() if claim.notebook == self.notebook)
        return [claim for claim in own if claim.preset in reached and claim.kind != "recorded"]

    def _start(self) -> io.BufferedWriter | None:
        if self._out is None:
            return None
        final = self._out / "records" / f"{self.notebook}.jsonl"
        with _named(final):
            final.parent.mkdir(parents=True, exist_ok=True)
            final.unlink(missing_ok=True)  # verdicts of an earlier run must not stand beside a partial record
            return final.with_suffix(".jsonl.part").open("wb")

    def _write(self, type: str, **fields: Any) -> None:
        line = {"type": type, **{name: strict_json(value) for name, value in fields.items()}}
        if self._file is not None:
            with _named(Path(self._file.name)):
                self._file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
                self._file.flush()

    def _finish(self) -> None:
        if self._file is not None:
            part = Path(self._file.name)
            with _named(part):
                os.fsync(self._file.fileno())
                self._file.close()
                part.replace(part.with_suffix(""))
            self._file = None

    def _save(self, file: str, content) -> None:
        if self._out is not None:
            from reprise.durable import atomic_write

            path = self._out / file
            with _named(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                made = content()
                atomic_write(path, made if isinstance(made, bytes) else made.encode())


@dataclass(frozen=True)
class NotebookRecord:
    """The record of one notebook. `complete` is False when the notebook stopped before it closed its recorder."""

    notebook: str
    preset: str
    parameters: dict
    started: str
    complete: bool
    claims: dict[str, dict] = field(default_factory=dict)
    skips: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    figures: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Records:
    """All records of a run directory: run.json ({} without one) and the notebooks by stem."""

    run: dict
    notebooks: dict[str, NotebookRecord]

    @property
    def preset(self) -> str:
        """Preset of the run; the smallest where no run.json says it."""
        return self.run.get("preset") or next((record.preset for record in self.notebooks.values()), "smoke")


def read(run_dir: str | Path) -> Records:
    """Read the records of a run directory, those of notebooks that stopped early included.

    Raises:
        RepriseError: there is no such directory, or a line is not a record; a last line cut short is left out.
    """
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise RepriseError(f"run directory {run_dir}: no such folder")
    run_file = run_dir / "run.json"
    run = json.loads(run_file.read_text(encoding="utf-8")) if run_file.is_file() else {}
    found = sorted([*(run_dir / "records").rglob("*.jsonl"), *(run_dir / "records").rglob("*.jsonl.part")])
    records = [record for path in found if (record := _notebook_record(path))]
    return Records(run, {record.notebook: record for record in records})


def _notebook_record(path: Path) -> NotebookRecord | None:
    lines = path.read_bytes().split(b"\n")
    complete = path.suffix == ".jsonl"
    record = None
    for number, text in enumerate(lines[:-1], start=1):  # what follows the last newline was never finished
        try:
            line = json.loads(text)
            if line["type"] == "header":
                record = NotebookRecord(line["notebook"], line["preset"], line["parameters"], line["started"], complete)
            else:
                _add(record, line)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise RepriseError(f"{path}: line {number} is not a record") from None
    return record


def _add(record: NotebookRecord, line: dict) -> None:
    """The last word on a claim stands: a reader may run a cell twice."""
    kind = line["type"]
    if kind == "claim":
        record.claims[line["id"]] = line
        record.skips.pop(line["id"], None)
    elif kind == "skip":
        record.skips[line["id"]] = line["reason"]
        record.claims.pop(line["id"], None)
    elif kind == "value":
        record.values[line["name"]] = line
    elif kind == "table":
        record.tables[line["name"]] = line["file"]
    elif kind == "figure":
        record.figures[line["name"]] = line["files"]


def _name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise RepriseError(f"name={name!r}: expected lower-case letters, digits and underscores")
    return name


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextlib.contextmanager
def _named(path: Path):
    """Say which file an I/O error is about: `write` on an open file does not."""
    try:
        yield
    except OSError as error:
        raise RepriseError(f"{path}: {error.strerror or error}") from error
