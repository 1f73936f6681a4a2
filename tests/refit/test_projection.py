"""Shards in canonical coordinates: affine maps against slicing, residual tensors, and trainers of real processes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.refit import Bits, StaleBaseError, apply_, diff_bits
from reprise.refit.delta import Delta
from reprise.refit.placement.ownership import OwnershipError, Part, union
from reprise.refit.placement.projection import (
    Residual,
    block_map,
    column_map,
    gated_maps,
    project,
    replicated_map,
    residual_flags,
    residual_record,
    row_map,
)


def bits(words) -> Bits:
    return Bits("BF16", words.shape, np.ascontiguousarray(words).reshape(-1).astype("<u2"))


@pytest.mark.parametrize(
    "mapped, local, canonical",
    [
        (row_map("w", (64, 128), 16, 8), 3 * 128 + 5, 2437),  # (i0 + i) w + y = (16 + 3) 128 + 5
        (column_map("w", (64, 128), 32, 16), 3 * 16 + 5, 421),  # i w + (y0 + y) = 3 * 128 + 32 + 5
        (gated_maps("g", "u", (64, 128), 16, 8)[0], 3 * 128 + 5, 2437),
        (gated_maps("g", "u", (64, 128), 16, 8)[1], 8 * 128 + 3 * 128 + 5, 2437),
        (replicated_map("w", (7,)), 6, 6),
        (replicated_map("w", ()), 0, 0),
        (block_map("w", (4, 5, 6), 1, 2, 3), (1 * 3 + 1) * 6 + 4, 30 + 3 * 6 + 4),
        (row_map("w", (2**20, 2**14), 2**20 - 1, 1), 2**14 - 1, 2**34 - 1),  # beyond 32 bits
    ],
)
def test_worked_values(mapped, local, canonical):
    index = mapped.canonical(np.array([local]))
    assert index.dtype == np.int64 and index.tolist() == [canonical]


@given(st.data())
def test_a_map_is_the_slice_it_stands_for(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    first = data.draw(st.integers(0, shape[axis] - 1))
    count = data.draw(st.integers(1, shape[axis] - first))
    canonical = np.arange(np.prod(shape)).reshape(shape)
    wanted = np.take(canonical, range(first, first + count), axis).reshape(-1)
    mapped = block_map("w", shape, axis, first, count)
    assert mapped.canonical(np.arange(mapped.elements)).tolist() == wanted.tolist()


def test_shards_of_a_tensor_own_it_once():
    shape = (6, 8)
    for axis, parts in ((0, 3), (1, 4)):
        size = shape[axis] // parts
        maps = [block_map("w", shape, axis, k * size, size) for k in range(parts)]
        owned = np.concatenate([each.canonical(np.arange(each.elements)) for each in maps])
        assert sorted(owned.tolist()) == list(range(48))


def test_a_block_outside_its_tensor_is_refused():
    with pytest.raises(OwnershipError, match=r"'w': block 5 \+ 4 of axis 0, expected one within \(8, 2\)"):
        row_map("w", (8, 2), 5, 4)


@pytest.mark.parametrize("axis", [0, 1])
def test_projected_changes_are_those_of_the_canonical_tensor(axis):
    rng = np.random.default_rng(axis)
    old = rng.integers(0, 65536, (12, 8)).astype(np.uint16)
    new = np.where(rng.random(old.shape) < 0.3, rng.integers(0, 65536, old.shape), old).astype(np.uint16)
    deltas = []
    for first in (0, 4):
        shard = np.s_[:, first : first + 4] if axis else np.s_[3 * first // 2 : 3 * first // 2 + 6]
        mapped = column_map("w", (12, 8), first, 4) if axis else row_map("w", (12, 8), 3 * first // 2, 6)
        deltas.append(Delta(tuple(project([mapped], bits(old[shard]), bits(new[shard])))))
    (merged,), (wanted,) = union(deltas).tensors, diff_bits({"w": bits(old)}, {"w": bits(new)}).tensors
    for field in ("index", "words", "old"):
        assert getattr(merged, field).tolist() == getattr(wanted, field).tolist()
    assert merged.with_op("xor").words.tolist() == wanted.with_op("xor").words.tolist()


def test_a_part_proves_nothing_and_a_whole_tensor_does():
    old, new = np.zeros((4, 4), np.uint16), np.eye(4, dtype=np.uint16)
    (half,) = project([row_map("w", (4, 4), 0, 2)], bits(old[:2]), bits(new[:2]))
    with pytest.raises(StaleBaseError):
        apply_(bits(old), Delta((half,)))
    (whole,) = project([replicated_map("w", (4, 4))], bits(old), bits(new))
    target = bits(old)
    assert (apply_(target, Delta((whole,))).words == new.reshape(-1)).all()


def test_gate_and_up_are_two_canonical_tensors():
    shard = np.arange(16, dtype=np.uint16).reshape(4, 4)
    changed = shard.copy()
    changed[[1, 3], 2] += 1
    gate, up = project(gated_maps("g", "u", (6, 4), 2, 2), bits(shard), bits(changed))
    assert (gate.name, gate.index.tolist(), gate.words.tolist()) == ("g", [3 * 4 + 2], [7])
    assert (up.name, up.index.tolist(), up.words.tolist()) == ("u", [3 * 4 + 2], [15])


# -- residual tensors --------------------------------------------------------------------------------------------------


def test_one_rank_is_enough_to_convert_a_tensor_and_a_scale_dirties_all_that_use_it():
    residuals = [
        Residual("a", frozenset({"x"})),
        Residual("b", frozenset({"y", "scale"})),
        Residual("c", frozenset("z")),
    ]
    flags = [residual_flags(residuals, changed) for changed in ({"x"}, {"scale"}, set())]
    assert [flag.tolist() for flag in flags] == [[True, False, False], [False, True, False], [False, False, False]]
    assert np.logical_or.reduce(flags).tolist() == [True, True, False]


def test_residual_changes_are_found_against_the_baseline_sent_last():
    baseline = Bits("BF16", (2, 2), np.array([0, 1, 2, 0x7FC0], "<u2"))
    parts = [
        Part("rank 0", np.array([0, 1]), np.array([0x8000, 1], "<u2")),
        Part("rank 1", np.array([2, 3]), np.array([2, 0x7FC1], "<u2")),
    ]
    record, new = residual_record("w", baseline, parts)
    assert record.index.tolist() == [0, 3] and record.words.tolist() == [0x8000, 0x7FC1] and record.op == "overwrite"
    assert residual_record("w", new, parts)[0].index.size == 0
    with pytest.raises(OwnershipError, match="element 2 has no owner"):
        residual_record("w", baseline, parts[:1])


# -- a trainer of real processes ---------------------------------------------------------------------------------------


def test_the_payloads_of_two_processes_are_the_comparison_of_the_checkpoints():
    pytest.importorskip("torch")
    from reprise.labs.placement_experiments import trainer_union

    rows = trainer_union(seed=5)
    assert [row["equal"] for row in rows] == [True] * 4
    assert all(min(row["by_rank"]) > 0 for row in rows if row["step"] == 1)  # both ranks own something
    assert all(0 < row["overwrite"] < 1 for row in rows if row["step"] == 1)  # residual and projected elements
    # the last step changes a scale alone: the head is converted and nothing else is sent
    assert all(row["overwrite"] == 1 and row["changed"] > 11000 for row in rows if row["step"] == 2)


def test_the_comparison_of_payloads_can_fail():
    pytest.importorskip("torch")
    from reprise.labs.placement_experiments import same_changes

    old = np.zeros(8, np.uint16)
    new = old.copy()
    new[[2, 5]] = 1
    delta, less = diff_bits({"w": old}, {"w": new}), new.copy()
    less[5] = 0
    assert same_changes(delta, delta)
    assert not same_changes(diff_bits({"w": old}, {"w": less}), delta)
    assert not same_changes(delta, diff_bits({"w": old}, {"w": old}))
