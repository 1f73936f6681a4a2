"""What is compared in the discrepancy experiments; each guided variant also with its guidance misplaced."""

from __future__ import annotations

from reprise.fp4 import methods as m
from reprise.labs.fp4_rl import Variant

PERMUTED = ", permuted"  # the placebo: guidance goes to the tokens in a random order


def _named(*variants: Variant) -> dict[str, Variant]:
    return {variant.name: variant for variant in variants}


def _with_placebo(variant: Variant) -> tuple[Variant, Variant]:
    placebo = Variant(variant.name + PERMUTED, variant.method, variant.bits, variant.last, permuted=True)
    return variant, placebo


METHODS = _named(
    Variant("unquantised", m.BF16),
    Variant("unquantised, sites in BF16", m.BF16_SITES),
    Variant("RTN", m.QAT),
    Variant("QUADS-like", m.QUADS_LIKE),
    Variant("QaRL-like", m.QARL_LIKE),
    *_with_placebo(Variant("TRACE", m.TRACE)),
    Variant("TRACE, x and h only", m.TRACE.kv_unguided()),
)
BITS = _named(
    Variant("3 bits", m.TRACE, bits=3),
    Variant("2 bits", m.TRACE, bits=2),
    *_with_placebo(Variant("1 bit", m.TRACE, bits=1)),
    *_with_placebo(Variant("1 bit, last half", m.TRACE, bits=1, last=1 / 2)),
)
# one bit in the last L of the layers, as L40, L20, L10 and L5 of 40; an eighth needs a model of eight layers
DEPTHS = _named(
    *_with_placebo(Variant("all", m.TRACE, bits=1)),
    *_with_placebo(Variant("last 1/2", m.TRACE, bits=1, last=1 / 2)),
    *_with_placebo(Variant("last 1/4", m.TRACE, bits=1, last=1 / 4)),
    *_with_placebo(Variant("last 1/8", m.TRACE, bits=1, last=1 / 8)),
)
# the paper's ablations: experts alone, keys and values alone, and MXFP4
ABLATIONS = _named(
    Variant("W/A: RTN", m.QAT.experts_only()),
    Variant("W/A: QUADS-like", m.QUADS_LIKE.experts_only()),
    *_with_placebo(Variant("W/A: TRACE", m.TRACE.experts_only())),
    Variant("KV: RTN", m.QAT.kv_only()),
    Variant("KV: TRACE", m.TRACE.kv_only()),
    Variant("KV: TRACE unguided", m.TRACE.kv_unguided().kv_only()),
    Variant("MXFP4 W4A4: RTN", m.QAT.in_mxfp4()),
    *_with_placebo(Variant("MXFP4 W4A4: TRACE", m.TRACE.in_mxfp4())),
    Variant("MXFP4 W4A8: RTN", m.QAT.in_mxfp4(8)),
    *_with_placebo(Variant("MXFP4 W4A8: TRACE", m.TRACE.in_mxfp4(8))),
)
# a selection for models that take a minute a variant
PRETRAINED = {
    **{name: METHODS[name] for name in ("unquantised", "RTN", "QUADS-like", "TRACE", "TRACE" + PERMUTED)},
    **{name: BITS[name] for name in ("1 bit", "1 bit" + PERMUTED, "1 bit, last half")},
}
