"""Size and speed of the delta codec beside other ways to send the same change: python benchmarks/refit.py [--quick]

OLD are N(0, .02) BF16 weights; a random share p of them moves by +-1 %. Headers, digests and names are counted. All
encoders run on one thread, interleaved, and speeds are ratios of single rounds; a peer that would take minutes gets
a smaller sample of the same distribution, and ours is then timed on that sample too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tracemalloc
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parent))

from common import RESULTS, interleave, machine, ratio, table, write_results  # noqa: E402
from refit_peers import PEERS  # noqa: E402

from reprise.refit import OPERATIONS, Bits, apply_, decode, encode_pair, entropy_bound, read_header, scan  # noqa: E402
from reprise.refit.header import STREAMS  # noqa: E402

SHARES = (0.01, 0.03, 0.05)
RARE = (0.001, 0.003)  # where the Rice code places changes
STD, AMPLITUDE = 0.02, 0.01
CONTENT = [name for name in STREAMS if "digests" not in name]
BARS = {
    "add / entropy bound": "<= 1.10",
    "headers, digests and names / frame": "< 1 % (< 2 % at p = 1 %)",
    "bytes / index patch": "<= 0.30",
    "NeMo-RL layout / ours, encode time": ">= 3 at every p",
    "index patch / ours, encode time": ">= 3 at p = 1 %, >= 2 at p = 5 %",
    "encode memory / tensor": "<= 1",
}


def weights(elements: int, share: float, seed: int = 0) -> tuple[Bits, Bits]:
    """OLD, and OLD with a random `share` of the weights moved up or down by AMPLITUDE and rounded to BF16."""
    rng = np.random.default_rng(seed)
    old = _round(rng.standard_normal(elements, dtype=np.float32) * np.float32(STD))
    new = old.copy()
    chosen = np.flatnonzero(rng.random(elements, dtype=np.float32) < share)
    factor = rng.choice(np.array([1 - AMPLITUDE, 1 + AMPLITUDE], np.float32), chosen.size)
    new[chosen] = _round((old[chosen].astype(np.uint32) << 16).view(np.float32) * factor)
    return Bits("BF16", (elements,), old), Bits("BF16", (elements,), new)


def _round(values: np.ndarray) -> np.ndarray:
    wide = values.view(np.uint32)
    return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype("<u2")


def sizes(elements: int, progress) -> list[dict]:
    """Bits a changed element of our frames against the bound, and what of it are not places and values."""
    rows = []
    for share in (*RARE, *SHARES):
        old, new = weights(elements, share)
        changed = np.count_nonzero(old.words != new.words)
        for op in OPERATIONS:
            frame = encode_pair({"w": old}, {"w": new}, op)
            header = read_header(frame)
            content = sum(stored for name, (_, stored) in zip(STREAMS, header.streams, strict=True) if name in CONTENT)
            bound = entropy_bound(old, new, op)
            rows.append(
                {
                    "share": share,
                    "op": op,
                    "frame_bytes": len(frame),
                    "bits_per_change": 8 * len(frame) / changed,
                    "bound": bound,
                    "over_bound": 8 * len(frame) / changed / bound,
                    "overhead": 1 - content / len(frame),
                    "location": header.records[0].location,
                }
            )
            progress.update()
    return rows


def speeds(elements: int, rounds: int, progress) -> list[dict]:
    """Every peer beside ours: bits a changed element, size and time ratios."""
    rows = []
    for share in SHARES:
        samples = {}
        for peer in PEERS:
            samples.setdefault(elements >> peer.cut, []).append(peer)
        for size, peers in sorted(samples.items(), reverse=True):
            old, new = weights(size, share)
            changed = np.count_nonzero(old.words != new.words)
            here = [peer for peer in peers if not peer.unavailable]
            tasks = {"ours": lambda old=old, new=new: encode_pair({"w": old}, {"w": new})}
            for peer in here:
                tasks[peer.name] = lambda peer=peer, old=old, new=new: peer.encode(old.words, new.words)
            if size == elements:
                tasks["ours without numba"] = lambda old=old, new=new: _without_numba(old, new)
            seconds = interleave(tasks, rounds if size == elements else max(2, rounds // 4), progress)
            lengths = {name: len(task()) for name, task in tasks.items()}
            for name, times in seconds.items():
                rows.append(
                    {
                        "share": share,
                        "name": name,
                        "elements": size,
                        "bits_per_change": 8 * lengths[name] / changed,
                        "our_bytes": lengths["ours"] / lengths[name],
                        "milliseconds": 1e3 * min(times),
                        "times_ours": ratio(times, seconds["ours"]),
                    }
                )
            rows += [{"share": share, "name": p.name, "unavailable": p.unavailable} for p in peers if p.unavailable]
    return rows


def _without_numba(old: Bits, new: Bits) -> bytes:
    compiled_from, scan.COMPILED_FROM = scan.COMPILED_FROM, sys.maxsize
    try:
        return encode_pair({"w": old}, {"w": new})
    finally:
        scan.COMPILED_FROM = compiled_from


def memory(elements: int) -> float:
    """Largest memory of an encode at p = 5 % beyond OLD and NEW, in tensors."""
    old, new = weights(elements, 0.05)
    tracemalloc.start()
    encode_pair({"w": old}, {"w": new})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / old.words.nbytes


def receiver(elements: int, rounds: int, progress) -> list[dict]:
    """Decode and apply, with all digests checked, against copying the tensor."""
    rows = []
    for share in SHARES:
        old, new = weights(elements, share)
        frame = encode_pair(old, new)
        target = Bits(old.dtype, old.shape, old.words.copy())

        def apply(target=target, old=old, frame=frame):
            target.words[:] = old.words
            apply_(target, decode(frame))

        tasks = {
            "copy": lambda target=target, old=old: np.copyto(target.words, old.words),
            "decode": lambda frame=frame: decode(frame),
            "copy, decode, apply": apply,
        }
        seconds = interleave(tasks, rounds, progress)
        assert (target.words == new.words).all()
        rows += [{"share": share, "name": name, "milliseconds": 1e3 * min(t)} for name, t in seconds.items()]
    return rows


def judge(size_rows: list[dict], speed_rows: list[dict], peak: float) -> list[dict]:
    """Each bar with what was measured at its p, and whether it is met; None where a peer is unavailable."""
    add = {row["share"]: row for row in size_rows if row["op"] == "add"}
    peers = {(row["name"], row["share"]): row for row in speed_rows if "unavailable" not in row}

    def check(bar, share, value, met):
        return {"bar": bar, "wanted": BARS[bar], "share": share, "value": float(value), "met": bool(met)}

    bars = []
    for share in SHARES:
        over, overhead = add[share]["over_bound"], add[share]["overhead"]
        bars.append(check("add / entropy bound", share, over, over <= 1.10))
        limit = 0.02 if share == 0.01 else 0.01
        bars.append(check("headers, digests and names / frame", share, overhead, overhead < limit))
        patch = peers.get(("index patch", share))
        if patch:
            bars.append(check("bytes / index patch", share, patch["our_bytes"], patch["our_bytes"] <= 0.3))
        nemo = peers.get(("NeMo-RL layout", share))
        if nemo:
            value = nemo["times_ours"].median
            bars.append(check("NeMo-RL layout / ours, encode time", share, value, value >= 3))
        if patch and share in (0.01, 0.05):
            value = patch["times_ours"].median
            bars.append(check("index patch / ours, encode time", share, value, value >= (3 if share == 0.01 else 2)))
    bars.append(check("encode memory / tensor", 0.05, peak, peak <= 1))
    return bars


def report(size_rows, speed_rows, receiver_rows, bars) -> str:
    sized = [
        [
            f"{row['share']:.1%}",
            row["op"],
            row["location"],
            f"{row['bits_per_change']:.2f}",
            f"{row['bound']:.2f}",
            f"{row['over_bound']:.3f}",
            f"{row['overhead']:.2%}",
        ]
        for row in size_rows
    ]
    timed = []
    for row in speed_rows:
        if "unavailable" in row:
            timed.append([f"{row['share']:.0%} {row['name']}", "", f"unavailable: {row['unavailable']}", "", "", ""])
            continue
        timed.append(
            [
                f"{row['share']:.0%} {row['name']}",
                f"2^{row['elements'].bit_length() - 1}",
                f"{row['bits_per_change']:.2f}",
                f"{row['our_bytes']:.3f}",
                f"{row['milliseconds']:.1f}",
                str(row["times_ours"]),
            ]
        )
    received = [[f"{row['share']:.0%} {row['name']}", f"{row['milliseconds']:.1f}"] for row in receiver_rows]
    judged = [
        [bar["bar"], f"{bar['share']:.0%}", f"{bar['value']:.3f}", bar["wanted"], "met" if bar["met"] else "NOT MET"]
        for bar in bars
    ]
    return "\n\n".join(
        [
            table(["changed", "op", "places", "bits/change", "bound", "ratio", "overhead"], sized),
            table(["encoder", "elements", "bits/change", "ours/its bytes", "best ms", "its/our time"], timed),
            table(["receiver", "best ms"], received),
            table(["bar", "changed", "measured", "wanted", ""], judged),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2^20 elements and few rounds; writes only with --out")
    parser.add_argument("--out", type=Path, help="JSON file; default benchmarks/results/refit.json unless --quick")
    options = parser.parse_args()
    elements, rounds = (1 << 20, 2) if options.quick else (1 << 24, 15)
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        pass
    with tqdm(desc="refit", unit=" runs", disable=None) as progress:
        size_rows = sizes(elements, progress)
        speed_rows = speeds(elements, rounds, progress)
        receiver_rows = receiver(elements, rounds, progress)
        peak = memory(elements)
    bars = judge(size_rows, speed_rows, peak)
    print(report(size_rows, speed_rows, receiver_rows, bars))
    out = options.out or (None if options.quick else RESULTS / "refit.json")
    if out:
        packages = ("numpy", "numba", "torch", "zstandard", "xxhash", "safetensors", "bsdiff4", "pyxdelta", "zipnn")
        parameters = {
            "elements": elements,
            "rounds": rounds,
            "threads": 1,
            "std": STD,
            "amplitude": AMPLITUDE,
            "seed": 0,
        }
        results = {"machine": machine(*packages), "parameters": parameters, "bars": bars}
        write_results(out, results | {"sizes": size_rows, "speeds": speed_rows, "receiver": receiver_rows})


if __name__ == "__main__":
    main()
