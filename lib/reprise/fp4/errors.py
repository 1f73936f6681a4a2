"""What the FP4 formats refuse, by kind."""

from __future__ import annotations

from reprise.errors import RepriseError


class Fp4Error(RepriseError):
    """Base of everything `reprise.fp4` raises on purpose."""


class NonFiniteInput(Fp4Error):
    """NaN, or Inf where an amax is taken, in a tensor to be quantised.

    Args:
        site: where the tensor was met, such as (3, "x"); empty for a tensor without a place.
        count: how many values are not finite.
        what: what they are, "NaN" or "NaN or Inf".
    """

    def __init__(self, site, count: int, what: str = "NaN"):
        self.site, self.count = site, count
        place = f"site {site!r}" if site else "input"
        super().__init__(f"{place}: {count} values are {what}, expected finite ones")


class BlockShapeError(Fp4Error):
    """A last axis that is not a whole number of blocks."""


class CodeRangeError(Fp4Error):
    """A code that does not fit its bits, or a width that is none."""


class PackedSizeError(Fp4Error):
    """Packed bytes of another length than their count of codes needs."""


class ScaleFormatMismatch(Fp4Error):
    """Scales of another format, dtype or shape than the tensor they belong to."""


class PathError(Fp4Error):
    """Settings of a path that contradict each other, or a batch that it cannot take."""
