"""Writing committed notebooks: execute one where it lies and store outputs that compare equal on another machine."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reprise.durable import atomic_write
from reprise.nb import paths, presets, rundir, slots
from reprise.nb.jobs import Job

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def refresh(notebooks: Sequence[str], *, workers: int = 1) -> Iterator[tuple[str, str, str]]:
    """Execute notebooks in their own folders with their own parameters; write each back if all its cells ran.

    Nothing is recorded: the recorder of a notebook without a run directory only judges and prints.

    Args:
        notebooks: stems.
        workers: notebooks at a time.

    Yields:
        (stem, "changed" or "same" or "failed", why it failed) as they end; a failed notebook's file stays as it was.
    """
    from reprise.nb.batch import Batch

    root, known = paths.root(), paths.notebooks()
    with tempfile.TemporaryDirectory(prefix="reprise-") as folder, rundir.opened(Path(folder)):
        jobs = [Job(stem, known[stem], "smoke", {}, Path(folder), presets.timeout(stem, "smoke")) for stem in notebooks]
        shares = slots.slots("smoke", workers)
        with Batch(root, jobs, shares, parts=lambda job: {}, on_event=lambda kind, item: None) as batch:
            for outcome in batch.outcomes():
                stem = outcome.job.notebook
                if outcome.status != "ok":
                    yield stem, "failed", f"{outcome.status}: {outcome.detail}"
                else:
                    executed = rundir.executed(Path(folder), stem)
                    yield stem, "changed" if _store(executed, known[stem]) else "same", ""


def _store(executed: Path, notebook: Path) -> bool:
    """Write the executed copy over the notebook; whether that changed it."""
    import nbformat

    document = nbformat.read(executed, as_version=4)
    text = nbformat.writes(nbformat.from_dict(normalised(document)), version=4).rstrip() + "\n"
    changed = text != notebook.read_text(encoding="utf-8")
    if changed:
        atomic_write(notebook, text.encode())
    return changed


def normalised(document: dict[str, Any]) -> dict[str, Any]:
    """The document with nothing that differs between two runs of the same code.

    Counts become 1..n in order; timing, widget state, output metadata and the kernel's version are dropped; streams
    that arrived in pieces are joined; cell ids and tags stay.
    """
    result = copy.deepcopy(document)
    result["metadata"] = copy.deepcopy(METADATA)
    count = 0
    for cell in result["cells"]:
        tags = cell["metadata"].get("tags")
        cell["metadata"] = {"tags": tags} if tags else {}
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = [_output(output, count) for output in _joined(cell["outputs"])]
    return result


def _output(output: dict[str, Any], count: int) -> dict[str, Any]:
    kept = dict(output)
    if "metadata" in kept:
        kept["metadata"] = {}
    if "execution_count" in kept:
        kept["execution_count"] = count
    return kept


def _joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring pieces of one stream as one: how a kernel cuts its output depends on timing."""
    result: list[dict[str, Any]] = []
    for output in outputs:
        if output["output_type"] == "stream" and result and result[-1].get("name") == output["name"]:
            result[-1] = {**result[-1], "text": _text(result[-1]["text"]) + _text(output["text"])}
        else:
            result.append(output)
    return result


def _text(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
