"""Qwen3-MoE computed in FP32 from the storage of a tensor-parallel engine, all of whose ranks stand in one process.

What an engine all-reduces is added here in the order of the ranks, so equal bits give equal logits. The trainer takes
the same road with one rank, whose fused parameters `fused` makes of the canonical ones, differentiably.

Source: Qwen3-30B-A3B's config.json for the constants; the reference is transformers' Qwen3MoeForCausalLM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import embedding, rms_norm, silu

from reprise.labs.loaders import TensorParallelModel
from reprise.labs.qwen3_moe import Architecture

ROPE_THETA, NORM_EPS = 10_000.0, 1e-6
EXPERTS_PER_TOKEN = 2  # of 8 here; 8 of 128 there

Tensors = Mapping[str, torch.Tensor]


class Shard(NamedTuple):
    """A rank's layout and its parameters in FP32."""

    rank: TensorParallelModel
    weights: Tensors


def widened(rank: TensorParallelModel) -> Shard:
    return Shard(rank, {name: tensor.float() for name, tensor in rank.parameters.items()})


def fused(weights: Tensors, a: Architecture) -> Shard:
    """The only rank of tp = 1 for FP32 canonical `weights`, through which gradients flow back to them."""
    found = {name: weights[f"model.{name}.weight"] for name in ("embed_tokens", "norm")}
    found["lm_head"] = weights["lm_head.weight"]
    for layer in range(a.num_hidden_layers):
        at = f"layers.{layer}"

        def leaf(name: str, at: str = at) -> torch.Tensor:
            return weights[f"model.{at}.{name}.weight"]

        experts = [f"mlp.experts.{expert}" for expert in range(a.num_experts)]
        found |= {f"{at}.{name}": leaf(name) for name in ("input_layernorm", "post_attention_layernorm", "mlp.gate")}
        found |= {f"{at}.{name}": leaf(f"self_attn.{name}") for name in ("q_norm", "k_norm")}
        found[f"{at}.qkv_proj"] = torch.cat([leaf(f"self_attn.{name}_proj") for name in "qkv"])
        found[f"{at}.o_proj"] = leaf("self_attn.o_proj").t()
        gates = [torch.cat([leaf(f"{expert}.gate_proj"), leaf(f"{expert}.up_proj")]) for expert in experts]
        found[f"{at}.mlp.w13"] = torch.stack(gates)
        found[f"{at}.mlp.w2"] = torch.stack([leaf(f"{expert}.down_proj") for expert in experts])
    return Shard(TensorParallelModel(a, device="meta"), found)


def logits(shards: Sequence[Shard], ids: torch.Tensor) -> torch.Tensor:
    """[sequences, tokens, vocabulary] FP32 logits of int64 `ids` [sequences, tokens]."""
    a = shards[0].rank.a
    x = sum(_embedded(shard, ids) for shard in shards)
    for layer in range(a.num_hidden_layers):
        at, held = f"layers.{layer}", shards[0].weights
        h = _normed(x, held[f"{at}.input_layernorm"])
        x = x + sum(_attention(shard, at, h) for shard in shards)
        h = _normed(x, held[f"{at}.post_attention_layernorm"])
        gates = _gates(h, held[f"{at}.mlp.gate"])
        x = x + sum(_experts(shard, at, h, gates) for shard in shards)
    x = _normed(x, shards[0].weights["norm"])
    return torch.cat([x @ shard.weights["lm_head"].t() for shard in shards], -1)[..., : a.vocab_size]


@torch.no_grad()
def sample(shards: Sequence[Shard], prompts: np.ndarray, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Complete prompts; a token is the first whose cumulative probability, in float64, exceeds its uniform draw.

    Args:
        prompts: [sequences, tokens] int64.
        uniforms: [sequences, length] float64 in [0, 1), one for each token to draw.

    Returns:
        (tokens, log-probabilities), [sequences, length] int64 and float64.
    """
    ids, taken, n = prompts, [], np.arange(len(prompts))
    for u in uniforms.T:
        last = logits(shards, torch.from_numpy(ids))[:, -1].double().numpy()
        logp = last - last.max(-1, keepdims=True)
        logp -= np.log(np.exp(logp).sum(-1, keepdims=True))
        cdf = np.exp(logp).cumsum(-1)
        token = (cdf > u[:, None] * cdf[:, -1:]).argmax(-1)
        ids = np.concatenate([ids, token[:, None]], 1)
        taken.append(logp[n, token])
    return ids[:, prompts.shape[1] :], np.stack(taken, 1)


def _normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return rms_norm(x, weight.shape, weight, NORM_EPS)


def _embedded(shard: Shard, ids: torch.Tensor) -> torch.Tensor:
    rows = shard.weights["embed_tokens"]
    local = ids - shard.rank.rank * shard.rank.vocabulary
    inside = (local >= 0) & (local < len(rows))
    return embedding(local.clamp(0, len(rows) - 1), rows) * inside[..., None]


def _attention(shard: Shard, at: str, h: torch.Tensor) -> torch.Tensor:
    rank, held, dim = shard.rank, shard.weights, shard.rank.a.head_dim
    sequences, tokens, _ = h.shape
    qkv = (h @ held[f"{at}.qkv_proj"].t()).view(sequences, tokens, -1, dim).transpose(1, 2)
    q, k, v = qkv.split([rank.heads, rank.kv_heads, rank.kv_heads], 1)
    q, k = _rotated(_normed(q, held[f"{at}.q_norm"])), _rotated(_normed(k, held[f"{at}.k_norm"]))
    k, v = (each.repeat_interleave(rank.heads // rank.kv_heads, 1) for each in (k, v))
    later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-1, -2) * dim**-0.5).masked_fill(later, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(sequences, tokens, -1) @ held[f"{at}.o_proj"]


def _rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of [sequences, heads, tokens, head_dim], the two halves of a head paired."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * ROPE_THETA ** (-torch.arange(half) / half)
    cos, sin, (a, b) = angle.cos(), angle.sin(), x.split(half, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _gates(h: torch.Tensor, router: torch.Tensor) -> torch.Tensor:
    """[sequences, tokens, experts] weights of the chosen experts, which add up to 1; 0 for the others."""
    best, chosen = (h @ router.t()).softmax(-1).topk(EXPERTS_PER_TOKEN, -1)
    return torch.zeros(*h.shape[:-1], len(router)).scatter(-1, chosen, best / best.sum(-1, keepdim=True))


def _experts(shard: Shard, at: str, h: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """The share of this rank's experts; each computes all tokens, most of them for a weight of 0."""
    rank, held = shard.rank, shard.weights
    first = rank.rank // (rank.tp // rank.ep) * rank.experts
    gate, up = (h.flatten(0, 1) @ held[f"{at}.mlp.w13"].transpose(1, 2)).chunk(2, -1)
    done = (silu(gate) * up) @ held[f"{at}.mlp.w2"].transpose(1, 2)
    mine = gates.flatten(0, 1)[:, first : first + rank.experts].t()
    return (mine[..., None] * done).sum(0).view_as(h)
