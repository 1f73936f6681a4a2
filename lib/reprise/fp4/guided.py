"""Guided rounding: of the two E2M1 values around z, the one nearer to what the rollout rounded to.

With q- <= z <= q+ adjacent E2M1 values and q_roll the rollout's,

    q_TRACE = argmin over {q-, q+} of |q - q_roll| = clamp(q_roll, q-, q+),

since no E2M1 value lies strictly between q- and q+. For the same reason the minimum is never a tie, and
|q_TRACE - q_roll| <= |q_RTN - q_roll| for every z and q_roll. The price is |q_TRACE - z| of up to a whole gap, where
rounding to nearest has half of one. All of this holds for z = x / s with s the ROLLOUT's scale, and only there.
"""

from __future__ import annotations

import torch

from reprise.fp4.e2m1 import E2M1_MAX, check_float, e2m1_decode
from reprise.fp4.errors import Fp4Error, NonFiniteInput

_EXPONENT = 0x7F800000
_ONE = 0x3F800000


def bracket(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The adjacent E2M1 values (q-, q+) with q- <= z <= q+, after saturation at +-6.

    Both ends carry the sign of z, so that 0.3 lies in [+0, 0.5] and -0.3 in [-0.5, -0]. On a value, and from 6 on,
    the two ends are the same. NaN yields NaN.

    Args:
        z: normalised activations, any shape, float16, bfloat16 or float32.

    Returns:
        (lower, upper), float32, shaped like z.

    Raises:
        Fp4Error: another dtype.

    Source: section 3.1; BracketFP4 of appendix A.1.

    >>> [end.tolist() for end in bracket(torch.tensor([4.3, -0.3, 6.5, 1.5]))]
    [[4.0, -0.5, 6.0, 1.5], [6.0, -0.0, 6.0, 1.5]]
    """
    check_float(z)
    z = z.float()
    near, far = _magnitudes(z)
    negative = torch.signbit(z)
    return torch.where(negative, -far, near), torch.where(negative, -near, far)


def guided_values(z: torch.Tensor, roll_values: torch.Tensor) -> torch.Tensor:
    """The end of z's bracket nearer to the rollout's value; see the formula above.

    Plain arithmetic without a check or a table, so that it compiles into one pass. The result has the sign of z, also
    at zero. NaN yields NaN.

    Args:
        z: normalised activations x_train / s_roll, any shape, float32.
        roll_values: E2M1 values of the rollout, float32, shaped like z.

    >>> guided_values(torch.tensor([0.3, -0.3, 6.5, 2.49]), torch.tensor([-0.5, 6.0, 4.0, 3.0])).tolist()
    [0.0, -0.0, 6.0, 3.0]
    """
    near, far = _magnitudes(z)
    sign = torch.copysign(torch.ones_like(z), z)  # torch.sign is 0 at +-0 and would lose code 8
    # the larger of +0 and -0 is either, hence the sign of z once more
    return torch.copysign(torch.minimum(torch.maximum(sign * roll_values, near), far), z)


def guided_round(z: torch.Tensor, roll_code: torch.Tensor, site="") -> torch.Tensor:
    """`guided_values` in codes: z and the rollout's code in, the guided code out.

    Args:
        z: normalised activations x_train / s_roll, any shape, float16, bfloat16 or float32; +-Inf saturates.
        roll_code: uint8 codes 0..15 of the rollout, shaped like z.
        site: where z was taken, for the error.

    Returns:
        uint8 codes, shaped like z, each one end of its bracket.

    Raises:
        NonFiniteInput: z holds NaN, which has no code.
        CodeRangeError: codes above 15 or not uint8.
        Fp4Error: z of another dtype, or of another shape than the codes.

    >>> guided_round(torch.tensor([2.49, 59.76 / 24, 0.3]), torch.tensor([5, 5, 9], dtype=torch.uint8)).tolist()
    [5, 5, 0]
    """
    check_normalised(z, roll_code, site)
    return value_code(guided_values(z.float(), e2m1_decode(roll_code)))


def value_code(values: torch.Tensor) -> torch.Tensor:
    """The uint8 codes of tensors that hold E2M1 values only: min(2a, a + 2, a/2 + 4), exact on those."""
    a = values.abs()
    code = torch.minimum(torch.minimum(2 * a, a + 2), a / 2 + 4).to(torch.uint8)
    return code | torch.signbit(values).to(torch.uint8) << 3


def check_normalised(z: torch.Tensor, codes: torch.Tensor, site) -> None:
    """Refuse a z that cannot be rounded beside these codes.

    Raises:
        NonFiniteInput: z holds NaN.
        Fp4Error: z of another dtype than float16, bfloat16 and float32, or of another shape than the codes.
    """
    check_float(z)
    if z.shape != codes.shape:
        raise Fp4Error(f"site {site!r}: z {tuple(z.shape)}, expected {tuple(codes.shape)} as the codes")
    if z.numel() and torch.isnan(z.amax()):  # amax hands a NaN on
        raise NonFiniteInput(site, int(z.isnan().sum()))


def _magnitudes(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """E2M1 magnitudes below and above |z|: multiples of 0.5 below 2, of 1 below 4, of 2 from there."""
    a = z.abs().clamp(max=E2M1_MAX)
    # 2^max(floor(log2 a), 0) from the bits: a float logarithm is off by one just below a power of two
    binade = (a.view(torch.int32) & _EXPONENT).clamp(min=_ONE).view(torch.float32)
    step = binade / 2
    position = a / step  # exact, and so are both products: step is a power of two
    return position.floor() * step, position.ceil() * step
