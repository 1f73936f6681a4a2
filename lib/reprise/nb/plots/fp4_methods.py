"""One colour a method, the same in every picture of FP4 paths, of training with them, and of printed scores."""

from __future__ import annotations

from reprise.nb.style import PALETTE

COLOURS = {
    "unquantised": PALETTE["black"],
    "BF16": PALETTE["black"],
    "RTN": PALETTE["vermilion"],  # rounding to nearest; QAT trains through it
    "QAT": PALETTE["vermilion"],
    "QUADS": PALETTE["orange"],
    "QaRL": PALETTE["purple"],
    "TRACE": PALETTE["blue"],
    "TRACE, x and h only": PALETTE["sky"],
    "TRACE, 1 bit": PALETTE["sky"],
    "TRACE, 1 bit, last half": PALETTE["green"],
}


def colour(method: str) -> str:
    """Colour of a method; re-implementations ("QUADS-like") and controls ("TRACE, permuted") have their original's."""
    return COLOURS[method.replace("-like", "").removesuffix(", permuted").removesuffix(", sites in BF16")]
