"""Changes coded by the old exponent beside plain payloads: python benchmarks/refit_exponent.py [--quick]

Updates are those of the tiny Qwen3-MoE, several seeds in one tensor; the placebo moves evenly chosen elements.
Both receivers end with the new bits in memory of their own. One thread, interleaved, ratios of single rounds.

Places are also coded by a binary rANS with one 15-bit probability a class and one symbol an element, which comes as
close to the entropy as a static code can.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numba
import numpy as np
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parent))

from common import RESULTS, interleave, machine, ratio, table, write_results  # noqa: E402

from reprise.labs.location_experiments import costs, updates  # noqa: E402
from reprise.labs.refit_payloads import AMPLITUDE, perturb  # noqa: E402
from reprise.refit import Bits, apply_, as_bits, decode, encode_pair
from reprise.refit.exponents import exponent_coder  # noqa: E402
from reprise.refit.exponents.bit_streams import write_fields, write_unary  # noqa: E402
from reprise.refit.exponents.exponent_classes import partition  # noqa: E402
from reprise.refit.exponents.flag_runs import Run, gaps_of, widths_of  # noqa: E402

SEED = 101
SETTINGS = ((1e-6, "grid", (1, 30)), (1e-6, "fp32", (30,)), (1e-5, "grid", (30,)))
PROBABILITY = 15  # bits of a rANS probability
LOW = 1 << 16  # a rANS state lies in [LOW, LOW << 16)


def changes(models: int) -> dict[str, tuple[Bits, Bits]]:
    """Name -> (OLD, NEW), `models` runs of different seeds in one, since copies of one run would compress as such."""
    pairs = {}
    for lr, start, steps in SETTINGS:
        runs = [updates(SEED + k, lr, start, steps) for k in range(models)]
        for step in steps:
            pairs[f"lr {lr:g}, {start}, step {step}"] = tuple(
                joined(run[step][side] for run in runs) for side in (0, 1)
            )
    elements = pairs[f"lr {lr:g}, {start}, step {step}"][0].words.size
    pairs["placebo, 1 %"] = tuple(map(joined, zip(perturb(np.random.default_rng(SEED), elements, 0.01, AMPLITUDE))))
    return pairs


def joined(parts) -> Bits:
    words = np.concatenate([x if isinstance(x, np.ndarray) else as_bits(x).words for x in parts])
    return Bits("BF16", words.shape, words)


def frames(name: str, old: Bits, new: Bits, rounds: int, progress) -> dict:
    """Sizes and times of whole frames."""
    ours, plain = exponent_coder.encode(old, new), encode_pair(old, new)

    def receive():
        return apply_(Bits(old.dtype, old.shape, old.words.copy()), decode(plain))

    assert (receive().words == new.words).all()
    tasks = {
        "encode": lambda: exponent_coder.encode(old, new),
        "plain encode": lambda: encode_pair(old, new),
        "decode": lambda: exponent_coder.decode(ours, old),
        "plain decode": receive,
    }
    seconds = interleave(tasks, rounds, progress)
    row = {"name": name, "elements": old.words.size, **costs(old, new)}
    row |= {f"{task} ms": 1e3 * min(times) for task, times in seconds.items()}
    row["encode / plain"] = ratio(seconds["encode"], seconds["plain encode"])
    return row | {"decode / plain": ratio(seconds["decode"], seconds["plain decode"])}


def places(name: str, old: Bits, new: Bits, rounds: int, progress) -> dict:
    """Sizes and times of the two codes for places alone."""
    found = partition(old, new)
    runs = [Run(*pair) for pair in zip(found.population.tolist(), found.changed.tolist(), strict=True)]
    chances = probabilities(found.population, found.changed)
    words = np.empty(old.words.size + 2, np.uint16)
    used = rans_encode(old.words, new.words, chances, words)
    flags = np.empty(old.words.size, np.bool_)
    rans_decode(words, old.words.size + 2 - used, old.words, chances, flags)
    assert (flags == (old.words != new.words)).all()

    def rice():
        parts = partition(old, new)
        gaps, widths = gaps_of(runs, np.split(parts.places, np.cumsum(parts.changed)[:-1])), widths_of(runs)
        return write_fields(gaps, widths).nbytes + write_unary(gaps >> widths).nbytes

    tasks = {
        "rice encode": rice,
        "rans encode": lambda: rans_encode(old.words, new.words, chances, words),
        "rans decode": lambda: rans_decode(words, old.words.size + 2 - used, old.words, chances, flags),
    }
    seconds = interleave(tasks, rounds, progress)
    count = int(found.changed.sum())
    return {
        "name": name,
        "rice bits": 8 * rice() / count,
        "rans bits": 16 * used / count,
        **{f"{task} ms": 1e3 * min(times) for task, times in seconds.items()},
    }


def probabilities(held: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """[classes] uint32 chances of a change in units of 2^-PROBABILITY, neither 0 nor 1."""
    one = 1 << PROBABILITY
    return np.clip(np.rint(one * changed / np.maximum(held, 1)), 1, one - 1).astype(np.uint32)


@numba.njit
def rans_encode(old, new, chances, words):
    """Code from the last element to the first into the end of `words`; returns how many it used."""
    state, at = np.uint64(LOW), words.size
    for i in range(old.size - 1, -1, -1):
        chance = np.uint64(chances[old[i] >> 7 & 255])
        changed = old[i] != new[i]
        width = chance if changed else np.uint64(1 << PROBABILITY) - chance
        if state >= width << np.uint64(32 - PROBABILITY):
            at -= 1
            words[at] = state & np.uint64(0xFFFF)
            state >>= np.uint64(16)
        start = np.uint64(0) if changed else chance
        quotient = np.uint64(np.uint32(state) // np.uint32(width))
        state = (quotient << np.uint64(PROBABILITY)) + state - quotient * width + start
    words[at - 1], words[at - 2] = state & np.uint64(0xFFFF), state >> np.uint64(16)
    return words.size - at + 2


@numba.njit
def rans_decode(words, at, old, chances, flags):
    state = np.uint64(words[at]) << np.uint64(16) | np.uint64(words[at + 1])
    at += 2
    for i in range(old.size):
        chance = np.uint64(chances[old[i] >> 7 & 255])
        slot = state & np.uint64((1 << PROBABILITY) - 1)
        changed = slot < chance
        flags[i] = changed
        width = chance if changed else np.uint64(1 << PROBABILITY) - chance
        state = width * (state >> np.uint64(PROBABILITY)) + slot - (np.uint64(0) if changed else chance)
        if state < np.uint64(LOW):
            state = state << np.uint64(16) | np.uint64(words[at])
            at += 1


def report(rows: list[dict], place_rows: list[dict]) -> str:
    sized = [
        [
            row["name"],
            f"{row['changed']:.2%}",
            *(f"{row[name]:.2f}" for name in ("add", "one_class", "coder")),
            f"{row['places_known'] + row['steps_known']:.2f}",
            f"{row['add'] / row['coder']:.2f}",
        ]
        for row in rows
    ]
    timed = [
        [
            row["name"],
            *(f"{row[f'{task} ms']:.1f}" for task in ("plain encode", "encode", "plain decode", "decode")),
            str(row["encode / plain"]),
            str(row["decode / plain"]),
        ]
        for row in rows
    ]
    placed = [[row["name"], *(f"{value:.3g}" for key, value in row.items() if key != "name")] for row in place_rows]
    return "\n\n".join(
        [
            table(["bits a change", "changed", "add", "one class", "by exponent", "entropy", "add/ours"], sized),
            table(["best ms", "add enc", "ours enc", "add dec", "ours dec", "encode ratio", "decode ratio"], timed),
            table(["places alone", *(key for key in place_rows[0] if key != "name")], placed),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one model and few rounds; writes only with --out")
    parser.add_argument(
        "--out", type=Path, help="JSON file; default benchmarks/results/refit_exponent.json unless --quick"
    )
    options = parser.parse_args()
    models, rounds = (1, 2) if options.quick else (8, 7)
    import torch

    torch.set_num_threads(1)
    with tqdm(desc="refit by exponent", unit=" runs", disable=None) as progress:
        pairs = changes(models)
        rows = [frames(name, *pair, rounds, progress) for name, pair in pairs.items()]
        place_rows = [places(name, *pair, rounds, progress) for name, pair in pairs.items()]
    print(report(rows, place_rows))
    out = options.out or (None if options.quick else RESULTS / "refit_exponent.json")
    if out:
        parameters = {"models": models, "rounds": rounds, "threads": 1, "seed": SEED}
        versions = machine("numpy", "numba", "torch", "zstandard", "xxhash")
        write_results(out, {"machine": versions, "parameters": parameters, "frames": rows, "places": place_rows})


if __name__ == "__main__":
    main()
