"""Bandwidth of the Triton kernels beside a plain copy: python benchmarks/fp4_gpu.py [--rows N] [--width K]

Both kernels are bound by memory. A value costs, for BF16 activations,

    quantise and pack   2 B read, 4/8 + 1/16 B written      (the global scale takes one more read of 2 B before)
    guided rounding     2 B + b/8 + 1/16 B read, 2 B written

and a copy 2 B read and 2 B written. What counts is bytes moved a second over those of the copy in the same run; the
target is 0.7. The results are compared with torch's first, bit for bit. NOT RUN so far: no GPU was at hand when this
was written, and without one it prints the expected traffic and says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from common import RESULTS, Ratio, machine, table, write_results  # noqa: E402

from reprise.errors import RepriseError  # noqa: E402
from reprise.fp4 import kernels, quantize  # noqa: E402
from reprise.fp4.packing import pack_bits  # noqa: E402

WIDTHS = (1, 2, 4)
ELEMENT, SCALE = 2, 1 / 16  # bytes a value: BF16, and a block scale
WANTED = 0.7
ROUNDS, LAUNCHES = 9, 20


def traffic() -> dict[str, tuple[float, float]]:
    """Bytes a value, (read, written), of each task."""
    expected = {"copy": (ELEMENT, ELEMENT), "quantise and pack": (ELEMENT, 4 / 8 + SCALE)}
    return expected | {f"guided, b={b}": (ELEMENT + b / 8 + SCALE, ELEMENT) for b in WIDTHS}


def tasks(rows: int, width: int) -> dict[str, Callable[[], object]]:
    """Launches without the checks that wait for the GPU, each compared with torch once."""
    from reprise.fp4.triton_kernels import launch_guided, launch_quantize_pack

    rng = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(rows, width, generator=rng, device="cuda").bfloat16()
    rolled = quantize(x + 0.01 * torch.randn(x.shape, generator=rng, device="cuda"), "nvfp4", "token")
    target, bad = torch.empty_like(x), torch.zeros(2, dtype=torch.int32, device="cuda")
    g = rolled.global_scale
    found = {"copy": lambda: target.copy_(x), "quantise and pack": lambda: launch_quantize_pack(x, g, bad)}
    ours, theirs = (kernels.quantize_pack(x, "token", device) for device in ("triton", "torch"))
    _same(ours.packed, theirs.packed, "quantise and pack")
    _same(ours.block_scale, theirs.block_scale, "block scales")
    for b in WIDTHS:
        low = pack_bits(rolled.codes() & (1 << b) - 1, b)
        given = x, low, rolled.block_scale, g, b
        both = (kernels.guided_values(*given, device=device).view(torch.int16) for device in ("triton", "torch"))
        _same(*both, f"guided, b={b}")
        found[f"guided, b={b}"] = lambda given=given: launch_guided(*given, "nearest", bad)
    return found


def _same(one: torch.Tensor, other: torch.Tensor, what: str) -> None:
    if not torch.equal(one, other):
        raise RepriseError(f"{what}: {int((one != other).sum())} results differ from torch, expected none")


def milliseconds(task: Callable[[], object]) -> float:
    """GPU time of one launch, from LAUNCHES in a row."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(LAUNCHES):
        task()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / LAUNCHES


def measure(rows: int, width: int) -> list[dict]:
    """Bandwidth of each task and its ratio to the copy, round by round after one that is not counted."""
    todo, expected = tasks(rows, width), traffic()
    rates = {name: [] for name in todo}
    for counted in [False] + [True] * ROUNDS:
        for name, task in todo.items():
            took = milliseconds(task)
            if counted:
                rates[name].append(sum(expected[name]) * rows * width / took / 1e6)
    found = []
    for name, own in rates.items():
        ratios = sorted(a / b for a, b in zip(own, rates["copy"], strict=True))
        found.append({"name": name, "gb_s": max(own), "of_copy": Ratio(ratios[ROUNDS // 2], ratios[0], ratios[-1])})
    return found


def why_not() -> str:
    """Why nothing can be measured here, or ""."""
    if not torch.cuda.is_available():
        return "no CUDA device"
    from importlib.util import find_spec

    return "" if find_spec("triton") else "triton is not installed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=65536, help="tokens")
    parser.add_argument("--width", type=int, default=2048, help="values a token, a multiple of 16")
    parser.add_argument("--out", type=Path, default=RESULTS / "fp4_gpu.json", help="JSON file")
    options = parser.parse_args()
    lines = [[name, f"{read:.4f}", f"{written:.4f}"] for name, (read, written) in traffic().items()]
    print(table(["bytes a value", "read", "written"], lines))
    if reason := why_not():
        print(f"not run: {reason}")
        return
    rows = measure(options.rows, options.width)
    print(
        table(["task", "GB/s", "of copy"], [[row["name"], f"{row['gb_s']:.0f}", str(row["of_copy"])] for row in rows])
    )
    for row in rows[1:]:
        met = "met" if row["of_copy"].median >= WANTED else "NOT MET"
        print(f"{row['name']}: {row['of_copy'].median:.2f} of copy, wanted >= {WANTED}: {met}")
    parameters = {"rows": options.rows, "width": options.width, "rounds": ROUNDS, "launches": LAUNCHES}
    gpu = {"gpu": torch.cuda.get_device_name()}
    write_results(options.out, {"machine": machine("torch", "triton") | gpu, "parameters": parameters, "rows": rows})


if __name__ == "__main__":
    main()
