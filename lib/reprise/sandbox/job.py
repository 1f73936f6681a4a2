"""The child's side of a job: lose everything a program must not have, then become that program.

A plain file of the standard library, like `worker.py`, which imports it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys

import linux


def become(job: dict, on: list[str], user: int, stdin: int, writes: dict[str, int]) -> None:
    """In the child: lose everything a job must not have, then run it. Never returns."""
    ready = 3
    try:
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        high = {name: fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for name, fd in {**writes, "null": null}.items()}
        os.dup2(stdin, 0)
        os.dup2(high.get("stdout", high["null"]), 1)
        os.dup2(high.get("stderr", high["null"]), 2)
        os.dup2(high["ready"], ready, inheritable=False)
        if job["kind"] == "python":
            os.dup2(high["reply"], 4)
        os.closerange(5 if job["kind"] == "python" else 4, 1 << 16)
        _confine(job, on, user)
        if job["kind"] == "command":
            os.chdir(job["folder"])
            os.execve(job["argv"][0], job["argv"], job["environment"])
        os.chdir("/")
        os.close(ready)
        _evaluate(job["source"], job["calls"])
    except BaseException as error:  # whatever happened, a job does not return into the worker's code
        with contextlib.suppress(OSError):
            os.write(ready, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(125)


def _confine(job: dict, on: list[str], user: int) -> None:
    if "mount" in on and job["kind"] == "command":
        linux.unshare(linux.NEWNS)
        for path in job["writable"]:
            linux.bind_writable(path)
        if "pid" in on:
            with contextlib.suppress(OSError):  # refused in some containers; the host's /proc stays, read-only
                linux.mount_proc()
    if "nobody" in on:
        linux.become_nobody(user)
    linux.drop_capabilities()
    linux.die_with_parent()
    linux.no_new_privileges()
    names = ("cpu_seconds", "memory", "processes", "file_bytes", "open_files")
    linux.limit(**{name: job["limits"][name] for name in names})
    if "calls" in on:
        linux.filter_calls()


def _evaluate(source: str, calls: list) -> None:
    """Send what a program returns. What is right is known elsewhere."""
    sys.path, sys.meta_path, sys.path_hooks = [], [], []  # only what is loaded already can be imported
    if "random" in sys.modules:
        sys.modules["random"].seed(0)
    data = _answers(source, calls).encode()
    while data:
        data = data[os.write(4, data) :]
    os._exit(0)


def _answers(source: str, calls: list) -> str:
    """Run a program and call its functions: a JSON list of ["value", ...] or ["error", name]."""
    space = {"__name__": "candidate"}
    try:
        exec(compile(source, "<candidate>", "exec"), space)
    except BaseException as error:
        answers = [_failed(error)] * len(calls)
    else:
        answers = []
        for name, arguments in calls:
            try:
                answers.append(f'["value", {json.dumps(space[name](*arguments), allow_nan=False)}]')
            except BaseException as error:
                answers.append(_failed(error))
    return f"[{', '.join(answers)}]"


def _failed(error: BaseException) -> str:
    return json.dumps(["error", type(error).__name__])


def warm_up() -> None:
    """Let the worker touch the memory a small job needs: a page the job is first to touch costs it a fault."""
    for _ in range(20):
        _answers("def f(x): return x + 1", [["f", [0]], ["g", []]])
