"""How far the linear update is from exact marginals, and what exact marginals cost, on graphs of the reported sizes.

The paper's graphs are not published. Ours have the reported numbers of criteria and edges (table 3) and the reported
mix of parents (section 4.7); who is whose parent is drawn at random, which is the open part, so it is swept:

    spread    parents drawn among all criteria before the child
    near      among the few before it, so that parents tend to be related
    shared    one parent after another is a child or a parent of one already chosen, where there is one
    polytree  no criterion is reached by two paths: the linear update is exact (the control)

Source: GEAR, appendix B.2 and table 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reprise.errors import RepriseError
from reprise.labs.rubric_world import PARENTS, TYPE_MIX
from reprise.rubric import Criterion, Edge, EdgeType, ExactTooLarge, RubricGraph, compile_batch
from reprise.rubric.marginals import exact_program

WIRINGS = ("spread", "near", "shared", "polytree")
NEAR = 3  # criteria before a child among which "near" draws
DESIGN_SEED, CLAIM_SEED = 0, 101
# section 4.7: shares in percent of dependent criteria with one, two, three or more parents, and their mean
PARENT_SHARES, PARENT_MEAN = (70.0, 24.4, 5.6), 1.37
PENALTY_SHARE = 0.2  # of the criteria; the paper does not report it
SCORES = {"confident": (5.0, 2.0), "uniform": (1.0, 1.0), "polarised": (0.5, 0.5)}  # beta laws of judge scores


@dataclass(frozen=True)
class Benchmark:
    """Reported sizes and errors of one benchmark.

    Attributes:
        rubrics: pairs of a graph and scores in table 8.
        criteria, edges: means over all rubrics, table 3.
        nonempty: share of graphs with an edge, table 3.
        marginal_mae, reward_mae, correlation: linear update against enumeration, table 8.
        milliseconds: latency a response after the judge, table 3.
    """

    rubrics: int
    criteria: float
    edges: float
    nonempty: float
    marginal_mae: float
    reward_mae: float
    correlation: float
    milliseconds: float


BENCHMARKS = {
    "HealthBench": Benchmark(5000, 11.48, 10.92, 0.9184, 0.0068, 0.0042, 0.9968, 4.1),
    "WritingBench": Benchmark(1000, 5.00, 2.86, 0.7860, 0.0027, 0.0018, 0.9992, 1.7),
    "PLawBench": Benchmark(250, 4.00, 1.94, 0.7120, 0.0019, 0.0013, 0.9995, 1.3),
}


def benchmark_graph(
    bench: Benchmark, rng: np.random.Generator, wiring: str = "spread", types: Mapping[EdgeType, float] = TYPE_MIX
) -> RubricGraph:
    """One graph with, on average, the benchmark's numbers of criteria and edges."""
    criteria = 2 + int(rng.poisson(bench.criteria - 2))
    if rng.random() >= bench.nonempty:
        return wired(criteria, 0, rng, wiring, types)
    # graphs with edges carry those of the empty ones too
    edges = bench.edges / bench.nonempty * criteria / bench.criteria
    return wired(criteria, edges, rng, wiring, types)


def wired(
    criteria: int,
    edges: float,
    rng: np.random.Generator,
    wiring: str = "spread",
    types: Mapping[EdgeType, float] = TYPE_MIX,
) -> RubricGraph:
    """A random graph of `criteria` criteria with about `edges` edges.

    Criteria stand in topological order; the first ones depend on nothing, each later one has parents before it.

    Raises:
        RepriseError: `wiring` is none of WIRINGS.
    """
    if wiring not in WIRINGS:
        raise RepriseError(f"wiring={wiring!r}: expected one of {', '.join(WIRINGS)}")
    mean = sum(count * share for count, share in PARENTS.items())
    wanted = edges / mean
    dependents = min(criteria - 1, int(wanted) + int(rng.random() < wanted % 1))
    counts = rng.choice(list(PARENTS), dependents, p=list(PARENTS.values()))
    names = list(types)
    found: list[Edge] = []
    families = [{k} for k in range(criteria)]  # ancestors, or in a polytree everything connected
    for child, count in enumerate(counts.tolist(), start=criteria - dependents):
        for parent in _parents(child, count, families, rng, wiring):
            if wiring == "polytree":
                joined = families[child] | families[parent]
                for member in joined:
                    families[member] = joined
            else:
                families[child] |= families[parent]
            kind = names[rng.choice(len(names), p=list(types.values()))]
            found.append(Edge(str(parent), str(child), kind))
    weights = rng.integers(1, 11, criteria) * np.where(rng.random(criteria) < PENALTY_SHARE, -1, 1)
    weights[0] = abs(weights[0])
    return RubricGraph([Criterion(str(k), int(w)) for k, w in enumerate(weights)], found)


def _parents(child: int, count: int, families: list[set[int]], rng: np.random.Generator, wiring: str) -> Iterator[int]:
    chosen: list[int] = []
    for _ in range(count):
        among = [k for k in range(child) if k not in chosen]
        if wiring == "near":
            among = [k for k in among if k >= child - NEAR] or among
        elif wiring == "polytree":
            among = [k for k in among if k not in families[child]]
        elif wiring == "shared" and chosen:
            reach = set().union(*(families[k] for k in chosen))
            among = [k for k in among if families[k] & reach] or among
        if among:
            chosen.append(among[rng.integers(len(among))])
            yield chosen[-1]


def agreement(
    name: str,
    graphs: int,
    seed: int,
    *,
    wiring: str = "spread",
    scores: str = "confident",
    types: Mapping[EdgeType, float] = TYPE_MIX,
) -> dict:
    """Linear update against exact marginals over graphs of one benchmark, a response each.

    Returns:
        a row: benchmark, wiring, scores, graphs, marginal_mae (over criteria), reward_mae and correlation (over
        graphs), the standard errors of the two means over graphs, worst (largest error of a criterion), criteria and
        edges (means).
    """
    rng = np.random.default_rng([seed, list(BENCHMARKS).index(name)])
    drawn = [benchmark_graph(BENCHMARKS[name], rng, wiring, types) for _ in range(graphs)]
    linear, exact = (compile_batch(drawn, inference) for inference in ("mean_field", "exact"))
    p = rng.beta(*SCORES[scores], len(linear.ids))
    q = [program.marginals(p) for program in (linear, exact)]
    rewards = [program.reward(each) for program, each in zip((linear, exact), q, strict=True)]
    error, reward_error = np.abs(q[0] - q[1]), np.abs(rewards[0] - rewards[1])
    # criteria of one graph err together: the graph is the unit
    size = np.array([len(graph) for graph in drawn])
    excess = np.add.reduceat(error, [rows.start for rows in linear.rows]) - error.mean() * size
    return {
        "benchmark": name,
        "wiring": wiring,
        "scores": scores,
        "graphs": graphs,
        "marginal_mae": float(error.mean()),
        "marginal_se": float(np.sqrt((excess**2).sum()) / len(error)),
        "reward_mae": float(reward_error.mean()),
        "reward_se": float(reward_error.std(ddof=1) / np.sqrt(graphs)),
        "correlation": float(np.corrcoef(*rewards)[0, 1]),
        "worst": float(error.max()),
        "criteria": len(linear.ids) / graphs,
        "edges": len(linear.edges) / graphs,
    }


def ranking(rows: Sequence[dict]) -> list[str]:
    """Benchmarks from the largest `marginal_mae` to the smallest; equal to 12 digits, in the order of the alphabet."""
    return [
        row["benchmark"] for row in sorted(rows, key=lambda row: (-round(row["marginal_mae"], 12), row["benchmark"]))
    ]


def implied_last_group(rounding: bool = False):
    """Mean number of parents in the group of three or more that the other printed figures imply.

    Args:
        rounding: give instead the smallest and the largest value within half a unit of every printed figure.
    """
    one, two, more = (share / 100 for share in PARENT_SHARES)
    if not rounding:
        return (PARENT_MEAN - one - 2 * two) / more
    half, ends = 0.0005, []
    for sign in (-1, 1):
        # mean up and the others down raises it; the three shares still sum to one
        corners = [
            (PARENT_MEAN + sign * 0.005 - (one + a) - 2 * (two - a - b)) / (more + b)
            for a in (-half, 0, half)
            for b in (-half, 0, half)
            if abs(a + b) <= half
        ]
        ends.append(min(corners) if sign < 0 else max(corners))
    return tuple(ends)


def interval_rows(graphs: int, seed: int) -> list[dict]:
    """Mean field, exact, upper bound and score of the criteria with several parents; graphs of HealthBench's size."""
    rng = np.random.default_rng([seed, 10])
    drawn = [wired(11, 11.0, rng, "shared") for _ in range(graphs)]
    program = compile_batch(drawn, "exact")
    p = rng.beta(*SCORES["confident"], len(program.ids))
    exact, (lower, upper) = program.marginals(p), program.bounds(p)
    rows = []
    for graph, where in zip(drawn, program.rows, strict=True):
        for i, above in enumerate(graph.parents):
            if len(above) > 1:
                k = where.start + i
                rows.append(
                    {"parents": len(above), "mean_field": lower[k], "exact": exact[k], "upper": upper[k], "score": p[k]}
                )
    return rows


def program_sizes(sizes: Sequence[tuple[int, float]], graphs: int, seed: int, limit: int = 200_000) -> list[dict]:
    """Terms of the moment program for each (criteria, edges), edges placed anywhere; `limit` + 1 where it gives up."""
    rows = []
    for criteria, edges in sizes:
        rng = np.random.default_rng([seed, criteria, int(edges)])
        for _ in range(graphs):
            graph = scattered(criteria, int(edges), rng)
            try:
                terms = exact_program(graph, limit).terms
            except ExactTooLarge:
                terms = limit + 1
            rows.append(
                {"criteria": criteria, "edges": int(edges), "terms": terms, "enumeration": criteria * 2**criteria}
            )
    return rows


def scattered(criteria: int, edges: int, rng: np.random.Generator) -> RubricGraph:
    """A graph whose edges are any of the pairs in topological order."""
    pairs = np.array([(i, j) for j in range(criteria) for i in range(j)])
    chosen = pairs[rng.choice(len(pairs), edges, replace=False)]
    return RubricGraph(
        [Criterion(str(k), 1) for k in range(criteria)], [Edge(str(i), str(j), "weak") for i, j in chosen]
    )
