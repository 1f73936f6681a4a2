"""E2M1, the 4-bit element of NVFP4 and MXFP4: sign, two exponent bits (bias 1), one mantissa bit; no Inf, no NaN.

A code is `s e1 e0 m`; its low three bits, the magnitude code, are ordered by magnitude. Rounding is to nearest, ties to
the even code, saturating at +-6.

Source: OCP Microscaling Formats (MX) v1.0, section 5.3.3.
"""

from __future__ import annotations

import torch

from reprise.fp4.errors import CodeRangeError, Fp4Error, NonFiniteInput

# by code; code 8 is -0
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
E2M1_MAX = 6.0
# magnitudes half way between two neighbours; they round to codes 0, 2, 2, 4, 4, 6, 6
E2M1_TIES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)

FLOATS = (torch.float16, torch.bfloat16, torch.float32)

_EXPONENT = 0x7F800000
_ONE = 0x3F800000  # bits of 1.0: below 1 the spacing stays 0.5
_TO_MAGIC = 22 << 23


def e2m1_encode(z: torch.Tensor, site="") -> torch.Tensor:
    """Nearest E2M1 code of each value, ties to the even code; beyond 5, +-Inf included, saturates to +-6.

    Args:
        z: normalised values (x divided by its scale), float16, bfloat16 or float32, any shape.
        site: where they come from, for the error.

    Returns:
        uint8 codes 0..15 of the same shape; -0.0 and everything negative that rounds to zero give 8.

    Raises:
        NonFiniteInput: z holds NaN, for which the format has no code.
        Fp4Error: another dtype; a float64 would be rounded twice.

    >>> e2m1_encode(torch.tensor([2.51, 2.49, 2.5, -0.0, -9.0])).tolist()
    [5, 4, 4, 8, 15]
    """
    check_float(z)
    z = z.detach()
    if z.numel() and torch.isnan(z.amax()):  # amax hands a NaN on
        raise NonFiniteInput(site, int(z.isnan().sum()))
    return round_(z.to(torch.float32, copy=True, memory_format=torch.contiguous_format)).to(torch.uint8)


def e2m1_decode(codes: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Value of each code.

    Args:
        codes: uint8 codes 0..15, any shape.
        dtype: of the result; every floating-point one from eight bits with a sign up holds every value exactly.

    Raises:
        CodeRangeError: codes of another dtype or above 15.
        Fp4Error: a dtype for the result that is not floating-point.

    >>> e2m1_decode(torch.tensor([1, 7, 8], dtype=torch.uint8)).tolist()
    [0.5, 6.0, -0.0]
    """
    check_codes(codes, 4)
    if not dtype.is_floating_point:
        raise Fp4Error(f"dtype={dtype}: expected a floating-point one")
    table = torch.tensor(E2M1_VALUES, dtype=dtype, device=codes.device)
    return table.index_select(0, codes.reshape(-1).int()).reshape(codes.shape)  # faster than table[codes]


def round_(z: torch.Tensor) -> torch.Tensor:
    """int32 code of each value, without a check; overwrites z, since fresh memory costs more than the arithmetic.

    With 2^E the power of two at or below max(a, 1), a = min(|z|, 6), neighbours are 2^(E-1) apart. Adding
    M = 2^(E+22), whose last place is just that, rounds a to even and leaves a / 2^(E-1) in the low bits of the sum;
    each binade further up starts two codes later:

        code = bits(a + M) - bits(M) + 2E

    No other sum is rounded, so inputs one ulp beside a tie go the right way. Not under fast-math.

    Args:
        z: float32, contiguous, any shape, no NaN.
    """
    magnitude = z.abs().clamp_(max=E2M1_MAX)
    exponent = (magnitude.view(torch.int32) & _EXPONENT).clamp_(min=_ONE)
    code = z.view(torch.int32).bitwise_right_shift_(28).bitwise_and_(8).sub_(exponent)
    magic = exponent.add_(_TO_MAGIC)
    code.add_(magnitude.add_(magic.view(torch.float32)).view(torch.int32)).sub_(_TO_MAGIC)
    return code.add_(magic.sub_(_TO_MAGIC + _ONE).bitwise_right_shift_(22))


def check_float(x: torch.Tensor) -> None:
    """Refuse dtypes whose conversion to float32 is not exact.

    Raises:
        Fp4Error: not one of FLOATS.
    """
    if x.dtype not in FLOATS:
        raise Fp4Error(f"dtype={x.dtype}: expected float16, bfloat16 or float32")


def check_codes(codes: torch.Tensor, b: int) -> None:
    """Refuse codes that are not uint8 or need more than `b` bits.

    Raises:
        CodeRangeError: names the first code beyond 2^b - 1, or the width where it is not 1..4.
    """
    if b not in (1, 2, 3, 4):
        raise CodeRangeError(f"b={b}: expected 1, 2, 3 or 4 bits a code")
    if codes.dtype != torch.uint8:
        raise CodeRangeError(f"codes: {codes.dtype}, expected uint8")
    if codes.numel() and int(codes.amax()) >> b:
        flat = codes.reshape(-1)
        at = int((flat >> b).ne(0).int().argmax())
        raise CodeRangeError(f"codes[{at}]={int(flat[at])}: expected 0..{(1 << b) - 1} for b={b}")
