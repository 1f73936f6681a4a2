"""Blocks of scores of different widths as one block, and a mask of what was there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reprise.rubric.errors import ScoreError, shown
from reprise.rubric.graph import RubricGraph
from reprise.rubric.scores import as_floats, as_numpy, torch_of


def padded(scores: Sequence[Any], graphs: Sequence[RubricGraph]) -> tuple[Any, Any]:
    """See `reprise.rubric.batch.PackedProgram.pad`."""
    if len(scores) != len(graphs):
        raise ScoreError(f"scores: {len(scores)} blocks: expected one for each of {len(graphs)} graphs")
    blocks = [as_floats(f"scores[{g}]", block) for g, block in enumerate(scores)]
    for g, (block, graph) in enumerate(zip(blocks, graphs, strict=True)):
        if block.ndim != 2 or block.shape[1] != len(graph):
            shape = tuple(block.shape)
            raise ScoreError(f"scores[{g}]: shape {shape}: expected (responses, {len(graph)} criteria)")
    torch = torch_of(*blocks)
    if torch is not None and (other := [g for g, block in enumerate(blocks) if torch_of(block) is None]):
        raise ScoreError(f"scores[{other[0]}]: no tensor: expected tensors only, as other blocks are some")
    most = max(map(len, blocks))
    mask = np.arange(most) < np.array([len(block) for block in blocks])[:, None]
    if torch is None:
        return np.concatenate([np.pad(block.T, ((0, 0), (0, most - len(block)))) for block in blocks]), mask
    wide = [torch.cat([block.T, block.new_zeros(block.shape[1], most - len(block))], 1) for block in blocks]
    return torch.cat(wide), torch.as_tensor(mask, device=blocks[0].device)


def masked(reward: Any, mask: Any, flat: bool) -> Any:
    """(graphs, responses) rewards, 0 where the mask is False, also instead of NaN.

    Args:
        reward: array or tensor.
        mask: of reward's shape; with `flat`, where there is one response, (graphs,) will do.

    Raises:
        ScoreError: the mask has another shape, or other values than 0 and 1.
    """
    try:
        given = as_numpy(mask)
    except (TypeError, ValueError):
        raise ScoreError(f"mask={shown(mask)}: expected True or False for each reward") from None
    given = given[:, None] if flat and given.ndim == 1 else given
    if given.shape != tuple(reward.shape) or not np.isin(given, (0, 1)).all():
        expected = tuple(reward.shape)[: 1 if flat else 2]
        raise ScoreError(f"mask: shape {given.shape}: expected True or False for each reward, {expected}")
    torch = torch_of(reward)
    there = given == 1 if torch is None else torch.as_tensor(given == 1, device=reward.device)
    return (torch or np).where(there, reward, (torch or np).zeros_like(reward))
