"""Turning a run into the committed results: data/scoreboard.<preset>.json; from a full run figures/ and README too."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from reprise.durable import atomic_write
from reprise.errors import RepriseError
from reprise.nb import claims, readme, records, scoreboard
from reprise.nb.artifacts import strict_json


def commit(run_dir: Path, root: Path) -> list[Path]:
    """Write the run's results over the committed ones of the same notebooks; returns the files written.

    Raises:
        RepriseError: the run holds an unfinished notebook, or parameters that are not the preset's.
    """
    run = records.read(run_dir)
    if unfinished := [stem for stem, record in run.notebooks.items() if not record.complete]:
        raise RepriseError(f"{run_dir}: {', '.join(unfinished)} did not finish: expected complete records to commit")
    if overrides := run.run.get("overrides"):
        raise RepriseError(f"{run_dir}: ran with {overrides}: expected the preset's own parameters to commit")
    registry = claims.load(root)
    kept = scoreboard.read_committed(run.preset, root)
    notebooks = {stem: entry for stem, entry in kept["notebooks"].items() if stem not in run.notebooks}
    notebooks |= {stem: _provenance(run.run, record) for stem, record in run.notebooks.items()}
    # a claim that left the registry, or that its notebook no longer checks, is dropped
    found = {id: e for id, e in kept["claims"].items() if id in registry and e["notebook"] not in run.notebooks}
    for stem, record in run.notebooks.items():
        for id, entry in _results(registry, record).items():
            found[id] = {"notebook": stem, **entry}
    path = scoreboard.committed_path(run.preset, root)
    atomic_write(path, _lines(run.preset, notebooks, found).encode())
    if run.preset != "full":
        return [path]
    figures = _commit_figures(run_dir, run, root)
    page = root / "README.md"
    return [path, *figures, *([page] if readme.update(page, scoreboard.rows(preset="full", root=root)) else [])]


def _results(registry: dict[str, claims.Claim], record: records.NotebookRecord) -> dict[str, dict[str, Any]]:
    judged = {id: line for id, line in record.claims.items() if id in registry and not _later(line)}
    results = {id: scoreboard.from_record(registry[id], line) for id, line in judged.items()}
    for id in results:  # whoever doubts a verdict can judge it again
        if registry[id].kind == "reduced":
            results[id]["placebo"] = judged[id]["placebo"]
    skipped = {"status": "not run", "here": "", "got": None}
    return results | {id: {**skipped, "reason": why} for id, why in record.skips.items() if id in registry}


def _later(line: dict) -> bool:
    """Whether a larger preset judges the claim, or nothing does."""
    return line["status"] in ("not run", "recorded only")


def _provenance(run: dict, record: records.NotebookRecord) -> dict[str, Any]:
    """When, where and with what a notebook ran, short enough for one line."""
    cpu = run.get("cpu") or {}
    machine = [
        cpu.get("model", "") if isinstance(cpu, dict) else str(cpu),
        f"{run['cores']} cores" if "cores" in run else "",
    ]
    versions = {"python": run.get("python", ""), **(run.get("packages") or {})}
    return {
        "date": record.started[:10],
        "commit": run.get("commit", "")[:12] + ("+changes" if run.get("dirty") else ""),
        "parameters": record.parameters,
        "machine": ", ".join(filter(None, [*machine, run.get("platform", ""), *(run.get("gpu") or [])])),
        "versions": " ".join(f"{name}={version}" for name, version in versions.items() if version),
    }


def _lines(preset: str, notebooks: dict, found: dict) -> str:
    """JSON with one line a notebook and one a claim, so that a diff shows what changed."""

    def mapping(entries: dict) -> str:
        lines = (
            f"{json.dumps(key)}: {json.dumps(strict_json(entries[key]), allow_nan=False)}" for key in sorted(entries)
        )
        return "{\n" + ",\n".join(lines) + "\n}"

    return f'{{"preset": {json.dumps(preset)},\n"notebooks": {mapping(notebooks)},\n"claims": {mapping(found)}}}\n'


def _commit_figures(run_dir: Path, run: records.Records, root: Path) -> list[Path]:
    """Copy figures to figures/<system>/<NN>_<name>, drop those their notebook no longer draws, update manifest.json."""
    written = []
    for stem, record in run.notebooks.items():
        folder = (root / "figures" / stem).parent
        manifest_path = folder / "manifest.json"
        manifest = json.loads(manifest_path.read_bytes()) if manifest_path.is_file() else {}
        number = Path(stem).name[:2]
        fresh = {f"{number}_{Path(file).name}": run_dir / file for files in record.figures.values() for file in files}
        for name in [name for name, entry in manifest.items() if entry["notebook"] == stem and name not in fresh]:
            (folder / name).unlink(missing_ok=True)
            del manifest[name]
        for name, source in fresh.items():
            content = source.read_bytes()
            folder.mkdir(parents=True, exist_ok=True)
            atomic_write(folder / name, content)
            digest = hashlib.sha256(content).hexdigest()
            manifest[name] = {"notebook": stem, "date": record.started[:10], "bytes": len(content), "sha256": digest}
            written.append(folder / name)
        if manifest or manifest_path.is_file():
            atomic_write(manifest_path, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
            written.append(manifest_path)
    return written
