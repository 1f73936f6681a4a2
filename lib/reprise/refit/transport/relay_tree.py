"""The tree along which payloads are passed on: receiver i of the order feeds receivers 2i + 1 and 2i + 2.

Source: NeMo-DCR, relay-tree transport; the rotation lets another receiver be the root of each attempt.
"""

from __future__ import annotations

from collections.abc import Sequence

from reprise.refit.transport.common import TransportError

FAN_OUT = 2


def rotated(receivers: Sequence[int], root: int) -> tuple[int, ...]:
    """`receivers` in tree order with `root` first.

    >>> rotated([0, 1, 2, 3], 2)
    (2, 3, 0, 1)
    """
    if root not in receivers:
        raise TransportError(f"root={root}: expected one of {list(receivers)}")
    at = list(receivers).index(root)
    return (*receivers[at:], *receivers[:at])


def children(members: Sequence[int], node: int) -> tuple[int, ...]:
    """Those that `node` feeds.

    >>> members = rotated(range(6), 2)
    >>> {node: children(members, node) for node in members}
    {2: (3, 4), 3: (5, 0), 4: (1,), 5: (), 0: (), 1: ()}
    """
    first = FAN_OUT * list(members).index(node) + 1
    return tuple(members[first : first + FAN_OUT])


def height(members: Sequence[int], node: int) -> int:
    """Edges from `node` down to its farthest leaf.

    >>> [height(range(6), node) for node in range(6)]
    [2, 1, 1, 0, 0, 0]
    """
    return max((1 + height(members, child) for child in children(members, node)), default=0)
