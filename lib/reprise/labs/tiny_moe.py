"""A real Qwen3-MoE of two million parameters, trained for a few steps with a GRPO loss on synthetic data.

The architecture, the optimiser and the loss are the real ones; the data is not. Tokens are uniform draws and a
completion's reward is a standard normal draw, so the advantages carry no information: they only drive updates of the
right kind through the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from reprise.labs.mixed_precision import Change, MasterWeights, TrainingError, warmed_up
from reprise.labs.qwen3_moe import random_model
from reprise.policy_gradient import clipped_objective, group_advantages

# Qwen3-30B-A3B's shape scaled down: grouped-query attention, no shared expert, untied head; 2.04 M parameters,
# of which 1.57 M in experts
ARCHITECTURE = dict(
    vocab_size=1024,
    hidden_size=128,
    intermediate_size=256,
    moe_intermediate_size=64,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    num_experts=16,
    num_experts_per_tok=4,
    tie_word_embeddings=False,
    max_position_embeddings=64,
)

PROMPTS, COMPLETIONS, PROMPT_TOKENS, COMPLETION_TOKENS = 4, 4, 8, 24


@dataclass(frozen=True)
class Step:
    """One optimiser step: its number from 1, its learning rate, and what changed in each parameter."""

    number: int
    lr: float
    changes: list[Change]


def build(rng: np.random.Generator):
    """`qwen3_moe.random_model` of ARCHITECTURE."""
    return random_model(ARCHITECTURE, rng)


def grpo_loss(model, rng: np.random.Generator) -> torch.Tensor:
    """Loss of a fresh synthetic batch: 4 prompts with 4 completions each, on policy (the ratio is 1), no KL term."""
    vocabulary, sequences = model.config.vocab_size, PROMPTS * COMPLETIONS
    prompts = rng.integers(vocabulary, size=(PROMPTS, PROMPT_TOKENS)).repeat(COMPLETIONS, axis=0)
    ids = torch.from_numpy(np.hstack([prompts, rng.integers(vocabulary, size=(sequences, COMPLETION_TOKENS))]))
    advantages = group_advantages(rng.standard_normal(sequences), np.arange(PROMPTS).repeat(COMPLETIONS))
    logp = torch.log_softmax(model(ids).logits[:, :-1], -1).gather(-1, ids[:, 1:, None])[..., 0]
    mask = torch.arange(1, ids.shape[1]).expand(sequences, -1) >= PROMPT_TOKENS
    return -clipped_objective(logp, logp.detach(), torch.from_numpy(advantages).float(), mask)


def train(
    seed: int, *, lr: float, warmup: int = 0, start: str = "grid", steps: int = 5, storage: str = "bf16"
) -> Iterator[Step]:
    """Train from a fresh model and yield every step.

    Args:
        seed: decides weights and data; the weights do not depend on the other settings, nor does the data of a step.
        lr: peak learning rate, > 0.
        warmup: steps of linear warm-up; 0 for none.
        start: "fp32" or "grid", where the masters start (see `MasterWeights`).
        steps: at least 1.
        storage: "bf16" or "fp32".

    Raises:
        TrainingError: a setting is out of range; the message names it.
    """
    for field, value, low in (("warmup", warmup, 0), ("steps", steps, 1)):
        if value < low:
            raise TrainingError(f"{field}={value}: expected at least {low}")
    if not lr > 0:
        raise TrainingError(f"lr={lr}: expected a positive number")
    weights, data = np.random.default_rng(seed).spawn(2)
    model = build(weights)
    masters = MasterWeights(model, start, storage)
    for number in range(1, steps + 1):
        grpo_loss(model, data).backward()
        rate = warmed_up(lr, number, warmup)
        yield Step(number, rate, masters.step(rate))


def save_checkpoint(state: dict[str, torch.Tensor], folder: str | Path, shards: int = 2) -> Path:
    """Write stored weights as a Hugging Face folder that `from_pretrained` loads: shards, index and config.

    Args:
        state: name -> tensor, in order; the first `1 / shards` of the bytes go to the first file, and so on.
        folder: created if it is missing.
        shards: number of safetensors files, at least 1 and at most one a tensor.

    Raises:
        TrainingError: `shards` is out of range.
    """
    from safetensors.torch import save_file
    from transformers import Qwen3MoeConfig

    if not 1 <= shards <= len(state):
        raise TrainingError(f"shards={shards}: expected 1 to {len(state)}, the number of tensors")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [tensor.nbytes for tensor in state.values()]
    total, names = sum(sizes), [f"model-{i + 1:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
    # the shard of a tensor is decided by the byte in its middle
    middles = np.cumsum(sizes) - np.array(sizes) / 2
    place = {name: names[int(middle * shards / total)] for name, middle in zip(state, middles, strict=True)}
    for shard in names:
        own = {name: tensor for name, tensor in state.items() if place[name] == shard}
        save_file(own, folder / shard, metadata={"format": "pt"})
    index = {"metadata": {"total_size": total}, "weight_map": place}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    dtype = next(iter(state.values())).dtype
    Qwen3MoeConfig(**ARCHITECTURE, dtype=dtype, architectures=["Qwen3MoeForCausalLM"]).save_pretrained(folder)
    return folder
