"""How far apart two paths are, site by site.

    D_act = || Q_train(X_train) - Q_roll(X_roll) ||_F           equation 1, on values, not codes

Codes are compared by level, the signed rank of the E2M1 value: -7 .. 7, the two zeros alike. Adjacent means one level
apart, whatever the two scales are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from reprise.fp4.capture import Capture, SiteCapture
from reprise.fp4.e2m1 import e2m1_encode
from reprise.fp4.guidance_errors import GuidanceShapeMismatch, MissingSite
from reprise.fp4.reconstruct import reconstruct

if TYPE_CHECKING:
    import pandas


def path_discrepancy(train: Capture, roll: Capture) -> pandas.DataFrame:
    """One row a site.

    Args:
        train, roll: captures of the two paths over the same trajectories and tokens.

    Returns:
        layer, site ("x", "h", "k", "v"), values (their number), D (D_act), relD (D over the norm of the rollout's
        values), and, where both sides hold E2M1 codes, mismatch (share of values whose levels differ), adjacent (share
        of those that are one level apart) and sign_flips (share of those with opposite signs); NaN elsewhere.

    Raises:
        MissingSite, GuidanceShapeMismatch: the captures do not cover the same sites, or hold no values.

    Source: section 2, equation 1.
    """
    import pandas as pd

    return pd.DataFrame(
        [{"layer": layer, "site": kind, **_compared(a, b)} for (layer, kind), a, b in _pairs(train, roll)]
    )


def adjacent_share(frame: pandas.DataFrame) -> float:
    """Share of all mismatching values of a table's sites that are one level apart; NaN if none mismatches.

    Args:
        frame: of `path_discrepancy` or `corrections`.
    """
    count = frame["mismatch"] * frame["values"]
    return float((frame["adjacent"] * count).sum() / count.sum()) if count.sum() else float("nan")


def corrections(train: Capture, roll: Capture) -> pandas.DataFrame:
    """What guidance has to correct: the trainer's activations rounded to nearest in the rollout's scale, and its codes.

    Args:
        train: capture of a training path, guided or not; only its inputs are used.
        roll: capture of the rollout, with codes.

    Returns:
        layer, site, values, mismatch (share of values whose levels differ), adjacent (share of those that are one level
        apart; NaN without any), lower and higher (shares of values whose magnitude the rollout put below and above).

    Raises:
        as `path_discrepancy`, and MissingSite for a rollout without whole codes.

    Source: section 3.2 (more than 99 % of mismatching values are one code apart; corrections towards the lower code).
    """
    import pandas as pd

    rows = []
    for (layer, kind), a, b in _coded_pairs(train, roll):
        nearest = normalised(a.inputs, b.scale(), e2m1_encode)
        row = {"layer": layer, "site": kind, "values": nearest.numel(), **_levels_apart(nearest, b.codes)}
        magnitude, wanted = nearest & 7, b.codes & 7
        lower, higher = (float(part.double().mean()) for part in (wanted < magnitude, wanted > magnitude))
        rows.append(row | {"lower": lower, "higher": higher})
    return pd.DataFrame(rows).drop(columns="sign_flips")


def bit_recovery(train: Capture, roll: Capture, rule: str = "nearest") -> pandas.DataFrame:
    """How often the trainer's activation and b bits of the rollout's code give that code back.

    Args:
        train: capture of a training path, guided or not; its inputs are what z is made of, in the rollout's scale.
        roll: capture of the rollout.
        rule: of `reconstruct`.

    Returns:
        layer, site, values, b (0 to 3; 0 is rounding to nearest, no bits at all), recovered (share of values).

    Raises:
        as `corrections`.
    """
    import pandas as pd

    rows = []
    for (layer, kind), a, b in _coded_pairs(train, roll):
        z, wanted = normalised(a.inputs, b.scale()), _level(b.codes)
        for bits in range(4):
            got = reconstruct(z, b.codes & (1 << bits) - 1, bits, rule) if bits else e2m1_encode(z)
            share = float((_level(got) == wanted).double().mean())
            rows.append({"layer": layer, "site": kind, "values": wanted.numel(), "b": bits, "recovered": share})
    return pd.DataFrame(rows)


def normalised(x: torch.Tensor, scale: torch.Tensor, then=lambda z: z) -> torch.Tensor:
    """`then` of z = x / s, shaped like x [..., width], for scales [..., width / block]."""
    return then(x.unflatten(-1, (scale.shape[-1], -1)) / scale[..., None]).flatten(-2)


def _pairs(train: Capture, roll: Capture):
    for names, others, missing in ((train.sites, roll.sites, "rollout's"), (roll.sites, train.sites, "trainer's")):
        for site in names:
            if site not in others:
                raise MissingSite(f"site {site}: not in the {missing} capture, expected the same sites in both")
    for site, a in train.sites.items():
        b = roll.sites[site]
        if a.values is None or b.values is None:
            raise MissingSite(f"site {site}: no values, expected captures of quant_path, not guidance from records")
        if a.values.shape != b.values.shape:
            raise GuidanceShapeMismatch(
                f"site {site}: {tuple(b.values.shape)} on the rollout, expected {tuple(a.values.shape)} as in training"
            )
        yield site, a, b


def _coded_pairs(train: Capture, roll: Capture):
    for site, a, b in _pairs(train, roll):
        if b.codes is None or b.bits < 4:
            raise MissingSite(f"site {site}: no whole codes in the rollout's capture, expected E2M1 codes of four bits")
        yield site, a, b


def _compared(a: SiteCapture, b: SiteCapture) -> dict:
    ours, theirs = a.values.double(), b.values.double()
    distance, size = float((ours - theirs).norm()), float(theirs.norm())
    row = {"values": ours.numel(), "D": distance, "relD": distance / size if size else float(distance > 0)}
    if a.codes is None or b.codes is None:
        return row | dict.fromkeys(("mismatch", "adjacent", "sign_flips"), float("nan"))
    return row | _levels_apart(a.codes, b.codes)


def _levels_apart(codes: torch.Tensor, wanted: torch.Tensor) -> dict:
    left, right = _level(codes), _level(wanted)
    count = int((left != right).sum())
    near, flipped = int(((left - right).abs() == 1).sum()), int((left * right < 0).sum())
    return {
        "mismatch": count / left.numel(),
        "adjacent": near / count if count else float("nan"),
        "sign_flips": flipped / count if count else float("nan"),
    }


def _level(codes: torch.Tensor) -> torch.Tensor:
    """int8 -7 .. 7 of uint8 codes."""
    magnitude = (codes & 7).to(torch.int8)
    return torch.where(codes > 7, -magnitude, magnitude)
