"""Log-probabilities of a verdict after every turn of a run, three ways: python benchmarks/audit_packed.py [--quick]

    one by one      one forward pass a prefix
    padded batch    one batch of all prefixes of a run, padded to the longest
    packed          the run once, the verdicts behind it in one row (`reprise.audit.packed`)

Seconds are CPU seconds of one thread over all runs, with and without the gradient; every round runs every task once,
and speeds are ratios of single rounds. The differences between the ways are checked in the same run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import torch  # noqa: E402
from tqdm import tqdm  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

from common import RESULTS, interleave, machine, ratio, table, write_results  # noqa: E402

from reprise.audit.packed import pack_prefixes, stack  # noqa: E402
from reprise.audit.verdict import alarm  # noqa: E402
from reprise.labs import audit_base  # noqa: E402
from reprise.labs.agent_runs import build_corpus  # noqa: E402
from reprise.labs.audit_model import load, response_logprobs  # noqa: E402
from reprise.labs.audit_vocabulary import VERDICT  # noqa: E402

BARS = {
    "one by one / packed": ">= 3",
    "padded batch / packed": ">= 2",
    "one by one / packed, with gradient": ">= 3",
    "padded batch / packed, with gradient": ">= 2",
    "largest difference": "<= 1e-5",
}


def work(model, runs):
    """Rows of each way, by run: lists of packed rows that go through the model together."""
    ask, ways = [model.vocabulary.ids[VERDICT]], {"one by one": [], "padded batch": [], "packed": []}
    for run in runs:
        tokens, ends = model.vocabulary.transcript(run.turns)
        said = [(end, model.vocabulary.verdict(alarm(k, run.turns[k].role))) for k, end in enumerate(ends)]
        apart = [pack_prefixes(tokens[:end], [(end, response)], ask) for end, response in said]
        ways["one by one"] += [[row] for row in apart]
        ways["padded batch"].append(apart)
        ways["packed"].append([pack_prefixes(tokens, said, ask)])
    return {way: [stack(rows) for rows in batches] for way, batches in ways.items()}


def forward(model, batches):
    with torch.no_grad():
        return torch.cat([response_logprobs(model, batch) for batch in batches])


def backward(model, batches):
    model.zero_grad()
    for batch in batches:
        response_logprobs(model, batch).sum().backward()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few runs and rounds")
    parser.add_argument("--out", type=Path, default=RESULTS / "audit_packed.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load(Path(__file__).parents[1] / audit_base.CHECKPOINT).eval()
    corpus = build_corpus(3 if options.quick else 20, seed=70, domains=("math", "search"))
    runs = [run for run in corpus if len(run) <= audit_base.TURNS]
    ways = work(model, runs)
    found = {way: forward(model, batches) for way, batches in ways.items()}
    difference = max(float((found[way] - found["packed"]).abs().max()) for way in ways)
    tokens = {way: sum(batch.ids.size for batch in batches) for way, batches in ways.items()}

    tasks = {way: lambda batches=batches: forward(model, batches) for way, batches in ways.items()}
    tasks |= {
        f"{way}, with gradient": lambda batches=batches: backward(model, batches) for way, batches in ways.items()
    }
    rounds = 2 if options.quick else 5
    with tqdm(total=(rounds + 1) * len(tasks), disable=None) as progress:
        seconds = interleave(tasks, rounds, progress, time.process_time)

    measured = {
        f"{way} / packed{suffix}": ratio(seconds[way + suffix], seconds["packed" + suffix])
        for suffix in ("", ", with gradient")
        for way in ("one by one", "padded batch")
    }
    rows = [[name, str(value), BARS[name]] for name, value in measured.items()]
    rows.append(["largest difference", f"{difference:.1e}", BARS["largest difference"]])
    rows += [[f"tokens, {way}", str(count), ""] for way, count in tokens.items()]
    print(table(["", "measured", "wanted"], rows))
    results = {"machine": machine("torch", "numpy"), "runs": len(runs), "tokens": tokens, "difference": difference}
    write_results(options.out, results | {"ratios": measured, "seconds": seconds, "wanted": BARS})


if __name__ == "__main__":
    main()
