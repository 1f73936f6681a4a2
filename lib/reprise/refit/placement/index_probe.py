"""Placement of a loader that builds new tensors: load a checkpoint whose values are canonical indices, read them back.

No copy is intercepted, so `cat`, `stack` and replaced parameters do not matter. It takes a loader that works in any
floating dtype and places values without computing with them, 8 bytes an element of the checkpoint, and float64, which
holds integers up to 2^53 exactly. The idea is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

import numpy as np
import torch

from reprise.refit.placement.copy_plan import ANY, SKIPPED, CopyPlan, Placement, Tensors
from reprise.refit.placement.overlaps import NONE
from reprise.refit.placement.placements import PlanError, RunCopy, View

FIRST = 1 << 40  # index of the first canonical element; no value that a model starts with
LAST = 1 << 53


def index_checkpoint(specs: Tensors) -> dict[str, torch.Tensor]:
    """Canonical name -> float64 tensor of its elements' numbers, counted through all tensors from FIRST on.

    Raises:
        PlanError: more elements than float64 numbers exactly.
    """
    starts = _starts(specs)
    if starts[-1] > LAST:
        raise PlanError(f"{starts[-1] - FIRST} elements: expected at most {LAST - FIRST}")
    return {
        name: torch.arange(start, start + spec.numel(), dtype=torch.float64).reshape(spec.shape)
        for (name, spec), start in zip(specs.items(), starts, strict=False)
    }


@torch.no_grad()
def probe_plan(load: Callable[[Tensors], Tensors], targets: Callable[[], Tensors], specs: Tensors) -> CopyPlan:
    """Plan of a loader from one load of `index_checkpoint`.

    Args:
        load: loads a checkpoint of any floating dtype and returns target name -> tensor, which may be new ones.
        targets: the receiver's tensors after a load of the real checkpoint; asked when a delta is applied.
        specs: canonical name -> tensor of its shape and dtype.

    Raises:
        PlanError: an element that is no canonical index, or a canonical element twice in one target.
    """
    starts, copies, layouts, seen = _starts(specs), {name: [] for name in specs}, {}, set()
    for target, tensor in load(index_checkpoint(specs)).items():
        if tensor.untyped_storage().data_ptr() in seen:
            continue  # tied: the first name stands for all
        seen.add(tensor.untyped_storage().data_ptr())
        found = list(_read(target, tensor, list(specs), starts))
        for name, copy in found:
            copies[name].append(copy)
        dtypes = {specs[name].dtype for name, _ in found}
        if len(dtypes) != 1:
            raise PlanError(f"target {target!r}: placed from tensors of {len(dtypes)} dtypes, expected one")
        layouts[target] = (dtypes.pop(), View.of(tensor))
    placements = {
        name: Placement(ANY, tuple(found), (NONE,) * len(found))
        if found
        else Placement(SKIPPED, reason="not used here")
        for name, found in copies.items()
    }
    return CopyPlan(specs, placements, layouts, targets, load)


def canonical_indices(target: str, tensor: torch.Tensor, first: int, end: int) -> np.ndarray:
    """[elements] int64 numbers that the probe left in a target."""
    if tensor.dtype != torch.float64 or not tensor.is_contiguous():
        raise PlanError(
            f"target {target!r}: loaded as {tensor.dtype}, expected contiguous float64 as in the checkpoint"
        )
    values = tensor.detach().cpu().numpy().reshape(-1)
    bad = ~((values >= first) & (values < end) & (values == np.floor(values)))
    if bad.any():
        k = int(bad.argmax())
        raise PlanError(
            f"target {target!r}: element {k} is {values[k]}, expected the number of a canonical element; "
            "it is computed or not loaded"
        )
    return values.astype(np.int64)


def _read(target: str, tensor: torch.Tensor, names: list[str], starts: list[int]) -> Iterator[tuple[str, RunCopy]]:
    numbers = canonical_indices(target, tensor, FIRST, starts[-1])
    at = np.argsort(numbers, kind="stable")
    numbers = numbers[at]
    bounds = np.searchsorted(numbers, starts)
    for position in np.flatnonzero(np.diff(bounds)):
        part = slice(bounds[position], bounds[position + 1])
        index = numbers[part] - starts[position]
        if (index[1:] == index[:-1]).any():
            k = int(index[1:][index[1:] == index[:-1]][0])
            raise PlanError(f"target {target!r}: element {k} of {names[position]!r} is placed twice")
        yield names[position], RunCopy.of(target, index, at[part] + tensor.storage_offset())


def _starts(specs: Mapping[str, torch.Tensor]) -> list[int]:
    """Number of each tensor's first element, and of the end."""
    return list(accumulate((spec.numel() for spec in specs.values()), initial=FIRST))
