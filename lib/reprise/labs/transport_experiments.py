"""What crosses the boundary between two clusters, and how long it takes: relay tree against object store.

    relay   the payload crosses once, to the root of a tree of receivers
    store   it is uploaded on the trainer's side, and every receiver downloads it
    star    the placebo: a relay in which every receiver is attached to the far side of the root, at the source

The receivers are processes. The only way between the sides is `labs.wan`, which counts and shapes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np
import xxhash

from reprise.errors import RepriseError
from reprise.labs.object_server import ObjectServer
from reprise.labs.refit_payloads import AMPLITUDE, perturb
from reprise.labs.seaweed import free_ports
from reprise.labs.transport_receiver import Receiver, store_at
from reprise.labs.wan import Wan
from reprise.refit import Bits, Delta, diff_bits, encode
from reprise.refit.recovery.attempt import Attempt
from reprise.refit.recovery.parts import split
from reprise.refit.transport.relay_transport import RelayTransport
from reprise.refit.transport.store_transport import StoreTransport

TRANSPORTS = ("relay", "store", "star")
SHARE = 0.05  # NeMo-DCR's upper stress setting
PAYLOADS = 8  # of one transfer; our choice
HOST = "127.0.0.1"


class Setting(NamedTuple):
    """One transfer to be measured, `number` of the whole series."""

    number: int
    repeat: int
    receivers: int
    transport: str

    @property
    def attempt(self) -> Attempt:
        return Attempt(1, self.number + 1, 0, 1, "xor")


def transfers(
    seed: int,
    *,
    receivers: Sequence[int] = (1, 2, 4),
    repeats: int = 1,
    elements: int = 1 << 22,
    rate: float = 1e6,
    transports: Sequence[str] = TRANSPORTS,
    store_port: int | None = None,
) -> list[dict]:
    """Send the same change to R receivers over each transport, through a link of `rate` bytes a second each way.

    Args:
        seed: of weights and changes (BF16, a share SHARE moved by +-1e-2, XOR, PAYLOADS payloads).
        receivers: values of R.
        repeats: of every setting; the order of transports rotates between them.
        store_port: of an S3 server with the bucket of `labs.seaweed`; by default one in memory.

    Returns:
        one row a transfer: transport, receivers, repeat, root (of the tree), payload_bytes (V), crossed_bytes (to the
        receivers' side), back_bytes, crossed (crossed_bytes / V), seconds (from the first byte sent until all
        receivers have decoded everything), exact (whether all hold the bytes that were sent).
    """
    if unknown := set(transports) - set(TRANSPORTS):
        raise RepriseError(f"transports={sorted(unknown)}: expected some of {', '.join(TRANSPORTS)}")
    delta, most = change(seed, elements), max(receivers)
    with ExitStack() as stack:
        if store_port is None:
            store_port = stack.enter_context(ObjectServer()).port
        ports = free_ports(most)
        addresses = [f"tcp://{HOST}:{port}" for port in ports]
        held = [Receiver(index, addresses) for index in range(most)]
        for each in held:
            stack.callback(each.close)
        cluster = _Cluster(held, ports, store_port, f"run-{seed}-{time.time_ns()}")
        for number, transport in enumerate(transports):  # what is imported and connected first would count as transfer
            _transfer(Setting(number, 0, most, transport), change(seed, 1 << 12), cluster, rate=None)
        series = settings(receivers, repeats, transports, first=len(transports))
        return [_transfer(setting, delta, cluster, rate) for setting in series]


def settings(receivers: Sequence[int], repeats: int, transports: Sequence[str], first: int = 0) -> Iterator[Setting]:
    number = first
    for repeat in range(repeats):
        for count in receivers:
            for k in range(len(transports)):
                yield Setting(number, repeat, count, transports[(k + repeat) % len(transports)])
                number += 1


def summary(rows: Sequence[dict]) -> list[dict]:
    """A line for each number of receivers.

    Returns:
        receivers; <transport>_crossed, <transport>_seconds: medians; store_over_relay, and for the placebo
        store_over_star: ratio of median seconds, with the least and the greatest ratio of one repeat as _low and
        _high; exact: whether all were.
    """
    table = []
    for count in sorted({row["receivers"] for row in rows}):
        line = {"receivers": count}
        seconds: dict[str, list[float]] = {}
        for name in TRANSPORTS:
            chosen = sorted((r for r in rows if (r["receivers"], r["transport"]) == (count, name)), key=_repeat)
            if chosen:
                seconds[name] = [row["seconds"] for row in chosen]
                line[f"{name}_crossed"] = median(row["crossed"] for row in chosen)
                line[f"{name}_seconds"] = median(seconds[name])
        for name in ("relay", "star"):
            if {"store", name} <= seconds.keys():
                ratios = [a / b for a, b in zip(seconds["store"], seconds[name], strict=True)]
                line[f"store_over_{name}"] = line["store_seconds"] / line[f"{name}_seconds"]
                line |= {f"store_over_{name}_low": min(ratios), f"store_over_{name}_high": max(ratios)}
        line["exact"] = all(row["exact"] for row in rows if row["receivers"] == count)
        table.append(line)
    return table


def change(seed: int, elements: int) -> Delta:
    """The change of PAYLOADS tensors of `elements` BF16 weights together."""
    old, new = perturb(np.random.default_rng(seed), elements, SHARE, AMPLITUDE)
    pieces = zip(np.array_split(old, PAYLOADS), np.array_split(new, PAYLOADS), strict=True)
    sides = ({}, {})
    for k, pair in enumerate(pieces):
        for side, words in zip(sides, pair, strict=True):
            side[f"layers.{k}"] = Bits("BF16", words.shape, words)
    return diff_bits(*sides)


def parts(delta: Delta, attempt: Attempt) -> list[Delta]:
    """The deltas of an attempt's payloads, a tensor each."""
    return split(replace(delta, **attempt.transfer), 1)


class _Cluster(NamedTuple):
    """Receiver processes, the ports they listen at, the store's port, and a prefix that nobody else uses."""

    receivers: list[Receiver]
    ports: list[int]
    store_port: int
    prefix: str


def _transfer(setting: Setting, delta: Delta, cluster: _Cluster, rate: float | None) -> dict:
    payloads = [encode(part, "xor") for part in parts(delta, setting.attempt)]
    with Wan(rate) as wan:
        return (_by_store if setting.transport == "store" else _by_relay)(setting, payloads, cluster, wan)


def _by_relay(setting: Setting, payloads: list[bytes], cluster: _Cluster, wan: Wan) -> dict:
    fan, attempt = {"relay": "tree", "star": "star"}[setting.transport], setting.attempt
    addresses = [f"tcp://{HOST}:{wan.enter(port, 'rollout')}" for port in cluster.ports]
    root = setting.repeat % setting.receivers
    with RelayTransport(addresses, fan=fan) as transport:
        start = time.perf_counter()
        found = transport.broadcast(attempt, payloads, root=root, receivers=range(setting.receivers))
        seconds = time.perf_counter() - start
        transport.commit(attempt)
    return _row(setting, payloads, wan, seconds, list(found.values()), root)


def _by_store(setting: Setting, payloads: list[bytes], cluster: _Cluster, wan: Wan) -> dict:
    attempt, receivers = setting.attempt, cluster.receivers[: setting.receivers]
    far, near = wan.enter(cluster.store_port, "trainer"), StoreTransport(store_at(cluster.store_port), cluster.prefix)
    for receiver in receivers:
        receiver.ask(port=far)
        receiver.answer()
    start = time.perf_counter()
    near.send(attempt, payloads)
    for receiver in receivers:
        receiver.ask(port=far, prefix=cluster.prefix, attempt=attempt.dump())
    found = [receiver.answer()["digest"] for receiver in receivers]
    return _row(setting, payloads, wan, time.perf_counter() - start, found, None)


def _row(
    setting: Setting, payloads: list[bytes], wan: Wan, seconds: float, digests: list[str], root: int | None
) -> dict:
    volume, crossed = sum(map(len, payloads)), wan.crossed("rollout")
    sent = xxhash.xxh3_128(b"".join(payloads)).hexdigest()
    return {
        "transport": setting.transport,
        "receivers": setting.receivers,
        "repeat": setting.repeat,
        "root": root,
        "payload_bytes": volume,
        "crossed_bytes": crossed,
        "back_bytes": wan.crossed("trainer"),
        "crossed": crossed / volume,
        "seconds": seconds,
        "exact": digests == [sent] * setting.receivers,
    }


def _repeat(row: dict) -> int:
    return row["repeat"]
