"""Where FP4 quantisers depart from the formats: python benchmarks/fp4_conformance.py [--quantiser module:function]

Without arguments every library installed by `make peers` is compared. With `--quantiser` a function of yours is:

    def quantise(x, fmt):
        # x is a float32 or bfloat16 torch tensor
        # fmt "e2m1":  [n] values already divided by their scale   -> codes
        # fmt "nvfp4": [rows, K], K a multiple of 16               -> codes, E4M3 scale bytes [rows, K / 16]
        # fmt "mxfp4": [rows, K], K a multiple of 32               -> codes, E8M0 scale bytes [rows, K / 32]
        # raise NotImplementedError for a format you do not have

Codes are uint8, one a value [.., K] or two a byte [.., K / 2], the first in the low nibble; NumPy arrays will do.
NVFP4's global scale is amax / 2688 of x. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import table
from reprise.fp4 import unpack_bits
from reprise.labs.fp4_conformance import FORMATS, Comparison, compare, nan_codes
from reprise.labs.fp4_peers import PEERS


def from_text(name: str) -> Callable:
    """The function `module:function`, the working directory on the path, its results brought to our layout."""
    module, _, function = name.partition(":")
    if not function:
        raise SystemExit(f"--quantiser {name}: expected module:function")
    sys.path.insert(0, str(Path.cwd()))
    try:
        theirs = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise SystemExit(f"--quantiser {name}: {error}") from None

    def quantise(x: torch.Tensor, fmt: str):
        got = theirs(x.clone(), fmt)
        if fmt == "e2m1":
            return as_codes(got, x.shape, name)
        codes, byte = got
        return as_codes(codes, x.shape, name), as_bytes(byte).reshape(*x.shape[:-1], -1)

    return quantise


def as_bytes(values) -> torch.Tensor:
    """A uint8 tensor of an array or tensor of bytes, whatever its one-byte dtype is called."""
    if isinstance(values, torch.Tensor):
        return values.contiguous().view(torch.uint8)
    return torch.from_numpy(np.ascontiguousarray(values).view(np.uint8))


def as_codes(values, shape, name: str) -> torch.Tensor:
    """One code an element, from that or from two a byte."""
    codes, n = as_bytes(values).reshape(-1), int(np.prod(shape))
    if codes.numel() == (n + 1) // 2 < n:
        codes = unpack_bits(codes, 4, n)
    if codes.numel() != n:
        raise SystemExit(f"--quantiser {name}: {codes.numel()} codes for {n} values")
    return codes.reshape(shape)


def report(name: str, quantise: Callable, comparisons: list[Comparison]) -> str:
    """Text of one quantiser: a line for each set of inputs, and what NaN becomes."""
    rows = [
        [c.fmt, c.inputs, f"{c.codes} of {c.values}", f"{c.bytes} of {c.blocks}" if c.blocks else "", c.example]
        for c in comparisons
    ]
    nan = nan_codes(quantise)
    lines = [name, table(["format", "inputs", "codes differ", "scales differ", "first difference"], rows)]
    return "\n".join([*lines, f"NaN: {nan}"] if nan else lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quantiser", help="module:function to compare instead of the installed libraries")
    parser.add_argument("--format", action="append", choices=FORMATS, help="only this format; may be repeated")
    parser.add_argument("--random", type=int, default=1 << 20, help="random values to cast")
    parser.add_argument("--rows", type=int, default=256, help="rows of 1024 random values in block inputs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    formats = options.format or FORMATS
    if options.quantiser:
        quantise = from_text(options.quantiser)
        found = list(compare(quantise, formats, options.random, options.rows))
        print(report(options.quantiser, quantise, found))
        sys.exit(any(c.codes or c.bytes for c in found))
    for peer in PEERS:
        if chosen := [fmt for fmt in formats if fmt in peer.formats]:
            if peer.unavailable:
                print(f"{peer.name}: {peer.unavailable}\n")
                continue
            found = list(compare(peer.quantise, chosen, options.random, min(options.rows, peer.most_rows)))
            print(report(f"{peer.name} {peer.version}", peer.quantise, found), "\n")


if __name__ == "__main__":
    main()
