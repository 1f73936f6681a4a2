"""How a job ended, told from what it left: the executed copy, its worker's answer and the last memory sample."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprise.nb import paths, rundir
from reprise.nb.jobs import Job
from reprise.nb.process import Memory

ANSI = re.compile(r"\x1b\[[0-9;]*m")
RECORDER_ERRORS = {"VerdictDisagrees": "claims-failed", "ClaimNotChecked": "missing-output"}


@dataclass(frozen=True)
class Ending:
    """The evidence. `copy` is the executed notebook, {} if none could be read; exit codes are those of Popen."""

    copy: Mapping[str, Any] = field(default_factory=dict)
    expired: bool = False
    error: str = ""
    kernel_exit: int | None = None
    worker_exit: int | None = 0
    memory: Memory = Memory()
    peak: int = 0


def judge(ending: Ending, timeout: float) -> tuple[str, str]:
    """(status, detail in one line); the status is ok, failed, timeout, claims-failed or missing-output."""
    where = f"code cell {number}: " if (number := last_started(ending.copy)) else ""
    if ending.expired:
        return "timeout", f"{where}no end after {timeout:g} s"
    if ending.kernel_exit is not None:
        return "failed", f"{where}kernel {_death(ending.kernel_exit)}; {_memory(ending)}"
    if ending.worker_exit:
        return "failed", f"{where}worker {_death(ending.worker_exit)}; {_memory(ending)}"
    if found := _cell_error(ending.copy):
        name, lines = found
        if name in RECORDER_ERRORS:  # raised at the end of a notebook that ran: each line is about one claim
            return RECORDER_ERRORS[name], "; ".join(" ".join(line.split()) for line in lines[1:] or lines)
        return "failed", where + ": ".join([name, *lines[-1:]])
    if ending.error:
        return "failed", f"{where}{ending.error}"
    if not ending.copy:
        return "failed", "no executed copy was left"
    return "ok", ""


def last_started(copy: Mapping[str, Any]) -> int | None:
    """Number of the last code cell that was started, among the notebook's own code cells, from 1."""
    code = [cell for cell in copy.get("cells", ()) if cell["cell_type"] == "code"]
    own = [cell for cell in code if "injected-parameters" not in cell["metadata"].get("tags", ())]
    started = [number for number, cell in enumerate(own, 1) if cell["metadata"].get("papermill", {}).get("start_time")]
    return max(started, default=None)


def _cell_error(copy: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """Name and lines of the error that stopped the notebook; sys.exit() is one too, whatever its code."""
    for cell in copy.get("cells", ()):
        for output in cell.get("outputs", ()):
            if output["output_type"] == "error":
                lines = ANSI.sub("", output["evalue"]).strip().splitlines()
                return output["ename"], lines
    return None


def unrecorded(job: Job) -> list[str]:
    """What a notebook that ran to its end should have recorded and did not."""
    final = rundir.records(job.out, job.notebook)
    if final.exists():
        return []  # its recorder was closed, and complained then
    if final.with_suffix(".jsonl.part").exists():
        return ["rec.close(): its record is unfinished"]
    from reprise.nb import claims

    systems = [job.notebook.split("/")[0]] if "/" in job.notebook else None
    registry = claims.load(paths.root(), systems)
    reached = claims.PRESETS[: claims.PRESETS.index(job.preset) + 1]
    own = (claim for claim in registry.values() if claim.notebook == job.notebook and claim.kind != "recorded")
    return [f"claim {claim.id}" for claim in own if claim.preset in reached]


def _death(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"ended by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"ended by signal {-code}"


def _memory(ending: Ending) -> str:
    """What was known about memory when a process vanished: the system ends the largest when memory runs out."""
    last = ending.memory
    return (
        f"last sample {_gb(last.used)} in use (peak {_gb(ending.peak)}), "
        f"{_gb(last.free)} of {_gb(last.total)} free on the machine"
    )


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
