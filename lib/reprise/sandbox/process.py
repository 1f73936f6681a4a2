"""Runs untrusted programs: a worker process of its own, a limited child of that for each job."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reprise.sandbox.limits import Answers, Ending, Finished, Limits, Protections, SandboxError

PROTECTIONS = ("nobody", "pid", "net", "ipc", "mount", "calls")
# what a program may import; anything else is refused, so that verdicts do not depend on what is installed
MODULES = (
    "bisect",
    "collections",
    "copy",
    "datetime",
    "decimal",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "typing",
)
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
FRAME = 256 << 20  # bytes of a frame at most
START_SECONDS, GRACE_SECONDS, CLOSE_SECONDS = 60.0, 30.0, 6.0
_FOLDER = str(Path(__file__).parent)
_WORKER = f"{_FOLDER}/worker.py"
_BOOT = f"import runpy, sys; sys.path.insert(0, {_FOLDER!r}); runpy.run_path({_WORKER!r}, run_name='__main__')"


class Sandbox:
    """A persistent worker that forks a limited process for each job.

    Jobs run one after another; calls from several threads wait for each other. A worker that dies is started again
    and the job tried once more. `close` it, or use it in a `with`; it also ends with the interpreter.

    Args:
        protections: those to try, of `PROTECTIONS`; what the kernel refuses is left out and listed in `protections`.
        modules: what a Python program may import.

    Raises:
        SandboxError: no worker can be started, or not on Linux.
    """

    def __init__(self, protections: Iterable[str] = PROTECTIONS, modules: Iterable[str] = MODULES):
        self._wanted, self._modules = tuple(protections), tuple(modules)
        if unknown := set(self._wanted) - set(PROTECTIONS):
            raise SandboxError(f"protections={sorted(unknown)}: expected any of {', '.join(PROTECTIONS)}")
        if not sys.platform.startswith("linux"):
            raise SandboxError(f"platform {sys.platform}: expected Linux, whose limits the sandbox uses")
        self._lock = threading.Lock()
        self._start()

    def evaluate(self, source: str, calls: Sequence[tuple[str, Sequence]], limits: Limits | None = None) -> Answers:
        """Run a Python program in a process of its own and call its functions.

        The process knows the arguments and returns plain values (what JSON can hold); it never sees what they are
        compared with. Whatever a program writes in place of its answers is therefore only another answer.

        Args:
            source: the program.
            calls: name of a function and its arguments, in order.
            limits: by default those of `Limits`.
        """
        job = {"kind": "python", "source": source, "calls": [[name, list(args)] for name, args in calls]}
        reply = self._job(job, limits or Limits())
        ending = _ending(reply)
        answers = _answers(reply, len(calls)) if ending == Ending.EXITED else None
        return Answers(ending, answers, reply["cpu_seconds"])

    def run(
        self,
        argv: Sequence[str],
        limits: Limits | None = None,
        stdin: bytes = b"",
        folder: str | Path = "/",
        writable: Iterable[str | Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Finished:
        """Run a command; its program must be readable by everybody.

        Args:
            argv: absolute path of the program, and its arguments.
            limits: by default those of `Limits`, which allow neither files nor further processes.
            stdin: what it can read.
            folder: where it runs.
            writable: folders it may write to, where the limits let it write; they are handed to the user it runs as.
            environment: all its variables; by default HOME and TMPDIR (the first writable folder, else "/"), LC_ALL.

        Raises:
            SandboxError: argv is empty or its program has no absolute path, a folder does not exist, or the program
                cannot be started.
        """
        if not argv or not os.path.isabs(argv[0]):
            raise SandboxError(f"argv={list(argv)}: expected a program with its absolute path")
        paths = [os.path.realpath(path) for path in writable]
        for path in (*paths, str(folder)):
            if not os.path.isdir(path):
                raise SandboxError(f"folder {path}: no such folder")
        if environment is None:
            home = paths[0] if paths else "/"
            environment = {"HOME": home, "TMPDIR": home, "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
        if "nobody" in self.protections.on:
            for path in paths:
                os.chown(path, self._user, -1)
        job = {"kind": "command", "argv": list(argv), "folder": str(folder), "writable": paths}
        job |= {"environment": dict(environment), "stdin": base64.b64encode(stdin).decode()}
        reply = self._job(job, limits or Limits())
        output = [base64.b64decode(reply.get(name, "")) for name in ("stdout", "stderr")]
        return Finished(_ending(reply), reply["code"], *output, reply["cpu_seconds"])

    def close(self) -> None:
        """End the worker."""
        self._finalizer()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def _start(self) -> None:
        settings = json.dumps({"protections": self._wanted, "modules": self._modules})
        self._worker = subprocess.Popen(
            [sys.executable, "-s", "-S", "-P", "-B", "-c", _BOOT, settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(self, _end, self._worker, self._owner)
        state = self._receive(START_SECONDS)
        if state is None:
            self.close()
            raise SandboxError(f"worker of {sys.executable}: it did not start")
        self.protections, self._user = Protections(tuple(state["on"]), state["missing"]), state["user"]

    def _job(self, job: dict[str, Any], limits: Limits) -> dict[str, Any]:
        job = {**job, "limits": asdict(limits)}
        with self._lock:
            for _ in range(2):
                if os.getpid() != self._owner or not self._finalizer.alive:  # after a fork, or the worker has died
                    self._start()
                reply = self._send(job) and self._receive(limits.wall_seconds + GRACE_SECONDS)
                if reply and reply["cause"] == "setup":
                    raise SandboxError(f"{job.get('argv', ['program'])[0]}: it could not be started: {reply['reason']}")
                if reply and reply["cause"] not in ("worker", "abandoned"):
                    return reply
                self.close()
        return {"cause": "worker", "code": -1, "cpu_seconds": 0.0}

    def _send(self, message: dict[str, Any]) -> bool:
        data = json.dumps(message).encode()
        try:
            self._worker.stdin.write(struct.pack(">I", len(data)) + data)
            self._worker.stdin.flush()
        except OSError:
            return False
        return True

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        """A frame of the worker, or None when it is silent for too long or gone."""
        deadline = time.monotonic() + seconds
        head = self._exactly(4, deadline)
        if head is None or (length := struct.unpack(">I", head)[0]) > FRAME:
            return None
        body = self._exactly(length, deadline)
        return None if body is None else json.loads(body)

    def _exactly(self, count: int, deadline: float) -> bytes | None:
        data, fd = bytearray(), self._worker.stdout.fileno()
        while len(data) < count:
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(fd, count - len(data)) if ready else b""
            if not part:
                return None
            data += part
        return bytes(data)


def _end(worker: subprocess.Popen, owner: int) -> None:
    """Close a worker; its job, if one runs, dies with it. A forked copy of the owner leaves it alone."""
    if os.getpid() != owner:
        return
    with contextlib.suppress(OSError):
        worker.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.wait(CLOSE_SECONDS)  # it clears its job away, then ends
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.stdout.close()
    worker.wait()


def _ending(reply: Mapping[str, Any]) -> Ending:
    if reply["cause"] == "ended":
        return Ending.KILLED if reply["code"] < 0 else Ending.EXITED
    return Ending(reply["cause"])


def _answers(reply: Mapping[str, Any], count: int) -> tuple[tuple[bool, Any], ...] | None:
    """The answers of a reply, or None for anything that is not `count` pairs: the program wrote there itself."""
    try:
        entries = json.loads(base64.b64decode(reply["reply"]))
        pairs = tuple((kind == "value", value) for kind, value in entries)
    except (ValueError, TypeError, RecursionError):
        return None
    return pairs if len(pairs) == count else None
