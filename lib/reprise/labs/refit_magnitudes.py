"""Where on the number line of BF16 a step's changes fall."""

from __future__ import annotations

import numpy as np

from reprise.labs import tiny_moe
from reprise.labs.rounding_laws import LAWS
from reprise.refit import predict_change

LR = 1e-6
LOWEST, HIGHEST = -16, -3  # binades shown: below 2^-16 few of the weights, above 2^-3 none, but the norms' ones


def changes_by_magnitude(seed: int, *, start: str) -> list[dict]:
    """Changed share of a first step at LR, binade by binade, measured and predicted from |u| = learning rate.

    Args:
        seed, start: as for `tiny_moe.train`.

    Returns:
        one row a binade [2^e, 2^(e+1)) of the stored |w|: `exponent` e, `elements`, `changed` and `predicted` as shares
        of the binade, and `step` = LR over the spacing of BF16 there.
    """
    (step,) = tiny_moe.train(seed, lr=LR, start=start, steps=1)
    before = np.concatenate([change.before.float().flatten().numpy() for change in step.changes])
    after = np.concatenate([change.after.float().flatten().numpy() for change in step.changes])
    exponents = np.frexp(before)[1] - 1
    rows = []
    for exponent in range(LOWEST, HIGHEST):
        inside = (exponents == exponent) & (before != 0)
        if inside.any():
            rows.append(
                {
                    "exponent": exponent,
                    "elements": int(inside.sum()),
                    "changed": float((before[inside] != after[inside]).mean()),
                    "predicted": predict_change(before[inside], np.float64(LR), LAWS[start]),
                    "step": LR / 2.0 ** (exponent - 7),
                }
            )
    return rows
