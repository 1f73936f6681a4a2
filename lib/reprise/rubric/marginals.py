"""Exact marginals of a rubric graph without summing over its 2^K states: products of moments, compiled once.

Each criterion is an event; given its parents it happens with probability

    alpha_i = p_i * prod over parents j of retention_ji ^ (1 - C_j).

M(S) is the probability that all events of a set S happen, and M({i}) the marginal wanted. Two facts unfold it:

    sets whose ancestors are disjoint are independent         M(S u T) = M(S) M(T)
    i the last event of S, R the rest, Q its parents not in R

        M(S) = p_i E(R, Q),   E(R, Q) = E[ prod_R C * prod_{j in Q} (retention_j + (1 - retention_j) C_j) ]
                                      = sum over T within Q of  prod_T (1 - retention) prod_{Q - T} retention  M(R u T)

Every M and E is computed once. All terms are >= 0, so nothing cancels, and the result is linear in each score and each
retention. The program is a list of register operations of two forms:

    Product   r = p_i * prod_k (a_k + (1 - a_k) r_k),  a_k the retention of an edge, or 0
    Sum       r = sum_k coefficient_k * r_k,           each coefficient a product of retentions and their complements

The paper's linear update (mean field) is the program that has only Products, one for each criterion.

Source: GEAR, equations 6-13. The paper enumerates; the moment program is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

from reprise.rubric.errors import ExactTooLarge, RubricError, shown
from reprise.rubric.graph import RubricGraph

MAX_TERMS = 200_000
ONE = 0  # the register that holds 1
NONE = -1  # no score to scale by, no edge on a factor


class Product(NamedTuple):
    """r = p[score] * product over (edge, register) of a + (1 - a) * r[register], a = retention[edge] or 0."""

    score: int
    factors: tuple[tuple[int, int], ...]
    level: int


class Sum(NamedTuple):
    """r = sum over (register, kept, damped) of prod retention[damped] * prod (1 - retention[kept]) * r[register]."""

    summands: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
    level: int


@dataclass(frozen=True)
class Program:
    """Operations in an order in which they can run; operation k writes register k + 1, register 0 is 1.

    Attributes:
        operations: Products and Sums; each one's level is above those of the registers it reads.
        outputs: for each criterion the register of its marginal.
        terms: operands of all operations: a scale by a score counts 1, a product its factors, a sum its summands.
    """

    operations: tuple[Product | Sum, ...]
    outputs: tuple[int, ...]
    terms: int


def mean_field_program(graph: RubricGraph) -> Program:
    """The linear update: every parent's gate taken by itself, as if parents were independent.

    Source: GEAR, equation 12.
    """
    operations: list[Product | Sum] = []
    register = {}
    terms = 0
    for depth, level in enumerate(graph.levels):
        for i in level:
            above = graph.parents[i]
            operations.append(Product(i, tuple((edge, register[j]) for j, edge in above), depth + 1))
            register[i] = len(operations)
            terms += 1 + 2 * len(above) + (len(above) if len(above) > 1 else 0)
    return Program(tuple(operations), tuple(register[i] for i in range(len(graph))), terms)


def check_limit(max_terms: Any) -> None:
    """Raise RubricError unless max_terms is a number; NaN is none."""
    if not isinstance(max_terms, Real) or isinstance(max_terms, bool) or max_terms != max_terms:
        raise RubricError(f"max_terms={shown(max_terms)}: expected a number of terms")


def exact_program(graph: RubricGraph, max_terms: int = MAX_TERMS) -> Program:
    """Marginals of the Bayesian network, by moments.

    Raises:
        ExactTooLarge: the program would have more than `max_terms` terms.
        RubricError: max_terms is no number.
    """
    check_limit(max_terms)
    compiler = _Compiler(graph, max_terms)
    outputs = {i: compiler.register_of(1 << k) for k, i in enumerate(compiler.order)}
    return Program(tuple(compiler.operations), tuple(outputs[i] for i in range(len(graph))), compiler.terms)


class _Compiler:
    """Emits the operations of M and E, each once.

    Sets are bit masks over criteria in topological order, so that the last event of a set is its highest bit. M(S) goes
    by its mask, E by (R, Q, i): its retentions are those of the edges into i.
    """

    def __init__(self, graph: RubricGraph, max_terms: int):
        self.order = [i for level in graph.levels for i in level]
        rank = {i: k for k, i in enumerate(self.order)}
        # edge into each criterion by the mask of its parent
        self.edges = [{1 << rank[j]: edge for j, edge in graph.parents[i]} for i in self.order]
        self.closures: list[int] = []  # ancestors and itself
        for k, above in enumerate(self.edges):
            mask = 1 << k
            for parent in above:
                mask |= self.closures[parent.bit_length() - 1]
            self.closures.append(mask)
        self.max_terms = max_terms
        self.operations: list[Product | Sum] = []
        self.terms = 0
        self.registers = {0: ONE}  # M of nothing is 1
        self.levels = [0]  # of each register
        self.counted: set = set()  # expectations that are part of a Product

    def register_of(self, key: int) -> int:
        """Register of M(key), after emitting what it needs; a stack, as chains may be longer than Python's own."""
        waiting = [key]
        plans: dict = {}
        while waiting:
            top = waiting[-1]
            if top in self.registers:
                waiting.pop()
                continue
            if top not in plans:
                plans[top] = self._moment(top) if isinstance(top, int) else self._expectation(*top)
            missing = [each for each in _operands(plans[top]) if each not in self.registers]
            if missing:
                waiting += missing
            else:
                self._emit(top, plans.pop(top))
        return self.registers[key]

    def _moment(self, mask: int) -> Product:
        """M(mask) as an operation on keys instead of registers."""
        groups = self._groups(mask)
        if len(groups) > 1:
            self._count(len(groups))
            return Product(NONE, tuple((NONE, group) for group in groups), 0)
        i = mask.bit_length() - 1
        rest = mask ^ (1 << i)
        parents = sum(self.edges[i]) & ~rest
        factors = []
        for group in self._groups(rest | parents):
            inside, above = group & rest, group & parents
            if not above:
                factors.append((NONE, inside))
            elif not inside and above in self.edges[i]:
                # one parent by itself: its gate is a factor, not an operation
                self._count_once((i, above), 2)
                factors.append((self.edges[i][above], above))
            else:
                factors.append((NONE, (inside, above, i)))
        self._count(1 + (len(factors) if len(factors) > 1 else 0))
        return Product(self.order[i], tuple(factors), 0)

    def _expectation(self, rest: int, parents: int, i: int) -> Sum:
        """E(rest, parents) with the retentions of the edges into i."""
        self._count(1 << parents.bit_count())
        edges = {parent: edge for parent, edge in self.edges[i].items() if parent & parents}
        summands = []
        true = parents
        while True:
            kept = tuple(edge for parent, edge in edges.items() if parent & true)
            damped = tuple(edge for parent, edge in edges.items() if not parent & true)
            summands.append((rest | true, kept, damped))
            if not true:
                return Sum(tuple(summands), 0)
            true = (true - 1) & parents

    def _groups(self, mask: int) -> list[int]:
        """Parts of a set whose ancestor closures are disjoint from each other."""
        if not mask & (mask - 1):
            return [mask] if mask else []
        parts: list[tuple[int, int]] = []
        while mask:
            members = mask & -mask
            mask ^= members
            closure = self.closures[members.bit_length() - 1]
            apart = []
            for part in parts:
                if part[1] & closure:
                    members, closure = members | part[0], closure | part[1]
                else:
                    apart.append(part)
            parts = [*apart, (members, closure)]
        return sorted(members for members, _ in parts)

    def _count(self, terms: int) -> None:
        self.terms += terms
        if self.terms > self.max_terms:
            raise ExactTooLarge(self.terms, self.max_terms)

    def _count_once(self, key: tuple[int, int], terms: int) -> None:
        if key not in self.counted:
            self.counted.add(key)
            self._count(terms)

    def _emit(self, key, plan: Product | Sum) -> None:
        level = 1 + max((self.levels[self.registers[each]] for each in _operands(plan)), default=0)
        if isinstance(plan, Product):
            factors = tuple((edge, self.registers[each]) for edge, each in plan.factors)
            made = Product(plan.score, factors, level)
        else:
            summands = tuple((self.registers[each], kept, damped) for each, kept, damped in plan.summands)
            made = Sum(summands, level)
        self.operations.append(made)
        self.levels.append(level)
        self.registers[key] = len(self.operations)


def _operands(plan: Product | Sum) -> list:
    if isinstance(plan, Product):
        return [each for _, each in plan.factors]
    return [each for each, _, _ in plan.summands]
