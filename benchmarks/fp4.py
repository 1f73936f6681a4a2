"""Speed of the FP4 formats on one CPU thread beside the libraries that have them: python benchmarks/fp4.py [--quick]

    quantise    1024 x 1024 normal BF16 to packed codes and block scales, the global scale included
    guided      guided rounding of float32 z by float32 rollout values, beside copies of z
    pack        codes to a bit stream and back

CPU seconds of one thread, every task once a round; ratios are those of single rounds. Compiling is not counted; it
takes about a minute in all. modelopt and compressed-tensors include unpacking their codes, 0.7 ms. A copy moves 8
bytes a value, guided rounding 12; both once in memory that was just allocated, whose pages the system clears, and once
in a tensor that is there already.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import RESULTS, interleave, machine, ratio, table, write_results
from reprise.fp4 import e2m1_decode, pack_bits, quantize, unpack_bits
from reprise.fp4.compiled import guided_values_compiled
from reprise.fp4.guided import guided_values
from reprise.labs import fp4_peers, peers

SIDE = 1024
GUIDED_VALUES = 1 << 24  # three tensors of 64 MB, beyond any cache
PEERS = ("torchao", "torchao RCEIL", "modelopt", "compressed-tensors")


def quantisers(x: torch.Tensor, fmt: str) -> dict:
    """Tasks of one format; torchao also compiled, since that is how it is meant to be used."""
    tasks = {
        "ours": lambda: quantize(x, fmt),
        "ours, compiled": lambda: quantize(x, fmt, compiled=True),
    }
    for peer in fp4_peers.PEERS:
        if peer.name in PEERS and fmt in peer.formats and not peer.unavailable:
            tasks[peer.name] = lambda peer=peer: peer.quantise(x, fmt)
    if "torchao" in tasks:
        tasks |= torchao_alone(x, fmt)
    return tasks


def torchao_alone(x: torch.Tensor, fmt: str) -> dict:
    """torchao without our unpacking of its result; NVFP4 compiled too, MXFP4 does not compile for CPUs (torch 2.13)."""
    if fmt == "mxfp4":
        to_mx = peers.load("torchao.prototype.mx_formats.mx_tensor").to_mx
        return {"torchao": lambda: to_mx(x, torch.float4_e2m1fn_x2, 32)}
    library = peers.load("torchao.prototype.mx_formats.nvfp4_tensor")

    def run(x):
        return library.nvfp4_quantize(x, 16, library.per_tensor_amax_to_scale(x.abs().amax()))

    compiled = torch.compile(run, dynamic=False)
    return {"torchao": lambda: run(x), "torchao, compiled": lambda: compiled(x)}


def guided_tasks(n: int) -> dict:
    generator = torch.Generator().manual_seed(0)
    z = 2 * torch.randn(n, generator=generator)
    roll = e2m1_decode(torch.randint(0, 16, (n,), generator=generator, dtype=torch.uint8))
    out = torch.empty_like(z)
    into = torch.compile(lambda z, roll, out: out.copy_(guided_values(z, roll)), dynamic=False)
    return {
        "clone": z.clone,
        "guided, compiled": lambda: guided_values_compiled(z, roll),
        "copy into a tensor": lambda: out.copy_(z),
        "guided into a tensor, compiled": lambda: into(z, roll, out),
        "guided, eager": lambda: guided_values(z, roll),
    }


def pack_tasks(n: int) -> dict:
    tasks = {}
    for b in (1, 2, 3, 4):
        codes = torch.randint(0, 1 << b, (n,), generator=torch.Generator().manual_seed(b), dtype=torch.uint8)
        packed = pack_bits(codes, b)
        tasks[f"pack b={b}"] = lambda codes=codes, b=b: pack_bits(codes, b)
        tasks[f"unpack b={b}"] = lambda packed=packed, b=b: unpack_bits(packed, b, n)
    return tasks


def bars(seconds: dict[str, dict[str, list[float]]]) -> list[dict]:
    """What was aimed at, and whether it was reached."""
    wanted = []
    for fmt in ("nvfp4", "mxfp4"):
        if "torchao" in seconds[fmt]:
            wanted += [
                (f"torchao / ours, {fmt}", seconds[fmt]["torchao"], seconds[fmt]["ours"], 2, 1),
                (f"torchao / ours compiled, {fmt}", seconds[fmt]["torchao"], seconds[fmt]["ours, compiled"], 4, 1),
            ]
    guided = seconds["guided"]
    for label, copy, work in (
        ("fresh memory", "clone", "guided, compiled"),
        ("existing memory", "copy into a tensor", "guided into a tensor, compiled"),
    ):
        # 12 bytes a value against 8
        wanted.append((f"bandwidth of guided rounding / copy, {label}", guided[copy], guided[work], 0.5, 12 / 8))
    found = []
    for name, above, below, least, factor in wanted:
        measured = ratio([factor * seconds for seconds in above], below)
        found.append({"bar": name, "wanted": f">= {least}", "value": measured, "met": measured.median >= least})
    return found


def report(seconds: dict[str, dict[str, list[float]]], sizes: dict[str, int], found: list[dict]) -> str:
    parts = []
    for group, times in seconds.items():
        first = next(iter(times))
        rows = []
        for name, values in times.items():
            fastest = min(values)
            rate = f"{sizes[group] / fastest / 1e6:.0f}"
            rows.append([name, f"{1e3 * fastest:.2f}", rate, str(ratio(values, times[first]))])
        parts.append(table([group, "ms", "M values/s", f"time / {first}"], rows))
    rows = [[bar["bar"], bar["wanted"], str(bar["value"]), "yes" if bar["met"] else "NO"] for bar in found]
    parts.append(table(["bar", "wanted", "median (range)", "met"], rows))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rounds on fewer values, nothing written")
    parser.add_argument(
        "--out", type=Path, help="where to write JSON; default benchmarks/results/fp4.json unless --quick"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    rounds, guided_values_count = (2, 1 << 20) if options.quick else (9, GUIDED_VALUES)
    x = torch.randn(SIDE, SIDE, generator=torch.Generator().manual_seed(0)).bfloat16()
    groups = {fmt: quantisers(x, fmt) for fmt in ("nvfp4", "mxfp4")}
    groups |= {"guided": guided_tasks(guided_values_count), "pack": pack_tasks(SIDE * SIDE)}
    sizes = {"nvfp4": SIDE * SIDE, "mxfp4": SIDE * SIDE, "guided": guided_values_count, "pack": SIDE * SIDE}
    runs = sum(map(len, groups.values())) * (rounds + 1)
    with tqdm(desc="fp4", unit=" runs", total=runs, disable=None) as progress:
        seconds = {name: interleave(tasks, rounds, progress, time.process_time) for name, tasks in groups.items()}
    found = bars(seconds)
    print(report(seconds, sizes, found))
    out = options.out or (None if options.quick else RESULTS / "fp4.json")
    if out:
        versions = {
            name: peers.version(name) or "unavailable" for name in ("torchao", "modelopt", "compressed_tensors")
        }
        parameters = {"side": SIDE, "guided_values": guided_values_count, "rounds": rounds, "threads": 1, "seed": 0}
        results = {"machine": machine("torch", "numpy") | versions, "parameters": parameters, "bars": found}
        write_results(out, results | {"seconds": seconds})


if __name__ == "__main__":
    main()
