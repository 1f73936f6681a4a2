"""Guided rounding beside rounding to nearest on every BF16 value and every rollout code, and what low bits recover."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from reprise.fp4 import e2m1_decode, e2m1_encode
from reprise.fp4.guided import bracket, guided_round
from reprise.fp4.reconstruct import reconstruct
from reprise.labs.fp4_conformance import finite_bf16

CODES = torch.arange(16, dtype=torch.uint8)


def distances(b: int = 4, rule: str = "nearest") -> dict[str, int]:
    """Counts over all pairs of a finite BF16 z and a rollout code.

    Args:
        b: bits of the code that the trainer has.
        rule: of `reconstruct`.

    Returns:
        pairs; farther, nearer: pairs in which the guided value is farther from, or nearer to the rollout's than the
        nearest value to z is; in_bracket: pairs whose rollout value is an end of z's bracket, sign included; missed:
        those of them in which the guided value is not the rollout's.
    """
    z = finite_bf16().float()[:, None].expand(-1, 16).contiguous()
    code = CODES.expand_as(z).contiguous()
    roll = e2m1_decode(code)
    guided = e2m1_decode(_guided(z, code, b, rule))
    gap, nearest_gap = (guided - roll).abs(), (e2m1_decode(e2m1_encode(z)) - roll).abs()
    low, high = bracket(z)
    inside = ((roll == low) | (roll == high)) & (roll.signbit() == z.signbit())
    return {
        "pairs": z.numel(),
        "farther": int((gap > nearest_gap).sum()),
        "nearer": int((gap < nearest_gap).sum()),
        "in_bracket": int(inside.sum()),
        "missed": int((inside & (guided != roll)).sum()),
    }


def prices(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Distances from z [n] to the nearest E2M1 value, and the largest to a guided one over all rollout codes."""
    codes = CODES.expand(len(z), 16).contiguous()
    guided = e2m1_decode(guided_round(z[:, None].expand(-1, 16).contiguous(), codes))
    return (e2m1_decode(e2m1_encode(z)) - z).abs(), (guided - z[:, None]).abs().amax(1)


def reconstructed(z: torch.Tensor, b: int, rules: Sequence[str]) -> list[dict]:
    """One row for each rule, bit pattern c and z >= 0: the value reconstructed, and z's bracket."""
    low, high = bracket(z)
    rows = []
    for rule in rules:
        for c in range(1 << b):
            values = e2m1_decode(reconstruct(z, torch.full(z.shape, c, dtype=torch.uint8), b, rule))
            columns = {"z": z, "value": values, "low": low, "high": high}
            for items in zip(*(column.tolist() for column in columns.values()), strict=True):
                rows.append({"rule": rule, "c": c, **dict(zip(columns, items, strict=True))})
    return rows


def outside(b: int, rule: str) -> list[list[float]]:
    """Intervals (from, to] of BF16 |z| below 6 in which the bits of one end of z's bracket reconstruct neither end.

    Returns:
        one [from, to] for each run of neighbouring BF16 values; from is the value before the run.
    """
    z = finite_bf16().float()
    z = z[(z >= 0) & ~z.signbit() & (z < 6)].sort().values
    low, high = bracket(z)
    bad = torch.zeros(len(z), dtype=torch.bool)
    for end in (low, high):
        bits = e2m1_encode(end) & (1 << b) - 1
        got = e2m1_decode(reconstruct(z, bits, b, rule))
        bad |= (got != low) & (got != high)
    edges = torch.diff(bad.int(), prepend=torch.zeros(1, dtype=torch.int32), append=torch.zeros(1, dtype=torch.int32))
    starts, stops = (edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]
    return [[z[start - 1].item(), z[stop - 1].item()] for start, stop in zip(starts, stops, strict=True)]


def _guided(z: torch.Tensor, code: torch.Tensor, b: int, rule: str) -> torch.Tensor:
    return guided_round(z, reconstruct(z, code & (1 << b) - 1, b, rule))
