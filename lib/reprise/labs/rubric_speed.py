"""CPU time of a training step's rewards, ours beside one response at a time, in one process and interleaved.

896 responses, eight to each of 112 prompts with a rubric graph of its own: a GRPO step of the paper (table 10), graphs
of HealthBench's reported size. Times of single rounds are compared, so that load on the machine hits both sides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from reprise.labs import rubric_peer
from reprise.labs.rubric_inference import BENCHMARKS, benchmark_graph, scattered
from reprise.rubric import RubricGraph, compile_batch

PROMPTS, RESPONSES = 112, 8


def cpu_seconds(tasks: Mapping[str, tuple[Callable[[], Any], int]], rounds: int, tick: Callable = lambda: None) -> dict:
    """CPU seconds of each task in each round, after one round that is not counted.

    Args:
        tasks: name -> (task, how often it runs within a round; more than once where the clock is too coarse).
        rounds: counted rounds.
        tick: called after every task, for a progress bar.
    """
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for counted in [False] + [True] * rounds:
        for name, (task, repeats) in tasks.items():
            begin = time.process_time()
            for _ in range(repeats):
                task()
            if counted:
                seconds[name].append((time.process_time() - begin) / repeats)
            tick()
    return seconds


def training_step(seed: int = 0) -> tuple[list[RubricGraph], np.ndarray]:
    """Graphs of a step, and scores (criteria of all graphs, responses)."""
    rng = np.random.default_rng(seed)
    graphs = [benchmark_graph(BENCHMARKS["HealthBench"], rng) for _ in range(PROMPTS)]
    return graphs, rng.beta(5, 2, (sum(map(len, graphs)), RESPONSES))


def step_tasks(graphs: list[RubricGraph], p: np.ndarray) -> dict[str, tuple[Callable[[], Any], int]]:
    """Rewards of the step: response by response, reading the record each time or once a prompt, and packed."""
    records = [graph.to_reward_model() for graph in graphs]
    parsed = [rubric_peer.parse(record) for record in records]
    linear, exact = (compile_batch(graphs, inference) for inference in ("mean_field", "exact"))
    columns = [[p[rows, response] for response in range(p.shape[1])] for rows in linear.rows]

    def one_by_one():
        return [[rubric_peer.rewards(r, c)["linear"] for c in own] for r, own in zip(records, columns, strict=True)]

    def read_once():
        return [[rubric_peer.linear_reward(g, c) for c in own] for g, own in zip(parsed, columns, strict=True)]

    return {
        "dictionaries": (one_by_one, 1),
        "dictionaries, read once": (read_once, 1),
        "mean field": (lambda: linear.reward(linear.marginals(p)), 20),
        "exact": (lambda: exact.reward(exact.marginals(p)), 20),
    }


def walk_seconds(sizes: list[int], rounds: int, seed: int = 0) -> list[dict]:
    """CPU seconds of the linear update, walked criterion by criterion, on graphs of growing size."""
    rng = np.random.default_rng(seed)
    rows = []
    for criteria in sizes:
        graph = scattered(criteria, criteria, rng)
        parsed = rubric_peer.parse(graph.to_reward_model())
        p = dict(zip(graph.ids, rng.random(criteria), strict=True))
        seconds = cpu_seconds({"walk": (lambda parsed=parsed, p=p: rubric_peer.linear(parsed, p), 5)}, rounds)["walk"]
        rows.append({"size": criteria + len(graph.edges), "seconds": float(np.median(seconds))})
    return rows
