"""A transformers model computed as one of the two FP4 paths computes it, for as long as a `with` block is open."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch

from reprise.fp4 import attention
from reprise.fp4.capture import Capture
from reprise.fp4.errors import Fp4Error, PathError
from reprise.fp4.experts import experts_forward, mlp_forward, router_forward, routes_by_softmax
from reprise.fp4.guidance_errors import GuidanceMissing, MissingRoutes
from reprise.fp4.methods import Method, Path
from reprise.fp4.reconstruct import RULES
from reprise.fp4.sites import Sites

# what this file patches are internals, which move between minor versions
TRANSFORMERS = "5.24"


class UnsupportedModel(Fp4Error):
    """A model, or a version of transformers, whose layers are not the ones this package knows how to round in."""


class Layer(NamedTuple):
    """The modules of one decoder layer in which something is rounded."""

    number: int
    attention: torch.nn.Module
    experts: torch.nn.Module | None  # fused expert weights
    router: torch.nn.Module | None
    mlp: torch.nn.Module | None  # of a dense model


@contextmanager
def quant_path(
    model,
    method: Method,
    *,
    path: Path = Path.TRAINING,
    capture: Capture | None = None,
    guide: Capture | None = None,
    replay: Mapping[int, torch.Tensor] | None = None,
    bits: int = 4,
    layers: Collection[int] | None = None,
    rule: str = "nearest",
) -> Iterator[torch.nn.Module]:
    """Run `model` on a path of `method`; it is as before afterwards, also after an exception.

    The rollout path takes quantised inputs and the outputs of experts through BF16, which stands for another kernel;
    the training path computes in the model's own precision. Activations, keys and values have a global scale a token,
    weights one a matrix.

    Args:
        model: Qwen3-MoE (fused experts; dense layers between them stay as they are), or a dense Llama, whose MLPs then
            take the place of the experts.
        method: one of `methods`, or a variant.
        path: which engine to play.
        capture: filled with what the path rounds, batch by batch of the same trajectories.
        guide: the rollout's capture; needed by guided methods on the training path, refused elsewhere.
        replay: layer -> the rollout's experts [trajectories, tokens, slots], as `guide.routes` holds them.
        bits: low bits of the rollout's codes that are used, 1..4; 4 is complete information.
        layers: guided layers, by default all; the others round to nearest. The last L of n are `range(n - L, n)`.
        rule: how a code is reconstructed from its bits, one of `reconstruct.RULES`.

    Yields:
        the model.

    Raises:
        UnsupportedModel: another architecture or transformers version.
        PathError: a setting of another type or out of range, or a model that is on a path already or would compute
            layers again in the backward pass; in the forward pass, a batch that is empty or that does not continue
            the capture.
        GuidanceMissing: no guide where one is needed; MissingRoutes: guided "h" without the experts of its slots.
        GuidanceMismatch, MissingSite: in the forward pass, a guide that does not fit it.

    Source: section 3.1 (definition of the two paths), section 4 (what is quantised).
    """
    found = model_layers(model)
    layers = range(len(found)) if layers is None else layers
    _check_model(model, found)
    _check(found, method, path, guide, replay, bits, layers, rule)
    sites = Sites(method, path, capture, guide, bits, frozenset(layers), rule)
    batch = [0, 0]
    with ExitStack() as undo:
        undo.callback(setattr, model.config, "_attn_implementation", model.config._attn_implementation)
        model.config._attn_implementation = attention.install(model.config._attn_implementation)
        undo.callback(model.model.register_forward_pre_hook(_check_batch, with_kwargs=True).remove)
        for layer in found:
            undo.callback(attention.detach, layer.attention)
            attention.attach(layer.attention, sites, layer.number, batch)
            for module, forward in _forwards(layer, sites, batch, replay):
                _replace_forward(undo, module, forward)
        yield model


def _replace_forward(undo: ExitStack, module: torch.nn.Module, forward) -> None:
    if "forward" in vars(module):  # an instance's own, such as a hook of accelerate
        undo.callback(setattr, module, "forward", vars(module)["forward"])
    else:
        undo.callback(delattr, module, "forward")
    module.forward = forward


def model_layers(model) -> list[Layer]:
    """The layers of a supported model.

    Raises:
        UnsupportedModel: names what was found and what was expected.
    """
    import transformers

    if not transformers.__version__.startswith(TRANSFORMERS + "."):
        raise UnsupportedModel(
            f"transformers={transformers.__version__}: expected {TRANSFORMERS}.x, whose layers are patched"
        )
    decoder = getattr(getattr(model, "model", None), "layers", None)
    if not decoder:
        raise UnsupportedModel(f"model={type(model).__name__}: expected decoder layers in model.model.layers")
    layers = [_layer(number, module) for number, module in enumerate(decoder)]
    if any(layer.experts is not None for layer in layers):
        layers = [layer._replace(mlp=None) for layer in layers]
    elif any(layer.mlp is None for layer in layers):
        kinds = sorted({type(module.mlp).__name__ for module in decoder if hasattr(module, "mlp")})
        raise UnsupportedModel(
            f"mlp={', '.join(kinds) or None}: expected fused experts and a top-k router, or a gated MLP without biases"
        )
    return layers


def _layer(number: int, module) -> Layer:
    if not hasattr(module, "self_attn"):
        raise UnsupportedModel(
            f"layers[{number}]={type(module).__name__}: has no self_attn, expected one in each layer"
        )
    mlp = getattr(module, "mlp", None)
    experts, router = getattr(mlp, "experts", None), getattr(mlp, "gate", None)
    if getattr(getattr(experts, "gate_up_proj", None), "ndim", 0) != 3 or not hasattr(router, "norm_topk_prob"):
        experts = router = None
    elif not routes_by_softmax(router):
        raise UnsupportedModel(
            f"router={type(router).__name__}: expected a softmax over all experts, of which the top k are taken"
        )
    projections = [getattr(mlp, f"{name}_proj", None) for name in ("gate", "up", "down")]
    dense = all(isinstance(p, torch.nn.Linear) and p.bias is None for p in projections) and hasattr(mlp, "act_fn")
    return Layer(number, module.self_attn, experts, router, mlp if dense else None)


def _forwards(layer: Layer, sites: Sites, batch: list[int], replay):
    """(module, forward) of what stands in for the layer's own."""
    if layer.experts is not None:
        yield layer.experts, experts_forward(layer.experts, sites, layer.number, batch)
        chosen = None if replay is None else replay[layer.number]
        yield layer.router, router_forward(layer.router, sites, layer.number, batch, chosen)
    elif layer.mlp is not None:
        yield layer.mlp, mlp_forward(layer.mlp, sites, layer.number)


def _check_model(model, found: list[Layer]) -> None:
    if any(attention.attached(layer.attention) for layer in found):
        raise PathError("model: it is on a path already; expected one quant_path at a time")
    # backward passes would run layers again: off the path once it is closed, twice into the capture while it is open
    if any(module.training and getattr(module, "gradient_checkpointing", False) for module in model.modules()):
        raise PathError(
            "model: in training mode with gradient_checkpointing=True, expected it disabled, or model.eval()"
        )


def _check(found: list[Layer], method: Method, path: Path, guide, replay, bits: int, layers, rule: str) -> None:
    for name, value, expected in (("method", method, Method), ("path", path, Path)):
        if not isinstance(value, expected):
            raise PathError(f"{name}={value!r}: expected a {expected.__name__} of reprise.fp4.methods")
    if bits not in (1, 2, 3, 4):
        raise PathError(f"bits={bits}: expected 1..4")
    if rule not in RULES:
        raise PathError(f"rule={rule!r}: expected one of {', '.join(RULES)}")
    if strange := sorted(set(layers) - {layer.number for layer in found}):
        raise PathError(f"layers: {strange[0]}, expected numbers from 0 to {len(found) - 1}")
    guided = method.guided and path is Path.TRAINING
    if guided and guide is None:
        raise GuidanceMissing(f"guide=None: {method.name} needs the rollout's codes on the training path")
    if guide is not None and not guided:
        raise PathError(f"guide: {method.name} on the {path.value} path uses none, expected None")
    moe = {layer.number: layer for layer in found if layer.experts is not None}
    if replay is not None:
        _check_replay(replay, moe)
    slots = [
        site for site in (guide.sites if guided else {}) if site[1] == "h" and site[0] in layers and site[0] in moe
    ]
    if slots and replay is None:
        raise MissingRoutes(f"replay=None: site {slots[0]} is guided, and its slots belong to the rollout's experts")


def _check_batch(_, args, options) -> None:
    """Before the decoder, which would fail at a mask or a reshape."""
    fed = (*args[:1], options.get("input_ids"), options.get("inputs_embeds"))
    trajectories, tokens = next(ids for ids in fed if ids is not None).shape[:2]
    if not trajectories or not tokens:
        raise PathError(f"batch: {trajectories} trajectories of {tokens} tokens, expected at least one of each")


def _check_replay(replay: Mapping[int, torch.Tensor], moe: dict[int, Layer]) -> None:
    if missing := sorted(set(moe) - set(replay)):
        raise MissingRoutes(f"replay: no experts for layer {missing[0]}")
    for number, chosen in replay.items():
        if number not in moe:
            raise PathError(f"replay[{number}]: expected only layers with routed experts, {sorted(moe)}")
        slots, experts = moe[number].router.top_k, len(moe[number].experts.gate_up_proj)
        expected = f"expected torch.int64 [trajectories, tokens, {slots}]"
        if not torch.is_tensor(chosen):
            raise PathError(f"replay[{number}]: {type(chosen).__name__}, {expected}")
        if chosen.dtype != torch.int64 or chosen.ndim != 3 or chosen.shape[2] != slots:
            raise PathError(f"replay[{number}]: {chosen.dtype} {tuple(chosen.shape)}, {expected}")
        low, high = (int(end) for end in chosen.aminmax()) if chosen.numel() else (0, 0)
        if low < 0 or high >= experts:
            raise PathError(f"replay[{number}]: experts {low}..{high}, expected 0..{experts - 1}")
