"""Judging recorded runs, drawing up the suite, exact paired bootstraps: python benchmarks/evidence.py [--quick]

Seconds are CPU seconds of one thread. Every round runs every task once, and speeds are ratios of single rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
from scipy.stats import bootstrap  # noqa: E402
from tqdm import tqdm  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

from common import RESULTS, interleave, machine, ratio, table, write_results  # noqa: E402

from reprise.evidence import Case, Trajectory, evaluate, provenance  # noqa: E402
from reprise.evidence.environment import Environment, check_replay  # noqa: E402
from reprise.evidence.model import Protocol  # noqa: E402
from reprise.labs.evidence_suite import generate_suite, reference  # noqa: E402
from reprise.stats_exact import exact_paired_bootstrap  # noqa: E402

CALLS, EVALUATIONS = 15, 200
LONG = (1_000, 10_000)
N, B, C, DRAWS = 570, 59, 75, 10_000
BARS = {
    "evaluations a second, 15 calls": ">= 5000",
    "10 times the calls take times as long": "<= 12",
    "suite of 656 cases, s": "<= 1",
    "exact bootstrap, n = 570, ms": "<= 50",
    "counts drawn at once / scipy.stats.bootstrap": "<= 0.33",
}


def padded(case: Case, calls: int) -> tuple[Case, Trajectory]:
    """A right run of a case, with its reads repeated until it has this many calls."""
    view = case.view.model_copy(update={"step_budget": max(calls + 1, case.view.step_budget)})
    case = case.model_copy(update={"view": view})
    steps = reference(case).steps
    reads = [step for step in steps if step.outcome == "read"]
    environment = Environment(case)
    for k in range(calls - len(steps)):
        again = reads[k % len(reads)]
        if case.view.tool[again.tool].kind == "information":
            environment.call(again.tool, **again.args)
    for step in steps:
        args = {name: _current(value, steps, environment) for name, value in step.args.items()}
        environment.call(step.tool, **args)
    return case, environment.finish()


def _current(value, old, environment: Environment):
    """Generated ids depend on the place of a call: the one that the same call returned here."""
    made = [step for step in environment.trajectory().steps if step.outputs]
    for before, now in zip([step for step in old if step.outputs], made, strict=False):
        for name, output in before.outputs.items():
            if output == value:
                return now.outputs[name]
    return value


def by_counts(rng: np.random.Generator) -> tuple[float, float]:
    """Percentile interval of the resampled mean difference: how often each of the three outcomes is drawn."""
    drawn = rng.multinomial(N, [B / N, 1 - (B + C) / N, C / N], size=DRAWS)
    low, high = np.quantile((drawn[:, 2] - drawn[:, 0]) / N, [0.025, 0.975], method="inverted_cdf")
    return float(low), float(high)


def by_scipy(rng: np.random.Generator) -> tuple[float, float]:
    """The same with scipy, which resamples the differences one by one."""
    differences = np.repeat([-1.0, 0.0, 1.0], [B, N - B - C, C])
    found = bootstrap((differences,), np.mean, n_resamples=DRAWS, method="percentile", rng=rng).confidence_interval
    return float(found.low), float(found.high)


def tasks(suite: list[Case]) -> tuple[dict, dict]:
    """What is timed, and how often each task does it."""
    v3 = next(case for case in suite if case.view.protocol is Protocol.V3 and len(reference(case).steps) <= CALLS)
    case, run = padded(v3, CALLS)
    assert len(run.steps) == CALLS and evaluate(case, run).ecs
    found = {
        "evaluate, 15 calls": (lambda: [evaluate(case, run) for _ in range(EVALUATIONS)], EVALUATIONS),
        "provenance, 15 calls": (lambda: [provenance(case, run) for _ in range(EVALUATIONS)], EVALUATIONS),
        "check by replay, 15 calls": (
            lambda: [check_replay(case, run) for _ in range(EVALUATIONS // 4)],
            EVALUATIONS // 4,
        ),
        "suite of 656 cases": (lambda: generate_suite(0), 1),
        "exact bootstrap": (lambda: exact_paired_bootstrap(N, B, C), 1),
        "counts drawn at once": (lambda: by_counts(np.random.default_rng(0)), 1),
        "scipy.stats.bootstrap": (lambda: by_scipy(np.random.default_rng(0)), 1),
    }
    for calls in LONG:
        longer = padded(v3, calls)
        found[f"evaluate, {calls} calls"] = (lambda longer=longer: evaluate(*longer), 1)
    return {name: task for name, (task, _) in found.items()}, {name: times for name, (_, times) in found.items()}


def judge(seconds: dict[str, list[float]], times: dict[str, int]) -> list[dict]:
    """Each bar with what was measured, and whether it is met."""
    one = {name: float(np.median(each)) / times[name] for name, each in seconds.items()}
    short, long = (f"evaluate, {calls} calls" for calls in LONG)
    grows = ratio(seconds[long], seconds[short]).median
    drawn = ratio(seconds["counts drawn at once"], seconds["scipy.stats.bootstrap"]).median
    speed = 1 / one["evaluate, 15 calls"]
    values = {
        "evaluations a second, 15 calls": (speed, speed >= 5000),
        "10 times the calls take times as long": (grows, grows <= 12),
        "suite of 656 cases, s": (one["suite of 656 cases"], one["suite of 656 cases"] <= 1),
        "exact bootstrap, n = 570, ms": (1e3 * one["exact bootstrap"], one["exact bootstrap"] <= 0.05),
        "counts drawn at once / scipy.stats.bootstrap": (drawn, drawn <= 0.33),
    }
    return [{"bar": bar, "wanted": BARS[bar], "value": value, "met": bool(met)} for bar, (value, met) in values.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 rounds instead of 9, nothing written")
    parser.add_argument("--out", type=Path, default=RESULTS / "evidence.json")
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else 9
    todo, times = tasks(generate_suite(0))
    with tqdm(total=len(todo) * (rounds + 1), disable=not sys.stderr.isatty()) as progress:
        seconds = interleave(todo, rounds, progress, time.process_time)
    law = exact_paired_bootstrap(N, B, C)
    intervals = {
        "exact": (law.low, law.high),
        "counts drawn at once": by_counts(np.random.default_rng(0)),
        "scipy.stats.bootstrap": by_scipy(np.random.default_rng(0)),
    }
    bars = judge(seconds, times)
    rows = [[name, f"{1e3 * float(np.median(each)) / times[name]:.4f}"] for name, each in seconds.items()]
    print(table(["task", "CPU ms"], rows), end="\n\n")
    ends = [[name, *(f"{100 * end:+.2f}" for end in pair)] for name, pair in intervals.items()]
    print(table(["95 % interval, points", "low", "high"], ends), end="\n\n")
    print(table(["bar", "wanted", "here", "met"],
                [[b["bar"], b["wanted"], f"{b['value']:.3g}", "yes" if b["met"] else "NO"] for b in bars]))  # fmt: skip
    if not arguments.quick:
        results = {"machine": machine("numpy", "scipy", "pydantic"), "rounds": rounds, "seconds": seconds}
        results |= {"times": times, "intervals": intervals, "bars": bars}
        write_results(arguments.out, results)


if __name__ == "__main__":
    main()
