"""The differences found in the pinned versions of other libraries, as cells of `fp4_conformance.matrix`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# name -> (peer, format, inputs, what differs)
DIFFERENCES = {
    "modelopt_zero_sign": ("modelopt", "e2m1", "every finite BF16", "codes"),
    "modelopt_mx_ties": ("modelopt MX cast", "e2m1", "every finite BF16", "codes"),
    "modelopt_nvfp4_zeros": ("modelopt", "nvfp4", "zeros", "bytes"),
    "modelopt_mx_log2": ("modelopt", "mxfp4", "1 ulp above 6 scales", "bytes"),
    "compressed_tensors_zero_sign": ("compressed-tensors", "e2m1", "every finite BF16", "codes"),
    "compressed_tensors_order": ("compressed-tensors", "nvfp4", "normal, BF16", "codes"),
    "compressed_tensors_zeros": ("compressed-tensors", "nvfp4", "zeros", "bytes"),
    "torchao_reciprocal": ("torchao", "nvfp4", "ties at every scale", "codes"),
    "torchao_smallest_scale": ("torchao", "nvfp4", "smaller and smaller blocks", "bytes"),
    "torchao_nvfp4_zeros": ("torchao", "nvfp4", "zeros", "bytes"),
    "torchao_subnormal_scale": ("torchao", "mxfp4", "ties at every scale", "codes"),
    "torchao_rceil_log2": ("torchao RCEIL", "mxfp4", "1 ulp above 6 scales", "bytes"),
}
# name -> (peers, format, inputs; None for all of them): nothing differs
AGREEMENTS = {
    "element_cast": (("ml_dtypes", "gfloat", "torchao"), "e2m1", None),
    "nvfp4_blocks": (("torchao", "modelopt"), "nvfp4", "normal, FP32"),
    "mxfp4_blocks": (("gfloat", "torchao", "torchao RCEIL", "torchao EVEN"), "mxfp4", "normal, FP32"),
}


def counted(rows: Iterable[Mapping]) -> dict[str, int | None]:
    """How much differs for every name above; None where a library that it needs is not among the rows.

    Args:
        rows: of `fp4_conformance.matrix`.
    """
    rows = list(rows)
    counts = {}
    for name, (peer, fmt, inputs, what) in DIFFERENCES.items():
        counts[name] = _sum(rows, (peer,), fmt, inputs, (what,))
    for name, (peers, fmt, inputs) in AGREEMENTS.items():
        counts[name] = _sum(rows, peers, fmt, inputs, ("codes", "bytes"))
    return counts


def _sum(rows: list[Mapping], peers: tuple[str, ...], fmt: str, inputs: str | None, what: tuple[str, ...]):
    chosen = [row for row in rows if row["peer"] in peers and row["fmt"].split()[0] == fmt]
    chosen = [row for row in chosen if inputs in (None, row["inputs"])]
    if {row["peer"] for row in chosen} != set(peers):
        return None
    return sum(int(row[column]) for row in chosen for column in what)
