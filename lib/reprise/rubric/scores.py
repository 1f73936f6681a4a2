"""Judge scores at the border: shape, missing values, range.

A score is missing when the judge gave none: NaN, None, or anything that is no number.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from reprise.rubric.errors import RubricError, ScoreError

ON_MISSING = ("error", "zero", "skip", "none")
ROUNDING = 1e-6  # how far outside [0, 1] a score may be and still be taken for its end


def choose(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse an unknown choice."""
    if value not in choices:
        raise RubricError(f"{name}={value!r}: expected one of {', '.join(choices)}")


def torch_of(*values: Any):
    """The torch module if one of the values is a tensor, else None; torch is never imported here."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and any(isinstance(value, torch.Tensor) for value in values) else None


def as_scores(scores: Any, ids: Sequence[str]) -> tuple[Any, bool]:
    """Scores as a (responses, criteria) array or tensor of floats, NaN where one is missing.

    Args:
        scores: (criteria,) or (responses, criteria): array, tensor, list of tensors, or nested lists.
        ids: of the criteria.

    Returns:
        (scores, whether a single response was given).

    Raises:
        ScoreError: another shape; too few or too many scores.
    """
    values = as_floats("scores", scores)
    if values.ndim not in (1, 2) or values.shape[-1] != len(ids):
        raise ScoreError(
            f"scores: shape {tuple(values.shape)}: expected {len(ids)} scores, or one row of {len(ids)} a response"
        )
    return (values[None], True) if values.ndim == 1 else (values, False)


def as_floats(name: str, values: Any) -> Any:
    """Numbers of any shape as an array or tensor of floats, NaN for what is none; whole numbers become float64.

    Raises:
        ScoreError: rows of different lengths; the message starts with `name`.
    """
    uneven = ScoreError(f"{name}: expected rows of equal length")
    if isinstance(values, list | tuple) and values and all(torch_of(each) is not None for each in values):
        try:
            values = torch_of(values[0]).stack(list(values))
        except RuntimeError:
            raise uneven from None
    if (torch := torch_of(values)) is not None:
        return values if values.is_floating_point() else values.to(torch.float64)
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    try:
        cells = np.array(values, dtype=object)
    except ValueError:
        raise uneven from None
    if any(isinstance(cell, list | tuple) or getattr(cell, "ndim", 0) for cell in cells.ravel()):
        raise uneven
    return np.array([_number(cell) for cell in cells.ravel()], np.float64).reshape(cells.shape)


def _number(cell: Any) -> float:
    if isinstance(cell, Real | np.bool_):
        try:
            return float(cell)
        except OverflowError:
            return float("inf") if cell > 0 else float("-inf")
    if isinstance(cell, np.ndarray) or torch_of(cell) is not None:
        return _number(cell.item())  # one number in an array or a tensor of its own
    return float("nan")


def as_numpy(values: Any) -> np.ndarray:
    """Float64 copy or view without a gradient; by way of double, as NumPy has no bfloat16."""
    return np.asarray(values if torch_of(values) is None else values.detach().cpu().double().numpy(), np.float64)


def in_range(p: Any, ids: Sequence[str], clamp: bool = False, criteria_axis: int = 1) -> Any:
    """Scores within [0, 1]; those outside by no more than ROUNDING, or all with `clamp`, are set to the end.

    NaN passes.

    Raises:
        ScoreError: a score is farther outside; the message names the criterion and the response.
    """
    if not clamp:
        outside = (p < -ROUNDING) | (p > 1 + ROUNDING)
        if bool(outside.any()):
            place = [int(axis[0]) for axis in np.nonzero(np.asarray(outside.tolist()))]
            k, response = place[criteria_axis], place[1 - criteria_axis]
            value = float(p[tuple(place)])
            raise ScoreError(f"score of criterion {ids[k]}, response {response}: {value}: expected 0 <= score <= 1")
    return p.clip(0, 1)


def refuse_missing(p: Any, ids: Sequence[str], criteria_axis: int = 1) -> None:
    """Raise ScoreError if a score is NaN."""
    missing = p != p
    if bool(missing.any()):
        place = [int(axis[0]) for axis in np.nonzero(np.asarray(missing.tolist()))]
        k, response = place[criteria_axis], place[1 - criteria_axis]
        raise ScoreError(
            f"score of criterion {ids[k]}, response {response}: missing; expected a number in [0, 1], "
            "or on_missing='zero', 'skip' or 'none'"
        )
