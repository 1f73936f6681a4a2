"""How a native loader places canonical tensors in a receiver, recorded once, and deltas applied along it.

The loader runs once under a dispatch mode that takes note of its copies. A name whose copies all move bits of one dtype
to bytes that nothing else writes takes any operation, straight into the receiver's storage and in O(changes). A name
whose bytes another copy writes too takes "overwrite" the same way, where the later copy wins as it does in a dense
load. A name that the loader computes with (a cast, a scale) takes "overwrite" through the loader, see `through_loader`.

The plan knows places and not versions: whoever applies makes sure that the receiver holds the delta's base version and
that no payload comes twice. Source: NeMo-DCR, receiver application; the plan is ours, the paper's receiver scatters
into a dense scratch tensor and runs the loader for every payload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from reprise.refit.bits import NATIVE, word_dtype
from reprise.refit.delta import Delta, TensorDelta
from reprise.refit.placement import through_loader
from reprise.refit.placement.copy_recorder import CopyRecorder
from reprise.refit.placement.overlaps import lost_elements
from reprise.refit.placement.placements import PlanError, RunCopy, StridedCopy, View, nested, writer

ANY, OVERWRITE, LOADER, SKIPPED = "any", "overwrite", "loader", "skipped"

Tensors = Mapping[str, torch.Tensor]
Storages = Mapping[str, torch.UntypedStorage]
# takes (canonical name, tensor) pairs and writes the targets; may return the names of the targets it loaded
LoadFn = Callable[[Iterable[tuple[str, torch.Tensor]]], Collection[str] | None]


@dataclass(frozen=True)
class Placement:
    """What becomes of one canonical tensor.

    Args:
        mode: ANY (xor, add and overwrite), OVERWRITE (that alone), LOADER (overwrite through the loader) or SKIPPED
            (this receiver does not use it).
        copies: where its elements go; under LOADER only sources of whole target views are known, not their elements.
        lost: for each copy, sorted storage elements that a later copy overwrites.
        reason: why not ANY.
    """

    mode: str
    copies: tuple[StridedCopy | RunCopy, ...] = ()
    lost: tuple[np.ndarray, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class CopyPlan:
    """Placement of every canonical tensor.

    Args:
        specs: canonical name -> meta tensor of its shape and dtype.
        placements: canonical name -> its placement.
        layouts: target name -> dtype and view of its storage that the placements are meant for.
        targets: returns target name -> the receiver's tensor.
        load: takes a dense checkpoint and returns the targets as the native loader leaves them.
        load_fn: the native loader, for the names of mode LOADER.
    """

    specs: Tensors
    placements: Mapping[str, Placement]
    layouts: Mapping[str, tuple[torch.dtype, View]]
    targets: Callable[[], Tensors]
    load: Callable[[Tensors], Tensors]
    load_fn: LoadFn | None = None

    @property
    def invertible(self) -> frozenset[str]:
        """Names that take xor and add: those of mode ANY, and those that are not used here."""
        return frozenset(name for name, place in self.placements.items() if place.mode in (ANY, SKIPPED))


@torch.no_grad()
def record_copy_plan(load_fn: LoadFn, targets: Callable[[], Tensors], specs: Tensors) -> CopyPlan:
    """Run `load_fn` once on empty tensors and note where it would copy them.

    Copies are noted and not made, so targets on "meta" will do. A loader that writes behind the dispatcher's back does
    write, and garbage: record before the first load.

    Args:
        load_fn: loads (name, tensor) pairs as an inference engine's `load_weights` does; each element it writes depends
            on one canonical element, and it can load one name alone.
        targets: called before and after the load, so that a replaced parameter shows.
        specs: canonical name -> tensor of its shape and dtype; only these are looked at.

    Raises:
        PlanError: a write other than copy_ into a target; a target that is replaced, that no copy reaches, or that the
            loader reports otherwise; a copy of several names together, or of none; a loader that one cannot mask.
    """
    held = targets()
    storages = {name: tensor.untyped_storage() for name, tensor in held.items()}
    device = "meta" if all(tensor.is_meta for tensor in held.values()) else "cpu"
    scratch = {name: torch.empty(spec.shape, dtype=spec.dtype, device=device) for name, spec in specs.items()}
    copies = {name: [] for name in specs}
    reasons, order = {}, []

    def note(target: str, place: torch.Tensor, source: torch.Tensor, names: frozenset[str]) -> None:
        name = _one_name(target, names)
        if place.element_size() != held[target].element_size():
            raise PlanError(f"target {target!r}: written as {place.dtype}, expected elements of {held[target].dtype}")
        if place.numel():
            reason = _impurity(scratch[name], source, place)
            if reason:
                reasons[name] = reason
            copies[name].append(StridedCopy(target, View.of(source.expand(place.shape)), View.of(place)))
            order.append((name, copies[name][-1]))

    with CopyRecorder(scratch, held, note) as recorder:
        reported = load_fn(list(scratch.items()))
    reasons |= dict.fromkeys(recorder.altered, "changed in place before it is copied")
    _check_replaced(storages, targets())
    _check_reached(storages, {copy.target for _, copy in order}, reported)
    lost, shared = lost_elements(order, {name: _storage_elements(tensor) for name, tensor in held.items()})
    placements = {name: _placement(name, noted, lost, shared, reasons) for name, noted in copies.items()}

    def load(weights: Tensors) -> Tensors:
        load_fn(list(weights.items()))
        _check_replaced(storages, targets())
        return targets()

    layouts = {name: (tensor.dtype, View.of(tensor)) for name, tensor in held.items()}
    plan = CopyPlan(specs, placements, layouts, targets, load, load_fn)
    if device != "meta":
        through_loader.check(plan, reasons)
    return plan


@torch.no_grad()
def apply_plan_(plan: CopyPlan, delta: Delta) -> None:
    """Turn the base version into the target version in the receiver's storage, in place.

    Everything is checked, and everything that the loader computes is computed, before the first byte is written.

    Raises:
        PlanError: a name the plan lacks, another shape or dtype, xor or add for a name that takes "overwrite" only, or
            a target that is laid out otherwise than when the plan was made.
        PayloadError: a record that does not fit itself.
    """
    flats = {name: flat_words(tensor) for name, tensor in _laid_out(plan).items()}
    placed = [each for record in delta.tensors for each in _placed(plan, record)]
    twice = [name for name, count in Counter(record.name for record, _ in placed).items() if count > 1]
    if twice:
        raise PlanError(f"tensor {twice[0]!r}: two records in one delta, expected one")
    computed = [
        write
        for record, place in placed
        if place.mode == LOADER and record.index.size
        for write in through_loader.writes(plan, record)
    ]
    write = writer(delta.changed)
    for record, place in placed:
        if place.mode in (ANY, OVERWRITE):
            for copy, lost in zip(place.copies, place.lost, strict=True):
                if not lost.size:
                    write(copy, flats[copy.target], record.index, record.words, record.op)
                    continue
                entries, at = copy.positions(record.index)
                _overwrite(flats[copy.target], at, record.words[entries], lost)
    for target, at, words, lost in computed:
        _overwrite(flats[target], at, words, lost)


def mixed(delta: Delta, invertible: Collection[str], op: str) -> Delta:
    """Records of the `invertible` names stored by `op` and all others by "overwrite", as a receiver's plan asks."""
    allowed = frozenset(invertible)
    records = (
        record.with_op(op if allowed.issuperset((record.name, *record.aliases)) else "overwrite")
        for record in delta.tensors
    )
    return replace(delta, tensors=tuple(records))


def flat_words(tensor: torch.Tensor) -> np.ndarray:
    """All words of a CPU tensor's storage, shared, in the width of its elements."""
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    flat = torch.empty(0, dtype=integer).set_(tensor.untyped_storage()).numpy()
    return flat.view(word_dtype(NATIVE[str(tensor.dtype).removeprefix("torch.")]))


def _overwrite(flat: np.ndarray, at: np.ndarray, words: np.ndarray, lost: np.ndarray) -> None:
    kept = ~np.isin(at, lost)
    flat[at[kept]] = words[kept]


def _placed(plan: CopyPlan, record: TensorDelta) -> list[tuple[TensorDelta, Placement]]:
    """A record under each of its names that the plan knows, of tied ones possibly one alone, with the placement."""
    names = [name for name in (record.name, *record.aliases) if name in plan.placements]
    if not names:
        raise PlanError(f"tensor {record.name!r}: unknown to the plan")
    record.check()
    return [_checked(plan, replace(record, name=name, aliases=())) for name in names]


def _checked(plan: CopyPlan, record: TensorDelta) -> tuple[TensorDelta, Placement]:
    name = record.name
    spec = plan.specs[name]
    expected = (NATIVE[str(spec.dtype).removeprefix("torch.")], tuple(spec.shape))
    if expected != (record.dtype, record.shape):
        raise PlanError(f"tensor {name!r}: {record.dtype}{record.shape} in the delta, {expected} in the plan")
    place = plan.placements[name]
    if record.op != "overwrite" and place.mode in (OVERWRITE, LOADER):
        raise PlanError(f"tensor {name!r}: op={record.op!r}, expected 'overwrite' ({place.reason})")
    return record, place


def _placement(
    name: str, copies: list[StridedCopy], lost, shared: dict[str, str], reasons: dict[str, str]
) -> Placement:
    kept = tuple(copies), tuple(lost[id(copy)] for copy in copies)
    if name in reasons:
        return Placement(LOADER, *kept, reasons[name])
    if name in shared:
        return Placement(OVERWRITE, *kept, f"also written by {shared[name]}")
    return Placement(ANY, *kept) if copies else Placement(SKIPPED, reason="not used here")


def _one_name(target: str, names: frozenset[str]) -> str:
    if len(names) != 1:
        stem = f"{', '.join(sorted(names))} together" if names else "no canonical tensor"
        raise PlanError(f"target {target!r}: copied from {stem}, expected elements of one canonical tensor")
    return next(iter(names))


def _impurity(scratch: torch.Tensor, source: torch.Tensor, place: torch.Tensor) -> str:
    """Why a copy does not simply move canonical bits, or "" if it does."""
    if scratch.dtype != place.dtype:
        return f"{scratch.dtype} to {place.dtype}".replace("torch.", "")
    if source.untyped_storage() is not scratch.untyped_storage() or source.dtype != place.dtype:
        return "computed"
    if (source.is_conj(), source.is_neg()) != (place.is_conj(), place.is_neg()):
        return "conjugated or negated"
    return "" if nested(View.of(source)) else "overlapping source"


def _storage_elements(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def _laid_out(plan: CopyPlan) -> Tensors:
    targets = plan.targets()
    for name, planned in plan.layouts.items():
        if name not in targets or planned != (targets[name].dtype, View.of(targets[name])):
            raise PlanError(f"target {name!r}: missing or laid out otherwise than planned, expected {planned}")
    return targets


def _check_replaced(before: Storages, after: Tensors) -> None:
    for name in {*before, *after}:
        if name not in before or name not in after or before[name] is not after[name].untyped_storage():
            raise PlanError(f"target {name!r}: the loader replaces it, expected copies into its storage")


def _check_reached(storages: Storages, reached: set[str], reported: Collection[str] | None) -> None:
    identities = {id(storages[name]) for name in reached}
    loaded = {name for name, storage in storages.items() if id(storage) in identities}
    for name in storages:
        if name not in loaded:
            raise PlanError(f"target {name!r}: no copy into it was seen; is it loaded by a thread or replaced?")
    for name in loaded.symmetric_difference(loaded if reported is None else reported):
        raise PlanError(
            f"target {name!r}: reported and seen copies differ, expected the loader to report what it copies"
        )
