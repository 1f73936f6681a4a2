"""A small verifiable task and a policy that learns it by GRPO: the tokens of an answer shall have a residue modulo 4.

The first token of a prompt says which one, the second is noise. A program counts; there is no reward model.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from reprise.labs.mixed_precision import MasterWeights
from reprise.labs.moe_forward import fused, logits
from reprise.labs.qwen3_moe import Architecture, shapes
from reprise.policy_gradient import clipped_objective, group_advantages, k3_kl

CLASSES = 4
PROMPTS, COMPLETIONS, LENGTH = 4, 4, 8  # prompts a step and replica, answers a prompt, tokens an answer; our choice
LEARNING_RATE = 3e-3  # of AdamW; far above the paper's kind of run, so that a few dozen steps suffice

# 132 thousand parameters; a vocabulary that no number of ranks divides
TINY = Architecture(
    vocab_size=61,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    num_experts=8,
    moe_intermediate_size=32,
)


def prompts(rng: np.random.Generator) -> np.ndarray:
    """[PROMPTS * COMPLETIONS, 2] int64, each prompt COMPLETIONS times in a row."""
    drawn = np.stack([rng.integers(CLASSES, size=PROMPTS), rng.integers(TINY.vocab_size, size=PROMPTS)], 1)
    return drawn.repeat(COMPLETIONS, axis=0)


def rewards(prompts: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """[sequences] share of each answer's tokens that are what the prompt asks for.

    >>> rewards(np.array([[1, 7]]), np.array([[1, 5, 2, 9]])).tolist()
    [0.75]
    """
    return (answers % CLASSES == prompts[:, :1]).mean(1)


class Policy:
    """FP32 parameters under canonical names, for `MasterWeights`: matrices N(0, 1 / width), norm weights 1."""

    def __init__(self, seed: int):
        rng, std = np.random.default_rng(seed), TINY.hidden_size**-0.5
        self._parameters = {
            name: torch.from_numpy(
                np.ones(shape, np.float32) if len(shape) == 1 else rng.normal(0, std, shape).astype(np.float32)
            ).requires_grad_()
            for name, shape in shapes(TINY).items()
        }

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        return iter(self._parameters.items())

    def log_probabilities(self, prompts: np.ndarray, answers: np.ndarray) -> torch.Tensor:
        """[sequences, answer tokens] of the answers' tokens, with gradients."""
        ids = torch.from_numpy(np.hstack([prompts, answers]))
        first = prompts.shape[1]
        found = logits([fused(self._parameters, TINY)], ids[:, :-1])[:, first - 1 :]
        return found.log_softmax(-1).gather(-1, ids[:, first:, None])[..., 0]


def learn(policy: Policy, masters: MasterWeights, batches: list[dict]) -> dict:
    """One GRPO step on what the replicas sampled.

    Args:
        batches: for each replica prompts, answers and the log-probabilities it drew them with.

    Returns:
        rewards: mean reward of each replica's answers. kl: k3 estimate of the divergence of each replica's policy from
        the trainer's, which is rounding alone as long as both hold the same bits.
    """
    asked, answers, drawn = (np.concatenate([batch[k] for batch in batches]) for k in ("prompts", "answers", "logp"))
    earned = rewards(asked, answers)
    groups = np.arange(len(earned)) // COMPLETIONS
    logp = policy.log_probabilities(asked, answers)
    drawn = torch.from_numpy(drawn).float()
    advantages = torch.from_numpy(group_advantages(earned, groups)).float()
    (-clipped_objective(logp, drawn, advantages, torch.ones_like(logp, dtype=torch.bool))).backward()
    masters.step(LEARNING_RATE)
    count = len(batches)
    kl = k3_kl(drawn.double(), logp.detach().double()).mean(-1)
    return {
        "rewards": [float(part.mean()) for part in np.split(earned, count)],
        "kl": [float(part.mean()) for part in kl.split(len(earned) // count)],
    }
