"""Sampling against the distribution, gradients against finite differences, advantages against the shared function."""

import numpy as np
import pytest

from reprise.labs import tabular_policy as tp
from reprise.policy_gradient import group_advantages

RNG = np.random.default_rng(5)
LOGITS = RNG.normal(0, 1, (3, 2, 5))
POLICY = np.exp(tp.log_softmax(LOGITS))


def numerical_gradient(function, logits, width=1e-6):
    gradient = np.zeros_like(logits)
    for place in np.ndindex(logits.shape):
        ends = []
        for sign in (1, -1):
            moved = logits.copy()
            moved[place] += sign * width
            ends.append(function(moved))
        gradient[place] = (ends[0] - ends[1]) / (2 * width)
    return gradient


def test_log_softmax_is_normalised_and_survives_large_logits():
    log_policy = tp.log_softmax(np.array([[1000.0, 1000.0, -1000.0]]))
    assert log_policy[0, :2] == pytest.approx(-np.log(2))
    assert np.exp(tp.log_softmax(LOGITS)).sum(-1) == pytest.approx(np.ones((3, 2)))


def test_a_uniform_picks_the_segment_whose_stretch_of_the_distribution_holds_it():
    policy = np.array([[[0.25, 0.5, 0.25]]])
    uniforms = np.array([[[0.0, 0.25, 0.26, 0.74, 0.76, 1 - 1e-16]]])
    assert tp.sample(policy, uniforms).tolist() == [[[0, 0, 1, 1, 2, 2]]]


def test_sampled_frequencies_follow_the_policy():
    tokens = tp.sample(POLICY, np.random.default_rng(0).random((3, 2, 20_000)))
    found = np.stack([(tokens == k).mean(-1) for k in range(5)], axis=-1)
    assert found == pytest.approx(POLICY, abs=0.015)


def test_lanes_share_the_uniforms_of_the_draw_they_repeat():
    uniforms = RNG.random((3, 2, 50))
    twice = tp.sample(np.concatenate([POLICY, POLICY[::-1]]), uniforms)
    assert (twice[:3] == tp.sample(POLICY, uniforms)).all()
    assert (twice[3:] == tp.sample(POLICY[::-1], uniforms)).all()


def test_advantages_are_those_of_the_shared_definition():
    rewards = RNG.normal(0, 1, (4, 8))
    rewards[2] = 0.1  # nothing to learn: eight equal floats, whose mean is not exactly 0.1
    flat = group_advantages(rewards.ravel(), np.repeat(np.arange(4), 8), delta=tp.ADVANTAGE_DELTA)
    assert tp.advantages(rewards) == pytest.approx(flat.reshape(4, 8), abs=1e-14)
    assert (tp.advantages(rewards)[2] == 0).all()


def test_surrogate_gradient_is_the_derivative_of_the_surrogate():
    tokens = RNG.integers(0, 5, (3, 2, 8))
    advantage = RNG.normal(0, 1, (3, 8))

    def surrogate(logits):
        taken = np.take_along_axis(tp.log_softmax(logits), tokens, axis=-1)
        return (advantage[:, None] * taken).sum() / 8

    found = tp.surrogate_gradient(POLICY, tokens, advantage)
    assert found == pytest.approx(numerical_gradient(surrogate, LOGITS), abs=1e-8)


def test_kl_gradient_is_the_derivative_of_the_divergence():
    reference = tp.log_softmax(RNG.normal(0, 1, LOGITS.shape))

    def divergence(logits):
        log_policy = tp.log_softmax(logits)
        return (np.exp(log_policy) * (log_policy - reference)).sum()

    found = tp.kl_gradient(tp.log_softmax(LOGITS), reference)
    assert found == pytest.approx(numerical_gradient(divergence, LOGITS), abs=1e-8)


def test_adam_is_the_published_algorithm():
    parameters, theta = LOGITS.copy(), LOGITS.copy()
    adam, m, v = tp.Adam.like(parameters, 0.08), np.zeros_like(theta), np.zeros_like(theta)
    for t in range(1, 6):
        gradient = RNG.normal(0, 1, LOGITS.shape)
        adam.ascend(parameters, gradient)
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        theta = theta + 0.08 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    assert parameters == pytest.approx(theta, abs=1e-12)
