"""Applying a decoded delta to one tensor-parallel rank: along a copy plan, and without one.

    python benchmarks/refit_apply.py [--quick]

Peers: the dense scratch tensor, which NeMo-DCR's receiver scatters into and runs the loader on, intercepting its
copies; and a second copy of the canonical weights that is updated and loaded whole. One thread; one rank of two and
one of eight, whose tensors have the sizes of Qwen3-30B-A3B's, with fewer experts and one layer.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import RESULTS, interleave, machine, ratio, table, write_results
from reprise.labs.dense_scratch import DenseScratch
from reprise.labs.loaders import TensorParallelModel
from reprise.labs.placement_experiments import plan_of
from reprise.labs.qwen3_moe import Architecture
from reprise.refit import Delta, as_bits, diff_bits
from reprise.refit.placement.copy_plan import apply_plan_, mixed

SHARES = (0.01, 0.03, 0.05)
RANKS = (2, 8)
OPERATIONS = ("xor", "overwrite")
WANTED = 5  # times faster than the dense scratch tensor

LAYER = dict(hidden_size=2048, num_hidden_layers=1, num_attention_heads=32, num_key_value_heads=4, head_dim=128)
FULL = Architecture(vocab_size=16384, num_experts=8, moe_intermediate_size=768, **LAYER)
QUICK = Architecture(vocab_size=2048, num_experts=2, moe_intermediate_size=768, **LAYER)


def weights(plan, share: float) -> tuple[dict[str, torch.Tensor], Delta]:
    """Finite BF16 weights, and what changes when a random `share` of them moves by one or two ulps."""
    rng, old, new = np.random.default_rng(0), {}, {}
    for name, spec in plan.specs.items():
        drawn = rng.standard_normal(spec.numel(), dtype=np.float32) * np.float32(0.02)
        old[name] = torch.from_numpy(drawn).to(spec.dtype).reshape(spec.shape)
        new[name] = old[name].clone()
        words = as_bits(new[name]).words
        words[rng.random(words.size) < share] ^= 3
    return old, diff_bits(old, new)


def measure(architecture: Architecture, tp: int, rounds: int, progress) -> list[dict]:
    """Milliseconds of each way and its ratio to ours, by share and operation; all end with the same bits."""
    model = TensorParallelModel(architecture, tp)
    plan, rows = plan_of(model), []
    scratch = DenseScratch(plan)
    for share in SHARES:
        old, delta = weights(plan, share)
        for op in OPERATIONS:
            payload, canonical = mixed(delta, plan.invertible, op), {name: t.clone() for name, t in old.items()}
            absolute = mixed(delta, (), "overwrite")

            def load_whole(canonical=canonical, absolute=absolute):
                for record in absolute.tensors:
                    as_bits(canonical[record.name]).words[record.index] = record.words
                model.load_weights(canonical.items())

            tasks = {
                "plan": lambda payload=payload: apply_plan_(plan, payload),
                "dense scratch": lambda payload=payload: scratch.apply_(payload),
                "second copy, loaded whole": load_whole,
            }
            check(model, old, tasks)
            seconds = interleave(tasks, rounds, progress)
            for name, times in seconds.items():
                row = {"tp": tp, "share": share, "op": op, "name": name, "milliseconds": 1e3 * min(times)}
                rows.append({**row, "times_ours": ratio(times, seconds["plan"])})
    return rows


def check(model: TensorParallelModel, old: dict[str, torch.Tensor], tasks: dict) -> None:
    results = []
    for task in tasks.values():
        model.load_weights(old.items())
        task()
        results.append([as_bits(tensor).words.copy() for tensor in model.parameters.values()])
    assert all(np.array_equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small model and few rounds; writes only with --out")
    parser.add_argument(
        "--out", type=Path, help="JSON file; default benchmarks/results/refit_apply.json unless --quick"
    )
    options = parser.parse_args()
    architecture, rounds = (QUICK, 2) if options.quick else (FULL, 9)
    torch.set_num_threads(1)
    with tqdm(desc="refit apply", unit=" runs", disable=None) as progress:
        rows = [row for tp in RANKS for row in measure(architecture, tp, rounds, progress)]
    shown = [
        [
            f"tp={row['tp']} {row['share']:.0%} {row['op']}",
            row["name"],
            f"{row['milliseconds']:.1f}",
            str(row["times_ours"]),
        ]
        for row in rows
    ]
    print(table(["changed", "receiver", "best ms", "its/our time"], shown))
    bars = [
        {"tp": row["tp"], "share": row["share"], "op": row["op"], "value": row["times_ours"].median, "wanted": WANTED}
        for row in rows
        if row["name"] == "dense scratch"
    ]
    for bar in bars:
        met = "met" if bar["value"] >= WANTED else "NOT MET"
        setting = f"tp={bar['tp']} {bar['share']:.0%} {bar['op']}"
        print(f"dense scratch / plan at {setting}: {bar['value']:.1f}, wanted >= {WANTED}: {met}")
    out = options.out or (None if options.quick else RESULTS / "refit_apply.json")
    if out:
        parameters = {
            "architecture": vars(architecture),
            "tp": RANKS,
            "ep": 1,
            "rank": 0,
            "rounds": rounds,
            "threads": 1,
        }
        versions = machine("numpy", "numba", "torch")
        write_results(out, {"machine": versions, "parameters": parameters, "bars": bars, "rows": rows})


if __name__ == "__main__":
    main()
