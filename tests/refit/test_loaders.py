"""bits(apply(delta, resident)) = bits(dense load) on native loaders: every rank, operation and bit pattern."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reprise.errors import RepriseError  # noqa: E402
from reprise.labs.loaders import TensorParallelModel, TransformersModel  # noqa: E402
from reprise.labs.placement_experiments import (  # noqa: E402
    affine_share,
    equivalence,
    plan_of,
    plan_table,
    sentinel,
    transformers_equivalence,
)
from reprise.labs.projection_timing import projection_timing  # noqa: E402
from reprise.labs.qwen3_moe import QWEN3_30B_A3B, SMALL, shapes, specs  # noqa: E402
from reprise.labs.trainer_layout import Layout, export, master_weights  # noqa: E402
from reprise.refit import as_bits, diff_bits  # noqa: E402
from reprise.refit.placement.copy_plan import apply_plan_, mixed, record_copy_plan  # noqa: E402
from reprise.refit.placement.placements import PlanError  # noqa: E402


def numbered(architecture):
    """Canonical tensors whose values are their row-major positions, in FP32."""
    return {n: torch.arange(t.numel(), dtype=torch.float32).reshape(t.shape) for n, t in specs(architecture).items()}


# -- the loader itself -------------------------------------------------------------------------------------------------


def test_the_second_of_two_ranks_holds_its_share():
    model, weights = TensorParallelModel(SMALL, tp=2, ep=2, rank=1, dtype=torch.float32), numbered(SMALL)
    loaded = model.load_weights(weights.items())
    assert loaded == model.parameters.keys()
    held, hidden = model.parameters, SMALL.hidden_size
    assert held["embed_tokens"].shape == (128, hidden)  # 251 rows are padded to 256
    assert held["embed_tokens"][:123].equal(weights["model.embed_tokens.weight"][128:])
    assert not held["embed_tokens"][123:].any()
    q, k = (weights[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qk")
    assert held["layers.1.qkv_proj"][:32].equal(q[32:]) and held["layers.1.qkv_proj"][32:48].equal(k[16:])
    assert held["layers.1.o_proj"].equal(weights["model.layers.1.self_attn.o_proj.weight"][:, 32:].t())
    up, down = (weights[f"model.layers.0.mlp.experts.5.{part}_proj.weight"] for part in ("up", "down"))
    assert held["layers.0.mlp.w13"][1, 24:].equal(up) and held["layers.0.mlp.w2"][1].equal(down)


def test_few_key_heads_are_held_by_several_ranks():
    ranks = [TensorParallelModel(SMALL, tp=8, rank=rank, dtype=torch.float32) for rank in (2, 3)]
    for rank in ranks:
        rank.load_weights(numbered(SMALL).items())
    first, second = (rank.parameters["layers.0.qkv_proj"] for rank in ranks)
    assert first[8:].equal(second[8:]) and not first[:8].equal(second[:8])


@pytest.mark.parametrize(
    "setting, message",
    [
        (dict(tp=2, rank=2), "^rank=2"),
        (dict(tp=2, ep=4), "^ep=4"),
        (dict(tp=16, ep=16), "^ep=16"),
        (dict(tp=3), "^tp=3"),
    ],
)
def test_ranks_that_do_not_divide_the_model_are_refused(setting, message):
    with pytest.raises(RepriseError, match=message):
        TensorParallelModel(SMALL, **setting)


# -- equivalence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tp, ep", [(1, 1), (2, 1), (2, 2), (4, 2), (8, 8)])
def test_every_rank_ends_with_the_bits_of_a_dense_load(tp, ep):
    rows = equivalence([1], tp, ep)
    assert {(row["rank"], row["op"]) for row in rows} == {
        (r, op) for r in range(tp) for op in ("xor", "overwrite", "add")
    }
    assert all(row["mismatches"] == 0 < row["changed"] for row in rows)


def test_a_plan_that_trusts_the_cast_router_mismatches():
    rows = equivalence([1], trust_cast=True)
    assert all(row["mismatches"] > 0 for row in rows)


def test_transformers_own_loader_ends_with_the_bits_of_a_dense_load():
    rows = transformers_equivalence([1])
    assert all(row["mismatches"] == 0 for row in rows)
    assert rows[0]["elements"] == sum(np.prod(shape) for shape in shapes(SMALL).values())


def test_transformers_loader_cannot_be_planned_by_its_copies():
    model, wanted = TransformersModel(SMALL), specs(SMALL)
    model.load({name: torch.zeros(spec.shape, dtype=spec.dtype) for name, spec in wanted.items()})
    with pytest.raises(PlanError, match="the loader replaces it"):
        record_copy_plan(lambda weights: model.load(dict(weights)) and None, model.targets, wanted)


def test_a_nan_placeholder_loses_new_nans_and_a_plan_does_not():
    (kept,), (lost,) = sentinel([1]), sentinel([1], placeholder=True)
    assert kept["mismatches"] == 0 < kept["new_nans"] == lost["mismatches"]


def test_a_trainer_of_one_layout_feeds_receivers_of_another():
    """Two shards' payloads, projected and residual, into a rank with other tensor and expert parallelism."""
    from reprise.labs.projection_timing import direct, residual
    from reprise.labs.trainer_layout import affine_maps, shard
    from reprise.refit.delta import Delta

    layout, old, new = Layout(SMALL, 2, 1), master_weights(SMALL, 0), master_weights(SMALL, 1)
    before, after = ([shard(weights, layout, rank) for rank in range(2)] for weights in (old, new))
    baseline = {name: as_bits(tensor) for name, tensor in export(old).items()}
    maps = [affine_maps(layout, rank) for rank in range(2)]
    payloads = [*direct(layout, maps, before, after), list(residual(layout, after, baseline))]
    model, dense = (TensorParallelModel(SMALL, tp=4, ep=2, rank=3) for _ in range(2))
    plan = plan_of(model)
    model.load_weights(export(old).items())
    dense.load_weights(export(new).items())
    for records in payloads:
        apply_plan_(plan, mixed(Delta(tuple(records)), plan.invertible, "xor"))
    for name, tensor in dense.parameters.items():
        assert as_bits(model.parameters[name]).words.tolist() == as_bits(tensor).words.tolist(), name


def test_applying_xor_twice_brings_the_old_bits_back():
    model = TensorParallelModel(SMALL, router_dtype=torch.bfloat16)
    plan, old, new = plan_of(model), export(master_weights(SMALL, 0)), export(master_weights(SMALL, 1))
    model.load_weights(old.items())
    held = {name: tensor.clone() for name, tensor in model.parameters.items()}
    delta = mixed(diff_bits(old, new), plan.invertible, "xor")
    apply_plan_(plan, delta)
    assert any(not tensor.equal(held[name]) for name, tensor in model.parameters.items())
    apply_plan_(plan, delta)
    assert all(tensor.equal(held[name]) for name, tensor in model.parameters.items())


# -- Qwen3-30B-A3B by its shapes ---------------------------------------------------------------------------------------


def test_qwen3_30b_a3b_counts():
    assert sum(int(np.prod(shape)) for shape in shapes(QWEN3_30B_A3B).values()) == 30_532_122_624


def test_share_of_affine_elements_by_hand():
    every = affine_share(tp=2, ep=2, router_dtype=torch.bfloat16)[-1]
    vocabulary, qkv = 2 * 151936 * 2048, 48 * (4096 + 2 * 512) * 2048
    assert every["affine"] == pytest.approx(1 - (vocabulary + qkv) / 30_532_122_624, rel=1e-12)
    assert (round(100 * every["affine"], 1), round(100 * (1 - every["affine"]), 2)) == (96.3, 3.69)


def test_plan_table_of_a_rank_counts_its_share():
    rows = plan_table(tp=4, ep=4, rank=1, architecture=SMALL)
    experts = [row for row in rows if row["family"] == "experts.down_proj"]
    assert {row["mode"]: row["tensors"] for row in experts} == {"any": 4, "skipped": 12}
    assert sum(row["placed"] for row in experts) == 4 * 48 * 24
    assert [row["reason"] for row in rows if row["mode"] == "loader"] == ["bfloat16 to float32"]


def test_direct_and_full_conversion_find_the_same_changes():
    rows = projection_timing(rounds=1, architecture=SMALL)
    assert {row["build"] for row in rows} == {"direct", "full"} and len({row["changed"] for row in rows}) == 1
