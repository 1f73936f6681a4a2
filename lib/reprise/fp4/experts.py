"""Feed-forward layers of transformers models, computed with rounded inputs, hidden activations and weights.

`experts_forward` stands for the loop over the fused three-dimensional expert weights of Qwen3-MoE, `router_forward` for
its top-k gate with R3's replay, `mlp_forward` for the dense MLP of a Llama.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import linear, softmax

from reprise.fp4.guidance_errors import GuidanceShapeMismatch
from reprise.fp4.sites import Sites


def experts_forward(module, sites: Sites, layer: int, batch: list[int]) -> Callable:
    """The forward of an expert collection with `gate_up_proj` [experts, 2 hidden, width] and `down_proj`.

    Args:
        batch: [trajectories, tokens] of the pass that is under way; the layer itself sees them flattened.
    """

    def forward(hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> torch.Tensor:
        x = sites.round((layer, "x"), hidden_states.view(*batch, -1)).view_as(hidden_states)
        up, down = (sites.weight((layer, name), getattr(module, name)) for name in ("gate_up_proj", "down_proj"))
        slots = top_k_index.shape[1]
        # pairs of a token and one of its experts, sorted by expert: each expert gets one contiguous run
        order = top_k_index.reshape(-1).argsort(stable=True)
        back = order.argsort()
        counts = torch.bincount(top_k_index.reshape(-1), minlength=len(up)).tolist()

        def per_expert(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            runs = zip(rows.split(counts), weight, strict=True)
            return torch.cat([linear(run, matrix) for run, matrix in runs if len(run)])

        gate, value = per_expert(x[order // slots], up).chunk(2, -1)
        hidden = (module.act_fn(gate) * value)[back]
        hidden = sites.round((layer, "h"), hidden.view(*batch, slots, -1)).view_as(hidden)
        out = sites.output(per_expert(hidden[order], down))[back].view(-1, slots, x.shape[-1])
        return (out * top_k_weights[..., None].to(out.dtype)).sum(1)

    return forward


def router_forward(module, sites: Sites, layer: int, batch: list[int], replay: torch.Tensor | None) -> Callable:
    """The forward of a top-k router. With `replay` the experts are the rollout's and only their weights are computed.

    Args:
        replay: [trajectories, tokens, slots] expert numbers, or None.

    Source: R3 (rollout routing replay), as used in section 4.
    """

    def forward(hidden_states: torch.Tensor):
        chosen = None
        if replay is not None:
            if tuple(replay.shape[:2]) != tuple(batch):
                raise GuidanceShapeMismatch(
                    f"replay[{layer}]: {tuple(replay.shape[:2])} trajectories and tokens, expected {tuple(batch)}"
                )
            # a rollout under torch.inference_mode() leaves tensors that backward passes cannot save
            chosen = replay.reshape(-1, module.top_k).clone()
        logits, weights, chosen = _route(module, hidden_states, chosen)
        if sites.capture is not None:
            sites.capture.add_routes(layer, chosen.view(*batch, -1))
        return logits, weights, chosen

    return forward


def routes_by_softmax(router) -> bool:
    """Whether a router is the one that `router_forward` stands for, by its parameters and by sixteen rows.

    Routers with sigmoids, biases, groups or scaling factors have the same attributes.
    """
    if {name for name, _ in (*router.named_parameters(), *router.named_buffers())} != {"weight"}:
        return False
    weight = router.weight
    width = weight.shape[-1]
    rows = torch.arange(16 * width, dtype=torch.float32, device=weight.device).sin().view(16, width).to(weight.dtype)
    with torch.no_grad():
        # of the class: the instance's forward may be that of an open path
        own, ours = (
            torch.zeros(16, len(weight), device=weight.device).scatter(-1, chosen, weights.float())
            for _, weights, chosen in (type(router).forward(router, rows), _route(router, rows))
        )
    return torch.allclose(own, ours, equal_nan=True)


def _route(module, hidden_states: torch.Tensor, chosen: torch.Tensor | None = None):
    """(logits, weights, experts) of rows, each [rows, ...]; `chosen` experts [rows, slots] in place of the top ones."""
    logits = linear(hidden_states.reshape(-1, module.weight.shape[-1]), module.weight)
    p = softmax(logits, -1, dtype=torch.float32)  # as transformers has it, whatever the dtype of the model
    if chosen is None:
        chosen = p.topk(module.top_k, -1).indices
    weights = p.gather(-1, chosen)
    if module.norm_topk_prob:
        weights = weights / weights.sum(-1, keepdim=True)
    return logits, weights.to(logits.dtype), chosen


def mlp_forward(module, sites: Sites, layer: int) -> Callable:
    """The forward of a gated MLP without biases; x is [trajectories, tokens, width]."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        names = ("gate_proj", "up_proj", "down_proj")
        gate, up, down = (sites.weight((layer, name), getattr(module, name).weight) for name in names)
        x = sites.round((layer, "x"), x)
        hidden = sites.round((layer, "h"), module.act_fn(linear(x, gate)) * linear(x, up))
        return sites.output(linear(hidden, down))

    return forward
