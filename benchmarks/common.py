"""What every benchmark needs: interleaved timing, ratios with their spread, the machine, a table."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Ratio:
    """Median, smallest and largest of the ratios of single rounds."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def interleave(
    tasks: dict[str, Callable[[], object]], rounds: int, progress, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each task in each round; every round runs every task once, after one round that is not counted.

    Load on the machine then hits all tasks alike, and ratios within a round mean more than any time. For work of one
    thread `clock` may be time.process_time, which other processes hardly change.
    """
    seconds = {name: [] for name in tasks}
    for counted in [False] + [True] * rounds:
        for name, task in tasks.items():
            begin = clock()
            task()
            if counted:
                seconds[name].append(clock() - begin)
            progress.update()
    return seconds


def ratio(above: list[float], below: list[float]) -> Ratio:
    """How many times longer `above` takes than `below`, round by round."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return Ratio(median(ratios), min(ratios), max(ratios))


def machine(*packages: str) -> dict[str, str]:
    """Processor, system and versions of `packages`; a package that is not installed is "unavailable"."""
    found = {"processor": _processor(), "cores": str(os.cpu_count()), "system": platform.platform()}
    found["python"] = platform.python_version()
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "unavailable"
    return found


def table(head: list[str], rows: list[list[str]]) -> str:
    """Text columns, the first one left-aligned."""
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    lines = []
    for row in [head, ["-" * width for width in widths], *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def write_results(path: Path, results: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1, default=vars) + "\n")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
