"""Records put together: a trajectory from its decode steps, a batch's guide from its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import torch

from reprise.fp4.capture import Capture, Site, SiteCapture
from reprise.fp4.guidance_errors import GuidanceShapeMismatch, TokenMismatch
from reprise.fp4.record import GuidanceRecord, SiteGuidance


def to_capture(records: Sequence[GuidanceRecord]) -> Capture:
    """Records of the same sites and tokens as the guide of a batch, in their order; values are not known.

    Raises:
        GuidanceShapeMismatch: no records, or records of different sites, tokens, shapes, experts or formats.
    """
    if not records:
        raise GuidanceShapeMismatch("records=[]: expected at least one")
    first = records[0]
    for other in records[1:]:
        if _alike(other) != _alike(first):
            raise GuidanceShapeMismatch(
                f"trajectory {other.provenance.trajectory!r}: other sites, tokens, experts, format or bits than "
                f"trajectory {first.provenance.trajectory!r}"
            )

    def stacked(site: Site, name: str) -> torch.Tensor | None:
        parts = [getattr(record.site(site, first.sites[site].low_bits.shape), name) for record in records]
        return None if parts[0] is None else torch.stack(parts)

    names, kept = ("low_bits", "block_scale", "global_scale"), first.provenance
    sites = {s: SiteCapture(None, *(stacked(s, n) for n in names), kept.fmt, bits=kept.b) for s in first.sites}
    return Capture(sites, {layer: torch.stack([r.routes[layer] for r in records]) for layer in first.routes})


def _alike(record: GuidanceRecord) -> tuple:
    """What records must have in common to be stacked."""
    slots = {layer: chosen.shape[1] for layer, chosen in record.routes.items()}
    return record.sites.keys(), slots, record.start, record.tokens, record.provenance.fmt, record.provenance.b


def fed_tokens(prompt: int, response: int) -> int:
    """Tokens a rollout computes: the last sampled one is never fed back."""
    if prompt < 1 or response < 1:
        raise TokenMismatch(f"prompt={prompt}, response={response}: expected at least one token of each")
    return prompt + response - 1


def join_steps(site: Site, prefill: SiteGuidance, steps: Sequence[SiteGuidance], response: int) -> SiteGuidance:
    """One site in token order, from the prefill and one row for each decode step.

    "x" and "h" arrive as rows of the tokens a pass was fed. Keys and values may arrive so too, or as all positions of
    the cache after the step; of those the last step has everything.

    Args:
        prefill: rows of the prompt.
        steps: one for each sampled token that was fed back, in order: response - 1 of them.
        response: sampled tokens.

    Raises:
        TokenMismatch: another number of steps, or rows that do not add up to prompt + response - 1.
    """
    prompt = prefill.low_bits.shape[0]
    tokens = fed_tokens(prompt, response)
    if len(steps) != response - 1:
        raise TokenMismatch(f"site {site}: {len(steps)} decode steps, expected response - 1 = {response - 1}")
    sizes = [step.low_bits.shape[0] for step in steps]
    if site[1] in ("k", "v") and steps and sizes == list(range(prompt + 1, tokens + 1)):
        return steps[-1]
    if any(size != 1 for size in sizes):
        raise TokenMismatch(f"site {site}: rows a step {sorted(set(sizes))}, expected 1")
    pieces = [prefill, *steps]
    parts = ([getattr(piece, f.name) for piece in pieces] for f in fields(SiteGuidance))
    return SiteGuidance(*(None if part[0] is None else torch.cat(part) for part in parts))
