"""Log-probabilities of verdicts on many prefixes of one run from a single forward pass.

A row holds the transcript once and behind it every branch, a question and the response to it. A branch that was asked
after `end` transcript tokens sees those and its own earlier tokens, and its positions continue from `end`:

    transcript   a b c d e f             branch asked after 3: x y      branch asked after 6: z
    position     0 1 2 3 4 5                                   3 4                            6
    sees                                                   abc,abcx                      abcdef

The mask and the positions go to any causal language model that takes a mask of its own; the results are those of one
forward pass a branch over transcript[:end] + question + response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reprise.audit.errors import AuditError


@dataclass(frozen=True)
class Packed:
    """One row.

    Attributes:
        ids: (tokens,) int64, transcript and branches.
        positions: (tokens,) int64, as if each branch stood alone behind its prefix.
        mask: (tokens, tokens) bool; mask[i, j] where token i sees token j.
        predictor: (scored,) int64, the token whose logits predict each response token.
        target: (scored,) int64, the response tokens.
        branch: (scored,) int64, which branch each belongs to, from 0 in the order given.
        branches: how many there are.
    """

    ids: np.ndarray
    positions: np.ndarray
    mask: np.ndarray
    predictor: np.ndarray
    target: np.ndarray
    branch: np.ndarray
    branches: int


def pack_prefixes(
    transcript: Sequence[int], branches: Sequence[tuple[int, Sequence[int]]], question: Sequence[int] = ()
) -> Packed:
    """Lay out a transcript and the responses to several of its prefixes in one row.

    Args:
        transcript: token ids of the whole run, at least one.
        branches: (end, response): a response given after the first `end` transcript tokens, 1 <= end <= tokens.
            Several may share an end; each response has at least one token.
        question: tokens between a prefix and every response; they are seen and not scored.

    Raises:
        AuditError: an empty transcript or response, or an end outside the transcript.

    >>> packed = pack_prefixes([5, 6, 7], [(2, [8, 9])])
    >>> packed.positions.tolist(), packed.predictor.tolist()
    ([0, 1, 2, 2, 3], [1, 3])
    """
    transcript, question = (np.asarray(each, dtype=np.int64) for each in (transcript, question))
    if not len(transcript):
        raise AuditError("transcript: no token: expected at least one")
    responses = [np.asarray(response, dtype=np.int64) for _, response in branches]
    for b, ((end, _), response) in enumerate(zip(branches, responses, strict=True)):
        if not 1 <= end <= len(transcript):
            raise AuditError(f"branches[{b}]: end={end}: expected 1..{len(transcript)} transcript tokens")
        if not len(response):
            raise AuditError(f"branches[{b}]: empty response: expected at least one token")
    ends = np.array([end for end, _ in branches], dtype=np.int64)
    lengths = np.array([len(question) + len(response) for response in responses], dtype=np.int64)
    starts = len(transcript) + np.cumsum(lengths) - lengths
    owner = np.repeat(np.arange(len(branches)), lengths)  # branch of each token behind the transcript
    within = np.arange(len(owner)) - np.repeat(starts - len(transcript), lengths)
    scored = within >= len(question)
    at = len(transcript) + np.arange(len(owner))
    # the first token of a branch is predicted by the last one of its prefix, the others by their neighbour
    predictor = np.where(within == 0, ends[owner] - 1, at - 1)
    ids = np.concatenate([transcript, *(part for response in responses for part in (question, response))])
    return Packed(
        ids=ids,
        positions=np.concatenate([np.arange(len(transcript)), ends[owner] + within]),
        mask=_mask(len(transcript), ends, owner),
        predictor=predictor[scored],
        target=ids[at[scored]],
        branch=owner[scored],
        branches=len(branches),
    )


def _mask(shared: int, ends: np.ndarray, owner: np.ndarray) -> np.ndarray:
    mask = np.tri(shared + len(owner), dtype=bool)
    mask[shared:, :shared] = np.arange(shared) < ends[owner][:, None]
    mask[shared:, shared:] &= owner[:, None] == owner[None, :]
    return mask


@dataclass(frozen=True)
class PackedBatch:
    """Rows padded to one length: ids and positions (rows, tokens), mask (rows, tokens, tokens), and of all scored
    tokens together `row`, `predictor`, `target` and `branch`, branches counted on from row to row."""

    ids: np.ndarray
    positions: np.ndarray
    mask: np.ndarray
    row: np.ndarray
    predictor: np.ndarray
    target: np.ndarray
    branch: np.ndarray
    branches: int


def stack(rows: Sequence[Packed], pad: int = 0) -> PackedBatch:
    """Pad rows on the right; a padding token sees itself alone and nothing sees it.

    Raises:
        AuditError: no row.
    """
    if not rows:
        raise AuditError("rows: none: expected at least one")
    width = max(len(row.ids) for row in rows)
    ids = np.full((len(rows), width), pad, dtype=np.int64)
    positions = np.zeros_like(ids)
    mask = np.broadcast_to(np.eye(width, dtype=bool), (len(rows), width, width)).copy()
    for r, row in enumerate(rows):
        n = len(row.ids)
        ids[r, :n], positions[r, :n], mask[r, :n, :n] = row.ids, row.positions, row.mask
    first = np.cumsum([0, *(row.branches for row in rows)])
    return PackedBatch(
        ids,
        positions,
        mask,
        np.repeat(np.arange(len(rows)), [len(row.target) for row in rows]),
        np.concatenate([row.predictor for row in rows]),
        np.concatenate([row.target for row in rows]),
        np.concatenate([row.branch + before for row, before in zip(rows, first[:-1], strict=True)]),
        int(first[-1]),
    )


def token_logprobs(logits, batch: PackedBatch):
    """(scored,) log-probabilities of the response tokens, a tensor with gradients.

    Args:
        logits: (rows, tokens, vocabulary) tensor of the model on `batch`.
        batch: the rows.
    """
    import torch

    row, predictor, target = (
        torch.from_numpy(each).to(logits.device) for each in (batch.row, batch.predictor, batch.target)
    )
    return logits[row, predictor].log_softmax(-1).gather(-1, target[:, None])[:, 0]


def branch_sums(values, batch: PackedBatch):
    """(branches,) sums of (scored,) values, such as the log-probability of each whole response."""
    import torch

    branch = torch.from_numpy(batch.branch).to(values.device)
    return values.new_zeros(batch.branches).index_add(0, branch, values)
