"""A sharded trainer of two or more processes that sends deltas: detection, projection, residual conversion, encoding.

Each process is one rank over torch.distributed (gloo). Training itself is replaced by seeded changes, since only its
result matters here. A rank writes one payload a step; together they hold every changed canonical element once.

`python -m reprise.labs.sharded_trainer FOLDER RANK` is one rank; `train` starts them all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from reprise.durable import atomic_write
from reprise.errors import RepriseError
from reprise.labs.qwen3_moe import SMALL, Architecture, shapes
from reprise.labs.trainer_layout import (
    SCALE,
    Layout,
    Tensors,
    affine_maps,
    convert,
    export,
    master_weights,
    residuals,
    shard,
)
from reprise.refit import Bits, Delta, as_bits, decode, encode
from reprise.refit.placement.ownership import Part, owner
from reprise.refit.placement.projection import project, residual_flags, residual_record

SHARE = 0.03  # of the elements that a step changes
SECONDS = 120  # until a rank that hears nothing from the others gives up


class ShardedTrainer:
    """One rank: its shard, the versions it sent last, and what it owns.

    Args:
        layout: of all ranks.
        rank: this one.
        weights: unsharded weights of version 0.
    """

    def __init__(self, layout: Layout, rank: int, weights: Tensors):
        self.layout, self.rank, self.version = layout, rank, 0
        self.maps, self.residuals = affine_maps(layout, rank), residuals(layout.architecture)
        self.trackers = {name: _bits(tensor) for name, tensor in shard(weights, layout, rank).items()}
        canonical = export(weights)
        self.baselines = {
            each.name: _bits(canonical[each.name]) for each in self.residuals if owner(each.name, layout.world) == rank
        }

    def step(self, weights: Tensors, op: str = "xor") -> Delta:
        """This rank's delta to new weights: projected elements stored by `op`, residual ones by "overwrite"."""
        local = shard(weights, self.layout, self.rank)
        shards = {name: _bits(tensor) for name, tensor in local.items()}
        records = [
            record.with_op(op) for name, maps in self.maps.items() for record in self._project(name, maps, shards)
        ]
        changed = {name for name, bits in shards.items() if (bits.words != self.trackers[name].words).any()}
        flags = _any_rank(residual_flags(self.residuals, changed))
        for each in np.array(self.residuals)[flags]:
            parts = _exchange(convert(each.name, local, self.layout, self.rank))
            if each.name in self.baselines:
                record, self.baselines[each.name] = residual_record(each.name, self.baselines[each.name], parts)
                records.append(record)
        self.trackers, self.version = shards, self.version + 1
        records = tuple(record for record in records if record.index.size)
        versions = {"base_version": self.version - 1, "target_version": self.version}
        return Delta(records, producer=f"rank {self.rank}", payload_id=self.rank, **versions)

    def _project(self, name: str, maps, shards: dict[str, Bits]):
        if owner(name, self.layout.replicas(name)) == self.layout.place_among_replicas(name, self.rank):
            return project(maps, self.trackers[name], shards[name])
        return []


def versions(architecture: Architecture, seed: int, steps: int):
    """Unsharded weights of version 0 ... steps.

    A step changes SHARE of every tensor, but of the embedding its first row, so that one rank has a reason to convert
    it and the others have none; the last step changes the head's scale alone.
    """
    weights, rng = master_weights(architecture, seed), np.random.default_rng([seed, 1])
    yield weights
    for step in range(1, steps + 1):
        weights = {name: tensor.clone() for name, tensor in weights.items()}
        if step == steps:
            weights[SCALE] *= 1.5
        else:
            as_bits(weights["model.embed_tokens.weight"]).words[: architecture.hidden_size] ^= 1
            for name in list(shapes(architecture))[1:]:  # not a set: every rank draws in one order
                words = as_bits(weights[name]).words
                words ^= (rng.random(words.size) < SHARE).astype(words.dtype)
        yield weights


def train(folder: str | Path, layouts: Sequence[tuple[int, int]] = ((2, 1),), seed: int = 0, steps: int = 2) -> None:
    """Run every (tp, dp) layout of one world size in `tp * dp` processes, which write FOLDER/<tp>x<dp>/<step>-<rank>.

    Raises:
        RepriseError: a rank failed; the end of its messages is shown.
    """
    folder = Path(folder)
    (world,) = {tp * dp for tp, dp in layouts}
    setting = {"architecture": asdict(SMALL), "layouts": layouts, "seed": seed, "steps": steps, "world": world}
    (folder / "setting.json").write_text(json.dumps(setting))
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "reprise.labs.sharded_trainer", str(folder)]
    ranks = [
        subprocess.Popen([*command, str(rank)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for rank in range(world)
    ]
    try:
        said = [rank.communicate(timeout=SECONDS)[0].decode(errors="replace") for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for rank, text in zip(ranks, said, strict=True):
        if rank.returncode:
            raise RepriseError(f"rank {ranks.index(rank)} ended with {rank.returncode}: {text[-2000:]}")


def payloads(folder: str | Path, layout: tuple[int, int], step: int) -> list[Delta]:
    """The deltas that the ranks wrote for a step, counted from 1."""
    tp, dp = layout
    return [decode((Path(folder) / f"{tp}x{dp}" / f"{step}-{rank}").read_bytes()) for rank in range(tp * dp)]


def run_rank(folder: Path, rank: int) -> None:
    setting = json.loads((folder / "setting.json").read_text())
    architecture = Architecture(**setting["architecture"])
    torch.set_num_threads(1)
    wait = timedelta(seconds=SECONDS)
    dist.init_process_group("gloo", f"file://{folder}/ranks", wait, rank=rank, world_size=setting["world"])
    for tp, dp in setting["layouts"]:
        out = folder / f"{tp}x{dp}"
        out.mkdir(exist_ok=True)
        first, *rest = versions(architecture, setting["seed"], setting["steps"])
        trainer = ShardedTrainer(Layout(architecture, tp, dp), rank, first)
        for step, weights in enumerate(rest, 1):
            atomic_write(out / f"{step}-{rank}", encode(trainer.step(weights), op=None))
    dist.destroy_process_group()


def _any_rank(flags: np.ndarray) -> np.ndarray:
    """Logical or of every rank's flags."""
    reduced = torch.from_numpy(flags.astype(np.uint8))
    dist.all_reduce(reduced, dist.ReduceOp.MAX)
    return reduced.numpy().astype(bool)


def _exchange(part: Part) -> list[Part]:
    """Every rank's part, at every rank."""
    world, own = dist.get_world_size(), np.stack([part.index, part.words.astype(np.int64)])
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([own.shape[1]]))
    width = max(int(size) for size in sizes)
    padded = torch.zeros(2, width, dtype=torch.int64)
    padded[:, : own.shape[1]] = torch.from_numpy(own)
    gathered = [torch.zeros_like(padded) for _ in range(world)]
    dist.all_gather(gathered, padded)
    arrays = [both[:, : int(size)].numpy() for both, size in zip(gathered, sizes, strict=True)]
    return [Part(f"rank {k}", index, words.astype(part.words.dtype)) for k, (index, words) in enumerate(arrays)]


def _bits(tensor: torch.Tensor) -> Bits:
    bits = as_bits(tensor)
    return Bits(bits.dtype, bits.shape, bits.words.copy())


if __name__ == "__main__":
    run_rank(Path(sys.argv[1]), int(sys.argv[2]))
