"""Run notebooks as a batch: one forked worker a notebook, results kept, unchanged notebooks skipped."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from reprise.nb import cachekey, paths, presets, rundir, slots
from reprise.nb.errors import UnknownNotebook, UnknownParameter
from reprise.nb.jobs import STATUSES, Job, Listener, Outcome

__all__ = ["STATUSES", "Job", "Outcome", "cache_key", "choose", "plan", "run"]


def plan(names: Sequence[str], preset: str, out: str | Path, overrides: Mapping[str, Any]) -> list[Job]:
    """Jobs for notebooks by stem, path, system (`refit`) or pattern (`refit/*`); no name means all.

    Args:
        names: what to run.
        preset: `smoke`, `full` or `gpu`.
        out: the run directory.
        overrides: parameters by name, which every chosen notebook must have.

    Raises:
        UnknownNotebook, UnknownParameter, BadPreset: before anything starts, naming what exists.
    """
    known, out, chosen = paths.notebooks(), Path(out).resolve(), choose(names)
    _check_shared({stem: known[stem] for stem in chosen}, overrides)
    return [
        Job(
            notebook=stem,
            path=known[stem],
            preset=preset,
            parameters={**presets.resolve(stem, preset, overrides), "OUT": str(out)},
            out=out,
            timeout=presets.timeout(stem, preset),
        )
        for stem in chosen
    ]


def choose(names: Sequence[str]) -> list[str]:
    """Stems of the notebooks that these names, paths, systems or patterns mean, sorted; all if there is none.

    Raises:
        UnknownNotebook: a name means no notebook; the message lists those there are.
    """
    known = paths.notebooks()
    for name in names:
        if not any(_matches(stem, name) for stem in known):
            existing = ", ".join(known) or "(there are none)"
            raise UnknownNotebook(f"notebook {name!r}: expected a system, a pattern, or one of {existing}")
    return [stem for stem in known if not names or any(_matches(stem, name) for name in names)]


def cache_key(job: Job) -> str:
    """Digest of everything the job's results depend on."""
    return cachekey.key(_parts(job))


def run(
    jobs: Sequence[Job], *, workers: int | None = None, on_event: Listener = lambda kind, item: None
) -> list[Outcome]:
    """Run jobs, longest first, and return their outcomes in the order given. A failing notebook stops no other.

    Call it from the main thread of a process that has no other threads, because it forks. Ctrl-C stops all kernels,
    keeps what the notebooks recorded so far, and raises KeyboardInterrupt.

    Args:
        jobs: from `plan`, all with one run directory and one preset.
        workers: notebooks at a time; 1 by default, or one for each visible device under the gpu preset.
        on_event: called with ("start", job), ("end", outcome), and ("tick", None) about twice a second in between.

    Raises:
        PresetUnavailable: the gpu preset without a CUDA device.
        RunDirectoryUnusable: nothing was started.
        RunDirectoryFull: the disk filled up on the way; finished notebooks are kept.
    """
    if not jobs:
        return []
    root, first = paths.root(), jobs[0]
    shares = slots.slots(first.preset, workers)
    outcomes: dict[str, Outcome] = {}

    def ended(outcome: Outcome) -> None:
        outcomes[outcome.job.notebook] = outcome
        on_event("end", outcome)

    with rundir.opened(first.out):
        rundir.point_latest(root, first.out)
        started, header = time.time(), rundir.read_header(first.out)
        # the scoreboard notebook shows the others' records, so its turn comes when they are complete
        last = [job for job in jobs if job.notebook == cachekey.SCOREBOARD]
        for wave in ([job for job in jobs if job not in last], last):
            cached = [job for job in wave if rundir.is_cached(job.out, job.notebook, cache_key(job))]
            for job in cached:
                ended(Outcome(job, "cached"))
            if waiting := sorted((job for job in wave if job not in cached), key=_expected_seconds, reverse=True):
                from reprise.nb.batch import Batch

                _describe(root, first, header, started, len(shares), outcomes)
                with rundir.filling_up(first.out), Batch(root, waiting, shares, _parts, on_event) as batch:
                    for outcome in batch.outcomes():
                        ended(outcome)
                _describe(root, first, header, started, len(shares), outcomes)
    return [outcomes[job.notebook] for job in jobs]


def _describe(root: Path, first: Job, before: dict, started: float, workers: int, outcomes: dict) -> None:
    """Write run.json; what an earlier run into this directory said about a notebook stands until it runs again."""
    ran = {
        stem: {
            "status": outcome.status,
            "detail": outcome.detail,
            "seconds": round(outcome.seconds, 2),
            "peak_memory": outcome.peak_memory,
            "overrides": _overridden(outcome.job),
        }
        for stem, outcome in outcomes.items()
        if outcome.status != "cached"
    }
    notebooks = {**before.get("notebooks", {}), **ran}
    rundir.write_header(
        first.out,
        root,
        preset=first.preset,
        overrides={stem: entry["overrides"] for stem, entry in notebooks.items() if entry["overrides"]},
        workers=workers,
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        wall_seconds=round(time.time() - started, 2),
        notebooks=notebooks,
    )


def _overridden(job: Job) -> dict[str, Any]:
    """Parameters that are not the preset's own."""
    own = presets.resolve(job.notebook, job.preset)
    return {name: value for name, value in job.parameters.items() if name != "OUT" and value != own[name]}


def _check_shared(chosen: Mapping[str, Path], overrides: Mapping[str, Any]) -> None:
    """Refuse a parameter that some of the notebooks lack: a run with half of them changed would mix two settings."""
    for name in overrides:
        having = [s for s, path in chosen.items() if name in {one.name for one in presets.read_parameters(path)}]
        if having and (lacking := [stem for stem in chosen if stem not in having]):
            raise UnknownParameter(f"{lacking[0]} has no parameter {name!r}: name the notebook, {' or '.join(having)}")


def _matches(stem: str, name: str) -> bool:
    name = name.removeprefix("./").removeprefix("notebooks/").removesuffix(".ipynb")
    return fnmatchcase(stem, name) or stem.split("/")[0] == name


def _parts(job: Job) -> dict:
    cells = presets.code_cells(job.path)
    return cachekey.parts(paths.root(), job.notebook, cells, job.preset, job.parameters, job.out)


def _expected_seconds(job: Job) -> float:
    """Time of the last finished run, else the time limit, which orders notebooks as well as anything."""
    return rundir.read_stamp(job.out, job.notebook).get("seconds", job.timeout)
