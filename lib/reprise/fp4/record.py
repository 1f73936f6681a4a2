"""What one rollout leaves behind for the trainer: low code bits and scales of each site and token.

A record is one trajectory of one policy version. Its sites are (layer, kind) with kind one of x, h, k, v; the layers it
guides are declared, so that a site outside them is not guided by design while one missing inside them is an error. The
last sampled token is never fed back to the model, hence

    tokens = prompt + response - 1.

Source: section 3.2 (low bits and scales, indexed by trajectory, token and site).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import torch

from reprise.fp4.blocks import BLOCK
from reprise.fp4.capture import Capture, Site
from reprise.fp4.errors import Fp4Error, ScaleFormatMismatch
from reprise.fp4.guidance_errors import (
    BitsMismatch,
    FormatMismatch,
    GuidanceShapeMismatch,
    LayerNotGuided,
    MissingRoutes,
    MissingSite,
    ModelMismatch,
    PolicyVersionMismatch,
    TokenMismatch,
)
from reprise.fp4.methods import KINDS
from reprise.fp4.tensor import check_scales

MAX_VERSION_DIFF = 3  # section 4: the oldest policy that still trains
MAX_TOKENS = 1 << 40
MAX_LAYER = 1 << 16


@dataclass(frozen=True)
class Provenance:
    """Where a record comes from, and how to read it.

    Attributes:
        trajectory: its identifier.
        policy_version: of the weights that generated it.
        model: `model_digest` of the model's configuration; the weights are told by the policy version.
        token_digest: `token_digest` of the ids that were fed.
        tokens: how many, prompt + response - 1.
        fmt: "nvfp4" or "mxfp4".
        b: bits kept of each code, 1..4.
        layers: (first, stop) of the guided layers.

    Raises:
        Fp4Error: a field outside its bounds, by name.
    """

    trajectory: str
    policy_version: int
    model: str
    token_digest: str
    tokens: int
    fmt: str
    b: int
    layers: tuple[int, int]

    def __post_init__(self):
        if not isinstance(self.layers, tuple) or len(self.layers) != 2:
            raise Fp4Error(f"layers={self.layers!r}: expected (first, stop)")
        first, stop = self.layers
        for name, value, low, high in (
            ("policy_version", self.policy_version, 0, 1 << 62),
            ("tokens", self.tokens, 1, MAX_TOKENS),
            ("b", self.b, 1, 4),
            ("layers[1]", stop, 0, MAX_LAYER),
            ("layers[0]", first, 0, stop),
        ):
            check_whole(name, value, low, high)
        for name in ("trajectory", "model", "token_digest", "fmt"):
            if not isinstance(text := getattr(self, name), str):
                raise Fp4Error(f"{name}={text!r}: expected a text")
        if self.fmt not in BLOCK:
            raise Fp4Error(f"fmt={self.fmt!r}: expected one of {', '.join(BLOCK)}")

    def require(self, *, token_ids, model: str, policy_version: int, fmt: str, b: int, lag: int = MAX_VERSION_DIFF):
        """Refuse the record unless it is that of these tokens, this model and a policy young enough.

        Args:
            token_ids: ids the trainer feeds, [tokens].
            policy_version: of the weights being trained; the record may be up to `lag` versions older.

        Raises:
            TokenMismatch, ModelMismatch, PolicyVersionMismatch, FormatMismatch, BitsMismatch: naming the trajectory.
        """
        where = f"trajectory {self.trajectory!r}: "
        if self.model != model:
            raise ModelMismatch(f"{where}model={self.model!r}, expected {model!r}")
        if not 0 <= policy_version - self.policy_version <= lag:
            raise PolicyVersionMismatch(
                f"{where}policy_version={self.policy_version}, expected {policy_version - lag}..{policy_version}"
            )
        if self.fmt != fmt:
            raise FormatMismatch(f"{where}fmt={self.fmt!r}, expected {fmt!r}")
        if self.b != b:
            raise BitsMismatch(f"{where}b={self.b}, expected {b}")
        if len(token_ids) != self.tokens:
            raise TokenMismatch(f"{where}tokens={self.tokens}, expected {len(token_ids)}")
        if (digest := token_digest(token_ids)) != self.token_digest:
            raise TokenMismatch(f"{where}token_digest={self.token_digest}, expected {digest}")


@dataclass(frozen=True)
class SiteGuidance:
    """Tokens of one site.

    Attributes:
        low_bits: uint8 [tokens, ..., width], each below 2^b.
        block_scale: uint8 [tokens, ..., width / block]: E4M3 bytes in NVFP4, E8M0 bytes in MXFP4.
        global_scale: float32 [tokens, ..., 1], one a token (and expert slot); None in MXFP4.
    """

    low_bits: torch.Tensor
    block_scale: torch.Tensor
    global_scale: torch.Tensor | None = None

    def rows(self, start: int, stop: int) -> SiteGuidance:
        """The tokens start..stop."""
        return self._each(lambda part: part[start:stop])

    def _each(self, change) -> SiteGuidance:
        parts = (getattr(self, f.name) for f in fields(self))
        return SiteGuidance(*(None if part is None else change(part) for part in parts))


@dataclass(frozen=True)
class GuidanceRecord:
    """Sites of one trajectory, or of its tokens start..stop.

    Attributes:
        provenance: of the whole trajectory.
        sites: by (layer, kind).
        routes: layer -> int64 [tokens, slots], the experts of each token; needed where the "h" of slots is guided.
        start, stop: the tokens held; stop None is the end of the trajectory.

    Raises:
        TokenMismatch: tokens outside the trajectory.
        GuidanceShapeMismatch, LayerNotGuided, MissingRoutes: a site that does not fit, by name.
    """

    provenance: Provenance
    sites: Mapping[Site, SiteGuidance]
    routes: Mapping[int, torch.Tensor] = field(default_factory=dict)
    start: int = 0
    stop: int | None = None

    def __post_init__(self):
        if not 0 <= self.start < self.start + self.tokens <= self.provenance.tokens:
            raise TokenMismatch(
                f"trajectory {self.provenance.trajectory!r}: tokens {self.start}..{self.start + self.tokens}, "
                f"expected a range within 0..{self.provenance.tokens}"
            )
        for site, held in self.sites.items():
            check_site(self.provenance, site, held, self.tokens)
            if site[1] == "h" and held.low_bits.dim() == 3 and site[0] not in self.routes:
                raise MissingRoutes(f"site {site}: guided without routes[{site[0]}], the experts of its slots")
        for layer, chosen in self.routes.items():
            if chosen.dtype != torch.int64 or chosen.dim() != 2 or len(chosen) != self.tokens:
                raise GuidanceShapeMismatch(
                    f"routes[{layer}]: {chosen.dtype} {tuple(chosen.shape)}, expected int64 ({self.tokens}, slots)"
                )
            hidden = self.sites.get((layer, "h"))
            if hidden is not None and tuple(hidden.low_bits.shape[1:-1]) != tuple(chosen.shape[1:]):
                raise GuidanceShapeMismatch(
                    f"site {(layer, 'h')}: {tuple(hidden.low_bits.shape[1:-1])} slots, expected {chosen.shape[1]} "
                    f"as routes[{layer}]"
                )

    @property
    def tokens(self) -> int:
        return (self.provenance.tokens if self.stop is None else self.stop) - self.start

    def site(self, site: Site, shape: Sequence[int] | None = None) -> SiteGuidance:
        """Guidance of a site.

        Args:
            shape: of the activations to guide, [tokens, ..., width], if it should be checked.

        Raises:
            LayerNotGuided, MissingSite, GuidanceShapeMismatch: by name of the site.
        """
        held = find(self.provenance, self.sites, site)
        if shape is not None and tuple(held.low_bits.shape) != tuple(shape):
            raise GuidanceShapeMismatch(f"site {site}: guidance {tuple(held.low_bits.shape)}, expected {tuple(shape)}")
        return held


def find(provenance: Provenance, sites: Mapping, site: Site):
    """sites[site], or the error that says why there is none."""
    first, stop = provenance.layers
    if not first <= site[0] < stop:
        raise LayerNotGuided(f"site {site}: trajectory {provenance.trajectory!r} guides layers {first}..{stop - 1}")
    if site not in sites:
        raise MissingSite(f"site {site}: not in trajectory {provenance.trajectory!r}")
    return sites[site]


def check_site(provenance: Provenance, site: Site, held: SiteGuidance, tokens: int) -> None:
    """Refuse a site whose parts do not fit each other, the format or the declared layers.

    Raises:
        LayerNotGuided, GuidanceShapeMismatch, ScaleFormatMismatch: naming the site.
    """
    first, stop = provenance.layers
    if site[1] not in KINDS or not first <= site[0] < stop:
        raise LayerNotGuided(f"site {site}: expected a kind of {', '.join(KINDS)} in layers {first}..{stop - 1}")
    shape, block = tuple(held.low_bits.shape), BLOCK[provenance.fmt]
    fits = len(shape) > 1 and shape[0] == tokens and 0 not in shape and shape[-1] % block == 0
    if held.low_bits.dtype != torch.uint8 or not fits:
        raise GuidanceShapeMismatch(
            f"site {site}: low_bits {held.low_bits.dtype} {shape}, expected uint8 ({tokens}, ..., multiple of {block})"
        )
    try:
        check_scales(held.block_scale, held.global_scale, (*shape[:-1], shape[-1] // block), provenance.fmt)
    except ScaleFormatMismatch as error:
        raise ScaleFormatMismatch(f"site {site}: {error}") from None
    if provenance.fmt == "nvfp4" and held.global_scale.dim() == 0:
        raise ScaleFormatMismatch(f"site {site}: global_scale of a tensor, expected one a token")


def from_capture(capture: Capture, index: int, provenance: Provenance, start: int = 0) -> GuidanceRecord:
    """The record of one trajectory of a batch that a rollout path captured.

    Sites outside the guided layers are left out, tokens before `start` and beyond the trajectory's (padding) are cut
    off, and of each code the low b bits are kept.

    Args:
        start: where the trajectory begins; above 0 in a batch that was padded on the left.

    Raises:
        TokenMismatch: fewer tokens were captured than the trajectory has.
        GuidanceShapeMismatch: a site without codes, or of another format.
    """
    tokens, (first, stop) = provenance.tokens, provenance.layers
    own = slice(start, start + tokens)
    sites = {}
    for site, seen in capture.sites.items():
        if not first <= site[0] < stop:
            continue
        if seen.codes is None or seen.fmt != provenance.fmt:
            raise GuidanceShapeMismatch(
                f"site {site}: {seen.fmt} codes {seen.codes is not None}, expected {provenance.fmt}"
            )
        if start < 0 or seen.codes.shape[1] < own.stop:
            raise TokenMismatch(
                f"site {site}: {seen.codes.shape[1]} tokens captured, expected tokens={tokens} from start={start} on"
            )
        scale = None if seen.global_scale is None else seen.global_scale[index, own]
        low_bits = seen.codes[index, own] & (1 << provenance.b) - 1
        sites[site] = SiteGuidance(low_bits, seen.block_scale[index, own], scale)
    routes = {layer: chosen[index, own] for layer, chosen in capture.routes.items() if first <= layer < stop}
    return GuidanceRecord(provenance, sites, routes)


def token_digest(token_ids) -> str:
    """SHA-256, in hexadecimal, of ids as little-endian 64-bit integers."""
    return hashlib.sha256(np.asarray(token_ids, "<i8").tobytes()).hexdigest()


def check_whole(name: str, value, low: int, high: int) -> None:
    """Raises Fp4Error unless value is an int from low to high."""
    if type(value) is not int or not low <= value <= high:
        raise Fp4Error(f"{name}={value!r}: expected {low}..{high}")


def model_digest(config: Mapping) -> str:
    """SHA-256, in hexadecimal, of a model's configuration as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
