"""A receiver as a process of its own: a node of the relay tree, and at the same time a client of the object store.

    python -m reprise.labs.transport_receiver INDEX ADDRESS... [--folder STORE] [--timeout S]

Commands are JSON lines on standard input, answers JSON lines on standard output: {"port"} makes the client of a store,
{"port", "prefix", "attempt", "window"} downloads an attempt. The process ends with its input, so it cannot outlive
whoever started it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import xxhash

from reprise.errors import RepriseError
from reprise.labs.failover_experiments import Unsynced
from reprise.labs.seaweed import OPEN
from reprise.refit.payload import decode
from reprise.refit.recovery.attempt import Attempt, Order
from reprise.refit.recovery.resident import Outcome, ResidentStore, Status
from reprise.refit.transport.bundle import WINDOW
from reprise.refit.transport.intake import Intake
from reprise.refit.transport.places import ObstorePlace, Place, request_options
from reprise.refit.transport.relay_node import RelayNode
from reprise.refit.transport.store_transport import StoreTransport

HOST = "127.0.0.1"
REQUEST_TIMEOUT = 60.0  # seconds; a shaped link takes its time


class Collector:
    """Weights that decode payloads and keep none: what a transport delivers, in one digest."""

    def __init__(self):
        self._running = xxhash.xxh3_128()

    def status(self) -> Status:
        return Status(0, None)

    def begin(self, attempt: Attempt) -> None:
        self._running = xxhash.xxh3_128()

    def deliver(self, payload: bytes) -> Outcome:
        decode(payload)
        self._running.update(payload)
        return Outcome("applied")

    def check(self, attempt: Attempt, payloads: int) -> str:
        return self._running.hexdigest()

    def commit(self, attempt: Attempt) -> None: ...

    def stop_and_wait(self, order: Order) -> None: ...


class Receiver:
    """The process, as its owner sees it. Ready when made; `close` ends it.

    Args:
        index, addresses, timeout: as for RelayNode.
        folder: of a ResidentStore; None for a Collector.
    """

    def __init__(self, index: int, addresses: Sequence[str], folder: Path | None = None, timeout: float = 60.0):
        command = [sys.executable, "-m", "reprise.labs.transport_receiver", str(index), *addresses]
        command += ["--timeout", str(timeout), *(["--folder", str(folder)] if folder else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def ask(self, **command) -> None:
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict:
        """The next answer; RepriseError if the process ended or reports an error."""
        line = self.process.stdout.readline()
        found = json.loads(line) if line else {"error": f"ended with status {self.process.wait(10)}"}
        if "error" in found:
            raise RepriseError(f"receiver process: {found['error']}")
        return found

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)


@cache
def store_at(port: int) -> Place:
    """The bucket of a store server on a port of the loopback; making the client takes as long as a small transfer."""
    from obstore.store import S3Store

    store = S3Store(endpoint=f"http://{HOST}:{port}", **request_options(REQUEST_TIMEOUT), **OPEN)
    return ObstorePlace(store, f"s3://{HOST}:{port}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("index", type=int)
    parser.add_argument("addresses", nargs="+")
    parser.add_argument("--folder")
    parser.add_argument("--timeout", type=float)
    options = parser.parse_args()
    stop = threading.Event()
    # the kills here are of processes, after which the page cache is still there: no need to wait for a disk
    weights = ResidentStore(options.folder, fs=Unsynced()) if options.folder else Collector()
    intake = Intake(weights)
    node = RelayNode(options.index, options.addresses, intake, timeout=options.timeout)
    thread = threading.Thread(target=node.run, args=(stop,))
    thread.start()
    print(json.dumps({"ready": options.index}), flush=True)
    try:
        for line in sys.stdin:
            command = json.loads(line)
            if "attempt" in command:
                done = _download(f"receiver-{options.index}", intake, **command)
            else:
                done = {"ready": store_at(**command).name}
            print(json.dumps(done), flush=True)
    finally:
        stop.set()
        thread.join()


def _download(name: str, intake: Intake, port: int, prefix: str, attempt: dict, window: int = WINDOW) -> dict:
    try:
        transport = StoreTransport(store_at(port), prefix, window=window)
        return {"digest": transport.receive(Attempt(**attempt), name, intake)}
    except (RepriseError, OSError) as error:
        return {"error": str(error)}


if __name__ == "__main__":
    main()
