"""The inside of one job: a forked child that runs one notebook with papermill and leaves nothing running."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from reprise.nb import process


def run(
    notebook: Path,
    copy: Path,
    log: Path,
    scratch: Path,
    parameters: dict[str, Any],
    environment: Mapping[str, str],
    answer: Connection,
) -> None:
    """Execute `notebook` in its own folder, write the executed copy, answer how it ended, and clean up.

    The answer is {"error": "" or the exception as one line, "kernel_exit": exit code of a kernel that died, else
    None}; an error of a cell is read from the executed copy. Meant for a process forked for this purpose: it takes
    over the session, standard output and error, and the environment.

    Args:
        notebook: file to run, left as it is.
        copy: where the executed copy is written as it grows.
        log: standard output and error of the worker and the kernel, as far as they bypass the notebook.
        scratch: temporary files of the kernel; the caller removes it.
        parameters: what papermill injects.
        environment: variables set for the kernel.
        answer: connection the answer is sent on.
    """
    process.lead_job(scratch)
    _redirect(log)
    os.environ.pop("JPY_SESSION_NAME", None)
    os.environ.update(environment, TMPDIR=str(scratch), JUPYTER_RUNTIME_DIR=str(scratch))
    tempfile.tempdir = str(scratch)  # connection files hold keys; the folder looked up before the fork is remembered
    try:
        answer.send(_execute(notebook, copy, parameters))
    finally:
        process.kill_descendants()


def import_papermill() -> None:
    """Import what every worker needs, once, in the process they are forked from."""
    import tqdm

    # the monitor of progress bars is a thread, and a process with threads must not fork
    tqdm.tqdm.monitor_interval = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import papermill  # noqa: F401

        import reprise.nb.kernels  # noqa: F401


def _execute(notebook: Path, copy: Path, parameters: dict[str, Any]) -> dict:
    import papermill

    from reprise.nb.kernels import WatchedKernel

    error = ""
    try:
        papermill.execute_notebook(
            _literal(notebook),
            _literal(copy),
            parameters,
            kernel_name="python3",
            cwd=str(notebook.parent),
            progress_bar=False,
            kernel_manager_class=WatchedKernel,
            # what a slower, clean exit would remove lies in the scratch folder
            shutdown_kernel="immediate",
        )
    except BaseException as raised:  # the runner tells what happened; a worker has no one to raise to
        error = f"{type(raised).__name__}: {raised}".strip().splitlines()[0]
    return {"error": error, "kernel_exit": WatchedKernel.exit_code}


def _literal(path: Path) -> str:
    """The path as papermill takes it: braces would be filled from the parameters."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _redirect(log: Path) -> None:
    """Point file descriptors 1 and 2 at the log, for the kernel and for libraries that write past Python."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
