"""Changed elements of a tensor that the loader computes with: it runs on two dense tensors that differ only elsewhere.

Both hold the new words at the changed elements; all others are 0 in one and 1 in the other. Where the loader's two
results agree in bits, the receiver's element depends on a changed one; no value has to stand for "unchanged", so new
words may be NaNs of any payload. It takes a loader that never maps 0 and 1 to the same bits, which `check` finds out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from reprise.refit.bits import as_bits
from reprise.refit.delta import TensorDelta
from reprise.refit.placement.copy_recorder import CopyRecorder
from reprise.refit.placement.placements import PlanError, View

BACKGROUNDS = (0, 1)


def writes(plan, record: TensorDelta) -> list[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """(target, storage elements, new words, lost elements) for each copy of a record of operation "overwrite"."""
    place = plan.placements[record.name]
    low, high = (_images(plan, record.name, background, record.index, record.words) for background in BACKGROUNDS)
    found = []
    for copy, lost, zeros, ones in zip(place.copies, place.lost, low, high, strict=True):
        active = zeros == ones
        found.append((copy.target, copy.place.grid().reshape(-1)[active], zeros[active], lost))
    return found


def check(plan, names: Iterable[str]) -> None:
    """Raise PlanError for a name of which the loader maps 0 and 1 to the same bits, or that it cannot load alone."""
    for name in names:
        low, high = (_images(plan, name, background) for background in BACKGROUNDS)
        for copy, zeros, ones in zip(plan.placements[name].copies, low, high, strict=True):
            same = zeros == ones
            if same.any():
                raise PlanError(
                    f"tensor {name!r}: the loader maps 0 and 1 to the same bits in {copy.target!r}, element "
                    f"{copy.place.grid().reshape(-1)[same][0]}; changed elements cannot be told from others"
                )


def _images(plan, name: str, background: int, index=(), words=()) -> list[np.ndarray]:
    """Flat words that each copy of `name` would write for `words` at `index` on a uniform background."""
    spec, copies = plan.specs[name], plan.placements[name].copies
    dense = torch.full(tuple(spec.shape), background).to(spec.dtype)
    if len(index):
        as_bits(dense).words[index] = words
    seen, images = [], []

    def keep(target: str, place: torch.Tensor, source: torch.Tensor, _) -> None:
        if place.numel():
            image = torch.empty(place.shape, dtype=place.dtype)
            image.copy_(source)
            images.append(as_bits(image).words)
            seen.append((target, View.of(place)))

    with CopyRecorder({name: dense}, plan.targets(), keep):
        plan.load_fn([(name, dense)])
    if seen != [(copy.target, copy.place) for copy in copies]:
        raise PlanError(f"tensor {name!r}: loaded alone it is copied otherwise than with the others")
    return images
