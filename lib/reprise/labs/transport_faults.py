"""Receivers that die, links that stall and relay roots that restart, each in the middle of a transfer; and the retry.

Every receiver is a process with a resident store in a folder. Payloads go two at a time, and the fault strikes when
some of them are applied and the others are not, so that what it leaves is neither version.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from reprise.labs.failover_experiments import Unsynced
from reprise.labs.kill_experiments import World, world
from reprise.labs.object_server import ObjectServer
from reprise.labs.seaweed import free_ports
from reprise.labs.transport_receiver import HOST, Receiver, store_at
from reprise.labs.wan import Wan
from reprise.refit import encode
from reprise.refit.recovery.attempt import Attempt
from reprise.refit.recovery.fingerprint import fingerprint
from reprise.refit.recovery.parts import split
from reprise.refit.recovery.resident import ResidentStore
from reprise.refit.transport.common import ReceiverFailed, TransportError
from reprise.refit.transport.relay_transport import RelayTransport
from reprise.refit.transport.store_transport import StoreTransport

FAULTS = ("leaf killed", "root killed", "root restarted", "link stalled", "link cut")
DOWNLOAD_FAULTS = ("receiver killed", "link stalled", "link cut")
RECEIVERS = 3
FIRST, RETRY = Attempt(1, 1, 0, 1, "xor"), Attempt(1, 2, 0, 1, "overwrite")
ROOT, LEAF = 0, 2
STRIKES_AT = 3  # the last payload is being made when the fault strikes, and the first is applied everywhere
WINDOW = 2
TIMEOUT = 1.0  # seconds without an answer
NAME = "receiver-0"
PART_DOWNLOADED = 0.7  # when the fault strikes: the largest payload is applied, the last is not
ANSWER_TIMEOUT = 2.0  # seconds


class _Cluster(NamedTuple):
    """Stores, addresses and processes of the receivers, and the link to them."""

    folders: list[Path]
    addresses: list[str]
    receivers: list[Receiver]
    wan: Wan

    def start(self, index: int) -> None:
        self.receivers[index] = self.process(index)

    def process(self, index: int) -> Receiver:
        return Receiver(index, self.addresses, self.folders[index], TIMEOUT)


def interrupted(seed: int, faults=FAULTS) -> list[dict]:
    """A refit of RECEIVERS receivers that is interrupted by each of `faults`, and repeated by overwriting.

    Returns:
        one row a fault: fault, failed (whether the attempt failed with an error that names a receiver), receiver
        (that name), reason, seconds (from the fault to the error), mixed (receivers that hold neither version then),
        exact (whether all hold the new bits after the retry).
    """
    w = world(seed)
    return [_interrupted(w, fault) for fault in faults]


def interrupted_downloads(seed: int, faults=DOWNLOAD_FAULTS) -> list[dict]:
    """The same over an object store: one receiver, struck when it has downloaded a part; columns as `interrupted`."""
    w = world(seed)
    return [_interrupted_download(w, fault) for fault in faults]


def payloads(w: World, attempt: Attempt) -> Iterator[bytes]:
    """The encoded payloads of an attempt, a tensor each."""
    for part in split(replace(w.delta, **attempt.transfer), 1):
        yield encode(part, attempt.op)


def _interrupted(w: World, fault: str) -> dict:
    with ExitStack() as stack:
        cluster = _started(w, stack)
        ports = [int(address.rsplit(":", 1)[1]) for address in cluster.addresses]
        over = [f"tcp://{HOST}:{cluster.wan.enter(port, 'rollout')}" for port in ports]
        transport = stack.enter_context(RelayTransport(over, window=WINDOW, timeout=TIMEOUT))
        struck = []

        def until_struck() -> Iterator[bytes]:
            for number, payload in enumerate(payloads(w, FIRST)):
                if number == STRIKES_AT:
                    _strike(fault, cluster)
                    struck.append(time.monotonic())
                yield payload

        row = {"fault": fault, "failed": False, "receiver": None, "reason": "", "seconds": 0.0}
        try:
            transport.broadcast(FIRST, until_struck(), root=ROOT)
        except ReceiverFailed as error:
            seconds = time.monotonic() - struck[0]
            row |= {"failed": True, "receiver": error.receiver, "reason": str(error), "seconds": seconds}
        _mend(cluster)
        row["mixed"] = sum(_is_mixed(folder, w) for folder in cluster.folders)
        for index in range(RECEIVERS):
            cluster.start(index)
        found = transport.broadcast(RETRY, payloads(w, RETRY), root=1)
        transport.commit(RETRY)
        return row | {"exact": list(found.values()) == [fingerprint(w.new)] * RECEIVERS}


def _interrupted_download(w: World, fault: str) -> dict:
    with ExitStack() as stack:
        port = stack.enter_context(ObjectServer()).port
        cluster = _started(w, stack, receivers=1)
        near = StoreTransport(store_at(port), "faults")
        sent = near.send(FIRST, payloads(w, FIRST))
        slow = stack.enter_context(Wan(sent.nbytes))  # the download takes a second
        _ask(cluster, FIRST, slow.enter(port, "trainer"))
        give_up = time.monotonic() + 10
        while slow.crossed("rollout") < PART_DOWNLOADED * sent.nbytes and time.monotonic() < give_up:
            time.sleep(0.005)
        start = time.monotonic()
        {"receiver killed": cluster.receivers[0].kill, "link stalled": slow.stall, "link cut": slow.kill}[fault]()
        row = {"fault": fault, "failed": False, "receiver": None, "reason": "", "seconds": 0.0}
        try:
            near.answers(FIRST, [NAME], timeout=ANSWER_TIMEOUT)
        except TransportError as error:
            row |= {"failed": True, "receiver": NAME, "reason": str(error), "seconds": time.monotonic() - start}
        _mend(cluster)
        row["mixed"] = int(_is_mixed(cluster.folders[0], w))
        cluster.start(0)
        near.send(RETRY, payloads(w, RETRY))
        _ask(cluster, RETRY, cluster.wan.enter(port, "trainer"))
        return row | {"exact": cluster.receivers[0].answer()["digest"] == fingerprint(w.new)}


def _ask(cluster: _Cluster, attempt: Attempt, port: int) -> None:
    cluster.receivers[0].ask(port=port, prefix="faults", attempt=attempt.dump(), window=1)


def _started(w: World, stack: ExitStack, receivers: int = RECEIVERS) -> _Cluster:
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    folders = [scratch / str(index) for index in range(receivers)]
    for folder in folders:
        ResidentStore.create(folder, w.old, fs=Unsynced()).close()
    addresses = [f"tcp://{HOST}:{port}" for port in free_ports(receivers)]
    cluster = _Cluster(folders, addresses, [], stack.enter_context(Wan()))
    cluster.receivers.extend(cluster.process(index) for index in range(receivers))
    stack.callback(lambda: [each.kill() for each in cluster.receivers])
    return cluster


def _strike(fault: str, cluster: _Cluster) -> None:
    strikes: dict[str, Callable[[], None]] = {
        "leaf killed": cluster.receivers[LEAF].kill,
        "root killed": cluster.receivers[ROOT].kill,
        "root restarted": lambda: (cluster.receivers[ROOT].kill(), cluster.start(ROOT)),
        "link stalled": cluster.wan.stall,
        "link cut": cluster.wan.kill,
    }
    strikes[fault]()


def _mend(cluster: _Cluster) -> None:
    """End the processes, whose stores can then be looked at, and repair the link."""
    for each in cluster.receivers:
        each.kill()
    cluster.wan.kill()
    cluster.wan.resume()
    cluster.wan.restore()


def _is_mixed(folder: Path, w: World) -> bool:
    with ResidentStore(folder, fs=Unsynced()) as store:
        return store.fingerprint() not in (fingerprint(w.old), fingerprint(w.new))
