"""Models, settings and batches that a path must refuse by name, and ones that it must leave as they were."""

import copy

import pytest

pytest.importorskip("transformers")

import numpy as np
import torch

from reprise.fp4.capture import Capture
from reprise.fp4.errors import NonFiniteInput, PathError
from reprise.fp4.methods import BF16, QAT, TRACE, Path
from reprise.fp4.quant_path import UnsupportedModel, model_layers, quant_path
from reprise.labs import fp4_world as world

SIZES = dict(num_hidden_layers=2, hidden_size=32, moe_intermediate_size=32, intermediate_size=64)
SIZES |= dict(num_attention_heads=2, num_key_value_heads=1, head_dim=32)
IDS = torch.arange(3 * 13).reshape(3, 13) % 10

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model():
    return world.build(np.random.default_rng(3), **SIZES, num_experts=4)


@pytest.fixture
def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(vocab_size=16, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
    return LlamaForCausalLM(LlamaConfig(**sizes))


def rolled(model, ids=IDS):
    capture = Capture()
    with torch.no_grad(), quant_path(model, QAT, path=Path.ROLLOUT, capture=capture):
        model(ids, use_cache=False)
    return capture


# ---- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, router", [("DeepseekV3", "TopkRouter"), ("Glm4Moe", "TopkRouter"), ("Flint", "TopKRouter")]
)
def test_sigmoid_routers_are_refused(name, router):
    import transformers

    sizes = dict(first_k_dense_replace=0, n_group=1, topk_group=1, num_experts_per_tok=2, vocab_size=16)
    sizes |= dict(n_routed_experts=4, num_experts=4, mlp_layer_types=["sparse"] * 2, mlp_only_layers=[])
    model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**SIZES | sizes))
    with pytest.raises(UnsupportedModel, match=f"router={name}{router}: expected a softmax over all experts"):
        model_layers(model)


def test_a_scaled_router_is_refused(model):
    router = model.model.layers[0].mlp.gate

    class Scaled(type(router)):
        def forward(self, hidden_states):
            logits, weights, chosen = super().forward(hidden_states)
            return logits, 2.5 * weights, chosen

    router.__class__ = Scaled
    with pytest.raises(UnsupportedModel, match="router=Scaled: expected a softmax"):
        model_layers(model)


def test_a_layer_without_attention_is_refused():
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    linear = dict(linear_num_value_heads=2, linear_num_key_heads=1, linear_key_head_dim=16, linear_value_head_dim=16)
    few = dict(num_experts=4, num_experts_per_tok=2, shared_expert_intermediate_size=32, vocab_size=16)
    model = Qwen3NextForCausalLM(Qwen3NextConfig(**SIZES | linear | few))
    with pytest.raises(UnsupportedModel, match=r"layers\[0\]=Qwen3NextDecoderLayer: has no self_attn"):
        model_layers(model)


def test_gradient_checkpointing_is_refused_in_training_mode_only(llama):
    llama.activation_checkpointing_enable()
    rolled(llama.eval())
    with (
        pytest.raises(PathError, match="in training mode with gradient_checkpointing=True"),
        quant_path(llama.train(), QAT),
    ):
        raise AssertionError("the path opened")
    llama.activation_checkpointing_disable()
    with quant_path(llama, QAT):
        pass


# ---- what a path leaves behind --------------------------------------------------------------------------------------


def test_training_follows_a_rollout_in_inference_mode(model):
    plain, capture = rolled(copy.deepcopy(model)), Capture()
    with torch.inference_mode(), quant_path(model, QAT, path=Path.ROLLOUT, capture=capture):
        model(IDS, use_cache=False)
    assert torch.equal(capture.sites[1, "h"].values, plain.sites[1, "h"].values)
    with quant_path(model, TRACE, guide=capture, replay=capture.routes):
        model(IDS, use_cache=False).logits.square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_an_instances_own_forward_is_restored(model):
    experts, router = model.model.layers[1].mlp.experts, model.model.layers[1].mlp.gate
    own, calls = experts.forward, []
    experts.forward = hooked = lambda *args: calls.append(1) or own(*args)
    rolled(model)
    assert not calls and experts.forward is hooked and "forward" not in vars(router)
    with torch.no_grad():
        model(IDS)
    assert calls


def test_another_model_of_the_same_config_is_left_alone(model):
    other = copy.deepcopy(model)
    other.config = model.config
    for part in other.modules():
        if hasattr(part, "config"):
            part.config = model.config
    with torch.no_grad():
        plain, on_path = other(IDS).logits, rolled(model)
        with quant_path(model, QAT, path=Path.ROLLOUT, capture=(seen := Capture())):
            assert torch.equal(other(IDS).logits, plain)
            within = rolled(other)
            model(IDS, use_cache=False)
    for capture in (within, seen):
        for site, expected in on_path.sites.items():
            assert torch.equal(capture.sites[site].values, expected.values)
    assert model.config._attn_implementation == "eager"


# ---- settings and batches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("path", "rollout", "path='rollout': expected a Path"),
        ("method", "qat", "method='qat': expected a Method"),
    ],
)
def test_a_name_is_no_setting(model, name, value, message):
    settings = dict(method=QAT, path=Path.ROLLOUT) | {name: value}
    with pytest.raises(PathError, match=message), quant_path(model, settings.pop("method"), **settings):
        raise AssertionError("the path opened")


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda chosen: chosen[..., :1], r"torch.int64 \(3, 13, 1\), expected torch.int64 \[trajectories, tokens, 2\]"),
        (lambda chosen: chosen.int(), r"torch.int32 \(3, 13, 2\), expected torch.int64"),
        (lambda chosen: chosen.tolist(), "list, expected torch.int64"),
        (lambda chosen: chosen + 1, r"experts 1..4, expected 0..3"),
        (lambda chosen: chosen - 1, r"experts -1..2, expected 0..3"),
    ],
)
def test_replayed_experts_must_be_ones_of_the_model(model, change, message):
    routes = rolled(model).routes
    with pytest.raises(PathError, match=r"replay\[1\]: " + message):
        with quant_path(model, QAT, replay=routes | {1: change(routes[1])}):
            raise AssertionError("the path opened")


def test_a_dense_model_replays_nothing(llama):
    with quant_path(llama, QAT, replay={}):  # the routes of its own capture
        pass
    with pytest.raises(PathError, match=r"replay\[0\]: expected only layers with routed experts, \[\]"):
        with quant_path(llama, QAT, replay={0: torch.zeros(3, 13, 2, dtype=torch.int64)}):
            raise AssertionError("the path opened")


def test_a_bad_weight_is_named(model, llama):
    with torch.no_grad():
        model.model.layers[1].mlp.experts.down_proj[2, 3, 4] = float("nan")
        llama.model.layers[0].mlp.up_proj.weight[:2, 0] = float("inf")
    for broken, where in ((model, r"\(1, 'down_proj'\): 1 values"), (llama, r"\(0, 'up_proj'\): 2 values")):
        with pytest.raises(NonFiniteInput, match=where):
            rolled(broken)


def test_an_empty_batch_and_another_batch_are_refused(model, llama):
    for each in (model, llama):
        for empty, found in ((IDS[:0], "0 trajectories of 13 tokens"), (IDS[:, :0], "3 trajectories of 0 tokens")):
            with pytest.raises(PathError, match=f"batch: {found}, expected at least one of each"):
                rolled(each, empty)
        capture = Capture()
        with torch.no_grad(), quant_path(each, BF16, capture=capture):
            each(IDS, use_cache=False)
            with pytest.raises(PathError, match=r"capture: 3 trajectories at site \(0, 'k'\), expected 2"):
                each(IDS[:2], use_cache=False)
        assert capture.sites[1, "x"].values.shape[:2] == (3, 13)
