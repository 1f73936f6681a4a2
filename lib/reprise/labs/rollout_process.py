"""A rollout replica as a process: it samples with the weights it holds, and takes refits over either transport."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from reprise.errors import RepriseError
from reprise.labs.control_channel import listen
from reprise.labs.moe_forward import sample, widened
from reprise.labs.placed_weights import Fuse, PlacedWeights
from reprise.labs.residue_task import LENGTH, TINY, prompts
from reprise.refit.recovery.attempt import Attempt
from reprise.refit.transport.intake import Intake
from reprise.refit.transport.places import open_place
from reprise.refit.transport.relay_node import RelayNode
from reprise.refit.transport.store_transport import StoreTransport

SHARDINGS = ((1, 1), (2, 2))  # (tp, ep) of each replica
PATIENCE = 60.0  # seconds for what another process does at once, on a machine that is busy
SILENCE = 5.0  # seconds after which a relay takes a receiver for dead


@dataclass(frozen=True)
class Cluster:
    """Where the processes of one run find each other.

    Args:
        folder: of the run; short, since addresses lie in it.
        ports: of the relay, one a replica.
        forgetful: the placebo, see `PlacedWeights`.
    """

    folder: Path
    ports: tuple[int, ...]
    forgetful: bool = False

    @property
    def relay(self) -> list[str]:
        return [f"tcp://127.0.0.1:{port}" for port in self.ports]

    @property
    def control(self) -> list[str]:
        return [f"ipc://{self.folder}/{name}.socket" for name in self.names]

    @property
    def names(self) -> list[str]:
        return [f"replica-{index}" for index in range(len(self.ports))]

    def store(self) -> StoreTransport:
        """A folder as object store."""
        return StoreTransport(open_place(str(self.folder / "objects")))


def serve(cluster: Cluster, index: int) -> None:
    """Be replica `index` until told to quit."""
    torch.set_num_threads(1)
    replica, stop = Replica(cluster, index), threading.Event()
    node = RelayNode(index, cluster.relay, replica.intake, timeout=SILENCE)
    thread = threading.Thread(target=node.run, args=(stop,))
    thread.start()
    try:
        listen(cluster.control[index], replica.answer)
    finally:
        stop.set()
        thread.join()


class Replica:
    """What a replica answers; every question is a JSON object whose "do" names one of the methods `do_...`."""

    def __init__(self, cluster: Cluster, index: int):
        self.cluster, self.index, self.name = cluster, index, cluster.names[index]
        self.weights = PlacedWeights(cluster.folder / self.name, TINY, *SHARDINGS[index], cluster.forgetful)
        self.intake = Intake(self.weights)

    def answer(self, question: dict) -> dict | None:
        return getattr(self, f"do_{question.pop('do')}")(**question)

    def do_status(self) -> dict:
        """Version of the bits, whether an attempt may have changed them, and the names that cannot be XORed here."""
        status = self.weights.status()
        return {
            "version": status.version,
            "interrupted": status.attempt is not None,
            "overwrite_only": self.weights.overwrite_only,
        }

    def do_load(self, path: str, version: int) -> dict:
        """Dense load of a safetensors file."""
        self.intake.gate.close(PATIENCE)
        self.weights.load(load_file(path), version)
        self.intake.gate.open()
        return {"fingerprint": self.weights.fingerprint()}

    def do_receive(self, attempt: dict) -> dict:
        """Take part in an attempt over the object store; the store carries the answer."""

        def receive() -> None:
            with suppress(RepriseError, OSError):  # told to the source through the store
                self.cluster.store().receive(Attempt(**attempt), self.name, self.intake, timeout=PATIENCE)

        return {"then": receive}

    def do_commit(self, attempt: dict) -> dict:
        self.intake.commit(Attempt(**attempt))
        return {}

    def do_stop(self, attempt: dict) -> dict:
        self.intake.stop(Attempt(**attempt).order)
        return {}

    def do_sample(self, seed: int, version: int) -> dict:
        """Answers to fresh prompts by the weights of `version`; the same bits give the same answers."""
        if self.weights.status().version != version:
            raise RepriseError(f"version={version}: the replica holds {self.weights.status()}")
        rng = np.random.default_rng([seed, version, self.index])
        asked = prompts(rng)
        with self.intake.gate.request(PATIENCE):
            shards = [widened(rank) for rank in self.weights.ranks]
            answers, logp = sample(shards, asked, rng.random((len(asked), LENGTH)))
            found = self.weights.fingerprint()
        rolled = {"prompts": asked.tolist(), "answers": answers.tolist(), "logp": logp.tolist()}
        return {**rolled, "fingerprint": found}

    def do_arm(self, payload: int, share: float, lost: bool) -> dict:
        """Die in the middle of the next refit."""
        self.weights.fuse = Fuse(payload, share, lost)
        return {}

    def do_quit(self) -> None:
        return None
