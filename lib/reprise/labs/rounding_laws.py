"""One optimiser step beside the rounding laws: which share of the stored bits changed, and which share should have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch

from reprise.labs.mixed_precision import Change, parameter_group
from reprise.refit import as_bits, predict_change

LAWS = {"grid": "grid", "fp32": "uniform"}  # start of the masters -> the law that holds for its first step

# elements at a time: the laws work in float64 and hold about ten such arrays
BLOCK = 1 << 20


def measure(
    changes: Sequence[Change], rate: float, start: str, zeros: Mapping[str, torch.Tensor] | None = None
) -> list[dict]:
    """Changed share of one step and what the rounding laws say about it, in all and by parameter group.

    Args:
        changes: what `MasterWeights.step` returned.
        rate: learning rate of the step.
        start: where the masters started, "fp32" or "grid".
        zeros: parameter name -> bool, the elements that were exactly 0 before training.

    Returns:
        rows, group "all" first, with the columns
        rate, group, elements;
        changed: share of elements whose stored bits changed;
        changed_zeros: the part of it in `zeros`; any update changes a zero;
        step_size: mean |u| / rate;
        forecast: the law of this start if every |u| were the learning rate, as in AdamW's first step; needs no run;
        grid, uniform: the two laws for the updates that AdamW made, masters on the grid and masters anywhere in their
            cell. Between the first step from the grid and many steps later the truth lies between the two.
    """
    sums = defaultdict(lambda: defaultdict(float))
    for change in changes:
        for column, value in _sums(change, rate, LAWS[start], (zeros or {}).get(change.name)).items():
            for group in ("all", parameter_group(change.name)):
                sums[group][column] += value
    rows = []
    for group, total in sums.items():
        elements = int(total.pop("elements"))
        shares = {column: value / elements for column, value in total.items()}
        rows.append({"rate": rate, "group": group, "elements": elements, **shares})
    return rows


def _sums(change: Change, rate: float, law: str, zeros: torch.Tensor | None) -> dict[str, float]:
    """The columns of `measure` for one parameter, as sums over its elements."""
    differs = as_bits(change.before).words != as_bits(change.after).words
    # the laws speak of BF16 storage whatever the run stores, so that the control is judged by them too
    stored, update = change.master.bfloat16().flatten(), change.update.flatten()
    total = {
        "elements": len(differs),
        "changed": int(differs.sum()),
        "changed_zeros": 0 if zeros is None else int((differs & zeros.flatten().cpu().numpy()).sum()),
        "step_size": float(update.abs().double().sum()) / rate,
    }
    moves = {"forecast": (torch.full_like(update, rate), law), "grid": (update, "grid"), "uniform": (update, "uniform")}
    for column, (moved, masters) in moves.items():
        blocks = zip(stored.split(BLOCK), moved.split(BLOCK), strict=True)
        total[column] = sum(_expected(block, step, masters) for block, step in blocks)
    return total


def _expected(stored: torch.Tensor, update: torch.Tensor, masters: str) -> float:
    """Number of elements that a law expects to change."""
    if masters == "grid":
        # no step below a quarter of an ulp leaves a cell, and ulp(w) > |w| 2^-8: most elements need no float64
        near = update.abs() > stored.float().abs() * 2.0**-10
        stored, update = stored[near], update[near]
    return predict_change(stored, update, masters) * len(stored) if len(stored) else 0.0
