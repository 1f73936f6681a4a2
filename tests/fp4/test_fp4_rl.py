"""The RL loop: what is shared between methods, what the lag and the clip do, and what the placebo takes away."""

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("transformers")

from reprise.labs import fp4_rl as lab
from reprise.labs import fp4_world as world

ROOT = Path(__file__).parents[2]
SMALL = lab.Settings(steps=3, prompts=4, group=4, held_out=16)


@pytest.fixture(scope="module")
def start(one_thread):
    return world.load_checkpoint(ROOT / world.CHECKPOINT)


@pytest.fixture(scope="module")
def rolled(start):
    return lab.rollout(start, lab.TRACE.method, np.random.default_rng(0), 4, 4)


def step(start, variant, rolled, settings=SMALL, seed=0):
    model = copy.deepcopy(start)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    return lab.update(model, optimiser, variant, rolled, settings, np.random.default_rng(seed)), model


def test_methods_with_the_same_rollout_path_get_the_same_first_answers(start, rolled):
    again = lab.rollout(start, lab.QAT.method, np.random.default_rng(0), 4, 4)
    assert torch.equal(again.ids, rolled.ids)
    assert np.array_equal(again.rewards, world.rewards(again.ids[:, :8].numpy(), again.ids[:, 8:].numpy()))
    prompts = lab.rollout(start, lab.BF16.method, np.random.default_rng(0), 4, 4).ids[:, :8]
    assert torch.equal(prompts, rolled.ids[:, :8])


def test_guidance_closes_the_gap_and_permuted_guidance_does_not(start, rolled):
    gaps = {v.name: step(start, v, rolled)[0]["gap"] for v in (lab.QAT, lab.TRACE, lab.TRACE_1BIT_HALF, lab.PERMUTED)}
    assert gaps["TRACE"] < gaps["TRACE, 1 bit, last half"] < gaps["QAT"] < gaps["TRACE, permuted"]


def test_a_run_repeats_itself_and_leaves_the_checkpoint_alone(start):
    before = {name: tensor.clone() for name, tensor in start.state_dict().items()}
    one, two = (lab.train(start, lab.TRACE, 5, replace(SMALL, steps=2)) for _ in range(2))
    assert one[0] == two[0] and np.array_equal(one[1], two[1])
    assert all(torch.equal(before[name], tensor) for name, tensor in start.state_dict().items())
    assert [line["step"] for line in one[0]] == [0, 1] and one[1].shape == (16,)


def test_shift_is_the_age_of_the_rollout(start):
    """Without lag the trainer's weights are the engine's; with lag the two drift apart from the second step on."""
    fresh, _ = lab.train(start, lab.BF16, 1, replace(SMALL, lag=0))
    stale, _ = lab.train(start, lab.BF16, 1, replace(SMALL, lag=2))
    assert max(line["shift"] for line in fresh) < 1e-3
    assert stale[0]["shift"] < 1e-3 < 2e-3 < stale[2]["shift"]
    assert fresh[0]["gap"] == stale[0]["gap"]


def test_weights_are_clipped_above_and_only_there(start, rolled):
    low, high = (replace(rolled, logps=rolled.logps + offset) for offset in (-3.0, 3.0))
    assert step(start, lab.TRACE, low)[0]["clipped"] == 1.0
    assert step(start, lab.TRACE, high)[0]["clipped"] == 0.0
    norms = [step(start, lab.TRACE, low, replace(SMALL, clip=clip))[0]["gradient_norm"] for clip in (2.0, 4.0)]
    assert norms[1] == pytest.approx(2 * norms[0], rel=1e-4)


def test_equal_rewards_teach_nothing(start, rolled):
    seen, model = step(start, lab.TRACE, replace(rolled, rewards=np.ones(16)), replace(SMALL, lr=0.0))
    assert seen["gradient_norm"] == 0.0
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), start.parameters(), strict=True))


def test_every_parameter_is_reached_by_the_gradient(start, rolled):
    reached = {}
    model = copy.deepcopy(start)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)

    def noted(name, gradient):
        reached[name] = gradient.abs().max().item()

    for name, parameter in model.named_parameters():
        parameter.register_hook(partial(noted, name))
    mixed = replace(rolled, rewards=np.arange(16) % 2.0)
    lab.update(model, optimiser, lab.TRACE, mixed, SMALL, np.random.default_rng(0))
    assert reached.keys() == {name for name, _ in model.named_parameters()}
    assert all(np.isfinite(value) and value > 0 for value in reached.values())


def test_ratios_and_differences_are_taken_seed_by_seed():
    gaps = {"QAT": (4.0, 2.0), "QUADS-like": (5.0, 1.0), "TRACE": (1.0, 3.0)}
    lines = [
        {"variant": name, "seed": seed, "step": step, "gap": gap if step >= 10 else 99.0}
        for name, each in gaps.items()
        for seed, gap in enumerate(each)
        for step in range(8, 12)
    ]
    assert lab.gap_ratios(pd.DataFrame(lines), "TRACE") == [0.25, 3.0]
    solved = {("TRACE", 3): np.array([True, True]), ("QAT", 3): np.array([True, False]), ("QAT", 4): np.array([True])}
    assert lab.reward_differences(solved, "TRACE", "QAT") == [50.0]
