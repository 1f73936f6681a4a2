"""Reinforcement learning with an FP4 rollout, small enough for one core: sorting six digits with a tiny MoE.

One step is asynchronous GRPO. A rollout engine with the weights of `lag` steps ago answers every prompt `group` times
on the method's rollout path; the trainer recomputes the log-probabilities on the training path with the rollout's
experts replayed, and takes one step on

    loss = -mean(w A logp),    w = min(exp(logp_train - logp_roll), clip), a constant.

All methods of a seed share checkpoint, prompts and the uniforms that tokens are drawn with, and take the same number
of steps. Besides the gap that the trainer sees, `shift` is recorded: how far the log-probabilities of the trainer's
weights on the ROLLOUT path are from the old rollout's, which is the change of the policy that importance weights are
about.

Source: section 4 (GRPO, replay of routing, importance ratio clipped at 5, version difference 3).
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from reprise.fp4 import methods
from reprise.fp4.capture import Capture
from reprise.fp4.methods import Method, Path
from reprise.fp4.quant_path import quant_path
from reprise.labs import fp4_world as world
from reprise.policy_gradient import group_advantages

DELTA = 1e-4  # added to the standard deviation of a group
BETAS, MAX_NORM = (0.9, 0.95), 1.0


@dataclass(frozen=True)
class Variant:
    """A method and how much of its guidance is used.

    Attributes:
        name: as in a caption.
        method: one of `reprise.fp4.methods`.
        bits: low bits of the rollout codes kept.
        last: share of the layers that is guided, the last ones.
        permuted: the guidance of a trajectory goes to its tokens in a random order, which leaves codes and scales as
            they are and takes away what they say about a token.
    """

    name: str
    method: Method
    bits: int = 4
    last: float = 1.0
    permuted: bool = False


BF16 = Variant("BF16", methods.BF16)
QAT = Variant("QAT", methods.QAT)
QUADS_LIKE = Variant("QUADS-like", methods.QUADS_LIKE)
TRACE = Variant("TRACE", methods.TRACE)
TRACE_1BIT_HALF = Variant("TRACE, 1 bit, last half", methods.TRACE, bits=1, last=0.5)
PERMUTED = Variant("TRACE, permuted", methods.TRACE, permuted=True)
PERMUTED_1BIT_HALF = Variant("TRACE, 1 bit, last half, permuted", methods.TRACE, bits=1, last=0.5, permuted=True)
VARIANTS = (BF16, QAT, QUADS_LIKE, TRACE, TRACE_1BIT_HALF, PERMUTED, PERMUTED_1BIT_HALF)


@dataclass(frozen=True)
class Settings:
    """Of a run; `lag` and `clip` are the paper's, the rest is ours, chosen for BF16 on the seeds 100-102.

    Attributes:
        steps: optimiser steps, the same for every variant.
        prompts, group: prompts a step, and answers to each.
        lr: AdamW's learning rate, constant.
        lag: steps between the rollout's weights and the trainer's, as soon as there are that many.
        clip: upper limit of the importance weight of a token.
        held_out: prompts of the final examination.
    """

    steps: int = 40
    prompts: int = 8
    group: int = 8
    lr: float = 5e-5
    lag: int = 3
    clip: float = 5.0
    held_out: int = 256


@dataclass(frozen=True)
class Rollout:
    """Answers of a batch, their log-probabilities on the rollout path, and what that path rounded and routed."""

    ids: torch.Tensor  # int64 [sequences, prompt + answer]
    logps: torch.Tensor  # float64 [sequences, answer]
    rewards: np.ndarray  # [sequences]
    capture: Capture


def train(start, variant: Variant, seed: int, settings: Settings) -> tuple[list[dict], np.ndarray]:
    """One run.

    Args:
        start: the checkpoint, left as it is.
        variant: what is compared.
        seed: decides prompts and uniforms, alike for every variant.
        settings: see there.

    Returns:
        (one dict a step: step, gap, shift, reward, entropy in nats, gradient_norm before clipping, clipped: share of
        tokens whose weight was; answers of the held-out prompts that are right, bool [held_out]).
    """
    batches, permutations, examination = (np.random.default_rng([seed, stream]) for stream in range(3))
    model = copy.deepcopy(start)
    engine = copy.deepcopy(start)
    versions = deque([_weights(model)], maxlen=settings.lag + 1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.lr, betas=BETAS, weight_decay=0.0, fused=True)
    curve = []
    for step in range(settings.steps):
        engine.load_state_dict(versions[0])
        rolled = rollout(engine, variant.method, batches, settings.prompts, settings.group)
        shift = _distance(own_logprobs(model, variant.method, rolled.ids), rolled.logps)
        seen = update(model, optimiser, variant, rolled, settings, permutations)
        versions.append(_weights(model))
        curve.append({"step": step, **seen, "shift": shift, "reward": float(rolled.rewards.mean())})
    final = rollout(model, variant.method, examination, settings.held_out, 1)
    return curve, final.rewards == 1


def rollout(engine, method: Method, rng: np.random.Generator, prompts: int, group: int) -> Rollout:
    """`group` answers to each of `prompts` fresh prompts, sampled on the rollout path at temperature 1."""
    asked = np.repeat(world.prompts(rng, prompts), group, axis=0)
    uniforms = rng.random((len(asked), world.ANSWER_TOKENS))
    capture = Capture()
    with quant_path(engine, method, path=Path.ROLLOUT, capture=capture):
        tokens, logps = world.sample(engine, asked, uniforms)
    ids = torch.from_numpy(np.hstack([asked, tokens]))
    return Rollout(ids, torch.from_numpy(logps), world.rewards(asked, tokens), capture)


def update(model, optimiser, variant: Variant, rolled: Rollout, settings: Settings, rng: np.random.Generator) -> dict:
    """One step of the trainer; what it saw: gap, entropy, gradient_norm, clipped."""
    capture = rolled.capture
    guide = layers = None
    if variant.method.guided:
        order = torch.from_numpy(rng.permutation(rolled.ids.shape[1] - 1))
        guide = capture.tokens(order) if variant.permuted else capture
        count = model.config.num_hidden_layers
        layers = range(count - round(variant.last * count), count)
    with quant_path(model, variant.method, guide=guide, replay=capture.routes, bits=variant.bits, layers=layers):
        logits = model(rolled.ids[:, :-1], use_cache=False).logits[:, world.PROMPT_TOKENS - 1 :]
        spread = logits.log_softmax(-1)
        logp = spread.gather(-1, rolled.ids[:, world.PROMPT_TOKENS :, None])[..., 0]
        groups = np.arange(len(rolled.rewards)) // settings.group
        advantages = torch.from_numpy(group_advantages(rolled.rewards, groups, delta=DELTA)).float()
        ratio = (logp.detach().double() - rolled.logps).exp()
        weight = ratio.clamp(max=settings.clip).float()
        (-(weight * advantages[:, None] * logp).mean()).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    optimiser.step()
    optimiser.zero_grad()
    entropy = -(spread.exp() * spread).sum(-1).mean()
    return {
        "gap": _distance(logp.detach(), rolled.logps),
        "entropy": entropy.item(),
        "gradient_norm": norm.item(),
        "clipped": (ratio > settings.clip).double().mean().item(),
    }


@torch.no_grad()
def own_logprobs(model, method: Method, ids: torch.Tensor, prompt: int = world.PROMPT_TOKENS) -> torch.Tensor:
    """float64 [sequences, answer] log-probabilities of the answers on these weights' rollout path, with their own
    experts."""
    with quant_path(model, method, path=Path.ROLLOUT):
        return world.answer_logprobs(model, ids, prompt).double()


def compare(start, variants: Iterable[Variant], seeds: Sequence[int], settings: Settings) -> Iterator[tuple]:
    """(variant name, seed, curve, held-out answers) of every pair, as `train` returns them."""
    for seed in seeds:
        for variant in variants:
            yield variant.name, seed, *train(start, variant, seed, settings)


def _weights(model) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Mean over tokens of |difference|, in nats."""
    return (one.double() - other.double()).abs().mean().item()


def gap_ratios(curves, name: str, after: int = 10) -> list[float]:
    """For each seed, the mean gap of `name` from step `after` on, over the smaller of QAT's and QUADS-like's.

    Args:
        curves: DataFrame with columns variant, seed, step, gap; one row a step of a run.
        name: of a variant.
        after: steps at the start that are left out, before the lag is reached and the policies part.
    """
    late = curves[curves.step >= after]
    gaps = late.groupby(["seed", "variant"]).gap.mean().unstack()
    return (gaps[name] / gaps[[QAT.name, QUADS_LIKE.name]].min(axis=1)).tolist()


def reward_differences(solved: dict[tuple[str, int], np.ndarray], one: str, other: str) -> list[float]:
    """For each seed, the difference in held-out reward between two variants, in percentage points.

    Args:
        solved: (variant, seed) -> right or wrong for each held-out prompt.
    """
    seeds = [seed for name, seed in solved if name == one]
    return [100 * float(solved[one, seed].mean() - solved[other, seed].mean()) for seed in seeds]
