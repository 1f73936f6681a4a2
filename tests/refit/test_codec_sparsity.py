"""The rounding laws: printed values, and simulations that round for themselves."""

import numpy as np
import pytest
from codec import bits, from_bf16, to_bf16

from reprise.errors import RepriseError
from reprise.refit import Bits, change_fraction, grid_law, predict_change, threshold_law
from reprise.refit.sparsity import leaves_cell, ulp

STD = 0.02
STEPS = [(1e-7, 0.1217, 0.12187), (3e-7, 0.4870, 0.48746), (1e-6, 1.9478, 1.94967), (3e-6, 3.8944, 3.89817)]


@pytest.mark.parametrize("step, closed, exact", STEPS)
def test_first_step_laws_in_percent(step, closed, exact):
    assert 100 * threshold_law(step, STD) == pytest.approx(closed, abs=6e-5)
    assert 100 * grid_law(step, STD) == pytest.approx(exact, abs=6e-6)


@pytest.mark.parametrize(
    "weight, spacing", [(1.0, 2**-7), (1.99, 2**-7), (0.02, 2**-13), (-3.0, 2**-6), (0.0, 2**-133)]
)
def test_ulp(weight, spacing):
    assert ulp(np.array([weight]))[0] == spacing


@pytest.mark.parametrize(
    "weight, update, changes",
    [
        (1.0, 2**-8, False),  # a tie goes to the even 1.0
        (1.0, 2**-8 + 2**-60, True),
        (1.0, -(2**-9), False),  # below a power of two the spacing is half: a tie, to the even 1.0
        (1.0, -(2**-9) - 2**-60, True),
        (1 + 2**-7, 2**-8, True),  # an odd value leaves at a tie
        (1 + 2**-7, -(2**-8), True),
        (1 + 2**-6, 2**-8, False),
        (-1.0, 2**-9, False),
        (-1.0, 2**-9 + 2**-60, True),
        (0.0, 2**-134, False),
        (0.0, 2**-133, True),
        (2**-126, -(2**-134), False),  # the smallest normal value has the same spacing below
        (2**-126, -(2**-133), True),
        (0.02001953125, 0.00002, False),  # .02 * 1.001 does not flip
    ],
)
def test_grid_masters_by_hand(weight, update, changes):
    assert leaves_cell(np.array([weight]), np.array([update]))[0] == changes
    assert predict_change([weight], [update], masters="grid") == changes


@pytest.mark.parametrize("step", [3e-7, 1e-6, 1e-5])
def test_grid_masters_match_a_simulation(step):
    rng = np.random.default_rng(0)
    stored = to_bf16(rng.standard_normal(1 << 18) * STD)
    update = step * rng.choice([-1.0, 1.0], stored.size) * rng.choice([1.0, 0.5], stored.size)
    weights = from_bf16(stored)
    after = to_bf16((weights.astype(np.float64) + update).astype(np.float32))
    changed = change_fraction(bits(stored), bits(after))
    assert predict_change(bits(stored), update, masters="grid") == pytest.approx(changed, abs=2 / stored.size)
    assert predict_change(weights, update, masters="grid") == predict_change(bits(stored), update, masters="grid")


@pytest.mark.parametrize("step", [1e-6, 1e-5])
def test_uniform_masters_match_a_simulation(step):
    rng = np.random.default_rng(1)
    masters = (rng.standard_normal(1 << 20) * STD).astype(np.float32)
    update = (step * rng.uniform(-1, 1, masters.size)).astype(np.float32)
    stored = to_bf16(masters)
    changed = change_fraction(bits(stored), bits(to_bf16(masters + update)))
    assert predict_change(bits(stored), update) == pytest.approx(changed, rel=0.02)


def test_masters_decide_and_fp32_storage_breaks_the_bf16_law():
    rng = np.random.default_rng(2)
    masters = (rng.standard_normal(1 << 16) * STD).astype(np.float32)
    updated = masters + np.float32(1e-6)
    measured = change_fraction(masters, updated)
    assert measured > 0.99
    assert predict_change(masters, 1e-6) < 0.06
    assert predict_change(masters, 1e-6, significand_bits=24) == pytest.approx(measured, abs=0.01)


def test_stored_types_give_their_values():
    values = np.array([[1.0, -2.0]], np.float32)
    half = values.astype(np.float16)
    assert predict_change(Bits("F32", (1, 2), values.view("<u4")[0]), 2**-7) == 0.75
    assert predict_change(Bits("F16", (1, 2), half.view("<u2")[0]), 2**-7) == 0.75
    assert predict_change(half, np.full((1, 2), 2**-7)) == 0.75


def test_bad_arguments_are_named():
    with pytest.raises(RepriseError, match="masters='middle': expected 'uniform' or 'grid'"):
        predict_change([1.0], 1e-6, masters="middle")
    with pytest.raises(RepriseError, match="not all on the grid of 8 significant bits"):
        predict_change([0.1], 1e-6, masters="grid")
    with pytest.raises(RepriseError, match="dtype='I8'"):
        predict_change(Bits("I8", (1,), np.zeros(1, np.uint8)), 1e-6)
