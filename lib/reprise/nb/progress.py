"""What `reprise run` shows while it runs: a line for each finished notebook and, on a terminal, one bar below them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click

from reprise.nb import rundir
from reprise.nb.jobs import Job, Outcome

COLOURS = {"ok": "green", "cached": "green"}


class Progress:
    """Listener of `runner.run`.

    Args:
        jobs: all jobs, finished or not.
        workers: notebooks at a time, for the estimate.
    """

    def __init__(self, jobs: Sequence[Job], workers: int):
        # read now: the runner removes a stamp when it starts the notebook again
        self.expected = {job.notebook: rundir.read_stamp(job.out, job.notebook).get("seconds") for job in jobs}
        self.workers, self.outcomes = workers, []
        self.running: dict[str, float] = {}
        self.bar = _bar(len(jobs)) if sys.stderr.isatty() else None

    def __call__(self, kind: str, item: Job | Outcome | None) -> None:
        if kind == "start":
            self.running[item.notebook] = time.monotonic()
        elif kind == "end":
            self.running.pop(item.job.notebook, None)
            self.outcomes.append(item)
            self._write(item)
        if self.bar is not None:
            self.bar.n = len(self.outcomes)
            self.bar.set_description_str(", ".join(self.running) or "notebooks", refresh=False)
            self.bar.set_postfix_str(self._left(), refresh=True)

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()

    def _write(self, outcome: Outcome) -> None:
        status = click.style(f"{outcome.status:<14}", fg=COLOURS.get(outcome.status, "red"))
        cost = "" if outcome.status == "cached" else f"{outcome.seconds:7.1f} s {outcome.peak_memory / 1e9:6.2f} GB  "
        line = f"{status} {outcome.job.notebook:<40} {cost}{outcome.detail}".rstrip()
        if self.bar is not None:
            self.bar.clear()
        click.echo(line)

    def _left(self) -> str:
        """Estimate from each notebook's last run; without one for every notebook there is none."""
        done = {outcome.job.notebook for outcome in self.outcomes}
        waiting = {stem: seconds for stem, seconds in self.expected.items() if stem not in done}
        if None in waiting.values():
            return ""
        ran = {stem: time.monotonic() - started for stem, started in self.running.items()}
        left = sum(max(0.0, seconds - ran.get(stem, 0.0)) for stem, seconds in waiting.items())
        return f"about {left / self.workers:.0f} s left" if waiting else ""


def _bar(total: int):
    from tqdm import tqdm

    # the monitor is a thread, and the runner forks
    tqdm.monitor_interval = 0
    return tqdm(total=total, bar_format="{desc} {bar:20} {n_fmt}/{total_fmt} {elapsed} {postfix}", leave=False)
