from math import isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from reprise.errors import RepriseError
from reprise.labs.refit_payloads import (
    RELATIVE,
    SHAPES,
    bf16_values,
    bf16_words,
    compare,
    payload_grid,
    perturb,
    savings,
)
from reprise.labs.refit_peers import _bridged, nemo_rl_apply, nemo_rl_encode


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1))
def test_bf16_rounding_agrees_with_torch(values):
    expected = torch.tensor(values, dtype=torch.float32).bfloat16()
    words = bf16_words(np.array(values))
    assert words.tolist() == expected.view(torch.int16).numpy().view(np.uint16).tolist()
    assert bf16_values(words).tolist() == expected.double().tolist()


@pytest.mark.parametrize(
    "value, word",
    [(1 + 2**-8, 0x3F80), (1 + 2**-8 + 2**-20, 0x3F81), (1 + 3 * 2**-8, 0x3F82), (1 - 2**-9, 0x3F80), (-0.0, 0x8000)],
)
def test_bf16_ties_go_to_the_even_word(value, word):
    assert bf16_words(np.array([value])).tolist() == [word]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.25])
def test_the_share_asked_for_is_the_share_that_changes(shape, share):
    old, new = perturb(np.random.default_rng(0), 10_000, share, 1e-2, shape)
    assert old.dtype == new.dtype == np.uint16
    assert (old != new).sum() == share * 10_000


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(RELATIVE), st.floats(1e-4, 0.4), st.integers(0, 2**32 - 1))
def test_relative_perturbations_keep_signs_and_sizes(shape, amplitude, seed):
    old, new = perturb(np.random.default_rng(seed), 500, 1.0, amplitude, shape)
    before, after = bf16_values(old), bf16_values(new)
    moved = old != new
    ratio = after[moved] / before[moved]
    bound = 6 * amplitude if shape == "normal" else amplitude
    assert (np.abs(ratio - 1) <= bound + (1 + bound) * 2**-8).all()
    if shape == "plus-minus" and moved.any():
        assert (np.abs(ratio - 1) >= amplitude - (1 + amplitude) * 2**-8).all()


def test_half_an_ulp_stands_between_a_thousandth_and_any_change():
    for shape in ("plus-minus", "uniform"):
        old, new = perturb(np.random.default_rng(0), 20_000, 0.05, 1e-3, shape)
        assert (old == new).all()


def test_draws_repeat_and_bad_arguments_are_named():
    one, two = (perturb(np.random.default_rng(3), 100, 0.5, 1e-2) for _ in range(2))
    assert (one[1] == two[1]).all()
    with pytest.raises(RepriseError, match="^shape='cauchy'"):
        perturb(np.random.default_rng(0), 10, 0.5, 1e-2, "cauchy")
    with pytest.raises(RepriseError, match="p=1.5"):
        perturb(np.random.default_rng(0), 10, 1.5, 1e-2)


@pytest.mark.parametrize("op", ["xor", "overwrite"])
@pytest.mark.parametrize("index", [[], [0], [1, 2, 3], [99_999], [0, 65_536], [0, 65_537], [70_000, 70_001]])
def test_the_peer_s_layout_loses_nothing(op, index):
    old = np.arange(100_001).astype(np.uint16)
    new = old.copy()
    new[index] ^= 0x8001
    assert (nemo_rl_apply(old, nemo_rl_encode(old, new, op)) == new).all()


@pytest.mark.parametrize(
    "index, entries",
    [
        ([0, 65_536], [0, 65_536]),
        ([0, 65_537], [0, 65_536, 65_537]),
        ([65_535], [65_535]),
        ([150_000], [65_535, 131_071, 150_000]),
    ],
)
def test_the_peer_s_16_bit_gaps_are_bridged_where_they_are_too_short(index, entries):
    assert _bridged(np.array(index)).tolist() == entries


def test_grid_rows_are_complete_and_independent_of_each_other():
    rows = payload_grid(0, 1 << 14, shapes=("plus-minus", "normal"), amplitudes=(1e-3, 1e-2), shares=(0.01, 0.05))
    keys = [(row["shape"], row["amplitude"], row["share"], row["op"]) for row in rows]
    assert keys == [
        (shape, amplitude, share, op)
        for shape in ("plus-minus", "normal")
        for amplitude in (1e-3, 1e-2)
        for share in (0.01, 0.05)
        for op in ("xor", "overwrite", "add")
    ]
    alone = payload_grid(0, 1 << 14, shapes=("normal",), amplitudes=(1e-2,), shares=(0.05,))
    assert [r for r in alone if r["op"] != "add"] == [
        r for r in rows if (r["shape"], r["amplitude"], r["share"]) == ("normal", 1e-2, 0.05) and r["op"] != "add"
    ]
    unchanged = [row for row in rows if row["shape"] == "plus-minus" and row["amplitude"] == 1e-3]
    assert all(row["changed"] == 0 and isnan(row["ours_bits"]) and isnan(row["bound_bits"]) for row in unchanged)
    assert all(isnan(row["peer"]) == (row["op"] == "add") for row in rows)


def test_xor_saves_where_old_predicts_new_and_nothing_in_the_control():
    table = savings(payload_grid(0, 1 << 18, shapes=("plus-minus", "independent"), shares=(0.05,)))
    real, control = table
    assert (real["shape"], control["shape"]) == ("plus-minus", "independent")
    for column in ("cut_peer", "cut_ours", "cut_add"):
        assert 0.35 < real[column] < 0.6 and abs(control[column]) < 0.05
    assert real["value_ratio"] > 2.5 and control["value_ratio"] < 1.05
    assert real["peer_share"] == pytest.approx(0.038, abs=0.004)


def test_sizes_stay_above_the_bound():
    for row in payload_grid(1, 1 << 18, shares=(0.03,)):
        assert row["bound_bits"] * 0.99 < row["ours_bits"] < row["bound_bits"] * 1.25


def test_compare_takes_tensors_and_savings_takes_one_comparison():
    rng = np.random.default_rng(0)
    old = torch.from_numpy(rng.normal(0, 0.02, 5000)).bfloat16()
    new = (old.float() * 1.01).bfloat16()
    words = [x.view(torch.int16).numpy().view(np.uint16) for x in (old, new)]
    assert compare(old, new)[0] == compare(*words)[0]
    (row,) = savings(compare(old, new))
    assert row["changed"] == 1.0 and "shape" not in row
    with pytest.raises(RepriseError, match="^dtype=F32: expected BF16"):
        compare(old.float(), new.float())
