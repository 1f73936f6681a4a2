"""Which bytes of a receiver two copies write: exact element sets, not spans, and across names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reprise.refit.placement.placements import StridedCopy

NONE = np.empty(0, np.int64)


def lost_elements(
    order: Sequence[tuple[str, StridedCopy]], sizes: Mapping[str, int]
) -> tuple[dict[int, np.ndarray], dict[str, str]]:
    """What later copies overwrite.

    Args:
        order: (canonical name, copy) in the order of the load.
        sizes: target -> elements of its storage.

    Returns:
        (lost, shared). lost: id of a copy -> sorted int64 storage elements that a later copy overwrites. shared: each
        name with an element written twice -> a name that writes it too, which may be itself.
    """
    lost, shared, by_target = {}, {}, {}
    for name, copy in order:
        by_target.setdefault(copy.target, []).append((name, copy))
    for target, copies in by_target.items():
        if _apart(copies):
            lost |= {id(copy): NONE for _, copy in copies}
            continue
        writer = np.full(sizes[target], -1, np.int32)  # position of the last copy that writes an element
        for position, (name, copy) in enumerate(copies):
            view = copy.place.over(writer)
            for earlier in np.unique(view[view >= 0]):
                shared[name] = copies[earlier][0]
                shared[copies[earlier][0]] = name
            view[...] = position
        for position, (_, copy) in enumerate(copies):
            gone = copy.place.over(writer) != position
            lost[id(copy)] = np.sort(copy.place.grid()[gone]) if gone.any() else NONE
    return lost, shared


def _apart(copies: Sequence[tuple[str, StridedCopy]]) -> bool:
    """Whether the copies write ranges that do not meet, which most loaders do; a single copy never meets itself."""
    if len(copies) == 1:
        return True
    spans = [copy.place.span() for _, copy in copies]
    if None in spans:
        return False
    spans.sort()
    return all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
