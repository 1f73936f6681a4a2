"""Keys and values rounded where the attention of a transformers model reads them: keys after RoPE, cache included.

Transformers finds an attention function by a name in the model's config, and the mask that belongs to it by the same
name. `install` registers, for an implementation such as "eager", one that rounds first and then calls it.
"""

from __future__ import annotations

import sys
from weakref import WeakKeyDictionary

import torch

from reprise.fp4.sites import Sites

PREFIX = "fp4_"
# attention module -> (sites, layer, the [trajectories, tokens] that its layer's experts will see)
_open: WeakKeyDictionary[torch.nn.Module, tuple[Sites, int, list[int]]] = WeakKeyDictionary()


def install(base: str) -> str:
    """Register the rounding variant of the implementation `base` and return its name; once is enough."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if base.startswith(PREFIX):  # of another model that shares the config
        return base
    name = PREFIX + base

    def attention(module, query, key, value, attention_mask, **options):
        if module in _open:  # otherwise another model's, which shares the config
            sites, layer, batch = _open[module]
            batch[:] = query.shape[0], query.shape[2]
            key, value = _side_by_side(sites, layer, "k", key), _side_by_side(sites, layer, "v", value)
        # "eager" is in no registry: it is a function of the module that defines the model
        own = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        return ALL_ATTENTION_FUNCTIONS.get_interface(base, own)(module, query, key, value, attention_mask, **options)

    ALL_ATTENTION_FUNCTIONS.register(name, attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(name, ALL_MASK_ATTENTION_FUNCTIONS[base])
    return name


def attach(module, sites: Sites, layer: int, batch: list[int]) -> None:
    """Route this attention module's keys and values through `sites`."""
    _open[module] = sites, layer, batch


def detach(module) -> None:
    """Undo `attach`; harmless where there was none."""
    _open.pop(module, None)


def attached(module) -> bool:
    return module in _open


def _side_by_side(sites: Sites, layer: int, kind: str, states: torch.Tensor) -> torch.Tensor:
    """Round [trajectories, heads, tokens, dim] with a token's heads in one row, so that they share a global scale."""
    rows = states.transpose(1, 2)
    return sites.round((layer, kind), rows.flatten(2)).view(rows.shape).transpose(1, 2)
