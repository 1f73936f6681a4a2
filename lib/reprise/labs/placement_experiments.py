"""Placement in numbers: what a plan says of each tensor, which bytes may use xor, and whether the bits come out equal.

Every function returns a list of flat dictionaries, one a row. DESIGN_SEEDS settled sizes and shares; claims use
CLAIM_SEEDS.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from math import prod

import numpy as np
import torch

from reprise.labs.dense_scratch import DenseScratch
from reprise.labs.loaders import TensorParallelModel, TransformersModel
from reprise.labs.qwen3_moe import QWEN3_30B_A3B, SMALL, Architecture, family, shapes, specs
from reprise.labs.sharded_trainer import payloads, train, versions
from reprise.labs.trainer_layout import Layout, affine_maps, export
from reprise.refit import OPERATIONS, as_bits, diff_bits
from reprise.refit.delta import Delta
from reprise.refit.placement.copy_plan import ANY, LOADER, CopyPlan, Placement, apply_plan_, record_copy_plan
from reprise.refit.placement.index_probe import probe_plan
from reprise.refit.placement.ownership import union
from reprise.refit.placement.plan_check import compare_loads, random_tensor

DESIGN_SEEDS = (0, 1, 2)
CLAIM_SEEDS = (101, 102, 103)

# NeMo-DCR, section 4: weight bytes of Qwen3-30B-A3B under an affine map, and left to residual conversion, in percent
REPORTED_AFFINE, REPORTED_RESIDUAL = 96.3, 3.69


def plan_of(model: TensorParallelModel) -> CopyPlan:
    dtype = model.parameters["norm"].dtype
    return record_copy_plan(model.load_weights, model.targets, specs(model.a, dtype))


def plan_table(tp: int = 2, ep: int = 2, rank: int = 0, architecture: Architecture = QWEN3_30B_A3B) -> list[dict]:
    """What one rank's plan says, by family of tensors; recorded on meta tensors, so any size will do.

    Returns:
        rows with family, mode, reason, tensors, copies, elements (canonical) and placed (elements on this rank).
    """
    plan, rows = plan_of(TensorParallelModel(architecture, tp, ep, rank, device="meta")), {}
    for name, place in plan.placements.items():
        key = (family(name), place.mode, place.reason)
        row = rows.setdefault(key, dict.fromkeys(("tensors", "copies", "elements", "placed"), 0))
        row["tensors"] += 1
        row["copies"] += len(place.copies)
        row["elements"] += plan.specs[name].numel()
        row["placed"] += sum(copy.elements for copy in place.copies)
    return [{"family": key[0], "mode": key[1], "reason": key[2], **row} for key, row in rows.items()]


def affine_share(tp: int = 2, ep: int = 2, router_dtype: torch.dtype = torch.float32) -> list[dict]:
    """Which elements of Qwen3-30B-A3B may travel as xor: affine at the trainer, and moved bit by bit at every rank.

    Returns:
        one row a family and a last one "all": family, elements, share of all, affine (share of the family that the
        trainer projects), movable (share that all ranks' plans move unchanged), xor (both); and in row "all" the
        reported share of affine bytes.
    """
    shape = shapes(QWEN3_30B_A3B)
    affine = {each.name for maps in affine_maps(Layout(QWEN3_30B_A3B, tp, 1), 0).values() for each in maps}
    movable = set(shape)
    for rank in range(tp):
        model = TensorParallelModel(QWEN3_30B_A3B, tp, ep, rank, router_dtype=router_dtype, device="meta")
        movable &= plan_of(model).invertible
    both = affine & movable
    total, sums = sum(map(prod, shape.values())), {}
    for name, dims in shape.items():
        for row in (family(name), "all"):
            row = sums.setdefault(row, dict.fromkeys(("elements", "affine", "movable", "xor"), 0))
            row["elements"] += prod(dims)
            row["affine"] += prod(dims) * (name in affine)
            row["movable"] += prod(dims) * (name in movable)
            row["xor"] += prod(dims) * (name in both)
    sums["all"] = sums.pop("all")
    rows = []
    for name, row in sums.items():
        elements = row.pop("elements")
        shares = {column: value / elements for column, value in row.items()}
        rows.append({"family": name, "elements": elements, "share": elements / total, **shares})
    rows[-1]["reported"] = REPORTED_AFFINE / 100
    return rows


def equivalence(seeds: Iterable[int], tp: int = 2, ep: int = 2, trust_cast: bool = False) -> list[dict]:
    """Random bits brought from A to B by the plan against a dense load of B, on every rank, for every operation.

    `trust_cast` is the placebo: a plan that takes the cast router for a plain copy.

    Returns:
        rows with seed, rank, op, elements compared, changed and mismatches.
    """
    rows = []
    for seed in seeds:
        for rank in range(tp):
            plan = plan_of(TensorParallelModel(SMALL, tp, ep, rank))
            rows += _summed(compare_loads(_trusting(plan) if trust_cast else plan, seed), seed=seed, rank=rank)
    return rows


def transformers_equivalence(seeds: Iterable[int]) -> list[dict]:
    """The same with transformers' own Qwen3-MoE loader, whose placement the index probe reads back.

    Returns:
        rows as of `equivalence`, with `runs`, the runs of indices that describe the placement.
    """
    model = TransformersModel(SMALL)
    plan = probe_plan(model.load, model.targets, specs(SMALL))
    runs = sum(len(copy.starts) for place in plan.placements.values() for copy in place.copies)
    return [row for seed in seeds for row in _summed(compare_loads(plan, seed), seed=seed, runs=runs)]


def sentinel(seeds: Iterable[int], placeholder: bool = False) -> list[dict]:
    """Random new bits, NaNs among them, overwritten along the plan; or, as the placebo, with a NaN as placeholder.

    Returns:
        rows with seed, changed, new_nans and mismatches against a dense load, over the parameters that are not cast.
    """
    rows = []
    for seed in seeds:
        model = TensorParallelModel(SMALL)
        plan, rng = plan_of(model), np.random.default_rng(seed)
        old, new = ({name: random_tensor(rng, spec) for name, spec in plan.specs.items()} for _ in range(2))
        moved = [name for name, place in plan.placements.items() if place.mode == ANY]
        delta = Delta(diff_bits({n: old[n] for n in moved}, {n: new[n] for n in moved}).tensors)
        wanted = {name: as_bits(tensor).words.copy() for name, tensor in plan.load(new).items()}
        plan.load(old)
        DenseScratch(plan).apply_(delta) if placeholder else apply_plan_(plan, delta)
        held = [(name, tensor) for name, tensor in model.targets().items() if not name.endswith("mlp.gate")]
        mismatches = sum(int((as_bits(tensor).words != wanted[name]).sum()) for name, tensor in held)
        nans = sum(int((record.words & 0x7FFF > 0x7F80).sum()) for record in delta.tensors)
        rows.append({"seed": seed, "changed": delta.changed, "new_nans": nans, "mismatches": mismatches})
    return rows


def trainer_union(seed: int = 0) -> list[dict]:
    """Two steps' payloads of real trainer processes against the comparison of the canonical checkpoints.

    Returns:
        rows with tp, dp, step, changed, by_rank (changed elements that each rank sent), overwrite (share of them) and
        equal (whether index, operation and words are those of the comparison).
    """
    layouts, steps = ((2, 1), (1, 2)), 2  # (tp, dp)
    canonical = [export(weights) for weights in versions(SMALL, seed, steps)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        train(folder, layouts, seed, steps)
        for tp, dp in layouts:
            for step in range(1, steps + 1):
                sent = payloads(folder, (tp, dp), step)
                merged, wanted = union(sent), diff_bits(canonical[step - 1], canonical[step])
                written = sum(record.index.size for record in merged.tensors if record.op == "overwrite")
                row = {"tp": tp, "dp": dp, "step": step, "changed": merged.changed}
                row |= {"by_rank": [delta.changed for delta in sent], "overwrite": written / merged.changed}
                rows.append({**row, "equal": same_changes(merged, wanted)})
    return rows


def same_changes(sent: Delta, wanted: Delta) -> bool:
    """Whether a merged delta changes exactly the elements of a fresh comparison, to the same words."""
    expected = {record.name: record for record in wanted.tensors if record.index.size}
    if {record.name for record in sent.tensors} != expected.keys():
        return False
    pairs = [(record, expected[record.name].with_op(record.op)) for record in sent.tensors]
    return all(np.array_equal(a.index, b.index) and np.array_equal(a.words, b.words) for a, b in pairs)


def _trusting(plan: CopyPlan) -> CopyPlan:
    places = {
        name: Placement(ANY, place.copies, place.lost) if place.mode == LOADER else place
        for name, place in plan.placements.items()
    }
    return replace(plan, placements=places)


def _summed(compared: list[dict], **setting) -> list[dict]:
    """Rows of `compare_loads` summed over targets."""
    rows = []
    for op in OPERATIONS:
        sums = {
            column: sum(row[column] for row in compared if row["op"] == op)
            for column in ("elements", "changed", "mismatches")
        }
        rows.append({**setting, "op": op, **sums})
    return rows
