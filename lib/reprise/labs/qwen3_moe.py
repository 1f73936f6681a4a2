"""Qwen3-MoE: the names and shapes of a checkpoint from its config alone, and models with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

INITIAL_STD = 0.02  # Qwen3's initializer_range


@dataclass(frozen=True)
class Architecture:
    """The part of a Hugging Face config that decides names and shapes; every layer is a mixture of experts."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    num_experts: int
    moe_intermediate_size: int

    @property
    def query_rows(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def key_rows(self) -> int:
        return self.num_key_value_heads * self.head_dim


# huggingface.co/Qwen/Qwen3-30B-A3B, config.json
QWEN3_30B_A3B = Architecture(
    vocab_size=151936,
    hidden_size=2048,
    num_hidden_layers=48,
    num_attention_heads=32,
    num_key_value_heads=4,
    head_dim=128,
    num_experts=128,
    moe_intermediate_size=768,
)
# the same structure, with a vocabulary that no number of ranks divides
SMALL = Architecture(
    vocab_size=251,
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=8,
    num_experts=8,
    moe_intermediate_size=24,
)


def shapes(a: Architecture) -> dict[str, tuple[int, ...]]:
    """Canonical tensor name -> shape, in checkpoint order."""
    hidden, found = a.hidden_size, {"model.embed_tokens.weight": (a.vocab_size, a.hidden_size)}
    for layer in range(a.num_hidden_layers):
        attention, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        found |= {
            f"model.layers.{layer}.input_layernorm.weight": (hidden,),
            f"{attention}.q_proj.weight": (a.query_rows, hidden),
            f"{attention}.k_proj.weight": (a.key_rows, hidden),
            f"{attention}.v_proj.weight": (a.key_rows, hidden),
            f"{attention}.o_proj.weight": (hidden, a.query_rows),
            f"{attention}.q_norm.weight": (a.head_dim,),
            f"{attention}.k_norm.weight": (a.head_dim,),
            f"model.layers.{layer}.post_attention_layernorm.weight": (hidden,),
            f"{mlp}.gate.weight": (a.num_experts, hidden),
        }
        for expert in range(a.num_experts):
            found[f"{mlp}.experts.{expert}.gate_proj.weight"] = (a.moe_intermediate_size, hidden)
            found[f"{mlp}.experts.{expert}.up_proj.weight"] = (a.moe_intermediate_size, hidden)
            found[f"{mlp}.experts.{expert}.down_proj.weight"] = (hidden, a.moe_intermediate_size)
    return found | {"model.norm.weight": (hidden,), "lm_head.weight": (a.vocab_size, hidden)}


def specs(a: Architecture, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    """Canonical tensor name -> meta tensor of its shape."""
    return {name: torch.empty(shape, dtype=dtype, device="meta") for name, shape in shapes(a).items()}


def random_model(config: Mapping, rng: np.random.Generator):
    """Qwen3MoeForCausalLM in FP32: matrices drawn from N(0, INITIAL_STD), norm weights 1.

    Args:
        config: settings of transformers' Qwen3MoeConfig.
    """
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**config)).float()
    model.set_experts_implementation("eager")  # the reference loop: no backend choice that could differ between CPUs
    return draw_weights(model, rng)


def draw_weights(model, rng: np.random.Generator):
    """The model itself, its matrices drawn in order from N(0, INITIAL_STD), its norm weights 1."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.fill_(1.0)
            else:
                parameter.copy_(torch.from_numpy(rng.normal(0.0, INITIAL_STD, tuple(parameter.shape))))
    return model


def family(name: str) -> str:
    """Tensors of one family are treated alike: the last component that names a module, `experts.` kept."""
    parts = name.removesuffix(".weight").split(".")
    return f"experts.{parts[-1]}" if "experts" in parts else "router" if parts[-1] == "gate" else parts[-1]
