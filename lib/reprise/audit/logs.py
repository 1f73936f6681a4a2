"""Logs of any format as trajectories, with the labels of those formats that have some."""

from __future__ import annotations

from pathlib import Path

from reprise.audit.errors import AuditError
from reprise.audit.trajectory import Trajectory, normalize_agent
from reprise.traces import Log, read_logs

LABELLED = ("who_and_when", "aftraj")


def load_trajectories(path: str | Path, format: str = "auto") -> list[Trajectory]:
    """Every run of a log file.

    Raises:
        TraceError: see `reprise.traces.read_logs`.  AuditError: a label that is none; the message names the run.
    """
    logs = read_logs(path, format)
    return [
        trajectory(log, log.run or f"{Path(path).stem}{f'/{k}' if len(logs) > 1 else ''}") for k, log in enumerate(logs)
    ]


def trajectory(log: Log, id: str | None = None, domain: str = "") -> Trajectory:
    """A log as a trajectory.

    A Who&When label makes a failed run with its decisive error. An AFTraj row with a step of -1, or none, is a safe
    run. Every other format leaves outcome and label None: its runs are not known to be safe.

    Args:
        log: as `read_log` gives it.
        id, domain: default to the run's name and to what the log says.

    Raises:
        AuditError: a step that is no integer, or lies outside the run.
    """
    id, meta = log.run if id is None else id, log.meta
    step = agent = outcome = None
    if log.format in LABELLED:
        step = _step(meta.get("mistake_step"), id)
        agent = normalize_agent(str(meta.get("mistake_agent") or "")) or None if step is not None else None
        outcome = step is None
    return Trajectory(
        id=id,
        turns=log.turns,
        domain=domain or str(meta.get("domain", "")),
        family=log.run,
        decisive_step=step,
        decisive_agent=agent,
        outcome=outcome,
        meta=meta,
    )


def _step(value: object, id: str) -> int | None:
    """A label's step, which Who&When writes as a string; None for a safe run."""
    # a column of integers with gaps comes back from pandas as floats and NaN
    if value is None or value == -1 or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or len(text) > 9:
        raise AuditError(f"trajectory {id!r}: mistake_step={value!r}: expected an integer of at least 0")
    return int(text)
