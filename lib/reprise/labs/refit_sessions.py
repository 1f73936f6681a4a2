"""The source's side of the refits of one run: by dense load, through an object store, or along a relay tree.

A refit with deltas goes from attempt to joint commit as NeMo-DCR describes it: a first attempt by XOR where the copy
plans of all replicas take it; after a failure another one from the same bits by overwriting; a check of every replica's
storage; the compare-and-set of the commit record; and only then the baseline.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import save_file

from reprise.errors import RepriseError
from reprise.labs.control_channel import ask_all
from reprise.labs.loaders import TensorParallelModel
from reprise.labs.placed_weights import DISK, storage_fingerprint
from reprise.labs.residue_task import TINY
from reprise.labs.rollout_process import PATIENCE, SHARDINGS, SILENCE, Cluster
from reprise.refit import Bits, encode
from reprise.refit.placement.copy_plan import mixed
from reprise.refit.recovery.attempt import Attempt
from reprise.refit.recovery.baseline import Baseline
from reprise.refit.recovery.commit_log import Commit, FileCommitLog, signature
from reprise.refit.recovery.parts import split
from reprise.refit.transport.common import ReceiverFailed
from reprise.refit.transport.relay_transport import RelayTransport

PAYLOAD_BYTES = 1 << 15  # dense bytes a payload: a refit of the tiny model is nine of them
ATTEMPTS = 3

Tensors = dict[str, torch.Tensor]


class Carrier(Protocol):
    """One transport, from the source."""

    def broadcast(self, attempt: Attempt, payloads: Iterable[bytes]) -> list[str]:
        """Have every replica apply the payloads; fingerprints of their storage, in order of the replicas."""

    def commit(self, attempt: Attempt) -> None: ...
    def stop(self, attempt: Attempt) -> None: ...
    def close(self) -> None: ...


class StoreCarrier:
    """Payloads through the run's object store; replicas are told by name when there is an attempt."""

    def __init__(self, cluster: Cluster):
        self._cluster, self._store = cluster, cluster.store()

    def broadcast(self, attempt: Attempt, payloads: Iterable[bytes]) -> list[str]:
        self._store.send(attempt, payloads)
        self._tell("receive", attempt)
        found = self._store.answers(attempt, self._cluster.names, SILENCE)
        return [found[name] for name in self._cluster.names]

    def commit(self, attempt: Attempt) -> None:
        self._tell("commit", attempt)

    def stop(self, attempt: Attempt) -> None:
        self._tell("stop", attempt)

    def close(self) -> None: ...

    def _tell(self, what: str, attempt: Attempt) -> None:
        question = {"do": what, "attempt": attempt.dump()}
        ask_all(self._cluster.control, [question] * len(SHARDINGS), PATIENCE)


class RelayCarrier:
    """Payloads along the relay tree, which tells the replicas everything itself."""

    def __init__(self, cluster: Cluster):
        self._transport = RelayTransport(cluster.relay, timeout=SILENCE)

    def broadcast(self, attempt: Attempt, payloads: Iterable[bytes]) -> list[str]:
        found = self._transport.broadcast(attempt, payloads)
        return [found[index] for index in range(len(SHARDINGS))]

    def commit(self, attempt: Attempt) -> None:
        self._transport.commit(attempt)

    def stop(self, attempt: Attempt) -> None: ...

    def close(self) -> None:
        self._transport.close()


CARRIERS = {"store": StoreCarrier, "relay": RelayCarrier}


class Refits:
    """All refits of one run.

    Args:
        cluster: whose replicas are running.
        transport: "dense", "store" or "relay".
        weights: of version 0, which every replica loads densely.
        naive: the placebo: a retry applies the XOR again, and no check stands in its way.
    """

    def __init__(self, cluster: Cluster, transport: str, weights: Tensors, naive: bool = False):
        self._cluster, self._naive, self._number = cluster, naive, 0
        self._carrier: Carrier | None = None if transport == "dense" else CARRIERS[transport](cluster)
        self._log = FileCommitLog.create(cluster.folder / "commit", Commit(0, 0), fs=DISK)
        self._writer = signature()
        self._log.compare_and_set(Commit(0, 0), Commit(0, 1), self._writer)
        self._baseline = Baseline(weights)
        self._engines = [[TensorParallelModel(TINY, tp, ep, rank) for rank in range(tp)] for tp, ep in SHARDINGS]
        self._bring_up()
        only = {name for each in self._status() for name in each["overwrite_only"]}
        self._invertible = frozenset(weights) - only

    def refit(self, new: Tensors) -> dict:
        """Bring every replica to `new`.

        Returns:
            attempts: how many it took. changed: share of the elements. payload_bytes: of the last attempt, 0 for a
            dense load. loads: replicas that were loaded densely on the way. failure: why the first attempt failed.
        """
        record, loads, failures = self._log.read(), 0, []
        for _ in range(ATTEMPTS):
            loads += self._bring_up()
            self._number += 1
            op = "xor" if self._naive or not failures else "overwrite"
            attempt = Attempt(record.generation, self._number, record.version, record.version + 1, op)
            delta = self._baseline.begin(new, attempt)
            payloads = [encode(mixed(part, self._invertible, op), None) for part in split(delta, PAYLOAD_BYTES)]
            try:
                self._broadcast(attempt, payloads, new)
                break
            except (RepriseError, OSError) as error:
                failures.append(str(error))
                if self._carrier:
                    with suppress(RepriseError, OSError):
                        self._carrier.stop(attempt)
        else:
            raise RepriseError(f"{attempt}: failed as all {ATTEMPTS} did: {failures}")
        self._commit(record, attempt)
        return {
            "attempts": 1 + len(failures),
            "changed": delta.changed / sum(tensor.numel() for tensor in new.values()),
            "payload_bytes": sum(map(len, payloads)) if self._carrier else 0,
            "loads": loads,
            "failure": failures[0] if failures else "",
        }

    def expected(self, weights: Tensors) -> list[str]:
        """Fingerprint of each replica's storage as its native loader would leave it."""
        for ranks in self._engines:
            for rank in ranks:
                rank.load_weights(weights.items())
        return [storage_fingerprint(ranks) for ranks in self._engines]

    def close(self) -> None:
        if self._carrier:
            self._carrier.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _broadcast(self, attempt: Attempt, payloads: list[bytes], new: Tensors) -> None:
        if self._carrier is None:
            self._load(new, attempt.target_version, range(len(SHARDINGS)))
            return
        found = self._carrier.broadcast(attempt, payloads)
        if self._naive:
            return
        for index, (held, wanted) in enumerate(zip(found, self.expected(new), strict=True)):
            if held != wanted:
                raise ReceiverFailed(index, f"bits of fingerprint {held}, expected {wanted}")

    def _commit(self, record: Commit, attempt: Attempt) -> None:
        self._log.compare_and_set(record, record.committed, self._writer)
        self._baseline.commit(attempt)
        if self._carrier:
            with suppress(RepriseError, OSError):  # who misses this is brought up by the next refit
                self._carrier.commit(attempt)

    def _bring_up(self) -> int:
        """Load the committed version into every replica that holds another one; returns how many."""
        behind = [k for k, status in enumerate(self._status()) if status["version"] != self._baseline.version]
        if behind:
            committed = {name: _tensor(bits) for name, bits in self._baseline.tensors().items()}
            self._load(committed, self._baseline.version, behind)
        return len(behind)

    def _status(self) -> list[dict]:
        return ask_all(self._cluster.control, [{"do": "status"}] * len(SHARDINGS), PATIENCE)

    def _load(self, weights: Tensors, version: int, replicas: Iterable[int]) -> None:
        path = Path(self._cluster.folder) / f"dense-{version}.safetensors"
        save_file(weights, path)
        addresses = [self._cluster.control[index] for index in replicas]
        ask_all(addresses, [{"do": "load", "path": str(path), "version": version}] * len(addresses), PATIENCE)
        path.unlink()


def _tensor(bits: Bits) -> torch.Tensor:
    """A BF16 tensor of stored words."""
    return torch.from_numpy(bits.words.copy().view("<i2")).view(torch.bfloat16).view(bits.shape)
