"""Training runs that are the same but for the way weights travel, compared reward by reward and bit by bit.

    dense   every refit is a dense load: the reference, without a kill
    store   deltas through an object store; replicas are killed in the middle of refits
    relay   deltas along a relay tree; the same kills
    naive   the placebo: as store, but the retry after a kill applies the XOR again, unchecked

A trainer and two rollout replicas of different sharding are processes. Rewards come from what the replicas sample with
the weights they hold, so a wrong bit that matters reaches the next gradient. Every function returns flat rows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from reprise.errors import RepriseError

DESIGN_SEEDS, CLAIM_SEEDS = (0, 1, 2), (101, 102, 103)
RUNS = ("dense", "store", "relay", "naive")
REPLICAS = ("tp=1, ep=1", "tp=2, ep=2")
# of the nine payloads of a refit, some applied before the kill and some not
FIRST_PAYLOAD, LAST_PAYLOAD = 2, 6
CHECKPOINT_BYTES = 2 * 132_096  # BF16 parameters of `residue_task.TINY`
SECONDS = 60  # that a run may take, and
SECONDS_A_STEP = 4  # for each step of it, on a machine that is busy


class Trained(NamedTuple):
    """One run.

    Args:
        name: of RUNS.
        seed: its seed.
        rows: one a version, as the trainer wrote them.
        kills: as planned.
        restarts: replicas in the order in which they were started again.
    """

    name: str
    seed: int
    rows: list[dict]
    kills: list[dict]
    restarts: list[int]


def train(seed: int, steps: int, kill_steps: Sequence[int], runs: Sequence[str] = RUNS) -> list[Trained]:
    """Train once in each way, one after another.

    Args:
        seed: of weights, prompts, draws and of the moments of the kills.
        steps: optimiser steps, each followed by a refit.
        kill_steps: refits that are hit; see `kills`.
        runs: of RUNS.

    Raises:
        RepriseError: a process failed or hung; the end of its messages is shown.
    """
    if unknown := set(runs) - set(RUNS):
        raise RepriseError(f"runs={sorted(unknown)}: expected some of {', '.join(RUNS)}")
    planned = kills(seed, kill_steps)
    if late := [step for step in kill_steps if not 1 <= step <= steps]:
        raise RepriseError(f"kill_steps={late}: expected steps of 1 to {steps}")
    settings = [
        {
            "seed": seed,
            "steps": steps,
            "transport": "store" if name == "naive" else name,
            "kills": {"dense": [], "naive": planned[:1]}.get(name, planned),
            "naive": name == "naive",
            "seconds": SECONDS + SECONDS_A_STEP * steps,
        }
        for name in runs
    ]
    found = _cluster(settings)
    return [
        Trained(name, seed, each["rows"], setting["kills"], each["restarts"])
        for name, setting, each in zip(runs, settings, found, strict=True)
    ]


def kills(seed: int, kill_steps: Sequence[int]) -> list[dict]:
    """One kill a step: the replica of two ranks and the other one in turn, at a random change of a random payload.

    The weights of every second victim are lost with it, and it is loaded densely; the others find theirs half written.
    """
    rng = np.random.default_rng([seed, 1])
    return [
        {
            "step": step,
            "replica": 1 - number % 2,
            "payload": int(rng.integers(FIRST_PAYLOAD, LAST_PAYLOAD, endpoint=True)),
            "share": float(rng.uniform(0.1, 0.9)),
            "lost": bool(number % 2),
        }
        for number, step in enumerate(kill_steps)
    ]


def curves(trained: Sequence[Trained]) -> list[dict]:
    """One row a run, version and replica.

    Returns:
        run, seed, version, replica; reward: mean of the replica's answers by that version; kl: k3 estimate of its
        divergence from the trainer's policy; as_loaded: whether its storage is what its native loader makes of the
        trainer's weights; same_bits, same_reward: whether storage and reward are those of the dense run.
    """
    dense = {each.seed: each.rows for each in trained if each.name == "dense"}
    found = []
    for each in trained:
        for row, wanted in zip(each.rows, dense[each.seed], strict=True):
            found += [
                {
                    "run": each.name,
                    "seed": each.seed,
                    "version": row["version"],
                    "replica": name,
                    "reward": row["rewards"][k],
                    "kl": row["kl"][k],
                    "as_loaded": row["fingerprints"][k] == row["expected"][k],
                    "same_bits": row["fingerprints"][k] == wanted["fingerprints"][k],
                    "same_reward": row["rewards"][k] == wanted["rewards"][k],
                }
                for k, name in enumerate(REPLICAS)
            ]
    return found


def refits(trained: Sequence[Trained]) -> list[dict]:
    """One row a refit with deltas.

    Returns:
        run, seed, step, changed (share of the elements), payload_bytes, attempts, loads (dense loads on the way), and
        killed ("" or what died when).
    """
    found = []
    for each in trained:
        hit = {kill["step"]: kill for kill in each.kills}
        for row in each.rows[:-1]:
            step = row["version"] + 1
            columns = {name: row[name] for name in ("changed", "payload_bytes", "attempts", "loads")}
            killed = describe(hit[step]) if step in hit else ""
            found.append({"run": each.name, "seed": each.seed, "step": step, **columns, "killed": killed})
    return found


def describe(kill: dict) -> str:
    end = ", weights lost" if kill["lost"] else ""
    return f"{REPLICAS[kill['replica']]}, {kill['share']:.0%} into payload {kill['payload']}{end}"


def _cluster(settings: list[dict]) -> list[dict]:
    """What `end_to_end_cluster` says to these settings; its processes are gone when this returns or raises."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "reprise.labs.end_to_end_cluster"]
    limit = SECONDS + sum(each["seconds"] for each in settings)
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | one_thread,
        start_new_session=True,
    )
    try:
        said, messages = process.communicate(json.dumps(settings), timeout=limit)
    except subprocess.TimeoutExpired:
        raise RepriseError(f"training: no result within {limit} s") from None
    finally:
        with suppress(ProcessLookupError):  # nobody is left of its group
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    if process.returncode:
        raise RepriseError(f"training ended with {process.returncode}: {messages[-2000:]}")
    return json.loads(said)
