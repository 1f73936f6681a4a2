"""A log file of any known format as runs of turns."""

from __future__ import annotations

from pathlib import Path

from reprise.traces.detect import READERS, detect
from reprise.traces.errors import TraceError
from reprise.traces.files import document
from reprise.traces.log import Log

FORMATS = tuple(READERS)
NAMED = 8  # runs that an error lists


def read_logs(path: str | Path, format: str = "auto") -> list[Log]:
    """Every run of a log file.

    Args:
        path: JSON, JSON Lines, Parquet or .eval.
        format: one of FORMATS, or "auto" for the one whose keys the file has.

    Returns:
        runs in the order of the file; each record is a turn, or is listed with the reason.

    Raises:
        TraceError: an unknown format, none or several that fit, or a record that is not what the format says; the
            message names the file, the place in it, the field, its value and what was expected.
    """
    if format != "auto" and format not in READERS:
        raise TraceError(f"format={format!r}: expected auto, {', '.join(FORMATS)}")
    whole = document(path)
    try:
        name = detect(whole) if format == "auto" else format
        if not READERS[name].looks_like(whole):
            raise TraceError(f"format={name}: the first record does not have its keys")
        return READERS[name].read(whole)
    except RecursionError:
        raise TraceError(f"{path}: nested too deeply") from None
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


def read_log(path: str | Path, format: str = "auto", run: str | None = None) -> Log:
    """The one run of a log file, or the one that is named.

    Args:
        path, format: as in `read_logs`.
        run: name of the run, for files with several.

    Raises:
        TraceError: as `read_logs`; no run of that name; or several runs and none named.
    """
    logs = read_logs(path, format)
    names = [log.run for log in logs]
    if run is not None:
        logs = [log for log in logs if log.run == run]
        if len(logs) != 1:
            raise TraceError(f"{path}: run={run!r}: {len(logs)} such runs: expected one of {_listed(names)}")
    if len(logs) != 1:
        raise TraceError(f"{path}: {len(logs)} runs: expected run to be one of {_listed(names)}")
    return logs[0]


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:NAMED])) + (f", ... ({len(names)} in all)" if len(names) > NAMED else "")
