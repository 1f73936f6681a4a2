"""The worker: a small interpreter that forks one limited process for each job. `process.py` starts it.

It imports the standard library only and is single-threaded, so that forking it is safe and takes a millisecond.
Requests and replies are frames on its standard input and output: four bytes of length, then JSON. A job never holds
either.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import struct
import sys
import time

import linux
from job import become, warm_up

GRACE = 5.0  # seconds for the kernel to clear a killed job away
CHUNK = 65536
# whom jobs run as where this worker runs as root: nobody else runs as that user, so that a limit on its processes
# counts this worker's jobs alone. The range is the one systemd keeps for users that last as long as a service.
USER = 61184 + os.getpid() % 4096


def start(wanted: list[str], modules: list[str]) -> dict:
    """Put up the protections that last as long as the worker; say which are on and why others are not."""
    on, missing = [], {}

    def attempt(name: str, *steps) -> None:
        if name not in wanted:
            missing[name] = "not asked for"
            return
        try:
            for step in steps:
                step()
            on.append(name)
        except OSError as error:
            missing[name] = str(error)

    for name in modules:
        importlib.import_module(name)
    linux.adopt_orphans()
    if os.getuid() == 0:
        attempt("nobody")
    else:
        missing["nobody"] = "not started as root: jobs run as the user"
        if {"pid", "net", "mount", "ipc"} & set(wanted):
            with contextlib.suppress(OSError):
                linux.unshare(linux.NEWUSER)
                linux.map_own_user()
    attempt("pid", lambda: linux.unshare(linux.NEWPID), _move_in)
    attempt("net", lambda: linux.unshare(linux.NEWNET))
    attempt("ipc", lambda: linux.unshare(linux.NEWIPC | linux.NEWUTS))
    attempt("mount", lambda: linux.unshare(linux.NEWNS), linux.private_mounts, _read_only)
    if "pid" not in on or "net" not in on:
        attempt("calls", lambda: _probe(linux.no_new_privileges, linux.filter_calls))
    warm_up()
    gc.collect()
    gc.freeze()  # collections in a job do not touch, and so copy, the worker's pages
    return {"on": on, "missing": missing, "user": USER}


def _move_in() -> None:
    """Go on as process 1 of the new pid namespace, from which further ones can be made; the old process waits."""
    child = os.fork()
    if child:
        os.close(0)
        os.close(1)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    linux.die_with_parent()


def _read_only() -> None:
    linux.set_read_only("/", True, recursive=True)


def _probe(*steps) -> None:
    """Whether steps work that cannot be undone, tried in a child that ends at once."""
    child = os.fork()
    if child == 0:
        try:
            for step in steps:
                step()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


# -- one job -----------------------------------------------------------------------------------------------------------


def run_job(job: dict, on: list[str], pid_namespace: int) -> dict:
    """Fork, limit, run, watch, clear away."""
    names = ("stdout", "stderr") if job["kind"] == "command" else ("reply",)
    pipes = {name: os.pipe() for name in (*names, "ready")}
    stdin = _spool(base64.b64decode(job["stdin"])) if "stdin" in job else os.open("/dev/null", os.O_RDONLY)
    if "pid" in on:
        linux.unshare(linux.NEWPID)
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        become(job, on, USER, stdin, {name: ends[1] for name, ends in pipes.items()})
    if "pid" in on:
        linux.own_pid_namespace(pid_namespace)
    for fd in (stdin, *(write for _, write in pipes.values())):
        os.close(fd)
    try:
        result = _watch(child, {pipes[name][0]: name for name in names}, job["limits"], started, on)
        # closed when the job's own program began; what was said before is why it could not
        if reason := _part(pipes["ready"][0]):
            return {"cause": "setup", "code": -1, "cpu_seconds": 0.0, "reason": reason.decode(errors="replace")}
        return result
    finally:
        for read, _ in pipes.values():
            os.close(read)


def _spool(data: bytes) -> int:
    """A descriptor from which `data` can be read, however long it is."""
    fd = os.memfd_create("stdin")
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _watch(child: int, reads: dict[int, str], limits: dict, started: float, on: list[str]) -> dict:
    """Read what the job writes, up to its bound, until it ends, is too long or is too loud."""
    held = {name: bytearray() for name in reads.values()}
    ended = os.pidfd_open(child)
    poll = select.poll()
    for fd in (*reads, ended, 0):
        poll.register(fd, select.POLLIN if fd else 0)  # of standard input only that the other side hung up
    cause, deadline = None, started + limits["wall_seconds"]
    while cause is None:
        left = deadline - time.monotonic()
        events = [fd for fd, _ in poll.poll(max(0.0, left) * 1000)]
        if 0 in events:
            cause = "abandoned"
        elif left <= 0:
            cause = "timeout"
        for fd in set(events) & set(reads):
            cause = _take(fd, held[reads[fd]], limits["output_bytes"], poll) or cause
        if ended in events and cause is None:
            cause = "ended"
    os.close(ended)
    status, usage = _clear_away(child, on)
    for fd, name in reads.items():
        while (part := _part(fd)) and len(held[name]) <= limits["output_bytes"]:
            held[name] += part
    if cause == "ended" and any(len(data) > limits["output_bytes"] for data in held.values()):
        cause = "output"
    result = {name: base64.b64encode(data[: limits["output_bytes"]]).decode() for name, data in held.items()}
    cpu = round(usage.ru_utime + usage.ru_stime, 6)
    return {"cause": cause, "code": os.waitstatus_to_exitcode(status), "cpu_seconds": cpu, **result}


def _take(fd: int, held: bytearray, most: int, poll) -> str | None:
    part = os.read(fd, CHUNK)
    held += part
    if not part:
        poll.unregister(fd)
    return "output" if len(held) > most else None


def _part(fd: int) -> bytes:
    """What is there to read, without waiting: a process that escaped may still hold the other end."""
    os.set_blocking(fd, False)
    try:
        return os.read(fd, CHUNK)
    except BlockingIOError:
        return b""


def _clear_away(child: int, on: list[str]):
    """End the job and everything it started; returns its status and usage.

    In a pid namespace the kernel kills the rest when its first process ends. Elsewhere the job's process group is
    killed, and then whatever was orphaned to this worker, until there is none.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    if "pid" not in on:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    deadline = time.monotonic() + GRACE
    while "pid" not in on and time.monotonic() < deadline:
        if not (orphans := _children()):
            break
        for orphan in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(orphan, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    return status, usage


def _children() -> list[int]:
    me = os.getpid()
    with open(f"/proc/{me}/task/{me}/children") as file:
        return [int(word) for word in file.read().split()]


# -- frames ------------------------------------------------------------------------------------------------------------


def receive() -> dict | None:
    head = _exactly(4)
    return None if head is None else json.loads(_exactly(*struct.unpack(">I", head)))


def _exactly(count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part:
            return None
        data += part
    return data


def send(message: dict) -> None:
    data = json.dumps(message).encode()
    data = struct.pack(">I", len(data)) + data
    while data:
        data = data[os.write(1, data) :]


def main() -> None:
    settings = json.loads(sys.argv[1])
    state = start(settings["protections"], settings["modules"])
    pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)
    send(state)
    while (job := receive()) is not None:
        try:
            send(run_job(job, state["on"], pid_namespace))
        except OSError as error:  # out of processes or descriptors: this worker is of no more use
            send({"cause": "worker", "code": -1, "cpu_seconds": 0.0, "reason": str(error)})
            return


if __name__ == "__main__":
    main()
