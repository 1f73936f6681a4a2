"""One process that starts trainer and replicas, and starts a replica again that was killed.

    python -m reprise.labs.end_to_end_cluster < SETTINGS > RESULTS      JSON, a list of runs each

It imports everything, computes nothing and has one thread, so that forking from it is cheap and safe. Every process
ends by itself after `seconds` at the latest.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch._dynamo  # noqa: F401  a dispatch mode imports it, which would cost every process a second

from reprise.durable import atomic_write
from reprise.errors import RepriseError
from reprise.labs.control_channel import ask, ask_all
from reprise.labs.mixed_precision import MasterWeights
from reprise.labs.placed_weights import DISK
from reprise.labs.refit_sessions import Refits
from reprise.labs.residue_task import Policy, learn
from reprise.labs.rollout_process import PATIENCE, SHARDINGS, Cluster, serve
from reprise.labs.seaweed import free_ports

RESULT = "result.json"
TRAINER = -1  # role; a replica's is its index


@dataclass(frozen=True)
class Kill:
    """SIGKILL of a replica in the middle of a refit.

    Args:
        step: the refit to version `step` is hit.
        replica: its index.
        payload, share: it dies when this share of the changes of this payload is written.
        lost: its weights are lost with it.
    """

    step: int
    replica: int
    payload: int
    share: float
    lost: bool


@dataclass(frozen=True)
class Run:
    """One training run.

    Args:
        seed: of initial weights, prompts and draws.
        steps: optimiser steps, each followed by a refit.
        transport: "dense", "store" or "relay".
        kills: in any order.
        naive: the placebo, see `Refits`.
        seconds: after which every process of the run gives up.
    """

    seed: int
    steps: int
    transport: str
    kills: tuple[Kill, ...]
    naive: bool
    seconds: int

    @classmethod
    def parse(cls, fields: dict) -> Run:
        return cls(**{**fields, "kills": tuple(Kill(**kill) for kill in fields["kills"])})


def train(run: Run, cluster: Cluster) -> None:
    """The trainer: sample everywhere, learn, refit; writes one row a version to RESULT."""
    torch.set_num_threads(1)
    policy = Policy(run.seed)
    masters, rows = MasterWeights(policy), []
    refits = Refits(cluster, run.transport, masters.stored(), run.naive)
    try:
        for version in range(run.steps + 1):
            question = {"do": "sample", "seed": run.seed, "version": version}
            batches = ask_all(cluster.control, [question] * len(SHARDINGS), PATIENCE)
            held, expected = [batch.pop("fingerprint") for batch in batches], refits.expected(masters.stored())
            row = {"version": version, "fingerprints": held, "expected": expected}
            # the last version is sampled too, and not learned from
            rows.append(row | learn(policy, masters, batches))
            if version < run.steps:
                arm(run, cluster, version + 1)
                rows[-1] |= refits.refit(masters.stored())
        ask_all(cluster.control, [{"do": "quit"}] * len(SHARDINGS), PATIENCE)
    finally:
        refits.close()
    atomic_write(cluster.folder / RESULT, json.dumps(rows).encode(), fs=DISK)


def arm(run: Run, cluster: Cluster, step: int) -> None:
    for kill in run.kills:
        if kill.step == step:
            question = {"do": "arm", "payload": kill.payload, "share": kill.share, "lost": kill.lost}
            ask(cluster.control[kill.replica], question, PATIENCE)


def supervise(run: Run) -> dict:
    """Run everything, and start each killed replica again.

    Returns:
        rows: of the trainer. restarts: replicas in the order in which they were started again.

    Raises:
        RepriseError: a process ended otherwise than it should; its messages are on standard error.
    """
    with tempfile.TemporaryDirectory(prefix="refit-") as folder:
        cluster = Cluster(Path(folder), tuple(free_ports(len(SHARDINGS))), run.naive)
        roles: dict[int, Callable[[], None]] = {TRAINER: lambda: train(run, cluster)}
        roles |= {index: lambda index=index: serve(cluster, index) for index in range(len(SHARDINGS))}
        processes, restarts = {fork(work, run.seconds): role for role, work in roles.items()}, []
        try:
            while processes:
                pid, status = os.wait()
                role, code = processes.pop(pid), os.waitstatus_to_exitcode(status)
                if code == -signal.SIGKILL and role != TRAINER and len(restarts) < len(run.kills):
                    restarts.append(role)
                    processes[fork(roles[role], run.seconds)] = role
                elif code:
                    raise RepriseError(f"{run}: process {role} ended with {code}")
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return {"rows": json.loads((cluster.folder / RESULT).read_bytes()), "restarts": restarts}


def fork(work: Callable[[], None], seconds: int) -> int:
    """Process id of a child that does `work` and ends."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(seconds)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def main() -> None:
    runs = [Run.parse(fields) for fields in json.load(sys.stdin)]
    json.dump([supervise(run) for run in runs], sys.stdout)


if __name__ == "__main__":
    main()
