"""A replica's weights where its engine reads them: the ranks' own parameters, in a mapped file that outlives a process.

Deltas go in through each rank's copy plan, so nothing is kept in canonical layout and there are no chunk digests of it:
after an interrupted attempt only "overwrite" leads to exact bits, as NeMo-DCR has it. The placebo, `forgetful`, takes
XOR again, and after a restart does not know which payloads it had applied.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from reprise.labs.failover_experiments import Unsynced
from reprise.labs.loaders import TensorParallelModel
from reprise.labs.qwen3_moe import Architecture, specs
from reprise.refit import Delta, StaleBaseError, as_bits, decode
from reprise.refit.checkpoints.safetensors_file import SafetensorsFile
from reprise.refit.placement.copy_plan import apply_plan_, record_copy_plan
from reprise.refit.recovery.attempt import Attempt, FencedError, Order
from reprise.refit.recovery.fingerprint import fingerprint
from reprise.refit.recovery.resident import Outcome, Status
from reprise.refit.recovery.resident_state import FILE, ResidentError, ResidentState
from reprise.refit.recovery.resident_weights import write_weights

WEIGHTS = "weights-0.safetensors"
NOTHING = -1  # version of a replica that was never loaded
# the kills are of processes, after which the page cache is still there: no need to wait for a disk
DISK = Unsynced()


@dataclass(frozen=True)
class Fuse:
    """Die by SIGKILL in the middle of a payload.

    Args:
        payload: its number.
        share: of its changes that are written first, in [0, 1].
        lost: the file is lost too, as with the machine.
    """

    payload: int
    share: float
    lost: bool = False


class PlacedWeights:
    """`receiver.Weights` of one replica; all its ranks stand in this process.

    Args:
        folder: holds the file, which is made if it is missing.
        architecture, tp, ep: of the engine.
        forgetful: the placebo.
    """

    def __init__(self, folder: Path, architecture: Architecture, tp: int, ep: int, forgetful: bool = False):
        self._folder, self._forgetful, self.fuse = folder, forgetful, None
        self.ranks = [TensorParallelModel(architecture, tp, ep, rank) for rank in range(tp)]
        self._map()
        self.plans = [record_copy_plan(each.load_weights, each.targets, specs(architecture)) for each in self.ranks]
        self._state = ResidentState.read(folder) if (folder / FILE).exists() else ResidentState(WEIGHTS, NOTHING)
        if forgetful:
            self._state = replace(self._state, applied=frozenset())

    @property
    def overwrite_only(self) -> list[str]:
        """Names that a plan of these ranks cannot take as XOR."""
        return sorted({name for plan in self.plans for name in plan.placements if name not in plan.invertible})

    def status(self) -> Status:
        return Status(self._state.version, self._state.attempt)

    def fingerprint(self) -> str:
        return storage_fingerprint(self.ranks)

    def load(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Dense load by the native loader."""
        (self._folder / FILE).unlink(missing_ok=True)  # half of this is no version
        for rank in self.ranks:
            rank.load_weights(weights.items())
        self._set(version=version, attempt=None, applied=frozenset())

    def begin(self, attempt: Attempt) -> None:
        """As `ResidentStore.begin`; StaleBaseError also for XOR where an interrupted attempt may have left bits."""
        state = self._state
        newest = max(state.fence, state.attempt.order) if state.attempt else state.fence
        if attempt.order <= newest:
            raise FencedError(f"{attempt}: expected one after {newest[0]}.{newest[1]}")
        if attempt.base_version != state.version:
            raise StaleBaseError(f"{attempt}: the replica holds version {state.version}")
        if state.attempt and attempt.op != "overwrite" and not self._forgetful:
            raise StaleBaseError(f"{attempt}: {state.attempt} may have left bits, expected op='overwrite'")
        self._set(attempt=attempt, applied=state.applied if self._forgetful else frozenset())

    def deliver(self, payload: bytes) -> Outcome:
        """Apply a payload to every rank, or die in the middle of it if the fuse says so."""
        delta, state = decode(payload), self._state
        if state.attempt is None or state.attempt.order <= state.fence or not state.attempt.owns(delta):
            raise FencedError(f"payload {delta.payload_id} of attempt {delta.attempt}: expected {state.attempt}")
        if delta.payload_id in state.applied:
            return Outcome("duplicate")
        if self.fuse and self.fuse.payload == delta.payload_id:
            self._die(head(delta, round(self.fuse.share * delta.changed)))
        self._write(delta)
        self._set(applied=state.applied | {delta.payload_id})
        return Outcome("applied")

    def check(self, attempt: Attempt, payloads: int) -> str:
        """As `ResidentStore.check`, of the ranks' own storage."""
        if attempt != self._state.attempt:
            raise FencedError(f"{attempt}: not the open attempt of this replica")
        if missing := sorted(set(range(payloads)) - self._state.applied):
            raise ResidentError(f"{attempt}: payloads {missing[:8]} missing, expected 0 to {payloads - 1}")
        return self.fingerprint()

    def commit(self, attempt: Attempt) -> None:
        if self._state.attempt is None and self._state.version == attempt.target_version:
            return
        if attempt != self._state.attempt:
            raise FencedError(f"{attempt}: not the open attempt of this replica")
        self._set(version=attempt.target_version, attempt=None, applied=frozenset(), fence=attempt.order)

    def stop_and_wait(self, order: Order) -> None:
        if order > self._state.fence:
            self._set(fence=order)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _map(self) -> None:
        """Let the parameters of the ranks be the mapped tensors of the file."""
        path = self._folder / WEIGHTS
        if not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            write_weights(path, dict(storages(self.ranks)), DISK)
        file = SafetensorsFile.open(path)
        for entry in file.entries:
            rank, name = entry.name.split("/", 1)
            held = self.ranks[int(rank)].parameters
            words = np.memmap(path, np.uint8, "r+", len(file.prefix) + entry.begin, (entry.nbytes,))
            held[name] = torch.from_numpy(words).view(held[name].dtype).view(held[name].shape)

    def _write(self, delta: Delta) -> None:
        for plan in self.plans:
            apply_plan_(plan, delta)

    def _die(self, part: Delta) -> None:
        self._write(part)
        if self.fuse.lost:
            shutil.rmtree(self._folder)
        os.kill(os.getpid(), signal.SIGKILL)

    def _set(self, **fields) -> None:
        self._state = replace(self._state, **fields)
        self._state.write(self._folder, DISK)


def storages(ranks: list[TensorParallelModel]) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter of every rank, under `<rank>/<parameter>`."""
    for rank in ranks:
        yield from ((f"{rank.rank}/{name}", tensor) for name, tensor in rank.parameters.items())


def storage_fingerprint(ranks: list[TensorParallelModel]) -> str:
    return fingerprint({name: as_bits(tensor) for name, tensor in storages(ranks)})


def head(delta: Delta, changes: int) -> Delta:
    """The first `changes` changes of a delta, and no more; its digests are those of the whole."""
    records = []
    for record in delta.tensors:
        records.append(replace(record, index=record.index[:changes], words=record.words[:changes]))
        changes -= len(records[-1].index)
    return replace(delta, tensors=tuple(records))
