import numpy as np
import pytest

pytest.importorskip("transformers")

import torch

from reprise.errors import RepriseError
from reprise.labs.mixed_precision import Change
from reprise.labs.refit_experiments import (
    CLAIM_SEEDS,
    DESIGN_SEEDS,
    pretrained_changes,
    settings_grid,
    step_changes,
)
from reprise.labs.rounding_laws import measure
from reprise.local_models import available

pytestmark = pytest.mark.usefixtures("one_thread")


def test_claims_rest_on_seeds_that_no_choice_has_seen():
    assert len(CLAIM_SEEDS) >= 5 and not set(CLAIM_SEEDS) & set(DESIGN_SEEDS)


@pytest.mark.parametrize("start", ["grid", "fp32"])
def test_the_first_step_follows_the_rounding_law_and_the_control_does_not(start):
    rows = [step_changes(0, start=start, steps=1, storage=storage)[0] for storage in ("bf16", "fp32")]
    ratio, control = (row["changed"] / row["forecast"] for row in rows)
    assert ratio == pytest.approx(1, abs=0.15) and control > 10


def test_rows_hold_every_step_and_group_and_add_up():
    rows = step_changes(1, start="fp32", steps=2)
    groups = ["all", "embedding", "attention", "norms", "experts", "router", "head"]
    assert [(row["step"], row["group"]) for row in rows] == [(s, g) for s in (1, 2) for g in groups]
    for step in (1, 2):
        everything, *parts = (row for row in rows if row["step"] == step)
        assert sum(part["elements"] for part in parts) == everything["elements"] == 2_041_216
        for column in ("changed", "grid", "uniform", "forecast", "step_size"):
            total = sum(part[column] * part["elements"] for part in parts)
            assert total == pytest.approx(everything[column] * everything["elements"])
        # masters anywhere in their cell: the uniform law at every step, with the updates that AdamW made
        assert everything["changed"] == pytest.approx(everything["uniform"], rel=0.03)
    assert rows == step_changes(1, start="fp32", steps=2)


def test_from_the_grid_the_law_is_exact_at_first_and_then_the_truth_lies_between_both():
    first, second = (row for row in step_changes(1, start="grid", steps=2) if row["group"] == "all")
    assert first["changed"] == pytest.approx(first["grid"], rel=1e-4)
    assert second["grid"] < second["changed"] < second["uniform"]


def test_measure_by_hand():
    # stored 1.0 has ulp 2^-7 upwards; from the grid a step of more than half of it changes the stored bits
    master = torch.tensor([1.0, 1.0, 0.0, 1.0])
    update = torch.tensor([2.0**-8 * 1.5, 2.0**-9, 2.0**-30, 0.0])
    change = Change("x.mlp.up.weight", master.bfloat16(), (master + update).bfloat16(), master, update)
    everything, mlp = measure([change], 2.0**-8, "grid", {"x.mlp.up.weight": torch.tensor([False, False, True, False])})
    assert mlp == {**everything, "group": "mlp"}
    assert everything["changed"] == everything["grid"] == 0.5
    assert everything["changed_zeros"] == 0.25
    # a tie at every 1.0 goes to the even neighbour, which is 1.0: only the zero is forecast to change
    assert everything["forecast"] == 0.25
    assert everything["uniform"] == pytest.approx((0.75 + 0.25 + 1.0 + 0.0) / 4)
    assert everything["step_size"] == pytest.approx((1.5 + 0.5) / 4, rel=1e-6)


def test_the_grid_of_settings_is_complete():
    rows = settings_grid((0,), lrs=(3e-7, 1e-6), warmups=(0, 10), starts=("grid", "fp32"), steps=2)
    settings = [(row["start"], row["warmup"], row["lr"], row["seed"]) for row in rows]
    assert settings == [(s, w, lr, 0) for s in ("grid", "fp32") for w in (0, 10) for lr in (3e-7, 1e-6)]
    by_setting = dict(zip(settings, rows, strict=True))
    for (start, warmup, lr, _), row in by_setting.items():
        assert 0 < row["last"] and (row["where"] == "inside") == (0.006 <= row["mean"] <= 0.012)
        assert row["mean"] < by_setting[start, warmup, 1e-6, 0]["mean"] or lr == 1e-6
        assert row["mean"] < by_setting[start, 0, lr, 0]["mean"] or warmup == 0
        assert row["mean"] < by_setting["fp32", warmup, lr, 0]["mean"] or start == "fp32"
    assert np.mean([s["changed"] for s in step_changes(0, lr=3e-7, steps=2) if s["group"] == "all"]) == pytest.approx(
        by_setting["grid", 0, 3e-7, 0]["mean"]
    )


def test_an_unknown_loss_is_named():
    with pytest.raises(RepriseError, match="^loss='dpo': expected one of grpo, sft"):
        pretrained_changes("sums", loss="dpo")


@pytest.mark.slow
@pytest.mark.skipif(available("smollm2-135m") is not None, reason=available("smollm2-135m") or "")
@pytest.mark.parametrize("loss", ["grpo", "sft"])
def test_smollm2_follows_the_law(loss):
    everything = pretrained_changes("sums", steps=1, loss=loss, spread=True)[0]
    assert everything["elements"] == 134_515_008
    assert everything["changed"] == pytest.approx(everything["grid"], rel=1e-3)
    assert 0.001 < everything["changed"] < 0.004
