"""A plan against the loader itself: random bits loaded both ways."""

from __future__ import annotations

import numpy as np
import torch

from reprise.refit.bits import as_bits, writable_bits
from reprise.refit.delta import diff_bits
from reprise.refit.operations import OPERATIONS
from reprise.refit.placement.copy_plan import CopyPlan, Tensors, apply_plan_, mixed
from reprise.refit.placement.placements import PlanError

SHARE = 0.25  # of the elements that change between the two checkpoints
RARE = 0.02  # of the elements that are 0, -0, infinities and NaNs with payloads, which random words seldom are


@torch.no_grad()
def verify_plan(plan: CopyPlan, seed: int = 0, share: float = SHARE) -> int:
    """Load random bits A, bring them to random bits B by the plan, and compare with a dense load of B, for every op.

    It finds what a dispatch mode cannot see (threads, replaced parameters, memory reached otherwise), loaders whose
    elements depend on several canonical ones, and any mistake of the plan. The receiver's bits are restored at the end.

    Returns:
        number of elements compared.

    Raises:
        PlanError: an element that differs, named; or a target that the loader replaces.
    """
    return sum(row["elements"] for row in compare_loads(plan, seed, share, strict=True))


@torch.no_grad()
def compare_loads(plan: CopyPlan, seed: int = 0, share: float = SHARE, strict: bool = False) -> list[dict]:
    """One row an operation and target: op, target, elements, changed, mismatches; `strict` raises at a mismatch."""
    rng = np.random.default_rng(seed)
    before = {name: random_tensor(rng, spec) for name, spec in plan.specs.items()}
    after = {name: _changed(rng, tensor, share) for name, tensor in before.items()}
    delta, held, rows = diff_bits(before, after), _words(plan.targets()), []
    try:
        base = _words(plan.load(before))
        wanted = _words(plan.load(after))
        for op in OPERATIONS:
            _restore(plan.targets(), base)
            apply_plan_(plan, mixed(delta, plan.invertible, op))
            for name, words in _words(plan.targets()).items():
                differs = words != wanted[name]
                if strict and differs.any():
                    k = int(differs.argmax())
                    raise PlanError(
                        f"target {name!r}: element {k} is {words[k]:#x} after {op} by the plan, {wanted[name][k]:#x} "
                        f"after a dense load ({differs.sum()} of {differs.size} differ)"
                    )
                changed = int((base[name] != wanted[name]).sum())
                row = {"op": op, "target": name, "elements": words.size, "changed": changed}
                rows.append({**row, "mismatches": int(differs.sum())})
    finally:
        _restore(plan.targets(), held)
    return rows


def random_tensor(rng: np.random.Generator, spec: torch.Tensor) -> torch.Tensor:
    """Tensor of `spec`'s shape and dtype whose words are uniform bits, a few of them zeros, infinities and NaNs."""
    tensor = torch.empty(spec.shape, dtype=spec.dtype)
    words = as_bits(tensor).words
    words[:] = _random_words(rng, words)
    return tensor


def _changed(rng: np.random.Generator, tensor: torch.Tensor, share: float) -> torch.Tensor:
    changed = tensor.clone()
    words = as_bits(changed).words
    chosen = rng.random(words.size) < share
    words[chosen] = _random_words(rng, words[chosen])
    return changed


def _random_words(rng: np.random.Generator, like: np.ndarray) -> np.ndarray:
    width = 8 * like.itemsize
    words = rng.integers(0, 1 << width, like.size, like.dtype, endpoint=False)
    sign, exponent = 1 << (width - 1), 0x7F80 << (width - 16) if width > 8 else 0x7F
    special = np.array([0, sign, exponent, exponent | sign, exponent | 1, exponent | sign | 3], like.dtype)
    rare = rng.random(like.size) < RARE
    words[rare] = rng.choice(special, int(rare.sum()))
    return words


def _words(tensors: Tensors) -> dict[str, np.ndarray]:
    return {name: as_bits(tensor).words.copy() for name, tensor in tensors.items()}


def _restore(tensors: Tensors, words: dict[str, np.ndarray]) -> None:
    for name, tensor in tensors.items():
        bits, commit = writable_bits(tensor)
        bits.words[:] = words[name]
        commit()
