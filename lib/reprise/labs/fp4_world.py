"""Sorting six digits: a task that a Qwen3-MoE of a million parameters half knows after a few seconds of training.

A sequence is a start mark, six random digits, a separator and the digits in ascending order. A program checks the
answer. The checkpoint in the repository is `train_sft(0)` stored in BF16, so that every experiment starts from the same
weights on every machine; `python -m reprise.labs.fp4_world FILE` makes it again.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import numpy as np
import torch

from reprise.errors import RepriseError
from reprise.labs.qwen3_moe import random_model

DIGITS, START, SEPARATOR = 6, 10, 11
PROMPT_TOKENS, ANSWER_TOKENS = DIGITS + 2, DIGITS
VOCABULARY = 16

# Qwen3-30B-A3B's structure at 1.04 M parameters, 0.88 M of them in experts; widths are whole blocks of 32
ARCHITECTURE = dict(
    vocab_size=VOCABULARY,
    hidden_size=96,
    intermediate_size=192,
    moe_intermediate_size=96,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    num_experts=8,
    num_experts_per_tok=2,
    norm_topk_prob=True,
    tie_word_embeddings=False,
    max_position_embeddings=32,
)
# our choice: stopped while the policy solves a third of the prompts, so that both right and wrong answers are sampled
SFT_STEPS, SFT_BATCH, SFT_LR, SFT_WARMUP = 64, 64, 2e-3, 20
BETAS = (0.9, 0.95)
CHECKPOINT = "data/checkpoints/fp4/sort_digits.safetensors"


class WorldError(RepriseError):
    """A setting of the world that cannot be used."""


def prompts(rng: np.random.Generator, count: int) -> np.ndarray:
    """[count, PROMPT_TOKENS] int64: start mark, six digits, separator."""
    digits = rng.integers(10, size=(count, DIGITS))
    marks = np.full((2, count, 1), [[[START]], [[SEPARATOR]]])
    return np.hstack([marks[0], digits, marks[1]])


def answers(prompts: np.ndarray) -> np.ndarray:
    """[count, ANSWER_TOKENS] the right answer of each prompt.

    >>> answers(np.array([[10, 3, 1, 4, 1, 5, 9, 11]])).tolist()
    [[1, 1, 3, 4, 5, 9]]
    """
    return np.sort(prompts[:, 1 : 1 + DIGITS], axis=1)


def rewards(prompts: np.ndarray, completions: np.ndarray) -> np.ndarray:
    """[count] float64: 1 where the whole answer is right, else 0.

    >>> asked = np.array([[10, 3, 1, 4, 1, 5, 9, 11]] * 2)
    >>> rewards(asked, np.array([[1, 1, 3, 4, 5, 9], [1, 1, 3, 4, 9, 5]])).tolist()
    [1.0, 0.0]
    """
    return (completions == answers(prompts)).all(1).astype(np.float64)


def build(rng: np.random.Generator, **changes):
    """`qwen3_moe.random_model` whose attention is the reference implementation.

    Args:
        changes: overrides of ARCHITECTURE.
    """
    model = random_model(ARCHITECTURE | changes, rng)
    model.set_attn_implementation("eager")
    return model


def answer_logprobs(model, ids: torch.Tensor, prompt_tokens: int = PROMPT_TOKENS) -> torch.Tensor:
    """[sequences, answer] log-probabilities of the answer's tokens in `ids` [sequences, prompt + answer].

    The last token is never fed back, as in generation.
    """
    logits = model(ids[:, :-1], use_cache=False).logits[:, prompt_tokens - 1 :]
    return logits.log_softmax(-1).gather(-1, ids[:, prompt_tokens:, None])[..., 0]


def sft(model, rng: np.random.Generator, *, steps: int, lr: float, warmup: int = 0, batch: int = SFT_BATCH):
    """Train `model` in place with AdamW on fresh right answers; the gradient norm is clipped at 1. Returns the model.

    Raises:
        WorldError: lr is not positive, or steps is negative.
    """
    if not lr > 0:
        raise WorldError(f"lr={lr}: expected a positive number")
    if steps < 0:
        raise WorldError(f"steps={steps}: expected at least 0")
    optimiser = torch.optim.AdamW(model.parameters(), betas=BETAS, weight_decay=0.0, fused=True)
    for step in range(1, steps + 1):
        asked = prompts(rng, batch)
        ids = torch.from_numpy(np.hstack([asked, answers(asked)]))
        (-answer_logprobs(model, ids).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.param_groups[0]["lr"] = lr * min(1.0, step / warmup) if warmup else lr
        optimiser.step()
        optimiser.zero_grad()
    return model


def train_sft(seed: int, **changes):
    """A checkpoint from scratch, on the BF16 grid; about 5 seconds of one core.

    Args:
        seed: decides weights and data.
        changes: overrides of ARCHITECTURE.
    """
    weights, data = np.random.default_rng(seed).spawn(2)
    model = sft(build(weights, **changes), data, steps=SFT_STEPS, lr=SFT_LR, warmup=SFT_WARMUP)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
    return model


def load_checkpoint(path):
    """The committed checkpoint in FP32.

    Args:
        path: of a file that `save_checkpoint` wrote; `repository root / CHECKPOINT`.
    """
    from safetensors.torch import load_file

    model = build(np.random.default_rng(0))
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(path).items()})
    return model


def save_checkpoint(model, path) -> None:
    """Write the weights in BF16."""
    from safetensors.torch import save

    from reprise.durable import atomic_write

    state = {name: tensor.detach().bfloat16() for name, tensor in model.state_dict().items()}
    atomic_write(path, save(state, metadata={"format": "pt"}))


def newer(model, steps: int, lr: float, rng: np.random.Generator):
    """A later version of the policy: a copy after `steps` more optimiser steps on the task, moments fresh."""
    return sft(copy.deepcopy(model), rng, steps=steps, lr=lr)


def sample(model, prompts: np.ndarray, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Complete prompts: (tokens, log-probabilities) as `decode` gives them."""
    tokens, logps, _ = decode(model, prompts, uniforms)
    return tokens, logps


@torch.no_grad()
def decode(model, fed: np.ndarray, uniforms: np.ndarray, cache=None):
    """Draw tokens at temperature 1 with a key-value cache.

    A token is the first whose cumulative probability, in float64, exceeds its uniform draw. The last one is not fed.

    Args:
        fed: [sequences, tokens] int64, what the model has not seen yet.
        uniforms: [sequences, length] float64 in [0, 1), one for each token to draw.
        cache: of an earlier call, which is continued in place.

    Returns:
        (tokens, log-probabilities, cache): [sequences, length] int64 and float64.
    """
    fed, tokens, logps, rows = torch.from_numpy(fed), [], [], np.arange(len(fed))
    for u in uniforms.T:
        out = model(fed, cache=cache, use_cache=True)
        cache, last = out.cache, out.logits[:, -1].double().log_softmax(-1).numpy()
        cdf = np.exp(last).cumsum(-1)
        token = (cdf > u[:, None] * cdf[:, -1:]).argmax(-1)
        tokens.append(token)
        logps.append(last[rows, token])
        fed = torch.from_numpy(token[:, None])
    return np.stack(tokens, 1), np.stack(logps, 1), cache


if __name__ == "__main__":
    torch.set_num_threads(1)
    save_checkpoint(train_sft(0), Path(sys.argv[1]))
