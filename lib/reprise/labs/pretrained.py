"""Gradients of a real GRPO or supervised loss in a real pretrained model, on prompts whose answers are checked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from reprise.chat import LocalModel
from reprise.labs.verifiable_prompts import Completions, PromptError, draw_tasks, sample
from reprise.policy_gradient import clipped_objective, group_advantages

# our choice, sized for two CPU cores: 24 completions, about 850 tokens a step
PROMPTS, COMPLETIONS, COMPLETION_TOKENS = 4, 6, 6
DRAWS = 8  # batches tried until one has a prompt whose completions differ in reward

Q4_1_BLOCK = 32  # weights that share one scale and one offset in GGUF's Q4_1


def grpo_backward(local: LocalModel, prompts: str, rng: np.random.Generator) -> dict:
    """Gradients of -clipped_objective, on policy and without a KL term, into the model's parameters.

    Returns:
        reward: mean over the completions;  dead: share of prompts whose completions had equal rewards;
        draws: batches drawn until one had a gradient.

    Raises:
        PromptError: no batch of `DRAWS` had a gradient.
    """
    drawn, rewards, advantages, draws = _live_batch(local, prompts, rng)
    logp, mask = logprobs(local.model, drawn)
    (-clipped_objective(logp, logp.detach(), torch.from_numpy(advantages).to(logp), mask)).backward()
    dead = (advantages.reshape(PROMPTS, COMPLETIONS) == 0).all(1).mean()
    return {"reward": float(rewards.mean()), "dead": float(dead), "draws": draws}


def _live_batch(local: LocalModel, prompts: str, rng: np.random.Generator):
    """Completions, rewards, advantages and the number of tries. A batch in which every prompt's completions agree has
    no gradient and is drawn again, which is DAPO's dynamic sampling at the size of a batch."""
    for draws in range(1, DRAWS + 1):
        tasks = draw_tasks(prompts, rng, PROMPTS)
        texts = [task.prompt for task in tasks]
        drawn = sample(local.model, local.tokenizer, texts, rng, completions=COMPLETIONS, tokens=COMPLETION_TOKENS)
        rewards = np.array([tasks[g].reward(text) for g, text in zip(drawn.groups, drawn.texts, strict=True)])
        advantages = group_advantages(rewards, drawn.groups)
        if advantages.any():
            return drawn, rewards, advantages, draws
    raise PromptError(f"prompts={prompts!r}: equal rewards within every prompt, {DRAWS} batches in a row")


def sft_backward(local: LocalModel, prompts: str, rng: np.random.Generator) -> dict:
    """Gradients of the mean cross-entropy of the right answers' tokens; the same columns as `grpo_backward`, empty."""
    tasks, tokenizer = draw_tasks(prompts, rng, PROMPTS), local.tokenizer
    tokenizer.padding_side = "right"
    starts = torch.tensor([len(tokenizer(task.prompt).input_ids) for task in tasks])
    batch = tokenizer([f"{task.prompt} {task.answer}\n" for task in tasks], return_tensors="pt", padding=True)
    mask = (torch.arange(batch.input_ids.shape[1]) >= starts[:, None]) & batch.attention_mask.bool()
    tensors = (x.to(local.device) for x in (batch.input_ids, batch.attention_mask, mask))
    logp, mask = logprobs(local.model, Completions(*tensors, texts=[], groups=np.arange(len(tasks))))
    (-logp[mask].mean()).backward()
    return {"reward": None, "dead": None, "draws": 1}


BACKWARD = {"grpo": grpo_backward, "sft": sft_backward}


def logprobs(model, drawn: Completions) -> tuple[torch.Tensor, torch.Tensor]:
    """(log p of each token, mask) from the first place on where any sequence has a generated token."""
    first = int(drawn.mask.any(0).nonzero()[0])
    positions = (drawn.attention.cumsum(1) - 1).clamp(min=0)
    keep = drawn.ids.shape[1] - first + 1  # the token before predicts the first one
    logits = model(drawn.ids, attention_mask=drawn.attention, position_ids=positions, logits_to_keep=keep).logits
    logp = torch.log_softmax(logits[:, :-1].float(), -1).gather(-1, drawn.ids[:, first:, None])[..., 0]
    return logp, drawn.mask[:, first:]


@torch.no_grad()
def spread(parameters: Sequence[torch.Tensor], rng: np.random.Generator) -> None:
    """Move every weight that was quantised in blocks to a random place of its rounding cell, in place.

    Quantisation to 16 levels empties the neighbourhood of 0 and piles its weights up at exactly 0, where any update
    changes the stored bits; and its levels have so few bits that many lie half-way between two BF16 values. Uniform
    noise of one level's width undoes both. It is an estimate of the weights before quantisation, not a recovery.
    A level's width is the smallest difference between two weights of the block.

    Args:
        parameters: matrices whose rows are whole blocks; vectors, which Q4_1 files do not quantise, are left alone.
    """
    for parameter in parameters:
        if parameter.ndim < 2:
            continue
        blocks = parameter.view(-1, Q4_1_BLOCK)
        gaps = blocks.sort(1).values.diff(dim=1)
        width = gaps.masked_fill(gaps == 0, torch.inf).amin(1, keepdim=True)
        noise = torch.from_numpy(rng.random(tuple(blocks.shape), dtype=np.float32) - 0.5).to(blocks)
        blocks += noise * width.masked_fill(width.isinf(), 0.0)
