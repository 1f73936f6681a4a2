"""How much of a child an unmet parent leaves: by type, by edge, and the exponent that strengthens or weakens all.

Source: GEAR, section 3.3 and table 7; the exponent is that of section 4.5.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from reprise.rubric.errors import RetentionError, shown
from reprise.rubric.graph import Edge, EdgeType
from reprise.rubric.validate import is_finite, is_share

DEFAULT_RETENTION: Mapping[EdgeType, float] = MappingProxyType(
    {EdgeType.WEAK: 0.6, EdgeType.STRONG: 0.2, EdgeType.ACTIVATION: 0.0}
)


def by_type(retention: Mapping[Any, float] | None) -> dict[EdgeType, float]:
    """A retention for every type: the defaults, and those of `retention` in place of them.

    Raises:
        RetentionError: a key is no edge type, or a value is not a number in [0, 1].
    """
    found = dict(DEFAULT_RETENTION)
    for key, value in (retention or {}).items():
        try:
            kind = EdgeType(key)
        except ValueError:
            raise RetentionError(f"retention: {key!r}: expected one of {', '.join(EdgeType)}") from None
        if not is_share(value):
            raise RetentionError(f"retention[{kind}]={shown(value)}: expected 0 <= retention <= 1")
        found[kind] = float(value)
    return found


def check_exponent(gamma: Any) -> None:
    """Raise RetentionError unless gamma is a finite number >= 0."""
    if not is_finite(gamma) or gamma < 0:
        raise RetentionError(f"gamma={shown(gamma)}: expected a finite number >= 0")


def edge_retention(edges: Sequence[Edge], retention: Any = None, gamma: float = 1.0):
    """Retention of each edge, raised to `gamma`, with 0 ** 0 = 1: gamma = 0 suppresses nothing.

    Args:
        edges: an edge's own retention goes before that of its type.
        retention: None, a mapping from types to values, or one value for each edge as array or tensor, which goes
            before everything else and may carry a gradient.
        gamma: >= 0; between 0 and 1 the slope of a retention of 0 is infinite.

    Returns:
        (edges,) float64 array, or the tensor that was given.

    Raises:
        RetentionError: a value is outside [0, 1], their number is not that of the edges, or gamma is no number >= 0.
    """
    check_exponent(gamma)
    if retention is None or isinstance(retention, Mapping):
        types = by_type(retention)
        values = np.array([types[e.type] if e.retention is None else e.retention for e in edges], np.float64)
    else:
        values = _given(retention, edges)
    # at gamma = 1 the values stay themselves, and so does the gradient at 0
    return values if gamma == 1 else values**gamma


def _given(retention: Any, edges: Sequence[Edge]):
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(retention, torch.Tensor):
        try:
            retention = np.asarray(retention, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise RetentionError(
                f"retention={shown(retention)}: expected a mapping from edge types, or a number for each edge"
            ) from None
    if tuple(retention.shape) != (len(edges),):
        raise RetentionError(
            f"retention: shape {tuple(retention.shape)}: expected one value for each of {len(edges)} edges"
        )
    outside = ~((retention >= 0) & (retention <= 1))
    if outside.any():
        k = int(outside.nonzero()[0][0])
        raise RetentionError(f"retention[{k}]={float(retention[k])}, edge {edges[k]}: expected 0 <= retention <= 1")
    return retention
