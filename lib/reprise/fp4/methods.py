"""Who rounds what, on which path: the methods under comparison.

Quantised are the weights of routed experts, their inputs "x" and hidden activations "h", and keys and values "k", "v".
Everything else stays in high precision. The names that end in "-like" are re-implementations from a description of two
lines, not from their authors' code.

Source: section 3 (problem statement), section 4 (baselines).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

KINDS = ("x", "h", "k", "v")
EXPERT_KINDS = ("x", "h")


class Path(Enum):
    """Which engine computes: the one that generates, or the one that is trained."""

    ROLLOUT = "rollout"
    TRAINING = "training"


class Rounding(Enum):
    """What happens to an activation at a site."""

    NONE = "none"
    BF16 = "bf16"
    NEAREST = "nearest"  # Q(x), with x's own scale
    RESIDUAL = "residual"  # Q(x) + Q(x - Q(x)), each with its own scale
    GUIDED = "guided"  # towards the rollout's code, in the rollout's scale
    E4M3 = "e4m3"  # the 8-bit element in MX blocks, unguided


@dataclass(frozen=True)
class Method:
    """What a method does at each site of each path.

    Attributes:
        name: as in a caption.
        weights: whether expert weights are rounded, to nearest and alike on both paths.
        rollout, training: of "x" and "h" on the two paths.
        kv_rollout, kv_training: of "k" and "v".
        bf16_training: whether the training path rounds to BF16 where the rollout path does (matched kernels).
        fmt: "nvfp4" or "mxfp4", of everything that has four bits.
    """

    name: str
    weights: bool = True
    rollout: Rounding = Rounding.NEAREST
    training: Rounding = Rounding.NEAREST
    kv_rollout: Rounding = Rounding.NEAREST
    kv_training: Rounding = Rounding.NEAREST
    bf16_training: bool = False
    fmt: str = "nvfp4"

    def rounding(self, path: Path, kind: str) -> Rounding:
        """At a site of `kind`, one of KINDS."""
        if kind in EXPERT_KINDS:
            return self.rollout if path is Path.ROLLOUT else self.training
        return self.kv_rollout if path is Path.ROLLOUT else self.kv_training

    def rounds_to_bf16(self, path: Path) -> bool:
        """Whether quantised inputs and outputs of experts go through BF16, which stands for another kernel."""
        return path is Path.ROLLOUT or self.bf16_training

    @property
    def guided(self) -> bool:
        return Rounding.GUIDED in (self.training, self.kv_training)

    def experts_only(self) -> Method:
        """Weights and activations of experts in FP4, keys and values in high precision."""
        return replace(self, name=f"{self.name}, W/A only", kv_rollout=Rounding.NONE, kv_training=Rounding.NONE)

    def kv_only(self) -> Method:
        """Keys and values in FP4, experts in high precision."""
        none = Rounding.NONE
        return replace(self, name=f"{self.name}, KV only", weights=False, rollout=none, training=none)

    def kv_unguided(self) -> Method:
        """Keys and values rounded to nearest on the training path too."""
        return replace(self, name=f"{self.name}, KV unguided", kv_training=self.kv_rollout)

    def in_mxfp4(self, activation_bits: int = 4) -> Method:
        """MXFP4 weights, keys and values; "x" and "h" in MXFP4 (W4A4), or E4M3 in blocks of 32 (W4A8).

        Whether the paper guides 8-bit activations is not known to us; here they are rounded to nearest on both paths.
        """
        moved = replace(self, name=f"{self.name}, MXFP4 W4A{activation_bits}", fmt="mxfp4")
        return replace(moved, rollout=Rounding.E4M3, training=Rounding.E4M3) if activation_bits == 8 else moved


_none = Rounding.NONE
BF16 = Method("unquantised", weights=False, rollout=_none, training=_none, kv_rollout=_none, kv_training=_none)
# the perturbation that quantised sites are exposed to, without the quantisation
BF16_SITES = replace(BF16, name="unquantised, sites in BF16", rollout=Rounding.BF16, kv_rollout=Rounding.BF16)
QAT = Method("QAT (RTN)")
QUADS_LIKE = Method("QUADS-like", rollout=Rounding.RESIDUAL, training=Rounding.NONE)
QARL_LIKE = Method("QaRL-like", bf16_training=True)
TRACE = Method("TRACE", training=Rounding.GUIDED, kv_training=Rounding.GUIDED)
METHODS = (BF16, QAT, QUADS_LIKE, QARL_LIKE, TRACE)
