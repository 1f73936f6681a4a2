"""One quantisation point: what a method makes of an activation there, and what is kept of it.

Forward passes use the rounded value, backward passes see the identity (straight-through estimator).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from reprise.fp4.capture import Capture, Site, SiteCapture
from reprise.fp4.fake_quant import Guide, guided_quant, straight_through
from reprise.fp4.guidance_errors import BitsMismatch, GuidanceShapeMismatch, MissingSite
from reprise.fp4.guided import value_code
from reprise.fp4.methods import Method, Path, Rounding
from reprise.fp4.mxfp8 import fake_quant_e4m3
from reprise.fp4.tensor import quantize

# parameter -> (format, the values that were rounded, what they were rounded to); gone with the parameter
_weights = WeakTensorKeyDictionary()


@dataclass
class Sites:
    """The settings of one open path and what it records; see `quant_path` for the fields."""

    method: Method
    path: Path
    capture: Capture | None = None
    guide: Capture | None = None
    bits: int = 4
    layers: Collection[int] = ()
    rule: str = "nearest"

    def round(self, site: Site, x: torch.Tensor) -> torch.Tensor:
        """What the layer computes with in place of x.

        Args:
            site: (layer, kind).
            x: [trajectories, tokens, ..., width]; the last axis shares a global scale.

        Returns:
            same shape and dtype; gradients pass unchanged.
        """
        seen = self._rounded(site, x.detach())
        if self.capture is not None:
            self.capture.add(site, seen)
        if self.method.rounding(self.path, site[1]) is Rounding.NONE:
            return x
        return straight_through(x, seen.values.to(x.dtype))

    def output(self, y: torch.Tensor) -> torch.Tensor:
        """An expert's output as this path hands it on."""
        if self.method.rounds_to_bf16(self.path):
            return straight_through(y, y.detach().bfloat16().to(y.dtype))
        return y

    def weight(self, site: tuple[int, str], w: torch.Tensor) -> torch.Tensor:
        """An expert weight [experts, out, in] or [out, in], rounded to nearest; a global scale for each matrix.

        Args:
            site: (layer, name of the projection), for the error.
        """
        return straight_through(w, rounded_weight(w, self.method.fmt, site)) if self.method.weights else w

    def _rounded(self, site: Site, x: torch.Tensor) -> SiteCapture:
        rounding, fmt = self.method.rounding(self.path, site[1]), self.method.fmt
        if rounding is not Rounding.NONE and self.method.rounds_to_bf16(self.path):
            x = x.bfloat16()
        x = x.float()
        if rounding in (Rounding.NONE, Rounding.BF16):
            return SiteCapture(x, inputs=x)
        if rounding is Rounding.E4M3:
            return SiteCapture(fake_quant_e4m3(x, site=site), inputs=x)
        if rounding is Rounding.GUIDED and site[0] in self.layers:
            return self._guided(site, x)
        nearest = quantize(x, fmt, scale="token", site=site)
        values = nearest.dequantize()
        if rounding is Rounding.RESIDUAL:
            residual = quantize(x - values, fmt, scale="token", site=site)
            return SiteCapture(values + residual.dequantize(), inputs=x)
        codes = nearest.codes() if self.capture is not None else None
        return SiteCapture(values, codes, nearest.block_scale, nearest.global_scale, fmt, x)

    def _guided(self, site: Site, x: torch.Tensor) -> SiteCapture:
        roll = self.guide.sites.get(site)
        if roll is None or roll.codes is None:
            raise MissingSite(f"site {site}: expected the rollout's codes in the guide")
        if roll.codes.shape != x.shape:
            raise GuidanceShapeMismatch(
                f"site {site}: guide of shape {tuple(roll.codes.shape)}, expected {tuple(x.shape)} as the forward pass"
            )
        if roll.bits < self.bits or roll.fmt != self.method.fmt:
            raise BitsMismatch(
                f"site {site}: guide of {roll.bits} bits, {roll.fmt}, expected {self.bits}, {self.method.fmt}"
            )
        low_bits = roll.codes & (1 << self.bits) - 1
        values, q = guided_quant(x, Guide(low_bits, roll.scale(), self.bits), self.rule, site)
        codes = value_code(q) if self.capture is not None else None
        return roll._replace(values=values, codes=codes, inputs=x, bits=4)


def rounded_weight(w: torch.Tensor, fmt: str, site="") -> torch.Tensor:
    """w rounded to nearest, from memory if it is still the tensor that was rounded before.

    The weights are compared, not their version counters: fused optimisers change parameters without counting.
    """
    before = _weights.get(w)
    if before is None or before[0] != fmt or not torch.equal(before[1], w):
        with torch.inference_mode(False):  # what is made inside it cannot be used in a backward pass later
            whole = w.detach()
            rows = whole.float().reshape(len(w) if w.ndim == 3 else 1, -1)
            values = quantize(rows, fmt, scale="token", site=site).dequantize().view_as(whole).to(w.dtype)
            before = _weights[w] = fmt, whole.clone(), values
    return before[2]
