"""The receiver without a plan: every tensor is scattered into a dense scratch tensor and run through the loader.

Unchanged elements hold a placeholder that the intercepted copy leaves out: 0 for masks of xor, a NaN for overwritten
values, so that a new value that is a NaN is lost. Source: NeMo-DCR, receiver application.
"""

from __future__ import annotations

from math import nan

import torch

from reprise.refit import Delta, as_bits
from reprise.refit.placement.copy_plan import CopyPlan
from reprise.refit.placement.copy_recorder import CopyRecorder

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class DenseScratch:
    """Applies deltas of operations "xor" and "overwrite" through the loader of `plan`, whose placements it ignores."""

    def __init__(self, plan: CopyPlan):
        self._plan = plan
        largest = max(spec.numel() for spec in plan.specs.values())
        self._scratch = torch.empty(largest, dtype=next(iter(plan.specs.values())).dtype)

    @torch.no_grad()
    def apply_(self, delta: Delta) -> None:
        targets = self._plan.targets()
        for record in delta.tensors:
            masks = record.op == "xor"
            dense = self._scratch[: record.elements].view(record.shape).fill_(0.0 if masks else nan)
            as_bits(dense).words[record.index] = record.words
            with CopyRecorder({record.name: dense}, targets, _xor if masks else _fill):
                self._plan.load_fn([(record.name, dense)])


def _xor(target: str, place: torch.Tensor, source: torch.Tensor, names: frozenset[str]) -> None:
    word = WORDS[place.element_size()]
    place.view(word).bitwise_xor_(source.view(word))


def _fill(target: str, place: torch.Tensor, source: torch.Tensor, names: frozenset[str]) -> None:
    place.copy_(torch.where(source.isnan(), place, source))
