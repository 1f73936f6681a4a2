"""GRPO on tabular policies whose only difference is how judge scores become a reward.

Every prompt has its own policy. All prompts of all rubric sets are trained at once, and so are all methods that are
compared: they share initial policies, sampling uniforms and judge noise, so that their differences are paired. What
is reported comes from the events themselves and the true graph; judge scores serve training alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from reprise.labs import tabular_policy
from reprise.labs.rubric_rewards import Method, Rewards
from reprise.labs.rubric_truth import Truth
from reprise.labs.rubric_world import CRITERIA, FILLERS, PRECISION, Judge, make_world, met, segments

# no choice has seen these rubric sets; settings and predicates were decided on sets 10 to 21
CLAIM_SETS = tuple(range(300, 324))

SLOTS = 8  # segments of a response: too few to meet every criterion, so that a policy has to choose
GROUP = 8  # responses a prompt and step (table 10)
KL_WEIGHT = 0.01
# our choice: large enough that 120 steps change a tabular policy, small enough that they do not settle it
LEARNING_RATE = 0.08
FILLER_LOGIT = 1.0  # a policy that has learned nothing writes mostly filler


@dataclass(frozen=True)
class Setting:
    """What the methods are compared under.

    Attributes:
        judge: who scores the responses.
        edge_error: share of edges that stand in the wrong place in the graph the reward is given.
        prompts: prompts of a rubric set.
        policies: independently trained policies of each prompt.
        steps: optimiser steps.
        every: steps between two evaluations.
        samples: responses of each policy that an evaluation draws.
    """

    judge: Judge = Judge()
    edge_error: float = round(1 - PRECISION, 3)
    prompts: int = 12
    policies: int = 2
    steps: int = 120
    every: int = 20
    samples: int = 64


def train(seeds: Sequence[int], methods: Iterable[Method], setting: Setting) -> list[dict]:
    """Train a policy for every method, rubric set, prompt and repetition, and evaluate all of them on the way.

    Args:
        seeds: of the rubric sets, the independent units.
        methods: the rewards that are compared.
        setting: everything else.

    Returns:
        one row a method, rubric set and evaluated step: method, seed, step, and the metrics of `Truth.measure`, means
        over the set's prompts, policies and samples. The last step's rows have the whole sweep of truths. A row does
        not depend on which other rubric sets and methods run beside it.
    """
    methods = tuple(methods)
    worlds = [make_world(seed, setting.prompts) for seed in seeds]
    rewards = Rewards(methods, worlds, setting.edge_error, setting.policies)
    truth = Truth(worlds, setting.policies)
    leaf, unseen = (
        np.concatenate([mask for world in worlds for mask in [of(world)] * setting.policies] * len(methods))
        for of in (lambda world: world.leaf, lambda world: world.unseen(setting.judge))
    )
    draws = [_Draws(seed, setting) for seed in seeds]

    logits = np.zeros((len(leaf), SLOTS, segments()))
    logits[..., -FILLERS:] = FILLER_LOGIT
    reference = tabular_policy.log_softmax(logits)
    adam = tabular_policy.Adam.like(logits, LEARNING_RATE)
    rows = []
    for step in range(setting.steps + 1):
        log_policy = tabular_policy.log_softmax(logits)
        policy = np.exp(log_policy)
        last = step == setting.steps
        if step % setting.every == 0 or last:
            uniforms = np.concatenate([each.for_evaluation() for each in draws])
            events = met(tabular_policy.sample(policy, uniforms), leaf)
            rows += _rows(truth.measure(events, sweep=last), methods, seeds, step)
        if last:
            return rows
        uniforms, noise = (np.concatenate(each) for each in zip(*(each.for_step() for each in draws), strict=True))
        tokens = tabular_policy.sample(policy, uniforms)
        seen = met(tokens, leaf) & ~unseen[:, :, None]
        scores = setting.judge.scores(seen, np.tile(noise, (len(methods), 1, 1)))
        gradient = tabular_policy.surrogate_gradient(policy, tokens, tabular_policy.advantages(rewards(scores)))
        gradient -= KL_WEIGHT * tabular_policy.kl_gradient(log_policy, reference)
        adam.ascend(logits, gradient)


class _Draws:
    """The random numbers of one rubric set, the same for every method."""

    def __init__(self, seed: int, setting: Setting):
        self.training, self.evaluating = (np.random.default_rng([seed, stream]) for stream in (2, 3))
        self.lanes, self.samples = setting.policies * setting.prompts, setting.samples

    def for_step(self) -> tuple[np.ndarray, np.ndarray]:
        uniforms = self.training.random((self.lanes, SLOTS, GROUP))
        return uniforms, self.training.standard_normal((self.lanes, CRITERIA, GROUP))

    def for_evaluation(self) -> np.ndarray:
        return self.evaluating.random((self.lanes, SLOTS, self.samples))


def _rows(measured: dict[str, np.ndarray], methods: Sequence[Method], seeds: Sequence[int], step: int) -> list[dict]:
    """Means over the lanes of each method and rubric set."""
    tables = {name: values.reshape(len(methods), len(seeds), -1).mean(-1) for name, values in measured.items()}
    return [
        {"method": method.name, "seed": seed, "step": step}
        | {name: float(table[m, s]) for name, table in tables.items()}
        for m, method in enumerate(methods)
        for s, seed in enumerate(seeds)
    ]
