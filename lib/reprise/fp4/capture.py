"""What a path rounded, site by site, kept in memory: the input of a comparison, and of guidance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from reprise.fp4 import mxfp4, nvfp4
from reprise.fp4.errors import PathError

Site = tuple[int, str]  # (layer, one of methods.KINDS)


class SiteCapture(NamedTuple):
    """One site of a batch of trajectories.

    Attributes:
        values: FP32 [trajectories, tokens, ...], what the layer computed with; None in guidance from a record. "x" has
            the width of the model, "h" is [..., expert slots, hidden width], "k" and "v" hold a token's heads side by
            side.
        codes: uint8 like values; None where the site was not rounded to one E2M1 code a value.
        block_scale: uint8 [..., width / block], as `quantize` stores them; None with codes.
        global_scale: FP32 [..., 1], one a token (and slot); None with codes, and in MXFP4.
        fmt: "nvfp4" or "mxfp4".
        inputs: FP32 like values, before rounding.
        bits: how many low bits of the codes are known; fewer than four where they come from a record.
    """

    values: torch.Tensor | None
    codes: torch.Tensor | None = None
    block_scale: torch.Tensor | None = None
    global_scale: torch.Tensor | None = None
    fmt: str = "nvfp4"
    inputs: torch.Tensor | None = None
    bits: int = 4

    def scale(self) -> torch.Tensor:
        """FP32 [..., width / block]: what a block's E2M1 values are multiples of."""
        if self.fmt == "nvfp4":
            return nvfp4.decode_scale(self.block_scale, self.global_scale)
        return mxfp4.decode_scale(self.block_scale)

    def each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> SiteCapture:
        """The same change made to every tensor."""
        return self._replace(**{name: change(part) for name, part in self._asdict().items() if torch.is_tensor(part)})


@dataclass
class Capture:
    """Everything a `quant_path` saw, in token order; it grows while the context is open.

    Attributes:
        sites: by (layer, kind).
        routes: layer -> int64 [trajectories, tokens, slots], the experts of each token.
    """

    sites: dict[Site, SiteCapture] = field(default_factory=dict)
    routes: dict[int, torch.Tensor] = field(default_factory=dict)

    def add(self, site: Site, seen: SiteCapture) -> None:
        """Append tokens of "x" or "h"; take "k" and "v" as they stand.

        With a cache, a decode step feeds one token to the experts, while its attention sees all keys so far.

        Raises:
            PathError: another number of trajectories than the capture has.
        """
        before = self.sites.get(site)
        if before is not None and len(before.values) != len(seen.values):
            raise PathError(
                f"capture: {len(before.values)} trajectories at site {site}, expected {len(seen.values)} as in the "
                "batch, or a Capture() of its own"
            )
        grows = before is not None and site[1] in ("x", "h")
        self.sites[site] = _joined(before, seen) if grows else seen

    def add_routes(self, layer: int, chosen: torch.Tensor) -> None:
        """Append the experts of tokens, [trajectories, tokens, slots]."""
        before = self.routes.get(layer)
        self.routes[layer] = chosen if before is None else torch.cat([before, chosen], 1)

    def trajectories(self, index) -> Capture:
        """The trajectories that `index` (a slice, a list or a permutation) selects."""
        return self._each(lambda tensor: tensor[index])

    def tokens(self, order: torch.Tensor) -> Capture:
        """Tokens in another order, the same for each trajectory."""
        return self._each(lambda tensor: tensor[:, order])

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Capture:
        return Capture(
            {site: seen.each(change) for site, seen in self.sites.items()},
            {layer: change(chosen) for layer, chosen in self.routes.items()},
        )


def _joined(before: SiteCapture, after: SiteCapture) -> SiteCapture:
    pairs = {name: (part, getattr(after, name)) for name, part in before._asdict().items() if torch.is_tensor(part)}
    return before._replace(**{name: torch.cat(pair, 1) for name, pair in pairs.items()})
