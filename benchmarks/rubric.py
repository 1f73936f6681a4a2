"""Rewards of a training step's rubrics beside other ways to compute them: python benchmarks/rubric.py [--quick]

896 responses, eight to each of 112 prompts with a rubric graph of its own (11.5 criteria and 10.9 edges on average).
Seconds are CPU seconds of one thread. Every round runs every task once, and speeds are ratios of single rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
from tqdm import tqdm  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

from common import RESULTS, machine, ratio, table, write_results  # noqa: E402

from reprise.labs import peers, rubric_peer  # noqa: E402
from reprise.labs.rubric_inference import scattered  # noqa: E402
from reprise.labs.rubric_speed import PROMPTS, RESPONSES, cpu_seconds, step_tasks, training_step  # noqa: E402
from reprise.rubric import RubricGraph, compile_batch, programs  # noqa: E402

SIZES, GRAPHS = (6, 8, 10, 20, 30), 5
ENUMERATED = 10  # the public code enumerates states up to this many criteria
BARS = {
    "dictionaries / mean field": ">= 80",
    "dictionaries / exact": ">= 40",
    "exact / mean field": "<= 3",
    "compile a graph": "<= 1 ms",
    "float32 error": "< 1e-6",
}


def speeds(rounds: int, progress) -> tuple[dict, dict]:
    """Seconds of every way, and what they agree in."""
    graphs, p = training_step()
    linear, exact = (compile_batch(graphs, inference) for inference in ("mean_field", "exact"))

    def compiled(inference):
        programs.forget()
        return compile_batch([RubricGraph(graph.criteria, graph.edges) for graph in graphs], inference)

    tasks = step_tasks(graphs, p)
    tasks |= {
        "compile and pack, mean field": (lambda: compiled("mean_field"), 1),
        "compile and pack, exact": (lambda: compiled("exact"), 1),
    }
    seconds = cpu_seconds(tasks | _with_gradients(linear, exact, p), rounds, progress.update)
    narrow = exact.marginals(p.astype(np.float32))
    one_by_one = tasks["dictionaries"][0]()
    checks = {
        "mean field against dictionaries": float(np.abs(linear.reward(linear.marginals(p)) - one_by_one).max()),
        "float32 error": float(np.abs(narrow - exact.marginals(p)).max()),
        "criteria": float(np.mean([len(graph) for graph in graphs])),
        "edges": float(np.mean([len(graph.edges) for graph in graphs])),
        "terms": exact.terms,
    }
    return seconds, checks


def _with_gradients(linear, exact, p) -> dict:
    import torch

    torch.set_num_threads(1)

    def task(program):
        scores = torch.tensor(p, requires_grad=True)
        program.reward(program.marginals(scores)).sum().backward()

    return {
        "mean field, tensors, with backward": (lambda: task(linear), 2),
        "exact, tensors, with backward": (lambda: task(exact), 2),
    }


def exact_peers(rounds: int, progress) -> list[dict]:
    """Exact marginals of one response, everything included, beside other implementations; graphs with K edges."""
    rows = []
    for criteria in SIZES:
        rng = np.random.default_rng(criteria)
        seconds: dict[str, list[float]] = {}
        for _ in range(GRAPHS):
            graph, p = scattered(criteria, criteria, rng), rng.beta(5, 2, criteria)
            ours = _compile_and_run(graph, p)
            tasks = {"ours": (lambda graph=graph, p=p: _compile_and_run(graph, p), 5)}
            if criteria <= ENUMERATED:
                parsed = rubric_peer.parse(graph.to_reward_model())
                named = dict(zip(graph.ids, p, strict=True))
                tasks["all 2^K states"] = (
                    lambda parsed=parsed, named=named: rubric_peer.enumerate_states(parsed, named),
                    1,
                )
            if not peers.available("pyagrum"):
                assert np.abs(_pyagrum(graph, p) - ours).max() < 1e-10
                tasks["pyAgrum"] = lambda graph=graph, p=p: _pyagrum(graph, p), 1
            for name, times in cpu_seconds(tasks, rounds).items():
                seconds.setdefault(name, []).append(float(np.median(times)))
        progress.update()
        rows.append({"criteria": criteria, **{name: 1e3 * float(np.median(times)) for name, times in seconds.items()}})
    return rows


def _compile_and_run(graph: RubricGraph, p: np.ndarray) -> np.ndarray:
    programs.forget()
    return compile_batch([RubricGraph(graph.criteria, graph.edges)], "exact").marginals(p)


def _pyagrum(graph: RubricGraph, p: np.ndarray) -> np.ndarray:
    gum = peers.load("pyagrum")
    net = gum.BayesNet()
    nodes = [net.add(gum.LabelizedVariable(id, id, 2)) for id in graph.ids]
    for i, above in enumerate(graph.parents):
        for j, _ in above:
            net.addArc(nodes[j], nodes[i])
    for i, above in enumerate(graph.parents):
        for state in range(1 << len(above)):
            alpha, named = p[i], {}
            for bit, (j, edge) in enumerate(above):
                named[graph.ids[j]] = state >> bit & 1
                alpha *= 1.0 if named[graph.ids[j]] else rubric_peer.NAMES[graph.edges[edge].type]
            net.cpt(nodes[i])[named] = [1 - alpha, alpha]
    engine = gum.LazyPropagation(net)
    engine.makeInference()
    return np.array([engine.posterior(node)[1] for node in nodes])


def judge(seconds: dict, checks: dict) -> list[dict]:
    """Each bar with what was measured, and whether it is met."""
    linear, exact = (
        ratio(seconds["dictionaries"], seconds["mean field"]),
        ratio(seconds["dictionaries"], seconds["exact"]),
    )
    between = ratio(seconds["exact"], seconds["mean field"])
    compiled = 1e3 * float(np.median(seconds["compile and pack, exact"])) / PROMPTS
    found = {
        "dictionaries / mean field": (linear.median, linear.median >= 80),
        "dictionaries / exact": (exact.median, exact.median >= 40),
        "exact / mean field": (between.median, between.median <= 3),
        "compile a graph": (compiled, compiled <= 1),
        "float32 error": (checks["float32 error"], checks["float32 error"] < 1e-6),
    }
    return [{"bar": bar, "wanted": BARS[bar], "value": value, "met": bool(met)} for bar, (value, met) in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 rounds instead of 9, nothing written")
    parser.add_argument("--out", type=Path, default=RESULTS / "rubric.json")
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else 9
    with tqdm(total=8 * (rounds + 1) + len(SIZES), disable=not sys.stderr.isatty()) as progress:
        seconds, checks = speeds(rounds, progress)
        single = exact_peers(2 if arguments.quick else 5, progress)
    bars = judge(seconds, checks)
    rows = [
        [
            name,
            f"{1e3 * float(np.median(times)):.2f}",
            f"{1e6 * float(np.median(times)) / PROMPTS / RESPONSES:.2f}",
            str(ratio(seconds["dictionaries"], times)),
        ]
        for name, times in seconds.items()
    ]
    print(table(["896 responses of 112 prompts", "CPU ms", "us a response", "dictionaries take times as long"], rows))
    print()
    names = ("ours", "all 2^K states", "pyAgrum")
    cells = [[str(row["criteria"]), *(f"{row[n]:.2f}" if n in row else "" for n in names)] for row in single]
    print(table(["one response, compiled anew, CPU ms: K", *names], cells))
    print()
    print(
        table(
            ["bar", "wanted", "here", "met"],
            [[b["bar"], b["wanted"], f"{b['value']:.3g}", str(b["met"])] for b in bars],
        )
    )
    print({name: f"{value:.4g}" for name, value in checks.items()})
    if not arguments.quick:
        results = {
            "machine": machine("numpy", "torch", "opt-einsum"),
            "peers": {name: peers.version(name) for name in ("pyagrum",)},
            "seconds": seconds,
            "ratios": {name: ratio(seconds["dictionaries"], times) for name, times in seconds.items()},
            "single": single,
            "checks": checks,
            "bars": bars,
        }
        write_results(arguments.out, results)


if __name__ == "__main__":
    main()
