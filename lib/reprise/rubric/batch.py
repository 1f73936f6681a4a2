"""A training step's prompts as one program: each with its own rubric graph, all with the same number of responses.

>>> from reprise.rubric.graph import Criterion, Edge, RubricGraph
>>> pair = RubricGraph([Criterion("a", 1), Criterion("b", 1)], [Edge("a", "b", "weak")])
>>> program = compile_batch([pair, RubricGraph([Criterion("c", 2)])])
>>> q = program.marginals(np.array([[0.2], [0.9], [0.5]]))
>>> q.round(3).ravel().tolist()
[0.2, 0.612, 0.5]
>>> program.reward(q).round(3).tolist()
[[0.406], [0.5]]

Source: GEAR, sections 3.4 and 3.5; the packing is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from reprise.rubric import gates, registers
from reprise.rubric.bounds import upper_bound
from reprise.rubric.elimination import eliminate
from reprise.rubric.errors import GraphError, RubricError, ScoreError
from reprise.rubric.graph import Edge, RubricGraph
from reprise.rubric.marginals import MAX_TERMS, check_limit
from reprise.rubric.padding import masked, padded
from reprise.rubric.programs import program_for
from reprise.rubric.retention import check_exponent, edge_retention
from reprise.rubric.scores import as_floats, as_numpy, choose, in_range, refuse_missing, torch_of
from reprise.rubric.validate import denominator as denominator_of

INFERENCES = ("mean_field", "exact", "auto", "bounds")
RULES = ("product", "geometric", "arithmetic", "max")
DENOMINATORS = ("positive", "abs")


def compile_batch(
    graphs: Sequence[RubricGraph],
    inference: str = "mean_field",
    max_terms: int = MAX_TERMS,
    denominator: str = "positive",
) -> PackedProgram:
    """Compile and pack the graphs of a batch, in the order of their prompts. Programs of graphs seen before are kept.

    Args:
        graphs: one a prompt.
        inference: "mean_field" (the paper's linear update), "exact" (moments; where they need more than `max_terms`,
            variable elimination), "auto" (exact where it fits, else mean field), "bounds" (mean field, the lower one).
            What each graph got stands in `inference_used`.
        max_terms: of one graph's moment program.
        denominator: "positive" divides rewards by the positive weights, "abs" by all of them without their sign.

    Raises:
        GraphError: a graph is not valid, or its denominator is zero; of several graphs the message names which.
        RubricError: an unknown choice, no number in max_terms, or no graph.
    """
    graphs = tuple(graphs)
    choose("inference", inference, INFERENCES)
    choose("denominator", denominator, DENOMINATORS)
    check_limit(max_terms)
    if not graphs:
        raise RubricError("graphs: expected at least one")
    many = len(graphs) > 1
    scales = np.array([_scale(graph, denominator, f"graphs[{g}]: " * many) for g, graph in enumerate(graphs)])
    programs, used = zip(*(program_for(graph, inference, max_terms) for graph in graphs), strict=True)
    sizes = [len(graph) for graph in graphs], [len(graph.edges) for graph in graphs]
    return PackedProgram(graphs, used, sum(each.terms for each in programs), registers.pack(programs, *sizes), scales)


def _scale(graph: RubricGraph, denominator: str, where: str) -> float:
    try:
        graph.validate()
        return denominator_of(graph, denominator)
    except GraphError as error:
        raise GraphError(f"{where}{error}") from None


@dataclass(frozen=True, eq=False)
class PackedProgram:
    """Rewards of many responses to many prompts at once.

    Rows of every array are the criteria of the first graph, then those of the second, and so on; columns are responses.
    NumPy arrays and torch tensors work, and what goes in comes out; with tensors gradients pass to scores and
    retentions. Float32 stays float32.

    Attributes:
        graphs: as given.
        inference_used: for each graph "mean_field", "exact", "elimination" or "bounds".
        terms: operands of all operations; see `reprise.rubric.marginals.Program`.
        denominators: (graphs,) what rewards are divided by.
    """

    graphs: tuple[RubricGraph, ...]
    inference_used: tuple[str, ...]
    terms: int
    _schedule: registers.Schedule = field(repr=False)
    denominators: np.ndarray = field(repr=False)

    @cached_property
    def rows(self) -> tuple[slice, ...]:
        """Rows of each graph."""
        ends = list(accumulate(len(graph) for graph in self.graphs))
        return tuple(slice(end - len(graph), end) for graph, end in zip(self.graphs, ends, strict=True))

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Criterion of each row, with the number of its graph where there are several."""
        many = len(self.graphs) > 1
        return tuple(f"{id} of graph {g}" if many else id for g, graph in enumerate(self.graphs) for id in graph.ids)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Edges of all graphs in order: what a retention for each edge is matched with."""
        return tuple(edge for graph in self.graphs for edge in graph.edges)

    @cached_property
    def weights(self) -> np.ndarray:
        """(rows,) points."""
        return np.array([weight for graph in self.graphs for weight in graph.weights], np.float64)

    @cached_property
    def _owners(self) -> np.ndarray:
        """Graph of each row."""
        return np.repeat(np.arange(len(self.graphs)), [len(graph) for graph in self.graphs])

    @cached_property
    def _starts(self) -> list[int]:
        return [rows.start for rows in self.rows]

    @cached_property
    def _shares(self) -> np.ndarray:
        """(rows, 1): weight of each criterion over the denominator of its graph."""
        return (self.weights / self.denominators[self._owners])[:, None]

    @cached_property
    def _layers(self) -> list[gates.Layer]:
        return gates.layers(self.graphs)

    def marginals(self, p: Any, retention: Any = None, gamma: float = 1.0, rule: str = "product") -> Any:
        """Probability of each criterion's event, its parents considered.

        Args:
            p: (rows,) or (rows, responses) scores in [0, 1]; an array, a tensor or lists. Whole numbers become float64.
            retention: None for the defaults, a mapping from edge types, or one value for each of `edges`.
            gamma: exponent on the retentions, >= 0; 0 suppresses nothing. Gradients are finite unless 0 < gamma < 1,
                where the slope of a retention of 0 is infinite.
            rule: how several parents are combined; rules other than "product" are mean field only.

        Returns:
            q, of p's shape and kind.

        Raises:
            ScoreError: wrong number of rows, a score missing or outside [0, 1].
            RetentionError: see `edge_retention`.
            RubricError: an unknown rule, or one that the inference does not have.
        """
        choose("rule", rule, RULES)
        if rule != "product" and (other := set(self.inference_used) - {"mean_field"}):
            raise RubricError(
                f"rule={rule!r}: expected 'product', the only rule of inference {', '.join(sorted(other))}"
            )
        p, flat = self._columns(p)
        check_exponent(gamma)
        plain = retention is None and gamma == 1
        kept = self._defaults if plain else edge_retention(self.edges, retention, gamma)
        torch = torch_of(p, kept)
        if torch is None:
            kept = kept.astype(p.dtype, copy=False)
        else:
            p = torch.as_tensor(p)
            kept = torch.as_tensor(kept).to(p)
        if rule != "product":
            q = gates.combined(self._layers, p, kept, rule)
        else:
            q = self._run(p, kept, torch, plain)
        return q[:, 0] if flat else q

    @cached_property
    def _defaults(self) -> np.ndarray:
        return edge_retention(self.edges)

    @cached_property
    def _default_numbers(self) -> dict[np.dtype, tuple]:
        """Coefficients of the default retentions by dtype: a training step asks for nothing else."""
        return {}

    @cached_property
    def _moved(self) -> dict[Any, registers.Schedule]:
        """The schedule on each device that tensors came from."""
        return {}

    def _run(self, p: Any, kept: Any, torch: Any, plain: bool) -> Any:
        if torch is None:
            numbers = self._default_numbers.get(kept.dtype) if plain else None
            if numbers is None:
                numbers = registers.coefficients(self._schedule, kept, np)
            if plain:
                self._default_numbers[kept.dtype] = numbers
            q = registers.run_numpy(self._schedule, p, *numbers)
        else:
            schedule = self._moved.get(p.device) or registers.on_device(self._schedule, torch, p.device)
            self._moved[p.device] = schedule
            q = registers.run_torch(schedule, p, *registers.coefficients(schedule, kept, torch), torch)
        if "elimination" not in self.inference_used:
            return q
        parts, first = [], 0
        for graph, rows, used in zip(self.graphs, self.rows, self.inference_used, strict=True):
            own = kept[first : first + len(graph.edges)]
            parts.append(eliminate(graph, p[rows], own) if used == "elimination" else q[rows])
            first += len(graph.edges)
        return (torch or np).concatenate(parts)

    def bounds(self, p: Any, retention: Any = None, gamma: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Lower (mean field) and upper bound of the exact marginals: (rows, responses) float64 arrays, no gradient."""
        p, flat = self._columns(p)
        p, kept = (as_numpy(each) for each in (p, edge_retention(self.edges, retention, gamma)))
        lower, upper, first = gates.combined(self._layers, p, kept, "product"), [], 0
        for graph, rows in zip(self.graphs, self.rows, strict=True):
            upper.append(upper_bound(graph, p[rows], kept[first : first + len(graph.edges)]))
            first += len(graph.edges)
        upper = np.concatenate(upper)
        return (lower[:, 0], upper[:, 0]) if flat else (lower, upper)

    def hard(self, p: Any, threshold: float = 0.5, transitive: bool = False) -> Any:
        """Scores of criteria whose parents are met, 0 for the others; see `reprise.rubric.gates`.

        Raises:
            ScoreError: as `marginals`.
            RubricError: threshold is no number in [0, 1].
        """
        gates.check_threshold(threshold)
        p, flat = self._columns(p)
        open_ = gates.hard_gates(self._layers, as_numpy(p) >= threshold, transitive)
        q = p * (open_ if torch_of(p) is None else p.new_tensor(open_))
        return q[:, 0] if flat else q

    def reward(self, q: Any, mask: Any = None) -> Any:
        """Expected signed utility of each response: sum of w q over the denominator; not clipped, never above 1.

        Args:
            q: (rows,) or (rows, responses); array, tensor or lists. NaN makes the reward NaN.
            mask: of the shape returned, bool; False for a response that is not there: its reward is 0, whatever its q.

        Returns:
            (graphs,) or (graphs, responses).

        Raises:
            ScoreError: q has another number of rows, mask another shape or other values.

        Source: GEAR, equations 2 and 14.
        """
        q, flat = self._by_row("q", q)
        torch = torch_of(q)
        if torch is None:
            reward = np.add.reduceat(q * self._shares.astype(q.dtype, copy=False), self._starts, axis=0)
        else:
            owner = torch.as_tensor(self._owners, device=q.device)
            utility = q * q.new_tensor(self._shares)
            reward = utility.new_zeros(len(self.graphs), q.shape[1]).index_add(0, owner, utility)
        if mask is not None:
            reward = masked(reward, mask, flat)
        return reward[:, 0] if flat else reward

    def pad(self, scores: Sequence[Any]) -> tuple[Any, Any]:
        """Scores of prompts with different numbers of responses as one block.

        Args:
            scores: for each graph (its responses, its criteria), all tensors, or arrays and lists.

        Returns:
            (p, mask): (rows, most responses) with 0 where there is none, and (graphs, most responses) bool.

        Raises:
            ScoreError: another number of blocks, a block of another shape, or tensors beside other kinds.
        """
        return padded(scores, self.graphs)

    def _by_row(self, name: str, values: Any) -> tuple[Any, bool]:
        """Floats as (rows, responses), and whether they were one column."""
        values = as_floats(name, values)
        if values.ndim not in (1, 2) or values.shape[0] != len(self.ids):
            shape = tuple(values.shape)
            raise ScoreError(
                f"{name}: shape {shape}: expected {len(self.ids)} rows, one a criterion, and a column a response"
            )
        return (values[:, None], True) if values.ndim == 1 else (values, False)

    def _columns(self, p: Any) -> tuple[Any, bool]:
        """Checked scores as (rows, responses), and whether they were one column."""
        p, flat = self._by_row("p", p)
        refuse_missing(p, self.ids, criteria_axis=0)
        return in_range(p, self.ids, criteria_axis=0), flat
