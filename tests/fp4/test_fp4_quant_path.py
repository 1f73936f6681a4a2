"""Paths through real transformers models: what is rounded where, and that the model is as before afterwards."""

import copy
import importlib

import pytest

pytest.importorskip("transformers")

import numpy as np
import torch

from reprise.errors import RepriseError
from reprise.fp4 import attention
from reprise.fp4.capture import Capture
from reprise.fp4.discrepancy import normalised
from reprise.fp4.e2m1 import e2m1_decode
from reprise.fp4.guidance_errors import (
    BitsMismatch,
    GuidanceMissing,
    GuidanceShapeMismatch,
    MissingRoutes,
    MissingSite,
)
from reprise.fp4.methods import (
    BF16,
    BF16_SITES,
    KINDS,
    METHODS,
    QARL_LIKE,
    QAT,
    QUADS_LIKE,
    TRACE,
    Path,
)
from reprise.fp4.quant_path import PathError, UnsupportedModel, quant_path
from reprise.fp4.sites import rounded_weight
from reprise.fp4.tensor import quantize
from reprise.labs import fp4_world as world

module = importlib.import_module("reprise.fp4.quant_path")  # the package exports the function of that name

TINY = dict(num_hidden_layers=2, num_experts=4, hidden_size=32, moe_intermediate_size=32, intermediate_size=64)
TINY |= dict(num_attention_heads=2, num_key_value_heads=1, head_dim=32)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model():
    """Two layers of four experts with weights large enough that rounding matters; in float64, so that the order of
    sums does not decide a code."""
    built = world.build(np.random.default_rng(3), **TINY)
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.ndim > 1:
                parameter.mul_(10)
    return built.double()


@pytest.fixture(scope="module")
def ids():
    rng = np.random.default_rng(4)
    asked = world.prompts(rng, 6)
    return torch.from_numpy(np.hstack([asked, rng.integers(10, size=(6, world.ANSWER_TOKENS))]))


@pytest.fixture(scope="module")
def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, head_dim=16)
    return LlamaForCausalLM(LlamaConfig(vocab_size=16, num_key_value_heads=1, initializer_range=0.2, **sizes)).double()


@torch.no_grad()
def run(model, ids, method, path=Path.TRAINING, **options):
    capture = Capture()
    with quant_path(model, method, path=path, capture=capture, **options):
        return world.answer_logprobs(model, ids), capture


def rollout(model, ids, method=QAT):
    return run(model, ids, method, Path.ROLLOUT)


# ---- nothing quantised, nothing changed -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model", "llama"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_unquantised_training_path_is_the_model(name, implementation, ids, request):
    model = copy.deepcopy(request.getfixturevalue(name))
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        plain = world.answer_logprobs(model, ids)
    assert torch.allclose(run(model, ids, BF16)[0], plain, rtol=0, atol=1e-12)


def test_the_unquantised_rollout_rounds_experts_outputs_only(model, ids):
    plain, trained = run(model, ids, BF16)
    logp, seen = rollout(model, ids, BF16)
    assert 0 < (logp - plain).abs().max() < 0.1
    assert torch.equal(seen.sites[0, "x"].values, trained.sites[0, "x"].values)
    _, sites = rollout(model, ids, BF16_SITES)
    assert torch.equal(sites.sites[0, "k"].values, seen.sites[0, "k"].values.bfloat16().float())


# ---- what is at a site ----------------------------------------------------------------------------------------------


def test_every_site_has_the_shape_of_its_tokens(model, ids):
    _, seen = rollout(model, ids)
    width = {"x": (32,), "h": (2, 32), "k": (32,), "v": (32,)}
    assert set(seen.sites) == {(layer, kind) for layer in range(2) for kind in KINDS}
    for (_, kind), site in seen.sites.items():
        assert site.values.shape == site.codes.shape == (6, 13, *width[kind])
        assert site.global_scale.shape == (6, 13, *width[kind][:-1], 1)
    assert seen.routes[1].shape == (6, 13, 2)


def test_values_are_codes_times_the_scale_of_the_token(model, ids):
    _, seen = rollout(model, ids)
    for site in seen.sites.values():
        again = quantize(site.inputs, scale="token")
        assert torch.equal(site.inputs, site.inputs.bfloat16().float())
        assert torch.equal(again.codes(), site.codes)
        assert torch.equal(normalised(site.values, site.scale()).round(decimals=3), e2m1_decode(site.codes))


def test_the_residual_method_adds_a_second_code(model, ids):
    _, seen = rollout(model, ids, QUADS_LIKE)
    site = seen.sites[0, "x"]
    first = quantize(site.inputs, scale="token").dequantize()
    assert torch.equal(site.values, first + quantize(site.inputs - first, scale="token").dequantize())
    assert site.codes is None and seen.sites[0, "k"].codes is not None
    assert ((site.values - site.inputs).norm() < 0.5 * (first - site.inputs).norm()).item()


def test_eight_bit_activations_are_closer_than_four_bit_ones(model, ids):
    _, four = rollout(model, ids, QAT.in_mxfp4())
    _, eight = rollout(model, ids, QAT.in_mxfp4(8))
    error = [float((seen.sites[0, "x"].values - seen.sites[0, "x"].inputs).norm()) for seen in (four, eight)]
    assert error[1] < error[0] / 3
    assert four.sites[0, "x"].fmt == eight.sites[0, "k"].fmt == "mxfp4"
    assert eight.sites[0, "x"].codes is None and eight.sites[0, "k"].global_scale is None


@pytest.mark.parametrize("part, quantised", [("experts_only", "xh"), ("kv_only", "kv")])
def test_a_part_alone_is_quantised(model, ids, part, quantised):
    _, seen = rollout(model, ids, getattr(QAT, part)())
    for (_, kind), site in seen.sites.items():
        assert (site.codes is not None) == (kind in quantised)


def test_weights_have_a_scale_for_each_expert():
    w = torch.stack([torch.linspace(-1, 1, 64).reshape(2, 32), torch.linspace(-100, 100, 64).reshape(2, 32)])
    together = rounded_weight(w, "nvfp4")
    for expert in range(2):
        assert torch.equal(together[expert], quantize(w[expert], scale="tensor").dequantize())


@pytest.mark.parametrize("how", ["fused step", "data", "copy"])
def test_a_weight_that_changes_is_rounded_again(how):
    # a fused optimiser and writes through .data leave the version counter as it was
    w = torch.nn.Parameter(torch.linspace(-1, 1, 64).reshape(2, 32))
    before = rounded_weight(w, "nvfp4")
    assert rounded_weight(w, "nvfp4") is before
    if how == "fused step":
        w.grad = torch.ones_like(w)
        torch.optim.AdamW([w], lr=0.5, fused=True).step()
    elif how == "data":
        w.data.mul_(3)
    else:
        with torch.no_grad():
            w.copy_(2 * w)
    assert torch.equal(rounded_weight(w, "nvfp4"), quantize(w.detach()).dequantize())
    assert torch.equal(rounded_weight(w, "mxfp4"), quantize(w.detach(), "mxfp4").dequantize())


# ---- equal paths, permutations, single trajectories -----------------------------------------------------------------


def test_matched_numerics_have_no_distance(model, ids):
    logp, roll = rollout(model, ids, QARL_LIKE)
    again, train = run(model, ids, QARL_LIKE, replay=roll.routes)
    assert torch.equal(logp, again)
    for site, seen in train.sites.items():
        assert torch.equal(seen.values, roll.sites[site].values)


def test_permuting_trajectories_permutes_what_is_captured(model, ids):
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    _, seen = rollout(model, ids)
    _, permuted = rollout(model, ids[order])
    assert_same(permuted, seen.trajectories(order))


def test_a_trajectory_alone_is_rounded_as_in_the_batch(model, ids):
    _, seen = rollout(model, ids)
    for index in (0, 4):
        _, alone = rollout(model, ids[index : index + 1])
        assert_same(alone, seen.trajectories(slice(index, index + 1)))


def test_decoding_with_a_cache_captures_what_one_pass_does(model, ids):
    asked, capture = ids[:, : world.PROMPT_TOKENS].numpy(), Capture()
    uniforms = np.random.default_rng(0).random((6, world.ANSWER_TOKENS))
    with quant_path(model, QAT, path=Path.ROLLOUT, capture=capture):
        tokens, logps = world.sample(model, asked, uniforms)
    whole, seen = rollout(model, torch.from_numpy(np.hstack([asked, tokens])))
    assert_same(capture, seen)
    assert np.allclose(whole.numpy(), logps, rtol=0, atol=1e-9)


def assert_same(one: Capture, other: Capture):
    assert one.sites.keys() == other.sites.keys()
    for site, seen in one.sites.items():
        for part in ("codes", "block_scale", "global_scale", "values"):
            assert torch.equal(getattr(seen, part), getattr(other.sites[site], part)), (site, part)
    for layer, chosen in one.routes.items():
        assert torch.equal(chosen, other.routes[layer])


# ---- guidance -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_guidance_of_the_same_weights_gives_the_rollouts_values(model, ids, bits):
    _, roll = rollout(model, ids)
    _, train = run(model, ids, TRACE, guide=roll, replay=roll.routes, bits=bits)
    for site, seen in train.sites.items():
        assert torch.equal(seen.values, roll.sites[site].values)
        assert torch.equal(seen.codes & 7, roll.sites[site].codes & 7)


def test_only_the_asked_layers_are_guided(model, ids):
    _, roll = rollout(model, ids)
    _, train = run(model, ids, TRACE, guide=roll, replay=roll.routes, layers=[1])
    nearest = quantize(train.sites[0, "x"].inputs, scale="token")
    assert torch.equal(train.sites[0, "x"].codes, nearest.codes())
    assert train.sites[1, "x"].block_scale is roll.sites[1, "x"].block_scale


def test_experts_are_the_rollouts(model, ids):
    _, roll = rollout(model, ids)
    other = {layer: (chosen + 1) % 4 for layer, chosen in roll.routes.items()}
    _, seen = run(model, ids, QAT, replay=other)
    assert torch.equal(seen.routes[0], other[0]) and not torch.equal(roll.routes[0], other[0])


def test_a_dense_model_has_the_same_sites(llama, ids):
    logp, roll = rollout(llama, ids)
    assert roll.sites[1, "h"].codes.shape == (6, 13, 64) and not roll.routes
    guided, _ = run(llama, ids, TRACE, guide=roll)
    nearest, _ = run(llama, ids, QAT)
    assert (guided - logp).abs().mean() < (nearest - logp).abs().mean() / 10


# ---- gradients ------------------------------------------------------------------------------------------------------


def gradients(model, ids, method, roll):
    model = copy.deepcopy(model)
    options = dict(guide=roll) if method.guided else {}
    with quant_path(model, method, replay=roll.routes, **options):
        world.answer_logprobs(model, ids).mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_parameter_gets_a_finite_gradient(model, ids, method):
    roll = rollout(model, ids, method)[1]
    for name, gradient in gradients(model, ids, method, roll).items():
        assert gradient is not None and gradient.isfinite().all() and gradient.any(), name


def test_guided_gradients_point_where_unguided_ones_do():
    path = _root() / world.CHECKPOINT
    model = world.load_checkpoint(path)
    asked = world.prompts(np.random.default_rng(1), 16)
    ids = torch.from_numpy(np.hstack([asked, world.answers(asked)]))
    roll = rollout(model, ids)[1]
    flat = [
        torch.cat([g.flatten() for g in gradients(model, ids, method, roll).values()]).double()
        for method in (TRACE, QAT)
    ]
    assert torch.cosine_similarity(*flat, dim=0) > 0.99


def test_the_gradient_of_a_weight_uses_the_quantised_input(model, ids):
    """At the MLP of a dense layer: dL/dW = dL/dy times Q(x)."""
    from reprise.fp4.experts import mlp_forward
    from reprise.fp4.sites import Sites

    linear = lambda: torch.nn.Linear(32, 32, bias=False)  # noqa: E731
    mlp = torch.nn.Module()
    mlp.gate_proj, mlp.up_proj, mlp.down_proj, mlp.act_fn = linear(), linear(), linear(), torch.nn.Identity()
    capture = Capture()
    x = torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(0))
    out = mlp_forward(mlp, Sites(QAT.experts_only(), Path.TRAINING, capture), 0)(x)
    out.backward(upstream := torch.ones_like(out))
    hidden = capture.sites[0, "h"].values
    assert torch.allclose(mlp.down_proj.weight.grad, upstream[0].T @ hidden[0])


# ---- refusals and restoration ---------------------------------------------------------------------------------------


def _state(model):
    return [
        (name, "forward" in vars(part), getattr(getattr(part, "config", None), "_attn_implementation", None))
        for name, part in model.named_modules()
    ]


def test_the_model_is_as_before_also_after_an_exception(model, ids):
    before = _state(model)
    roll = rollout(model, ids)[1]
    assert _state(model) == before
    with pytest.raises(ZeroDivisionError), quant_path(model, QAT):
        raise ZeroDivisionError
    with pytest.raises(GuidanceShapeMismatch):
        run(model, ids[:2], TRACE, guide=roll, replay=roll.routes)
    with pytest.raises(PathError), quant_path(model, QAT), quant_path(model, QAT):
        pass
    assert _state(model) == before and not any(attention.attached(part) for part in model.modules())
    assert not any("forward" in vars(part) for part in model.modules())


def test_a_model_stays_usable_after_a_failed_entry(model, ids, monkeypatch):
    def broken(*_):
        raise RuntimeError("no such layer")

    monkeypatch.setattr(module, "router_forward", broken)
    with pytest.raises(RuntimeError, match="no such layer"):
        run(model, ids, QAT)
    monkeypatch.undo()
    assert not any("forward" in vars(part) for part in model.modules())
    run(model, ids, QAT)


@pytest.mark.parametrize(
    "options, error, message",
    [
        (dict(bits=5), PathError, "bits=5: expected 1..4"),
        (dict(rule="middle"), PathError, "rule='middle': expected one of nearest, bracket, cell"),
        (dict(layers=[2]), PathError, "layers: 2, expected numbers from 0 to 1"),
        (dict(guide=None), GuidanceMissing, "guide=None: TRACE needs"),
        (dict(replay=None), MissingRoutes, "replay=None: site .* is guided"),
        (dict(replay={0: 0}), MissingRoutes, "replay: no experts for layer 1"),
        (dict(method=QAT), PathError, "guide: QAT .* uses none"),
        (dict(path=Path.ROLLOUT), PathError, "guide: TRACE on the rollout path uses none"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_before_anything_changes(model, ids, options, error, message):
    roll = rollout(model, ids)[1]
    settings = dict(method=TRACE, guide=roll, replay=roll.routes) | options
    with pytest.raises(error, match=message), quant_path(model, settings.pop("method"), **settings):
        raise AssertionError("the path opened")
    assert issubclass(error, RepriseError)


def test_guidance_is_never_replaced_by_rounding_to_nearest(model, ids):
    roll = rollout(model, ids)[1]
    thin = Capture({site: seen for site, seen in roll.sites.items() if site != (1, "v")}, roll.routes)
    with pytest.raises(MissingSite, match=r"\(1, 'v'\)"):
        run(model, ids, TRACE, guide=thin, replay=roll.routes)
    one_bit = Capture({s: seen._replace(codes=seen.codes & 1, bits=1) for s, seen in roll.sites.items()}, roll.routes)
    run(model, ids, TRACE, guide=one_bit, replay=roll.routes, bits=1)
    with pytest.raises(BitsMismatch, match="guide of 1 bits, nvfp4, expected 2, nvfp4"):
        run(model, ids, TRACE, guide=one_bit, replay=roll.routes, bits=2)
    with pytest.raises(BitsMismatch, match="expected 4, mxfp4"):
        run(model, ids, TRACE.in_mxfp4(), guide=roll, replay=roll.routes)
    with pytest.raises(GuidanceShapeMismatch, match=r"replay\[0\]: \(2, 13\)"):
        run(model, ids, QAT, replay={layer: chosen[:2] for layer, chosen in roll.routes.items()})


def test_other_versions_and_models_are_refused_by_name(model, monkeypatch):
    import transformers

    with pytest.raises(UnsupportedModel, match="model=Linear: expected decoder layers"):
        module.model_layers(torch.nn.Linear(2, 2))
    other = copy.deepcopy(model)
    for layer in other.model.layers:
        layer.mlp = torch.nn.Linear(32, 32)
    with pytest.raises(UnsupportedModel, match="mlp=Linear: expected fused experts"):
        module.model_layers(other)
    monkeypatch.setattr(transformers, "__version__", "5.23.1")
    with pytest.raises(UnsupportedModel, match=r"transformers=5\.23\.1: expected 5\.24\.x"):
        module.model_layers(model)


def test_the_lock_has_a_supported_transformers():
    lock = (_root() / "requirements.lock").read_text()
    assert f"\ntransformers=={module.TRANSFORMERS}." in lock


def _root():
    from reprise.nb import paths

    return paths.root()
