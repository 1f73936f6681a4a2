"""The cost model: the paper's figures in whole bytes, configurations of real models, the store's files."""

from fractions import Fraction

import pytest
import torch

from reprise.fp4 import guidance_format
from reprise.fp4.cost import PAPER, UNITS, Geometry, bits_per_value, cache_cost, seconds
from reprise.fp4.errors import Fp4Error
from reprise.fp4.record import GuidanceRecord, Provenance, SiteGuidance
from reprise.fp4.tensor import quantize

QWEN3_MOE = {
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def test_the_papers_figures_in_bytes():
    assert bits_per_value(4) == Fraction(9, 2) and bits_per_value(4, "mxfp4") == Fraction(17, 4)
    full = cache_cost(PAPER, 4, tokens=1 << 18, trajectories=4096)
    assert (full["activations"], full["kv"], full["token"]) == (46_080, 5_760, 51_840)
    assert full["step"] == 51_840 * 2**30 == 55_662_776_156_160
    assert full["step"] / UNITS["binary"][2] == 50.625
    small = cache_cost(PAPER, 1, 20, 1 << 18, 4096, kv_layers=0)
    assert small["token"] == 7_680 == 61_440 // 8
    assert small["step"] / UNITS["binary"][2] == 7.5
    assert seconds(full["step"], 300e9) == pytest.approx(185.5426)
    assert seconds(full["step"], 5e9) / 3600 == pytest.approx(3.09238, rel=1e-5)
    assert seconds(full["step"], 5e9, passes=2) / 3600 == pytest.approx(6.18475, rel=1e-5)


@pytest.mark.parametrize(
    "kwargs, token",
    [
        (dict(b=1, layers=20), 7_680 + 5_760),
        (dict(b=1, layers=20, kv_layers=5, kv_b=1), 7_680 + 960),
        (dict(b=4, fmt="mxfp4", kv_layers=0), 2048 * 40 * 17 // 32),
        (dict(b=1, layers=20, kv_layers=0, token_scales=True), 7_680 + 20 * 4),
        (dict(b=4, kv_layers=10, token_scales=True), 51_840 + 4 * 60),
        (dict(b=4, layers=0), 5_760),
    ],
)
def test_variants(kwargs, token):
    assert cache_cost(PAPER, **kwargs)["token"] == token


def test_hidden_activations_count_for_every_slot():
    model = Geometry(96, 4, 4, 2, 32, slots=2, expert_width=96)
    assert cache_cost(model, 1, kv_layers=0, hidden=True)["token"] == 3 * cache_cost(model, 1, kv_layers=0)["token"]


def test_configurations():
    assert Geometry.from_config(QWEN3_MOE) == Geometry(2048, 48, 48, 4, 128, 8, 768)
    skipping = QWEN3_MOE | {"mlp_only_layers": [0, 1], "decoder_sparse_step": 2}
    assert Geometry.from_config(skipping).moe_layers == 23
    kinds = (["linear_attention"] * 3 + ["full_attention"]) * 10
    hybrid = QWEN3_MOE | {"num_hidden_layers": 40, "layer_types": kinds, "num_key_value_heads": 2, "head_dim": 256}
    as_paper = Geometry.from_config({"text_config": hybrid})
    assert (as_paper.width, as_paper.moe_layers, as_paper.attention_layers) == (2048, 40, 10)
    assert cache_cost(as_paper, 4)["token"] == 51_840
    interval = {key: value for key, value in hybrid.items() if key != "layer_types"} | {"full_attention_interval": 4}
    assert Geometry.from_config(interval) == as_paper
    dense = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    assert Geometry.from_config(dense) == Geometry(64, 2, 2, 4, 16, 1, 128)


@pytest.mark.parametrize("name", ["hidden_size", "num_hidden_layers", "num_experts_per_tok", "moe_intermediate_size"])
def test_a_missing_field_is_named(name):
    with pytest.raises(Fp4Error, match=f"no '{name}'"):
        Geometry.from_config({key: value for key, value in QWEN3_MOE.items() if key != name})


@pytest.mark.parametrize(
    "kwargs, match",
    [
        (dict(b=0), "b=0"),
        (dict(b=1, layers=41), "layers=41: expected 0..40"),
        (dict(b=1, kv_layers=11), "kv_layers=11"),
        (dict(b=1, tokens=0), "tokens=0"),
        (dict(b=1, trajectories=1.5), "trajectories=1.5"),
        (dict(b=1, fmt="fp8"), "fmt='fp8'"),
    ],
)
def test_refusals(kwargs, match):
    with pytest.raises(Fp4Error, match=match):
        cache_cost(PAPER, **kwargs)


def test_refused_sizes_and_bandwidths():
    with pytest.raises(Fp4Error, match="kv_heads=-1"):
        Geometry(1, 1, 1, -1, 1)
    with pytest.raises(Fp4Error, match="bandwidth=0"):
        seconds(1, 0)


@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4"])
@pytest.mark.parametrize("b", [1, 4])
def test_a_file_weighs_what_the_model_says(b, fmt):
    tokens, model = 100, Geometry(64, 2, 2, 1, 32, slots=2, expert_width=32)
    draw = torch.Generator().manual_seed(0)
    sites = {}
    for layer in range(2):
        for kind, shape in {"x": (64,), "h": (2, 32), "k": (32,), "v": (32,)}.items():
            q = quantize(torch.randn(tokens, *shape, generator=draw), fmt, "token")
            sites[layer, kind] = SiteGuidance(q.codes() & (1 << b) - 1, q.block_scale, q.global_scale)
    routes = {layer: torch.zeros(tokens, 2, dtype=torch.int64) for layer in range(2)}
    record = GuidanceRecord(Provenance("t", 0, "", "", tokens, fmt, b, (0, 2)), sites, routes)
    data = guidance_format.encode(record)
    header = guidance_format.header_bytes(data[: guidance_format.PREFIX], len(data), "t")
    body = len(data) - guidance_format.PREFIX - header
    predicted = cache_cost(model, b, tokens=tokens, kv_b=b, hidden=True, token_scales=True, fmt=fmt)["trajectory"]
    routed = tokens * 2 * 2 * 2
    # hidden activations have a global scale in each slot, keys and values one each
    assert body == predicted + routed


@pytest.mark.parametrize(
    "change, match",
    [
        (dict(n_routed_experts=256, num_experts=None), "n_routed_experts=256"),
        (dict(kv_lora_rank=512), "kv_lora_rank=512"),
        (dict(hidden_size="2048"), "hidden_size='2048', expected a whole number"),
        (dict(num_attention_heads=0, head_dim=None), "num_attention_heads=0"),
    ],
)
def test_a_config_of_another_family_is_refused_by_field(change, match):
    with pytest.raises(Fp4Error, match=match):
        Geometry.from_config(QWEN3_MOE | change)


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(Fp4Error, match="kv_b=7: expected 1..4"):
        cache_cost(PAPER, 1, kv_b=7)
    with pytest.raises(Fp4Error, match="hidden=True: slots=0"):
        cache_cost(PAPER, 1, hidden=True)
