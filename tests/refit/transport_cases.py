"""Material of the transport tests: receivers that remember what they were told, and trees of them in threads."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from reprise.labs.seaweed import free_ports
from reprise.refit import encode
from reprise.refit.recovery.attempt import Attempt, FencedError
from reprise.refit.recovery.commit_log import Commit, CommitConflict, CommitLogError, ObjectCommitLog
from reprise.refit.recovery.resident import Outcome, Status
from reprise.refit.transport.intake import Intake
from reprise.refit.transport.object_commit import ObstoreObjects
from reprise.refit.transport.relay_node import RelayNode

HOST = "127.0.0.1"
TIMEOUT = 20.0  # seconds; never reached where all is well
QUICK = 1.0  # where somebody is dead


class Recorder:
    """Weights that record calls; `on` maps a call's name to what happens first."""

    def __init__(self, **on):
        self.calls, self.held, self.on, self.attempt = [], [], on, None

    def _call(self, name, *args):
        self.calls.append(name)
        if name in self.on:
            self.on[name](*args)

    def status(self):
        return Status(0, None)

    def begin(self, attempt):
        self._call("begin", attempt)
        if self.attempt is not None and attempt.order <= self.attempt.order:
            raise FencedError(f"{attempt}: not a newer one")
        self.attempt, self.held = attempt, []

    def deliver(self, payload):
        self._call("deliver", payload)
        self.held.append(bytes(payload))
        return Outcome("applied")

    def check(self, attempt, payloads):
        self._call("check", attempt)
        assert payloads == len(self.held)
        return f"held.{len(self.held)}"

    def commit(self, attempt):
        self._call("commit", attempt)

    def stop_and_wait(self, order):
        self._call("stop", order)


def attempt(number=1, op="xor", generation=1):
    return Attempt(generation, number, 0, 1, op)


def numbered(delta, of, count):
    """`count` payloads of attempt `of`, all with the same change."""
    return [encode(replace(delta, **of.transfer, payload_id=k), of.op) for k in range(count)]


class Tree:
    """Nodes in threads; `stop(i)` ends one as a dying process would, without a word."""

    def __init__(self, intakes, **options):
        self.ports = free_ports(len(intakes))
        self.addresses = [f"tcp://{HOST}:{port}" for port in self.ports]
        self.options = {"timeout": TIMEOUT, **options}
        self.nodes = {}
        for index, intake in enumerate(intakes):
            self.start(index, intake)

    def start(self, index, intake):
        stop, node = threading.Event(), RelayNode(index, self.addresses, intake, **self.options)
        thread = threading.Thread(target=node.run, args=(stop,), daemon=True)
        thread.start()
        self.nodes[index] = stop, thread

    def stop(self, index):
        stop, thread = self.nodes.pop(index)
        stop.set()
        thread.join(10)
        assert not thread.is_alive()

    def close(self):
        for index in list(self.nodes):
            self.stop(index)


@contextmanager
def tree(*weights, gates=None, gate_timeout=TIMEOUT, **options):
    with ExitStack() as stack:
        gates = gates or [None] * len(weights)
        held = Tree(
            [Intake(w, gate, gate_timeout=gate_timeout) for w, gate in zip(weights, gates, strict=True)], **options
        )
        stack.callback(held.close)
        yield held


def commit_record(store):
    """What a commit record in `store` must do."""
    log = ObjectCommitLog.create(ObstoreObjects(store), "commit")
    with pytest.raises(CommitLogError, match="exists"):
        ObjectCommitLog.create(ObstoreObjects(store), "commit")
    log.compare_and_set(Commit(0, 0), Commit(0, 1), "me")
    log.compare_and_set(Commit(0, 0), Commit(0, 1), "me")  # its own record, after an answer that was lost
    with pytest.raises(CommitConflict):
        log.compare_and_set(Commit(0, 0), Commit(0, 1), "rival")
    for version in range(3):
        with ThreadPoolExecutor(6) as pool:
            expected = Commit(version, 1)
            races = [pool.submit(log.compare_and_set, expected, expected.committed, f"{k}") for k in range(6)]
        assert sorted(type(each.exception()).__name__ for each in races) == ["CommitConflict"] * 5 + ["NoneType"]
    assert log.read() == Commit(3, 1)
