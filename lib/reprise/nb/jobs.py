"""A notebook to run and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STATUSES = ("ok", "cached", "failed", "timeout", "claims-failed", "missing-output")
PASSED = ("ok", "cached")


@dataclass(frozen=True)
class Job:
    """One notebook to run: where it is, its resolved parameters, where results go, seconds it may take."""

    notebook: str
    path: Path
    preset: str
    parameters: Mapping[str, Any]
    out: Path
    timeout: float


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    `status` is one of STATUSES and `detail` says why in one line. `peak_memory` is the largest sampled resident
    size of the job's processes in bytes, 0 for a cached job.
    """

    job: Job
    status: str
    seconds: float = 0.0
    detail: str = ""
    peak_memory: int = 0

    @property
    def passed(self) -> bool:
        return self.status in PASSED


# called with ("start", job), ("end", outcome) and ("tick", None)
Listener = Callable[[str, Job | Outcome | None], None]
