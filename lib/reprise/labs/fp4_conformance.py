"""Inputs on which FP4 quantisers can disagree, and where one disagrees with `reprise.fp4`.

A quantiser has the signature of `reprise.labs.fp4_peers`. Codes are compared only in blocks whose scale byte agrees:
with another scale other codes are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch

from reprise.errors import RepriseError
from reprise.fp4 import E2M1_TIES, E2M1_VALUES, e2m1_encode, quantize
from reprise.fp4.mxfp4 import MODES

FORMATS = ("e2m1", "nvfp4", "mxfp4")
WIDTH = 1024  # values in a row of the block inputs


@dataclass(frozen=True)
class Comparison:
    """What came out for one set of inputs.

    Args:
        inputs: name of the set.
        fmt: "e2m1", "nvfp4", or "mxfp4" with the scale mode it was compared with, as "mxfp4 floor".
        values: values compared.
        codes: codes that differ although the block's scale agrees.
        blocks: scale bytes compared; 0 for elements.
        bytes: scale bytes that differ.
        example: the first difference in words, or "".
    """

    inputs: str
    fmt: str
    values: int
    codes: int
    blocks: int
    bytes: int
    example: str


def element_inputs(n_random: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    """float32 values to cast: every finite BF16, 3 ulp around every tie and value, and n_random in [-8, 8)."""
    marks = torch.tensor(E2M1_TIES + E2M1_VALUES[1:8]).view(torch.int32)
    near = torch.cat([(marks + ulp).view(torch.float32) for ulp in range(-3, 4)])
    return {
        "every finite BF16": finite_bf16().float(),
        "3 ulp around ties and values": torch.cat([near, -near]),
        "random": torch.from_numpy(rng.uniform(-8, 8, n_random).astype(np.float32)),
    }


def block_inputs(fmt: str, rows: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    """Tensors [rows, WIDTH] or [1, K] to quantise in blocks.

    Args:
        fmt: "nvfp4" or "mxfp4".
        rows: of the random tensors.
        rng: source of both.
    """
    normal = torch.from_numpy(rng.standard_normal((rows, WIDTH)).astype(np.float32))
    bf16 = finite_bf16()
    bf16 = bf16[bf16.abs() <= 4096]
    bf16 = bf16[torch.from_numpy(rng.permutation(len(bf16)))][: len(bf16) // WIDTH * WIDTH]
    block = 16 if fmt == "nvfp4" else 32
    inputs = {
        "normal, BF16": normal.bfloat16(),
        "normal, FP32": normal,
        "BF16 up to 4096, permuted": bf16.reshape(-1, WIDTH),
        "ties at every scale": _ties(fmt, block),
        "smaller and smaller blocks": normal[:1, :block] * torch.exp2(-torch.arange(30.0))[:, None],
        "a block of zeros": torch.cat([torch.zeros(1, block), torch.ones(1, block)]),
        "zeros": torch.zeros(2, block),
    }
    return inputs if fmt == "nvfp4" else inputs | {"1 ulp above 6 scales": _above_six(block)}


def compare(
    quantise: Callable, formats=FORMATS, n_random: int = 1 << 16, rows: int = 64, seed: int = 0
) -> Iterator[Comparison]:
    """Comparisons of one quantiser over all inputs.

    Args:
        quantise: as in `reprise.labs.fp4_peers`; formats for which it raises NotImplementedError are left out.
        formats: of FORMATS.
        n_random: random values to cast.
        rows: rows of WIDTH random values in the block inputs.
        seed: of both.

    An MXFP4 quantiser is held to the mode that its scale bytes fit best on the first block input, normal values.
    """
    rng = np.random.default_rng(seed)
    for fmt in formats:
        sets = element_inputs(n_random, rng) if fmt == "e2m1" else block_inputs(fmt, rows, rng)
        mode = None
        for name, x in sets.items():
            try:
                got = quantise(x, fmt)
            except NotImplementedError:
                break
            if fmt == "e2m1":
                yield compare_elements(name, x, got)
                continue
            mode = mode or closest_mode(x, got[1], fmt)
            yield compare_blocks(name, x, got, fmt, mode)


def compare_elements(name: str, z: torch.Tensor, got: torch.Tensor) -> Comparison:
    """uint8 codes `got` beside those of `e2m1_encode(z)`."""
    expected = e2m1_encode(z)
    differs = got != expected
    example = _first(z, differs, got, expected, "{:.9g}: code {}, expected {}")
    return Comparison(name, "e2m1", z.numel(), int(differs.sum()), 0, 0, example)


def compare_blocks(name: str, x: torch.Tensor, got: tuple[torch.Tensor, torch.Tensor], fmt: str, mode: str):
    """(codes, scale bytes) `got` beside those of `quantize(x, fmt, mx_mode=mode)`, as a Comparison."""
    codes, byte = got
    expected = quantize(x, fmt, mx_mode=mode)
    other = expected.block_scale != byte
    differs = (codes != expected.codes()) & ~other.repeat_interleave(expected.block, -1)
    amax = x.unflatten(-1, (-1, expected.block)).abs().amax(-1).float()
    example = _first(x, differs, codes, expected.codes(), "{:.9g}: code {}, expected {}") or _first(
        amax, other, byte, expected.block_scale, "amax {:.9g}: scale byte {}, expected {}"
    )
    label = f"mxfp4 {mode}" if fmt == "mxfp4" else fmt
    return Comparison(name, label, x.numel(), int(differs.sum()), byte.numel(), int(other.sum()), example)


def closest_mode(x: torch.Tensor, byte: torch.Tensor, fmt: str) -> str:
    """The MXFP4 mode with most scale bytes equal to `byte`; "floor" for NVFP4, which has none."""
    if fmt == "nvfp4":
        return "floor"
    return min(MODES, key=lambda mode: int((quantize(x, fmt, mx_mode=mode).block_scale != byte).sum()))


def matrix(peers: Iterable, n_random: int, rows: int, seed: int = 0) -> list[dict]:
    """`compare` for every peer of `reprise.labs.fp4_peers` given, one row a set of inputs; absent peers give none."""
    table = []
    for peer in peers:
        if peer.unavailable:
            continue
        for found in compare(peer.quantise, peer.formats, n_random, min(rows, peer.most_rows), seed):
            table.append({"peer": peer.name, "version": peer.version, **asdict(found)})
    return table


def beside_peers(file: str, name: str, peers: Iterable) -> list[dict]:
    """One tensor of a safetensors file through every peer's block formats, one row a peer and format.

    Args:
        file: path of the file.
        name: the tensor; "" takes the first of two dimensions. Its last axis is padded with zeros to whole blocks.
        peers: of `reprise.labs.fp4_peers`; absent ones give no row, slow ones get the first rows of the tensor.

    Raises:
        RepriseError: no such tensor, or none of two dimensions.
    """
    name, x = _tensor(file, name)
    table = []
    for peer in peers:
        for fmt in peer.formats:
            if fmt == "e2m1" or peer.unavailable:
                continue
            part = x[: peer.most_rows]
            got = peer.quantise(part, fmt)
            found = compare_blocks(name, part, got, fmt, closest_mode(part, got[1], fmt))
            table.append({"peer": peer.name, "version": peer.version, **asdict(found)})
    return table


def definition(z: torch.Tensor) -> torch.Tensor:
    """uint8 codes of float32 z by the definition: the nearest of the values, the even code of two as near.

    Distances are taken in float64, which tells a float32 from a tie whatever its size.
    """
    a = z.double().abs().clamp(max=6)[:, None]
    distance = (a - torch.tensor(E2M1_VALUES[:8], dtype=torch.float64)).abs()
    nearest = distance == distance.amin(1, keepdim=True)
    even = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # argmax takes the first
    codes = even[nearest[:, even].int().argmax(1)]
    return (codes + 8 * z.signbit()).to(torch.uint8)


def nan_codes(quantise: Callable) -> str:
    """What a quantiser makes of +NaN and -NaN, in words."""
    try:
        codes = quantise(torch.tensor([float("nan"), -float("nan")]), "e2m1")
    except NotImplementedError:
        return ""
    except Exception as error:  # any way to refuse is a way to refuse
        return f"raises {type(error).__name__}"
    return "codes {}, {}".format(*codes.tolist())


def finite_bf16() -> torch.Tensor:
    """All 65,280 finite BF16 values, by bit pattern."""
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    return every[every.isfinite()]


def _tensor(file: str, name: str) -> tuple[str, torch.Tensor]:
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        fitting = [key for key in opened.keys() if len(opened.get_slice(key).get_shape()) == 2]
        if (name or not fitting) and name not in fitting:
            raise RepriseError(f"tensor {name!r}: expected one of two dimensions in {file}: {', '.join(fitting[:9])}")
        name = name or fitting[0]
        x = opened.get_tensor(name).float()
    return name, torch.nn.functional.pad(x, (0, -x.shape[-1] % 32))


def _ties(fmt: str, block: int) -> torch.Tensor:
    """[1, K] float32: for every scale one block of ties and 6 of them, and for NVFP4 a 2688 that makes g = 1."""
    if fmt == "nvfp4":
        scales = torch.arange(1, 0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    else:  # from 2^-127, a subnormal float32, up to the largest whose 6 is finite
        scales = (torch.arange(253, dtype=torch.int32) << 23).clamp(min=0x400000).view(torch.float32)
    marks = torch.tensor([6.0, *E2M1_TIES, *(-tie for tie in E2M1_TIES)])
    blocks = torch.nn.functional.pad(marks, (0, block - len(marks))) * scales[:, None]
    return blocks.reshape(1, -1)


def _above_six(block: int) -> torch.Tensor:
    """[1, K] float32: blocks whose amax is the next number above 6 * 2^e, for every e, beside values of that size."""
    tops = torch.tensor([(e + 127 << 23) + 0x400001 for e in range(-120, 127)], dtype=torch.int32).view(torch.float32)
    parts = torch.linspace(1, 0, block)
    return (parts * tops[:, None]).reshape(1, -1)


def _first(x: torch.Tensor, differs: torch.Tensor, got: torch.Tensor, expected: torch.Tensor, words: str) -> str:
    """`words` with the value, what came out and what was expected, at the first place that differs."""
    places = differs.reshape(-1).nonzero()[:1, 0].tolist()
    return "".join(words.format(*(t.reshape(-1)[place].item() for t in (x, got, expected))) for place in places)
