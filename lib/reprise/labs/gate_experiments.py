"""How long requests wait for a refit: while it arrives and is applied, or only while it is applied.

sync    the gate closes before the first payload, and each is applied as it arrives
async   payloads are staged while requests go on; the gate closes when the last one is there
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

from reprise.labs.seaweed import free_ports
from reprise.labs.transport_experiments import HOST, change, parts
from reprise.labs.transport_receiver import Collector
from reprise.labs.wan import Wan
from reprise.refit import encode
from reprise.refit.recovery.attempt import Attempt
from reprise.refit.transport.common import TransportTimeout
from reprise.refit.transport.gate import RequestGate
from reprise.refit.transport.intake import MODES, Intake
from reprise.refit.transport.relay_node import RelayNode
from reprise.refit.transport.relay_transport import RelayTransport

REQUEST = 2e-3  # seconds a request takes; our choice


def waits(seed: int, *, elements: int = 1 << 22, rate: float = 1e6) -> list[dict]:
    """One refit of one receiver in each mode, over a link of `rate` bytes a second, while requests come one by one.

    Returns:
        one row a mode: mode, payload_bytes, seconds (of the refit), longest_wait (seconds that a request stood before
        the gate), served (requests that ended during the refit), share_shut (longest_wait / seconds).
    """
    delta = change(seed, elements)
    _refit(change(seed, 1 << 12), Attempt(1, 1, 0, 1, "xor"), "sync", rate)  # what is first used takes longer
    return [_refit(delta, Attempt(1, number, 0, 1, "xor"), mode, rate) for number, mode in enumerate(MODES, 1)]


def _refit(delta, attempt: Attempt, mode: str, rate: float) -> dict:
    payloads = [encode(part, attempt.op) for part in parts(delta, attempt)]
    gate, stop, ended = RequestGate(), threading.Event(), threading.Event()
    (port,) = free_ports(1)
    node = RelayNode(0, [f"tcp://{HOST}:{port}"], Intake(Collector(), gate))
    served: list[tuple[float, float]] = []
    threads = [threading.Thread(target=node.run, args=(stop,))]
    threads.append(threading.Thread(target=_requests, args=(gate, ended, served)))
    with ExitStack() as stack:
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        stack.callback(stop.set)
        stack.callback(ended.set)
        wan = stack.enter_context(Wan(rate))
        transport = stack.enter_context(RelayTransport([f"tcp://{HOST}:{wan.enter(port, 'rollout')}"]))
        start = time.perf_counter()
        transport.broadcast(attempt, payloads, mode=mode)
        transport.commit(attempt)
        end = time.perf_counter()
        time.sleep(10 * REQUEST)  # whoever stood before the gate is through it
    within = [wait for at, wait in served if start <= at]
    longest = max(within, default=0.0)
    return {
        "mode": mode,
        "payload_bytes": sum(map(len, payloads)),
        "seconds": end - start,
        "longest_wait": longest,
        "served": sum(start <= at <= end for at, _ in served),
        "share_shut": longest / (end - start),
    }


def _requests(gate: RequestGate, ended: threading.Event, served: list[tuple[float, float]]) -> None:
    """Requests one after another; (time of the end, seconds before the gate) of each."""
    while not ended.is_set():
        asked = time.perf_counter()
        try:
            with gate.request(timeout=60):
                wait = time.perf_counter() - asked
                ended.wait(REQUEST)
        except TransportTimeout:
            return
        served.append((time.perf_counter(), wait))
