"""Which E2M1 code a rollout rounded to, from its low bits and the z of the trainer.

The candidates are the magnitude codes whose low b bits are the cached ones; one of them is chosen by |z| and gets the
sign of z. Adjacent codes have opposite low bits, so one bit tells the ends of a bracket apart. The rules differ in what
they call nearest:

    nearest   the candidate's value to |z|: the paper's
    bracket   an end of z's bracket if it is a candidate, otherwise as nearest: ours
    cell      the interval that rounds to the candidate, to |z|: ours

With b = 1 `nearest` leaves the bracket for |z| in (2, 2.25] and (4, 4.5] when the bit is 1, and so misses a rollout
code that lies inside: z = 4.3 and q_roll = 6 give 3. `bracket` recovers every rollout code that is an end of z's
bracket and has z's sign. No rule recovers all others, so with b < 4 guided rounding can end farther from the rollout
than rounding to nearest: z = 0.1, q_roll = -0.5 and b = 1 give 0.5 instead of 0.

For each bit pattern a rule is a staircase in |z|, given here by its thresholds; a tie goes to the smaller magnitude
(our choice, the paper is silent).
"""

from __future__ import annotations

from functools import cache

import torch

from reprise.fp4.e2m1 import E2M1_TIES, E2M1_VALUES, check_codes
from reprise.fp4.errors import Fp4Error
from reprise.fp4.guided import check_normalised

RULES = ("nearest", "bracket", "cell")


def reconstruct(z: torch.Tensor, low_bits: torch.Tensor, b: int, rule: str = "nearest", site="") -> torch.Tensor:
    """uint8 codes that stand for the rollout's, shaped like z.

    Args:
        z: normalised activations x_train / s_roll, any shape, float16, bfloat16 or float32.
        low_bits: uint8, the rollout codes' low b bits, shaped like z.
        b: bits kept, 1..4. With 3 the magnitude is complete; with 4 the code is, and z is not used.
        rule: one of RULES; all agree from b = 2 on except `cell` at b = 2.
        site: where z was taken, for the error.

    Raises:
        NonFiniteInput: z holds NaN.
        CodeRangeError: low_bits of 2^b or more or not uint8, or another b.
        Fp4Error: another rule, z of another dtype, or of another shape than the bits.

    Source: Reconstruct of appendix A.1, section 3.2.

    >>> z = torch.tensor([4.3, 4.3])
    >>> [reconstruct(z, torch.tensor([0, 1], dtype=torch.uint8), 1, rule).tolist() for rule in RULES]
    [[6, 5], [6, 7], [6, 7]]
    """
    if rule not in RULES:
        raise Fp4Error(f"rule={rule!r}: expected one of {', '.join(RULES)}")
    check_codes(low_bits, b)
    check_normalised(z, low_bits, site)
    if b == 4:
        return low_bits.clone()
    a = z.float().abs()
    above = torch.zeros_like(low_bits)
    for column in thresholds(b, rule):
        above += a > column.to(a.device)[low_bits.int()]
    return low_bits + (above << b) | torch.signbit(z).to(torch.uint8) << 3


@cache
def thresholds(b: int, rule: str) -> torch.Tensor:
    """fp32 of shape (2^(3-b) - 1, 2^b): entry (j, c) is the |z| up to which candidate j of bits c is chosen."""
    rows = []
    for j in range((1 << 3 - b) - 1):
        rows.append([_threshold(c + (j << b), c + (j + 1 << b), rule) for c in range(1 << b)])
    return torch.tensor(rows, dtype=torch.float32).reshape(-1, 1 << b)


def _threshold(low: int, high: int, rule: str) -> float:
    """Where magnitude code `high` takes over from `low`."""
    middle = (E2M1_VALUES[low] + E2M1_VALUES[high]) / 2
    if rule == "cell":
        return (E2M1_TIES[low] + E2M1_TIES[high - 1]) / 2  # code k is what |z| in [tie k-1, tie k] rounds to
    if rule == "bracket":  # `low` is an end up to the code above it, `high` from the code below it
        return min(max(middle, E2M1_VALUES[low + 1]), E2M1_VALUES[high - 1])
    return middle
