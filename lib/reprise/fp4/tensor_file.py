"""safetensors files whose matrices are FP4.

A quantised tensor NAME becomes NAME.packed (uint8), NAME.block_scale (uint8) and, for NVFP4, NAME.global_scale
(float32); what else the file holds stays as it is. The metadata entry "reprise.fp4" maps NAME to its shape and format.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from reprise.durable import atomic_write
from reprise.fp4.e2m1 import E2M1_MAX, FLOATS
from reprise.fp4.errors import Fp4Error
from reprise.fp4.tensor import Fp4Tensor, quantize

METADATA = "reprise.fp4"
PARTS = ("packed", "block_scale", "global_scale")


@dataclass(frozen=True)
class Report:
    """What quantisation did to one tensor.

    Args:
        name: of the tensor.
        shape: of the tensor.
        nbytes: bytes of codes and scales.
        error: root mean square error over root mean square; 0 for a tensor of zeros.
        lowest, highest: smallest and largest scale of a block, global scale included.
        saturated: share of values beyond 6 scales.
        zeros: share of values that are not zero and became zero.
    """

    name: str
    shape: tuple[int, ...]
    nbytes: int
    error: float
    lowest: float
    highest: float
    saturated: float
    zeros: float


def quantise_file(
    source: str | Path,
    target: str | Path | None,
    fmt: str = "nvfp4",
    scale: str = "tensor",
    mx_mode: str = "floor",
    pad: bool = False,
    only: Sequence[str] = ("*",),
) -> tuple[list[Report], list[str]]:
    """Quantise the float16, bfloat16 and float32 tensors of two or more dimensions in a file; others stay as they are.

    Args:
        source: a safetensors file.
        target: the file to write, replaced if it exists; None writes nothing.
        fmt, scale, mx_mode, pad: as in `quantize`.
        only: shell patterns; a tensor is quantised if one of them fits its name.

    Returns:
        (a report for each quantised tensor, names of the others), in the order of the file.

    Raises:
        NonFiniteInput, BlockShapeError: of `quantize`, with the tensor's name as site; nothing is written.
        Fp4Error: not a safetensors file, one that this function wrote, a pattern that fits no name, or a tensor's new
            name is taken.
        OSError: the source cannot be read or the target not written.
    """
    if target is not None:
        _check_place(Path(target))
    reports, others, written, entries = [], [], {}, {}
    with _opened(source) as file:
        metadata = file.metadata() or {}
        if METADATA in metadata:
            raise Fp4Error(f"{source}: metadata {METADATA!r}: it is quantised already, expected a file that is not")
        names = file.keys()
        for pattern in only:
            if names and not any(fnmatchcase(name, pattern) for name in names):
                raise Fp4Error(f"only={pattern!r}: fits no tensor of {source}, expected a pattern of names")
        for name in names:
            x = file.get_tensor(name)
            if x.dim() < 2 or x.dtype not in FLOATS or x.numel() == 0 or not any(fnmatchcase(name, p) for p in only):
                others.append(name)
                _put(written, name, x)
                continue
            q = quantize(x, fmt, scale, mx_mode, pad, site=name)
            parts = {f"{name}.{part}": getattr(q, part) for part in PARTS if getattr(q, part) is not None}
            for key, value in parts.items():
                _put(written, key, value)
            entries[name] = {"shape": list(x.shape), "fmt": fmt}
            reports.append(_report(name, x, q, sum(value.nbytes for value in parts.values())))
    if target is not None:
        atomic_write(target, save(written, metadata | {METADATA: json.dumps(entries)}))
    return reports, others


def read_file(path: str | Path) -> dict[str, torch.Tensor | Fp4Tensor]:
    """Tensors of a file that `quantise_file` wrote, the quantised ones as Fp4Tensor.

    Raises:
        Fp4Error: not a safetensors file, no entry "reprise.fp4" in it, or one that does not fit its tensors.
        ScaleFormatMismatch, PackedSizeError: of Fp4Tensor.
        OSError: it cannot be read.
    """
    with _opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        try:
            entries = json.loads((file.metadata() or {})[METADATA])
            for name, entry in entries.items():
                parts = [tensors.pop(f"{name}.{part}", None) for part in PARTS]
                _put(tensors, name, Fp4Tensor(*parts, tuple(entry["shape"]), entry["fmt"]))
        except (KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError) as error:
            raise Fp4Error(f"{path}: metadata {METADATA!r}: {error!r}, expected shape and fmt of each tensor") from None
    return tensors


def _opened(path: str | Path):
    if not Path(path).is_file():  # a folder, or a pipe that would block
        raise FileNotFoundError(2, "No such file, or not a regular one", str(path))
    try:
        return safe_open(path, "pt")
    except SafetensorError as error:
        raise Fp4Error(f"{path}: {error}, expected a safetensors file") from None


def _check_place(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(21, "Is a folder, expected the name of a file", str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(2, "No such folder", str(target.parent))


def _put(tensors: dict, name: str, x: torch.Tensor) -> None:
    if name in tensors:
        raise Fp4Error(f"tensor {name!r}: written twice, expected no tensor of that name beside the quantised ones")
    tensors[name] = x


def _report(name: str, x: torch.Tensor, q: Fp4Tensor, nbytes: int) -> Report:
    x, scales = x.float(), q.scales()
    y = q.dequantize()
    power = x.double().square().sum()
    error = ((y - x).double().square().sum() / power).sqrt().item() if power > 0 else 0.0
    spread = scales.repeat_interleave(q.block, -1)[..., : x.shape[-1]]
    return Report(
        name,
        tuple(x.shape),
        nbytes,
        error,
        scales.min().item(),
        scales.max().item(),
        (x.abs() > E2M1_MAX * spread).float().mean().item(),
        ((y == 0) & (x != 0)).float().mean().item(),
    )
