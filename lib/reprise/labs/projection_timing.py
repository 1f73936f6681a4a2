"""Time to build a delta: shards compared and projected in place, or every tensor converted first and compared then.

Both builds convert the residual tensors alike and encode what they found, one payload a rank.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch

from reprise.labs.qwen3_moe import Architecture, shapes
from reprise.labs.trainer_layout import Layout, Tensors, affine_maps, convert, export, master_weights, residuals, shard
from reprise.refit import Bits, as_bits, encode
from reprise.refit.delta import Delta, TensorDelta
from reprise.refit.placement.projection import AffineMap, part_record, project, residual_record

Maps = list[dict[str, tuple[AffineMap, ...]]]  # of each rank, see `affine_maps`

# a quarter of Qwen3-30B-A3B's width and a small vocabulary, our choice for a CPU: 22 M parameters, 9.5 % residual
TIMED = Architecture(
    vocab_size=512,
    hidden_size=512,
    num_hidden_layers=2,
    num_attention_heads=16,
    num_key_value_heads=4,
    head_dim=64,
    num_experts=16,
    moe_intermediate_size=384,
)


def projection_timing(
    rounds: int = 5, share: float = 0.03, tp: int = 2, seed: int = 0, architecture: Architecture = TIMED
) -> list[dict]:
    """Seconds to build one step's delta both ways, all ranks one after another in this process, on one thread.

    Returns:
        rows with round, build ("direct" or "full"), detect (comparison and projection or conversion), encode, changed.
    """
    layout, old, rng = Layout(architecture, tp, 1), master_weights(architecture, seed), np.random.default_rng(seed)
    new = {name: tensor.clone() for name, tensor in old.items()}
    for name in shapes(architecture):
        words = as_bits(new[name]).words
        words ^= (rng.random(words.size) < share).astype(words.dtype)
    before, after = ([shard(weights, layout, rank) for rank in range(tp)] for weights in (old, new))
    baseline = {name: as_bits(tensor) for name, tensor in export(old).items()}
    maps = [affine_maps(layout, rank) for rank in range(tp)]
    rows, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)  # NumPy has one, and threads of small copies wait for each other on a busy machine
    for number in range(rounds + 1):
        for build in ("direct", "full"):
            begin = time.perf_counter()
            affine = (
                direct(layout, maps, before, after)
                if build == "direct"
                else [list(full(layout, maps, after, baseline))]
            )
            deltas = [*affine, list(residual(layout, after, baseline))]
            middle = time.perf_counter()
            for records in deltas:
                encode(Delta(tuple(records)), op=None)
            row = {"round": number, "build": build, "detect": middle - begin, "encode": time.perf_counter() - middle}
            changed = sum(record.index.size for records in deltas for record in records)
            rows += [{**row, "changed": changed}] if number else []  # the first round warms up
    torch.set_num_threads(threads)
    return rows


def direct(layout: Layout, maps: Maps, before: list[Tensors], after: list[Tensors]) -> list[list[TensorDelta]]:
    """Each rank's records of the affine tensors, without assembling them."""
    deltas = []
    for rank in range(layout.tp):
        owned = {local: each for local, each in maps[rank].items() if rank == 0 or layout.replicas(local) == layout.dp}
        shards = ((each, as_bits(before[rank][local]), as_bits(after[rank][local])) for local, each in owned.items())
        deltas.append([record.with_op("xor") for versions in shards for record in project(*versions)])
    return deltas


def full(layout: Layout, maps: Maps, after: list[Tensors], baseline: dict[str, Bits]) -> Iterator[TensorDelta]:
    """Records of the affine tensors, each assembled from all ranks' shards and compared with its baseline."""
    for local, names in maps[0].items():
        parts = [rank[local] for rank in after]
        if layout.replicas(local) != layout.dp:
            whole = parts[:1]
        elif len(names) == 2:
            whole = [torch.cat(halves) for halves in zip(*(part.chunk(2) for part in parts), strict=True)]
        else:
            whole = [torch.cat(parts, dim=1)]
        for each, tensor in zip(names, whole, strict=True):
            old, new = baseline[each.name].words, as_bits(tensor).words
            index = np.flatnonzero(old != new)
            record = part_record(
                each.name, baseline[each.name].dtype, each.canonical_shape, index, old[index], new[index]
            )
            yield record.with_op("xor")


def residual(layout: Layout, after: list[Tensors], baseline: dict[str, Bits]) -> Iterator[TensorDelta]:
    """Records of the residual tensors, converted by every rank and compared with their baselines."""
    for each in residuals(layout.architecture):
        parts = [convert(each.name, local, layout, rank) for rank, local in enumerate(after)]
        yield residual_record(each.name, baseline[each.name], parts)[0]
