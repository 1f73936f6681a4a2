"""How a tensor-parallel trainer in Megatron's manner keeps a Qwen3-MoE, and how each shard becomes canonical again.

Affine: norms and router (replicated), expert gate and up (gated rows), expert down and attention output (columns).
Residual: the vocabulary matrices, whose rows are padded; query, key and value, interleaved by group in one matrix; and
the head besides, exported as BF16(weight x scale) with a scale that every rank holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from reprise.labs.qwen3_moe import Architecture, shapes
from reprise.refit import as_bits
from reprise.refit.placement.ownership import Part
from reprise.refit.placement.projection import AffineMap, Residual, column_map, gated_maps, replicated_map

VOCABULARY_MULTIPLE = 128  # Megatron pads the vocabulary to this times the number of ranks
SCALE = "output_scale"

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Layout:
    """`tp` ranks hold a model, `dp` copies of it train; ranks of one copy are neighbours."""

    architecture: Architecture
    tp: int
    dp: int

    @property
    def world(self) -> int:
        return self.tp * self.dp

    def replicas(self, local: str) -> int:
        """Ranks that hold the same elements of a local tensor."""
        return self.world if local.rsplit(".", 1)[-1] in REPLICATED else self.dp

    def place_among_replicas(self, local: str, rank: int) -> int:
        return rank if self.replicas(local) == self.world else rank // self.tp


REPLICATED = {
    "input_layernorm",
    "post_attention_layernorm",
    "q_norm",
    "k_norm",
    "router",
    "norm",
    SCALE,
}


def master_weights(architecture: Architecture, seed: int) -> Tensors:
    """Unsharded BF16 weights N(0, .02) under canonical names, the head before its scale, and the FP32 scale."""
    rng = np.random.default_rng(seed)
    drawn = {
        name: torch.from_numpy(rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)).bfloat16()
        for name, shape in shapes(architecture).items()
    }
    return drawn | {SCALE: torch.tensor(1.25)}


def export(weights: Tensors) -> Tensors:
    """The canonical checkpoint of unsharded weights: a full conversion in one place."""
    canonical = {name: tensor for name, tensor in weights.items() if name != SCALE}
    return canonical | {"lm_head.weight": scaled(weights["lm_head.weight"], weights[SCALE])}


def scaled(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (weight.float() * scale).to(weight.dtype)


def shard(weights: Tensors, layout: Layout, rank: int) -> Tensors:
    """What `rank` holds of unsharded weights, by local name."""
    a, tp, t = layout.architecture, layout.tp, rank % layout.tp

    def vocabulary(name: str) -> torch.Tensor:
        multiple = VOCABULARY_MULTIPLE * tp
        padding = -a.vocab_size % multiple
        return torch.nn.functional.pad(weights[name], (0, 0, 0, padding)).chunk(tp)[t]

    local = {"embedding": vocabulary("model.embed_tokens.weight"), "output": vocabulary("lm_head.weight")}
    local |= {"norm": weights["model.norm.weight"], SCALE: weights[SCALE]}
    for layer in range(a.num_hidden_layers):
        at, attention, mlp = _modules(layer)
        q, k, v = (weights[f"{attention}.{part}_proj.weight"].unflatten(0, (-1, a.head_dim)) for part in "qkv")
        groups = q.unflatten(0, (a.num_key_value_heads, -1))
        fused = torch.cat([groups, k[:, None], v[:, None]], dim=1).chunk(tp)[t]
        local |= {
            f"{layer}.qkv": fused.flatten(0, 2),
            f"{layer}.o_proj": weights[f"{attention}.o_proj.weight"].chunk(tp, dim=1)[t],
            f"{layer}.router": weights[f"{mlp}.gate.weight"],
            f"{layer}.q_norm": weights[f"{attention}.q_norm.weight"],
            f"{layer}.k_norm": weights[f"{attention}.k_norm.weight"],
            f"{layer}.input_layernorm": weights[f"{at}.input_layernorm.weight"],
            f"{layer}.post_attention_layernorm": weights[f"{at}.post_attention_layernorm.weight"],
        }
        for e in range(a.num_experts):
            gate, up = (weights[f"{mlp}.experts.{e}.{part}_proj.weight"].chunk(tp)[t] for part in ("gate", "up"))
            local[f"{layer}.{e}.fc1"] = torch.cat([gate, up])
            local[f"{layer}.{e}.fc2"] = weights[f"{mlp}.experts.{e}.down_proj.weight"].chunk(tp, dim=1)[t]
    return {name: tensor.contiguous() for name, tensor in local.items()}


def affine_maps(layout: Layout, rank: int) -> dict[str, tuple[AffineMap, ...]]:
    """Local name -> its maps, for every local tensor that is projected directly."""
    a, tp, t = layout.architecture, layout.tp, rank % layout.tp
    shape, width = shapes(a), a.moe_intermediate_size // layout.tp
    maps = {"norm": (replicated_map("model.norm.weight", shape["model.norm.weight"]),)}
    for layer in range(a.num_hidden_layers):
        at, attention, mlp = _modules(layer)
        o_proj, heads = f"{attention}.o_proj.weight", a.query_rows // tp
        maps[f"{layer}.o_proj"] = (column_map(o_proj, shape[o_proj], t * heads, heads),)
        for local, name in (
            ("router", f"{mlp}.gate.weight"),
            ("q_norm", f"{attention}.q_norm.weight"),
            ("k_norm", f"{attention}.k_norm.weight"),
            ("input_layernorm", f"{at}.input_layernorm.weight"),
            ("post_attention_layernorm", f"{at}.post_attention_layernorm.weight"),
        ):
            maps[f"{layer}.{local}"] = (replicated_map(name, shape[name]),)
        for e in range(a.num_experts):
            gate, up, down = (f"{mlp}.experts.{e}.{part}_proj.weight" for part in ("gate", "up", "down"))
            maps[f"{layer}.{e}.fc1"] = gated_maps(gate, up, shape[gate], t * width, width)
            maps[f"{layer}.{e}.fc2"] = (column_map(down, shape[down], t * width, width),)
    return maps


def residuals(architecture: Architecture) -> list[Residual]:
    """Canonical tensors that are converted whole, in a fixed order."""
    found = [
        Residual("model.embed_tokens.weight", frozenset({"embedding"})),
        Residual("lm_head.weight", frozenset({"output", SCALE})),
    ]
    for layer in range(architecture.num_hidden_layers):
        attention = _modules(layer)[1]
        found += [Residual(f"{attention}.{part}_proj.weight", frozenset({f"{layer}.qkv"})) for part in "qkv"]
    return found


def convert(name: str, local: Tensors, layout: Layout, rank: int) -> Part:
    """This rank's part of a residual tensor; it may be empty, and replicas return the same."""
    a, t = layout.architecture, rank % layout.tp
    if name.endswith("embed_tokens.weight") or name == "lm_head.weight":
        rows = local["embedding" if "embed" in name else "output"]
        first = t * len(rows)
        rows = rows[: max(0, a.vocab_size - first)]  # the rest is padding
        rows = rows if "embed" in name else scaled(rows, local[SCALE])
    else:
        layer, part = name.split(".")[2], "qkv".index(name.split(".")[-2][0])
        per_group = a.num_attention_heads // a.num_key_value_heads
        groups = local[f"{layer}.qkv"].unflatten(0, (-1, per_group + 2, a.head_dim))
        heads = groups[:, :per_group] if part == 0 else groups[:, per_group + part - 1]
        rows = heads.reshape(-1, a.hidden_size)
        first = t * len(rows)
    start = first * a.hidden_size
    words = as_bits(rows.contiguous()).words
    return Part(f"rank {rank}", np.arange(start, start + words.size, dtype=np.int64), words)


def _modules(layer: int) -> tuple[str, str, str]:
    at = f"model.layers.{layer}"
    return at, f"{at}.self_attn", f"{at}.mlp"
