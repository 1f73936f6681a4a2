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
    if isinstance(scores, list | tuple) and scores and all(torch_of(each) is not None for each in scores):
        try:
            scores = torch_of(scores[0]).stack(list(scores))
        except RuntimeError:
            raise ScoreError("scores: expected rows of equal length") from None
    if (torch := torch_of(scores)) is not None:
        values = scores if scores.is_floating_point() else scores.to(torch.float64)
    else:
        values = _as_floats(scores)
    if values.ndim not in (1, 2) or values.shape[-1] != len(ids):
        raise ScoreError(
            f"scores: shape {tuple(values.shape)}: expected {len(ids)} scores, or one row of {len(ids)} a response"
        )
    return (values[None], True) if values.ndim == 1 else (values, False)


def _as_floats(scores: Any) -> np.ndarray:
    if isinstance(scores, np.ndarray) and scores.dtype.kind in "fiub":
        return scores if scores.dtype in (np.float32, np.float64) else scores.astype(np.float64)
    try:
        cells = np.array(scores, dtype=object)
    except ValueError:
        raise ScoreError("scores: expected rows of equal length") from None
    return np.array([_number(cell) for cell in cells.ravel()], np.float64).reshape(cells.shape)


def _number(cell: Any) -> float:
    if isinstance(cell, list | tuple) or isinstance(cell, np.ndarray) and cell.ndim:
        raise ScoreError("scores: expected rows of equal length")
    if isinstance(cell, Real | np.bool_):
        try:
            return float(cell)
        except OverflowError:
            return float("inf") if cell > 0 else float("-inf")
    if isinstance(cell, np.ndarray) or torch_of(cell) is not None:
        return _number(cell.item())  # one number in an array or a tensor of its own
    return float("nan")


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
