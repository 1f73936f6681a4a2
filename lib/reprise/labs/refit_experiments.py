"""Which stored bits a training step changes: seeded runs on a tiny mixture-of-experts model and on SmolLM2-135M.

Every function returns a list of flat dictionaries, one a row. Settings are chosen on DESIGN_SEEDS; what a claim states
comes from CLAIM_SEEDS, which no choice has seen. What the changes cost in bytes is in `refit_payloads`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprise.errors import RepriseError
from reprise.labs import tiny_moe
from reprise.labs.mixed_precision import MasterWeights, warmed_up, whole_model
from reprise.labs.rounding_laws import LAWS, measure
from reprise.labs.verifiable_prompts import PROMPT_SETS
from reprise.refit import change_fraction

DESIGN_SEEDS = (0, 1, 2)
CLAIM_SEEDS = (101, 102, 103, 104, 105)

# NeMo-DCR, figure 2: share of BF16 elements a step changes, mean of the first five steps, six models; neither learning
# rate nor warm-up is given
REPORTED_RANGE = (0.006, 0.012)
REPORTED_STEPS = 5

# our choice: from the gentlest to the boldest rate in common use for RL post-training, with and without a warm-up
LRS = (3e-7, 1e-6, 3e-6, 1e-5)
WARMUPS = (0, 10)
STARTS = tuple(LAWS)
PRETRAINED_PROMPTS = tuple(PROMPT_SETS)


def step_changes(
    seed: int,
    *,
    lr: float = 1e-6,
    warmup: int = 0,
    start: str = "grid",
    steps: int = REPORTED_STEPS,
    storage: str = "bf16",
) -> list[dict]:
    """Train the tiny Qwen3-MoE and compare every step's changed share with the rounding laws.

    Args: see `tiny_moe.train`. `storage="fp32"` is the control: nothing is rounded away, and the BF16 laws still judge.

    Returns:
        one row a step and parameter group: the settings, step, and the columns of `rounding_laws.measure`.
    """
    setting = {"seed": seed, "lr": lr, "warmup": warmup, "start": start, "storage": storage}
    run = tiny_moe.train(seed, lr=lr, warmup=warmup, start=start, steps=steps, storage=storage)
    return [{**setting, "step": step.number, **row} for step in run for row in measure(step.changes, step.lr, start)]


def settings_grid(
    seeds: Iterable[int],
    lrs: Iterable[float] = LRS,
    warmups: Iterable[int] = WARMUPS,
    starts: Iterable[str] = STARTS,
    steps: int = REPORTED_STEPS,
) -> list[dict]:
    """Mean changed share of the first steps under every setting: which ones land in the reported range.

    Returns:
        one row a setting and seed: start, warmup, lr, seed, steps, `mean` and `last` share, and `where` the mean lies:
        "below", "inside" or "above" REPORTED_RANGE.
    """
    low, high = REPORTED_RANGE
    rows = []
    for start in starts:
        for warmup in warmups:
            for lr in lrs:
                for seed in seeds:
                    run = tiny_moe.train(seed, lr=lr, warmup=warmup, start=start, steps=steps)
                    shares = [change_fraction(*whole_model(step.changes)) for step in run]
                    mean = float(np.mean(shares))
                    where = "below" if mean < low else "above" if mean > high else "inside"
                    setting = {"start": start, "warmup": warmup, "lr": lr, "seed": seed, "steps": steps}
                    rows.append({**setting, "mean": mean, "last": shares[-1], "where": where})
    return rows


def pretrained_changes(
    prompts: str,
    *,
    seed: int = 0,
    lr: float = 1e-6,
    warmup: int = 0,
    steps: int = 3,
    loss: str = "grpo",
    start: str = "grid",
    storage: str = "bf16",
    spread: bool = False,
    model: str = "smollm2-135m",
    device: str = "cpu",
) -> list[dict]:
    """Train a pretrained model for a few steps and compare every step's changed share with the rounding laws.

    Args:
        prompts: name of a set in `verifiable_prompts.PROMPT_SETS`.
        seed: decides prompts and completions.
        loss: "grpo" or "sft", see `labs.pretrained`.
        start: "grid" as when training starts from a published BF16 checkpoint, "fp32" with the masters off the grid.
        storage: "bf16", or "fp32" for the control.
        spread: undo the piling-up of 4-bit quantisation first (`labs.pretrained.spread`); for "smollm2-135m" only.
        model: what `LocalModel` takes, a packaged model or a folder.

    Returns:
        one row a step and parameter group: the settings, step, reward, dead and draws as `pretrained.grpo_backward`
        gives them, and the columns of `rounding_laws.measure`.

    Raises:
        ModelUnavailable: the model is not installed.
        RepriseError: an unknown setting.
    """
    from reprise.chat import LocalModel
    from reprise.labs import pretrained

    if loss not in pretrained.BACKWARD:
        raise RepriseError(f"loss={loss!r}: expected one of {', '.join(pretrained.BACKWARD)}")
    rng, noise = np.random.default_rng(seed).spawn(2)
    local = LocalModel(model, device=device)
    if spread:
        pretrained.spread(list(local.model.parameters()), noise)
    masters = MasterWeights(local.model, start, storage)
    zeros = {name: stored == 0 for name, stored in masters.stored().items()}
    setting = {"prompts": prompts, "loss": loss, "seed": seed, "lr": lr, "warmup": warmup}
    setting |= {"start": start, "storage": storage, "spread": spread}
    rows = []
    for number in range(1, steps + 1):
        outcome = pretrained.BACKWARD[loss](local, prompts, rng)
        rate = warmed_up(lr, number, warmup)
        changes = masters.step(rate)
        rows += [{**setting, "step": number, **outcome, **row} for row in measure(changes, rate, start, zeros)]
    return rows
