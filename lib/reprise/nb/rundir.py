"""The run directory: what one batch leaves behind, where it lies, and when it may be used again.

run.json                        command, preset, commit, machine, outcome of each notebook
notebooks/<stem>.ipynb          executed copy, also of a notebook that failed
records/<stem>.jsonl            what the notebook recorded; <stem>.jsonl.part where it stopped early
records/<stem>.done.json        stamp of a finished notebook: its key, its time, the files it produced
figures/<stem>/  tables/<stem>/ logs/<stem>.log
scoreboard.csv  .json  .html
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from reprise.durable import atomic_write
from reprise.errors import RepriseError

# room for one notebook's figures and executed copy; below it nothing is started
MIN_FREE_BYTES = 16 * 2**20
FOLDERS = ("notebooks", "records", "figures", "tables", "logs")


class RunDirectoryUnusable(RepriseError):
    """The run directory cannot be written, is full, or belongs to a run in progress; nothing was started."""

    exit_code = 2


class RunDirectoryFull(RepriseError):
    """The run directory filled up during a run, which stopped; finished notebooks stay."""


@contextlib.contextmanager
def opened(out: Path) -> Iterator[None]:
    """Make the folders, prove that a file can be written, and hold the directory's lock.

    A folder that holds something, but neither run.json nor the lock of a run that stopped before it wrote one, is
    somebody else's: a run would overwrite notebooks and figures there.

    Raises:
        RunDirectoryUnusable: with the path and the system's reason.
    """
    try:
        names = {path.name for path in out.iterdir()} if out.is_dir() else set()
        if names and not names & {"run.json", ".lock"}:
            raise RunDirectoryUnusable(f"run directory {out}: holds other files, expected an empty folder or a run's")
        out.mkdir(parents=True, exist_ok=True)
        lock = open(out / ".lock", "w")  # noqa: SIM115 - held for the whole run
        for folder in FOLDERS:
            (out / folder).mkdir(exist_ok=True)
        atomic_write(out / ".probe", bytes(4096))
        (out / ".probe").unlink()
    except OSError as error:
        raise RunDirectoryUnusable(f"run directory {out}: {error.strerror}, expected a folder to write to") from None
    with lock:
        if free_bytes(out) < MIN_FREE_BYTES:
            raise RunDirectoryUnusable(f"run directory {out}: {_full(out)}")
        if not _locked(lock):
            raise RunDirectoryUnusable(f"run directory {out}: another run is using it")
        yield


@contextlib.contextmanager
def filling_up(out: Path) -> Iterator[None]:
    """Turn a full disk into RunDirectoryFull."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RunDirectoryFull(_filled(out)) from None


def check_space(out: Path) -> None:
    """Raise RunDirectoryFull when too little is free to start another notebook."""
    if free_bytes(out) < MIN_FREE_BYTES:
        raise RunDirectoryFull(_filled(out))


def free_bytes(out: Path) -> int:
    """Bytes an ordinary user can still write on the directory's file system."""
    return shutil.disk_usage(out).free


def executed(out: Path, stem: str) -> Path:
    """The executed copy."""
    return out / "notebooks" / f"{stem}.ipynb"


def partial(out: Path, stem: str) -> Path:
    """Where the copy is written while the notebook runs."""
    final = executed(out, stem)
    return final.with_name(f".{final.stem}.partial.ipynb")


def records(out: Path, stem: str) -> Path:
    """What the notebook recorded, one JSON value a line."""
    return out / "records" / f"{stem}.jsonl"


def log(out: Path, stem: str) -> Path:
    """Standard output and error of the worker and its kernel, as far as they bypass the notebook."""
    return out / "logs" / f"{stem}.log"


def clear(out: Path, stem: str) -> None:
    """Remove what an earlier run of this notebook left, so that nothing stale stands beside a new result."""
    record = records(out, stem)
    unfinished = record.with_suffix(".jsonl.part")
    for path in (_stamp(out, stem), record, unfinished, executed(out, stem), partial(out, stem), log(out, stem)):
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
    for folder in ("figures", "tables"):
        shutil.rmtree(out / folder / stem, ignore_errors=True)


def produced(out: Path, stem: str) -> list[str]:
    """Files of a finished notebook, relative to the run directory: executed copy, records, figures, tables."""
    files = [executed(out, stem), records(out, stem)]
    files += sorted(path for folder in ("figures", "tables") for path in (out / folder / stem).rglob("*"))
    return [path.relative_to(out).as_posix() for path in files if path.is_file()]


def read_stamp(out: Path, stem: str) -> dict:
    """The stamp a finished notebook left, {} if there is none."""
    return _read(_stamp(out, stem))


def write_stamp(out: Path, stem: str, key: str, parts: dict, seconds: float) -> None:
    """Declare the notebook finished, with the files it must still have to count as cached."""
    stamp = {"key": key, "parts": parts, "seconds": round(seconds, 2), "files": produced(out, stem)}
    atomic_write(_stamp(out, stem), _json(stamp))


def is_cached(out: Path, stem: str, key: str) -> bool:
    """Whether the notebook finished under this key and every file it produced is still there."""
    stamp = read_stamp(out, stem)
    return stamp.get("key") == key and all((out / name).is_file() for name in stamp.get("files", ()))


def keep_copy(out: Path, stem: str) -> dict:
    """Move the executed copy into place and return it; one that was cut short while it was written is dropped."""
    path = partial(out, stem)
    try:
        notebook = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        path.unlink()
        return {}
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.replace(executed(out, stem))
    return notebook


def read_header(out: Path) -> dict:
    """run.json, {} before the first run."""
    return _read(out / "run.json")


def write_header(out: Path, root: Path, **fields) -> None:
    """Write run.json: the given fields, the command, the commit and the machine."""
    from reprise.nb import cachekey, machine

    header = {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "commit": _git(root, "rev-parse", "HEAD"),
        "dirty": bool(_git(root, "status", "--porcelain")),
        "lock": cachekey.files_digest([root / "requirements.lock"]),
        **machine.environment(),
        **fields,
    }
    atomic_write(out / "run.json", _json(header))


def point_latest(root: Path, out: Path) -> None:
    """Let runs/latest name this run directory, if it lies below the checkout's runs/."""
    runs = (root / "runs").resolve()
    if runs not in out.parents:
        return
    link, target = runs / "latest", os.path.relpath(out, runs)
    if link.is_symlink() and os.readlink(link) == target:
        return
    # a convenience: where runs/latest is a folder of its own, the run goes on without
    with contextlib.suppress(OSError):
        fresh = link.with_name(f".latest-{os.getpid()}")
        fresh.symlink_to(target)
        fresh.replace(link)


def _read(path: Path) -> dict:
    """A JSON object, {} where there is none or something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _stamp(out: Path, stem: str) -> Path:
    return out / "records" / f"{stem}.done.json"


def _full(out: Path) -> str:
    return f"{free_bytes(out) / 2**20:.1f} MB free, expected at least {MIN_FREE_BYTES / 2**20:.0f} MB"


def _filled(out: Path) -> str:
    return f"run directory {out} filled up: {_full(out)}; free some and run again, finished notebooks are kept"


def _locked(file) -> bool:
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _json(value) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _git(root: Path, *arguments: str) -> str:
    """What git prints, "" without git or outside a repository."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
