"""How much of the guidance cache a trainer could guess: entropies and coded sizes on captured activations.

The rollout path generates with some weights; a trainer recomputes the same tokens with weights that are k steps newer.
What the rollout's rounding adds to the trainer's activations depends on how near these are to the rollout's, and so on
the layers below having been guided too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from reprise.errors import RepriseError
from reprise.fp4 import methods, side_information
from reprise.fp4.capture import Capture, Site
from reprise.fp4.methods import Path
from reprise.fp4.quant_path import model_layers, quant_path
from reprise.fp4.record import SiteGuidance
from reprise.labs import fp4_world as world

GUIDED = ("all layers", "last half", "none")


@dataclass(frozen=True)
class SideCost:
    """Bits a value, over all sites of the last half of the layers.

    Attributes:
        lag: optimiser steps between the rollout's weights and the trainer's.
        guided: which layers were guided on the trainer's way there, one of GUIDED.
        permuted: the trainer's activations are those of another token.
        flipped: share of values whose low bit is not the one that x rounds to.
        low_bit, scale_byte, global_scale: entropies given x, see `side_information.entropies`.
        coded: what `side_information.encode` takes.
        cache: what the one-bit cache takes: a bit, scale bytes, global scales.
        tokens, values: in the sample.
    """

    lag: int
    guided: str
    permuted: bool
    flipped: float
    low_bit: float
    scale_byte: float
    global_scale: float
    coded: float
    cache: float
    tokens: int
    values: int


def side_costs(model, lags: Iterable[int], lr: float, sequences: int, seed: int) -> Iterator[SideCost]:
    """Costs for each lag and way of guiding; where all layers are guided, also with the trainer's tokens permuted.

    Args:
        model: a trained world model, which plays the rollout.
        lags: optimiser steps on the task that the trainer is ahead, increasing.
        lr: of these steps.
        sequences: prompts with their right answers.
        seed: of prompts, newer weights and permutation.

    Raises:
        RepriseError: lags that do not increase.
    """
    lags = list(lags)
    if any(lag <= before for before, lag in pairwise([-1, *lags])):
        raise RepriseError(f"lags={lags}: expected increasing numbers of steps from 0")
    draw, updates, shuffle = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    asked = world.prompts(draw, sequences)
    ids = torch.from_numpy(np.hstack([asked, world.answers(asked)]))
    rollout = captured(model, ids, methods.TRACE, Path.ROLLOUT)
    trainer, ahead = model, 0
    for lag in lags:
        trainer, ahead = world.newer(trainer, lag - ahead, lr, updates) if lag > ahead else trainer, lag
        for way in GUIDED:
            sites = site_pairs(model, trainer, ids, rollout, way)
            yield _cost(lag, way, False, sites)
            if way == GUIDED[0]:
                order = torch.from_numpy(shuffle.permutation(ids.shape[0] * (ids.shape[1] - 1)))
                yield _cost(lag, way, True, {site: (x[order], held) for site, (x, held) in sites.items()})


def site_pairs(model, trainer, ids, rollout: Capture, way: str) -> dict[Site, tuple[torch.Tensor, SiteGuidance]]:
    """(trainer's x, rollout's one-bit guidance) of each site in the last half of the layers, token by token."""
    depth = len(model_layers(model))
    layers = {"all layers": range(depth), "last half": range(depth // 2, depth)}.get(way)
    if layers is None:
        seen = captured(trainer, ids, methods.QAT, Path.TRAINING, replay=rollout.routes)
    else:
        guidance = dict(guide=rollout, bits=1, layers=layers)
        seen = captured(trainer, ids, methods.TRACE, Path.TRAINING, replay=rollout.routes, **guidance)
    pairs = {}
    for site, rolled in rollout.sites.items():
        if site[0] >= depth // 2:
            parts = (rolled.codes & 1, rolled.block_scale, rolled.global_scale)
            x = seen.sites[site].inputs.float().flatten(0, 1)
            pairs[site] = x, SiteGuidance(*(part.flatten(0, 1) for part in parts))
    return pairs


@torch.no_grad()
def captured(model, ids, method, path, **settings) -> Capture:
    """Everything that a path sees of token ids [sequences, prompt + answer]; `settings` as `quant_path` takes them."""
    capture = Capture()
    with quant_path(model, method, path=path, capture=capture, **settings):
        world.answer_logprobs(model, ids)
    return capture


def _cost(lag: int, way: str, permuted: bool, sites) -> SideCost:
    values = sum(x.numel() for x, _ in sites.values())
    total = dict.fromkeys(("flipped", "low bit", "scale byte", "global scale", "coded", "cache"), 0.0)
    for site, (x, held) in sites.items():
        share = x.numel() / values
        for part, bits in side_information.entropies(x, held).items():
            total[part] += share * bits
        total["flipped"] += share * float(side_information.flips(x, held)[0].float().mean())
        total["coded"] += 8 * len(side_information.encode(x, held, site)) / values
        cached = held.low_bits.numel() + 8 * held.block_scale.numel() + 32 * held.global_scale.numel()
        total["cache"] += cached / values
    tokens = len(next(iter(sites.values()))[0])
    return SideCost(lag, way, permuted, *total.values(), tokens, values)
