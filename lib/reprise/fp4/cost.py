"""What the guidance cache weighs, in whole bytes, and how long it takes to move.

    activations a token    D1 L (b + 8/block) bits            expert inputs of L layers
    keys and values        2 L_attn H_kv D2 (b + 8/block)     of L_attn attention layers

The paper counts expert inputs only, although hidden activations are guided too, and no global scale a token; both can
be counted here. What it prints as KB and TB are powers of 1024, with 256K = 262,144 tokens; `UNITS` has both readings.

Source: section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from reprise.fp4.blocks import BLOCK
from reprise.fp4.errors import Fp4Error

UNITS = {"binary": (1 << 10, "KiB", 1 << 40, "TiB"), "decimal": (10**3, "kB", 10**12, "TB")}


@dataclass(frozen=True)
class Geometry:
    """The sizes of a model that decide the cache.

    Attributes:
        width: of expert inputs, D1.
        moe_layers: layers with routed experts, L.
        attention_layers: layers whose keys and values are cached (softmax attention), L_attn.
        kv_heads, head_dim: H_kv and D2.
        slots: experts a token, top-k; 0 where hidden activations are not counted.
        expert_width: hidden width of one expert, I.

    Raises:
        Fp4Error: a size that is not a whole number, or negative.
    """

    width: int
    moe_layers: int
    attention_layers: int
    kv_heads: int
    head_dim: int
    slots: int = 0
    expert_width: int = 0

    def __post_init__(self):
        for name, value in vars(self).items():
            if type(value) is not int or value < 0:
                raise Fp4Error(f"{name}={value!r}: expected a whole number from 0")

    @classmethod
    def from_config(cls, config: Mapping) -> Geometry:
        """Sizes from a transformers config.json of a Qwen3-MoE-like model; nested text configs are looked into.

        Linear-attention layers, named in `layer_types` or implied by `full_attention_interval`, cache no keys. In a
        dense model every layer's MLP counts as one expert.

        Raises:
            Fp4Error: a field that is needed and missing or no whole number from 1, or one of another family; by name.
        """
        config = config.get("text_config") or config

        def need(name: str) -> int:
            if config.get(name) is None:
                raise Fp4Error(f"config: no {name!r}, expected that of a Qwen3-MoE-like model")
            if type(config[name]) is not int or config[name] < 1:
                raise Fp4Error(f"config: {name}={config[name]!r}, expected a whole number from 1")
            return config[name]

        for other in ("n_routed_experts", "kv_lora_rank"):  # DeepSeek's: it would pass for a dense model
            if config.get(other):
                raise Fp4Error(f"config: {other}={config[other]!r}, expected a Qwen3-MoE-like model, which has none")
        layers, width = need("num_hidden_layers"), need("hidden_size")
        sparse = config.get("num_experts") or config.get("num_local_experts")
        dense, every = set(config.get("mlp_only_layers") or ()), config.get("decoder_sparse_step") or 1
        moe = [i for i in range(layers) if not sparse or (i not in dense and (i + 1) % every == 0)]
        kinds, interval = config.get("layer_types"), config.get("full_attention_interval") or 1
        attention = sum("linear" not in kind for kind in kinds) if kinds else layers // interval
        return cls(
            width,
            len(moe),
            attention,
            config.get("num_key_value_heads") or need("num_attention_heads"),
            config.get("head_dim") or width // need("num_attention_heads"),
            need("num_experts_per_tok") if sparse else 1,
            need("moe_intermediate_size") if sparse else need("intermediate_size"),
        )


# Qwen3.5-35B-A3B as the paper's estimate describes it
PAPER = Geometry(width=2048, moe_layers=40, attention_layers=10, kv_heads=2, head_dim=256)


def bits_per_value(b: int, fmt: str = "nvfp4") -> Fraction:
    """b bits of the code and a share of the scale byte.

    Raises:
        Fp4Error: b is not in 1..4, or another format.

    >>> bits_per_value(4), bits_per_value(1), bits_per_value(4, "mxfp4")
    (Fraction(9, 2), Fraction(3, 2), Fraction(17, 4))
    """
    if b not in (1, 2, 3, 4):
        raise Fp4Error(f"b={b}: expected 1..4")
    if fmt not in BLOCK:
        raise Fp4Error(f"fmt={fmt!r}: expected one of {', '.join(BLOCK)}")
    return b + Fraction(8, BLOCK[fmt])


def cache_cost(
    geometry: Geometry,
    b: int,
    layers: int | None = None,
    tokens: int = 1,
    trajectories: int = 1,
    *,
    kv_b: int = 4,
    kv_layers: int | None = None,
    hidden: bool = False,
    token_scales: bool = False,
    fmt: str = "nvfp4",
) -> dict[str, int]:
    """Bytes of guidance.

    Args:
        b: bits kept of an activation's code.
        layers: MoE layers kept, by default all; their number decides, not which.
        tokens, trajectories: a trajectory's length and how many there are in a step.
        kv_b, kv_layers: the same for keys and values; 0 layers where they are not kept.
        hidden: also count the hidden activations of a token's experts; the geometry must say how many and how wide.
        token_scales: also count a float32 global scale for each vector that has one (NVFP4).
        fmt: "nvfp4" or "mxfp4".

    Returns:
        whole bytes: "activations" and "kv" of a token, their sum "token", then "trajectory" and "step".

    Raises:
        Fp4Error: a count out of its range, by name.

    >>> cache_cost(PAPER, 1, 20, kv_layers=0)["token"]
    7680
    >>> cache_cost(PAPER, 4)
    {'activations': 46080, 'kv': 5760, 'token': 51840, 'trajectory': 51840, 'step': 51840}
    """
    layers = geometry.moe_layers if layers is None else layers
    kv_layers = geometry.attention_layers if kv_layers is None else kv_layers
    _check_count("layers", layers, 0, geometry.moe_layers)
    _check_count("kv_layers", kv_layers, 0, geometry.attention_layers)
    _check_count("tokens", tokens, 1)
    _check_count("trajectories", trajectories, 1)
    _check_count("kv_b", kv_b, 1, 4)
    if hidden and not geometry.slots * geometry.expert_width:
        raise Fp4Error(
            f"hidden=True: slots={geometry.slots}, expert_width={geometry.expert_width}, expected both above 0"
        )
    vectors = [(geometry.width, 1)] + ([(geometry.expert_width, geometry.slots)] if hidden else [])
    scale = 4 if token_scales and fmt == "nvfp4" else 0
    activations = layers * sum(n * _vector(width, b, fmt, scale) for width, n in vectors)
    kv = 2 * kv_layers * _vector(geometry.kv_heads * geometry.head_dim, kv_b, fmt, scale)
    token = activations + kv
    return {
        "activations": activations,
        "kv": kv,
        "token": token,
        "trajectory": token * tokens,
        "step": token * tokens * trajectories,
    }


def _check_count(name: str, value: int, low: int, high: int | None = None) -> None:
    if type(value) is not int or value < low or (high is not None and value > high):
        raise Fp4Error(f"{name}={value!r}: expected {low}..{'' if high is None else high}")


def _vector(width: int, b: int, fmt: str, scale: int) -> int:
    """Bytes of one vector; each is padded to a whole block."""
    bits = bits_per_value(b, fmt)
    return int(bits * BLOCK[fmt] * -(-width // BLOCK[fmt])) // 8 + scale


def seconds(size: int, bandwidth: float, passes: int = 1) -> float:
    """Time to move `size` bytes `passes` times at `bandwidth` bytes a second, with nothing else in the way.

    Raises:
        Fp4Error: a bandwidth that is not positive.
    """
    if not bandwidth > 0:
        raise Fp4Error(f"bandwidth={bandwidth}: expected a positive number of bytes a second")
    return passes * size / bandwidth
