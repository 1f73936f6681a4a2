"""Policies that are a table of logits, one categorical distribution a slot, and how GRPO updates many at once.

Shapes: logits and policies [lanes, slots, segments], tokens [lanes, slots, responses]. Every lane is a policy of its
own. Sampling compares uniforms with a float64 distribution function, so that the same uniforms give the same tokens
on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ADVANTAGE_DELTA = 1e-4  # added to the standard deviation of a group, as TRL does
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's defaults


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def sample(policy: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Segments drawn by inverting the distribution function.

    Args:
        policy: [lanes, slots, segments] probabilities of at most 256 segments.
        uniforms: [draws, slots, responses] in [0, 1); lanes l, l + draws, l + 2 draws, ... share their uniforms.

    Returns:
        [lanes, slots, responses] integers.
    """
    lanes, slots, size = policy.shape
    # one threshold less than segments: a sum that rounds below 1 cannot push a token past the last segment
    thresholds = np.ascontiguousarray(np.moveaxis(np.cumsum(policy, axis=-1)[..., :-1], -1, 0))
    tokens = np.zeros((lanes // len(uniforms), *uniforms.shape), dtype=np.uint8)
    for threshold in thresholds.reshape(size - 1, -1, len(uniforms), slots, 1):
        tokens += uniforms > threshold
    return tokens.reshape(lanes, slots, -1).astype(np.intp)


def advantages(rewards: np.ndarray) -> np.ndarray:
    """(r - mean) / (std + ADVANTAGE_DELTA) over each lane's responses; `policy_gradient.group_advantages`, vectorised.

    Args:
        rewards: [lanes, responses].
    """
    centred = rewards - rewards.mean(-1, keepdims=True)
    # equal rewards leave rounding noise, which the division would blow up
    centred[np.ptp(rewards, axis=-1) == 0] = 0.0
    return centred / (rewards.std(-1, ddof=1, keepdims=True) + ADVANTAGE_DELTA)


def surrogate_gradient(policy: np.ndarray, tokens: np.ndarray, advantage: np.ndarray) -> np.ndarray:
    """Gradient by the logits of the GRPO surrogate 1/G Σ_g A_g Σ_t log π_t(a_gt), at the policy that sampled.

        ∂/∂logits_t = 1/G Σ_g A_g (onehot(a_gt) - π_t)

    Args:
        policy: [lanes, slots, segments]; tokens: [lanes, slots, responses]; advantage: [lanes, responses].
    """
    responses = tokens.shape[-1]
    gradient = -policy * advantage.sum(-1)[:, None, None]
    lane, slot = np.arange(len(policy))[:, None], np.arange(policy.shape[1])
    for g in range(responses):  # within one response every (lane, slot) occurs once, so += loses nothing
        gradient[lane, slot, tokens[:, :, g]] += advantage[:, g, None]
    return gradient / responses


def kl_gradient(log_policy: np.ndarray, log_reference: np.ndarray) -> np.ndarray:
    """Gradient by the logits of Σ_t KL(π_t | reference_t):  π (log π/ρ - KL)."""
    policy, ratio = np.exp(log_policy), log_policy - log_reference
    return policy * (ratio - (policy * ratio).sum(-1, keepdims=True))


@dataclass
class Adam:
    """Adam's state for one array of parameters, which `ascend` updates in place.

    Source: Kingma and Ba, Adam (2015), algorithm 1.
    """

    rate: float
    first: np.ndarray
    second: np.ndarray
    steps: int = 0

    @classmethod
    def like(cls, parameters: np.ndarray, rate: float) -> Adam:
        return cls(rate, np.zeros_like(parameters), np.zeros_like(parameters))

    def ascend(self, parameters: np.ndarray, gradient: np.ndarray) -> None:
        self.steps += 1
        self.first += (1 - BETA_1) * (gradient - self.first)
        self.second += (1 - BETA_2) * (gradient**2 - self.second)
        size = np.sqrt(self.second / (1 - BETA_2**self.steps)) + EPSILON
        parameters += self.rate / (1 - BETA_1**self.steps) * self.first / size
