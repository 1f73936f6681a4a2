"""False credit: how much of a criterion's utility is paid while what licenses it is missing, and how much is kept.

Over all responses and all edges j -> i of the types considered, with threshold t on the judge's own scores p,

    violated    p_i >= t and p_j < t      L = sum of |w_i| / W+ * q_i  over violated cases / their number
    satisfied   p_i >= t and p_j >= t     P = sum of q_i / p_i         over satisfied cases / their number

W+ is the sum of the rubric's positive weights, q what the aggregation pays. Membership never looks at q, so that all
aggregations are judged on the same cases. A child with two violated parents counts twice. Without a case there is no
L, or no P: None, never 0.

Source: GEAR, section 4.3 and appendix F; the sums are those of the public code's diagnostic script.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from reprise.rubric.errors import RubricError, ScoreError
from reprise.rubric.graph import EdgeType, RubricGraph
from reprise.rubric.scores import ROUNDING
from reprise.stats import Interval, resampled_sums

THRESHOLD = 0.5
# the public script leaves activation edges out unless told otherwise
EDGE_TYPES = (EdgeType.WEAK, EdgeType.STRONG)


@dataclass(frozen=True)
class Scored:
    """Responses to one prompt: the judge's scores and what each aggregation made of them.

    Attributes:
        graph: a valid rubric graph of K criteria.
        p: [K] or [responses, K] scores in [0, 1].
        q: aggregation -> paid scores of the same shape. "flat", which pays p, need not be given.
        prompt: label of the prompt; responses to one prompt are not independent.
    """

    graph: RubricGraph
    p: np.ndarray
    q: Mapping[str, np.ndarray] = field(default_factory=dict)
    prompt: str = ""


@dataclass(frozen=True)
class Cases:
    """What happened on each considered edge: [responses, edges] arrays, and [edges] of the graph.

    Attributes:
        edges: positions of the considered edges among the graph's.
        child: position of each one's child among the criteria.
        share: |w_child| / W+, 0 in a rubric without positive weights.
        violated, satisfied: which cases are which.
    """

    edges: np.ndarray
    child: np.ndarray
    share: np.ndarray
    violated: np.ndarray
    satisfied: np.ndarray


@dataclass(frozen=True)
class Leakage:
    """One aggregation's L and P with percentile bootstrap intervals; None where there is no case."""

    leakage: Interval | None
    preservation: Interval | None


@dataclass(frozen=True)
class FCPReport:
    """False credit of several aggregations on the same cases.

    Attributes:
        methods: aggregation -> its L and P; "flat" comes first.
        violated, satisfied: number of cases.
        responses, clusters: how many responses, and how many units the bootstrap draws from.
        threshold, edge_types: as asked for.
        unit: what it draws.
    """

    methods: Mapping[str, Leakage]
    violated: int
    satisfied: int
    responses: int
    clusters: int
    threshold: float
    edge_types: tuple[EdgeType, ...]
    unit: str

    def reduction(self, method: str) -> float | None:
        """1 - L(method) / L(flat); None without a case or where flat aggregation leaks nothing."""
        ours, theirs = (self.methods[name].leakage for name in (method, "flat"))
        return 1 - ours.estimate / theirs.estimate if ours and theirs and theirs.estimate else None


@dataclass(frozen=True)
class Options:
    """What was asked for: cases, and how intervals are made; see `fcp_metrics`."""

    threshold: float
    edge_types: tuple[EdgeType, ...]
    resamples: int
    seed: int
    confidence: float


def fcp_metrics(
    records: Iterable[Scored],
    threshold: float = THRESHOLD,
    edge_types: Sequence[str] | str = EDGE_TYPES,
    cluster: str | None = None,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> FCPReport:
    """Leakage and preservation of every aggregation in the records, micro-averaged over edges.

    Args:
        records: each may hold one response or many; all name the same aggregations.
        threshold: in (0, 1]; a score of at least this counts as met.
        edge_types: types of edges considered, or "all".
        cluster: None draws responses in the bootstrap; "prompt" draws all responses of a prompt together.
        resamples, seed, confidence: of the intervals.

    Raises:
        ScoreError: a score is missing (NaN), outside [0, 1] or of the wrong shape; the message names the criterion.
        GraphError: a graph is not valid.
        RubricError: no records, records with other aggregations, or an unknown option.

    >>> from reprise.rubric.graph import Criterion, Edge
    >>> graph = RubricGraph([Criterion("a", 1), Criterion("b", 1)], [Edge("a", "b", "weak")])
    >>> report = fcp_metrics([Scored(graph, np.array([0.2, 0.9]), {"gear": np.array([0.2, 0.612])})])
    >>> round(report.methods["flat"].leakage.estimate, 3), round(report.methods["gear"].leakage.estimate, 3)
    (0.45, 0.306)
    >>> report.methods["gear"].preservation is None  # no edge is satisfied
    True
    """
    if cluster not in (None, "prompt"):
        raise RubricError(f"cluster={cluster!r}: expected None or 'prompt'")
    if resamples < 1:
        raise RubricError(f"resamples={resamples}: expected at least 1")
    if not 0 < confidence < 1:
        raise RubricError(f"confidence={confidence}: expected a level in (0, 1)")
    types = considered(edge_types)
    names, sums, prompts = None, [], []
    for number, record in enumerate(records):
        own = ["flat", *(name for name in record.q if name != "flat")]
        names = names or own
        if set(own) != set(names):
            raise RubricError(f"record {number}: aggregations {', '.join(own)}: expected {', '.join(names)}")
        rows = response_sums(record, names, threshold, types)
        sums.append(rows)
        prompts += [record.prompt] * len(rows)
    if not prompts:
        raise RubricError("records: none with a response: expected at least one")
    rows = np.concatenate(sums)
    labels = list(range(len(rows))) if cluster is None else prompts
    unit = "response" if cluster is None else "prompt"
    options = Options(threshold, types, resamples, seed, confidence)
    return report(rows, labels, names, len(rows), unit, options)


def report(
    rows: np.ndarray,
    labels: Sequence[Hashable],
    names: Sequence[str],
    responses: int,
    unit: str,
    options: Options,
) -> FCPReport:
    """The report of `response_sums` of so many responses, or of sums of them; rows of one label are drawn together."""
    units = _by_label(rows, labels)
    methods = dict(zip(names, _intervals(units, len(names), options), strict=True))
    violated, satisfied = (int(count) for count in rows[:, :2].sum(axis=0))
    return FCPReport(methods, violated, satisfied, responses, len(units), options.threshold, options.edge_types, unit)


def response_sums(record: Scored, methods: Sequence[str], threshold: float, types: Sequence[EdgeType]) -> np.ndarray:
    """For each response the numbers of violated and satisfied cases, then for each method what leaks and what is kept.

    Returns:
        [responses, 2 + 2 * methods]: violated, satisfied, leaked and kept of the first method, of the second, ...
    """
    p = checked_scores(record.graph, record.p, "p")
    cases = edge_cases(record.graph, p, threshold, types)
    columns = [cases.violated.sum(axis=1), cases.satisfied.sum(axis=1)]
    for name in methods:
        q = p if name not in record.q else checked_scores(record.graph, record.q[name], f"q[{name}]")
        if len(q) != len(p):
            raise ScoreError(f"q[{name}]: {len(q)} responses: expected {len(p)}, as p has")
        leaked, kept = case_values(cases, p, q)
        columns += [leaked.sum(axis=1), kept.sum(axis=1)]
    return np.stack(columns, axis=1).astype(np.float64)


def edge_cases(graph: RubricGraph, p: np.ndarray, threshold: float, types: Sequence[EdgeType]) -> Cases:
    """Which edges are violated and which satisfied in each response.

    Args:
        graph: valid; K criteria.
        p: [responses, K] scores.
    """
    if not 0 < threshold <= 1:
        raise RubricError(f"threshold={threshold}: expected 0 < threshold <= 1")
    graph.validate()
    edges = np.array([k for k, edge in enumerate(graph.edges) if edge.type in types], dtype=np.intp)
    parent = np.array([graph.index[graph.edges[k].parent] for k in edges], dtype=np.intp)
    child = np.array([graph.index[graph.edges[k].child] for k in edges], dtype=np.intp)
    met = p >= threshold
    return Cases(
        edges, child, weight_shares(graph)[child], met[:, child] & ~met[:, parent], met[:, child] & met[:, parent]
    )


def case_values(cases: Cases, p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(utility leaked, share of p kept), [responses, edges]; 0 where an edge is not violated, or not satisfied."""
    paid, score = q[:, cases.child], p[:, cases.child]
    leaked = np.where(cases.violated, cases.share * paid, 0.0)
    return leaked, np.divide(paid, score, out=np.zeros_like(paid), where=cases.satisfied)


def weight_shares(graph: RubricGraph) -> np.ndarray:
    """[K] |w| / W+: the part of the reward's scale that each criterion holds; 0 without positive weights."""
    weights = np.array(graph.weights, dtype=np.float64)
    positive = weights[weights > 0].sum()
    return np.abs(weights) / positive if positive else np.zeros(len(weights))


def considered(edge_types: Sequence[str] | str) -> tuple[EdgeType, ...]:
    """The edge types named, in the order of EdgeType; "all" for all of them."""
    if edge_types == "all":
        return tuple(EdgeType)
    named = [edge_types] if isinstance(edge_types, str) else list(edge_types)
    try:
        chosen = {EdgeType(name) for name in named}
    except ValueError:
        raise RubricError(f"edge_types={named!r}: expected some of {', '.join(EdgeType)}, or 'all'") from None
    if not chosen:
        raise RubricError("edge_types: none: expected at least one")
    return tuple(kind for kind in EdgeType if kind in chosen)


def checked_scores(graph: RubricGraph, scores, name: str) -> np.ndarray:
    """[responses, K] float64 in [0, 1]; what is outside by rounding alone is brought back."""
    try:
        rows = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):
        raise ScoreError(f"{name}: expected numbers, rows of equal length") from None
    if rows.ndim != 2 or rows.shape[1] != len(graph):
        raise ScoreError(f"{name}: shape {np.shape(scores)}: expected {len(graph)} scores a response")
    bad = ~((rows >= -ROUNDING) & (rows <= 1 + ROUNDING))
    if bad.any():
        row, column = (int(k[0]) for k in np.nonzero(bad))
        raise ScoreError(f"{name}: criterion {graph.ids[column]}: {rows[row, column]}: expected a score in [0, 1]")
    return np.clip(rows, 0.0, 1.0)


def _by_label(rows: np.ndarray, labels: Sequence[Hashable]) -> np.ndarray:
    place: dict[Hashable, int] = {}
    index = [place.setdefault(label, len(place)) for label in labels]
    out = np.zeros((len(place), rows.shape[1]))
    np.add.at(out, index, rows)
    return out


def _intervals(units: np.ndarray, methods: int, options: Options) -> list[Leakage]:
    """L and P of each method; all ratios of one resample come from the same units."""
    totals = units.sum(axis=0)
    drawn = resampled_sums(units, options.resamples, options.seed)
    tails = [(1 - options.confidence) / 2, (1 + options.confidence) / 2]

    def ratio(column: int, count: int) -> Interval | None:
        if not totals[count]:
            return None
        used = drawn[drawn[:, count] > 0]
        ends = np.quantile(used[:, column] / used[:, count], tails) if len(used) else (np.nan, np.nan)
        return Interval(float(totals[column] / totals[count]), float(ends[0]), float(ends[1]))

    return [Leakage(ratio(2 + 2 * m, 0), ratio(3 + 2 * m, 1)) for m in range(methods)]
