"""Many programs side by side, run level by level on arrays or tensors.

Registers of all graphs are numbered by level, so that each block of equal operations writes consecutive rows; a row is
a register, a column a response. Products with more factors come first in their block: the k-th factors of all that have
one are then again the first rows, and nothing is padded. Sums are put together by their number of summands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from reprise.rubric.marginals import NONE, ONE, Product, Program

UNIT, ZERO, FIRST = 0, 1, 2  # in the vector of numbers that coefficients are made of: 1, 0, then the retentions


@dataclass(frozen=True)
class Factor:
    """The k-th factors of the first `count` Products of a block: registers, and where their gates stand."""

    count: int
    registers: np.ndarray
    gates: slice


@dataclass(frozen=True)
class ProductBlock:
    start: int
    stop: int
    factors: tuple[Factor, ...]


@dataclass(frozen=True)
class SumBlock:
    """Rows start:stop, each the sum of the same number of registers, (rows, summands), times their coefficients."""

    start: int
    stop: int
    registers: np.ndarray
    coefficients: slice


@dataclass(frozen=True)
class Schedule:
    """What to run for a batch.

    Attributes:
        scores: (registers,) row of p that scales each register, the number of rows of p where there is none.
        blocks: in the order they run.
        gates: for each factor its place in the vector of numbers (see `number_vector`).
        coefficients: (summands, width) places whose numbers multiply to each coefficient.
        outputs: for each criterion of the batch its register.
    """

    scores: np.ndarray
    blocks: tuple[ProductBlock | SumBlock, ...]
    gates: np.ndarray
    coefficients: np.ndarray
    outputs: np.ndarray


def pack(programs: Sequence[Program], criteria: Sequence[int], edges: Sequence[int]) -> Schedule:
    """One schedule for programs of graphs with that many criteria and edges each, numbered one after another."""
    score_from = list(accumulate(criteria, initial=0))
    edge_from = list(accumulate(edges, initial=0))
    none, complement = score_from[-1], FIRST + edge_from[-1]
    rows = [[ONE] * (len(program.operations) + 1) for program in programs]
    scores = [none]
    blocks, gates, coefficients = [], [], []
    for kind, members in _by_level(programs):
        start = len(scores)
        for g, k, operation in members:
            rows[g][k] = len(scores)
            scores.append(none if kind or operation.score == NONE else score_from[g] + operation.score)
        if kind:
            registers = [[rows[g][r] for r, _, _ in operation.summands] for g, _, operation in members]
            begin = len(coefficients)
            for g, _, operation in members:
                first = edge_from[g]
                coefficients += [
                    [complement + first + e for e in kept] + [FIRST + first + e for e in damped]
                    for _, kept, damped in operation.summands
                ]
            where = slice(begin, len(coefficients))
            blocks.append(SumBlock(start, len(scores), np.array(registers, np.intp), where))
            continue
        factors = []
        for position in range(len(members[0][2].factors)):
            have = [
                (g, operation.factors[position]) for g, _, operation in members if len(operation.factors) > position
            ]
            registers = np.array([rows[g][r] for g, (_, r) in have], np.intp)
            begin = len(gates)
            gates += [ZERO if edge == NONE else FIRST + edge_from[g] + edge for g, (edge, _) in have]
            factors.append(Factor(len(have), registers, slice(begin, len(gates))))
        blocks.append(ProductBlock(start, len(scores), tuple(factors)))
    width = max(map(len, coefficients), default=0)
    padded = [places + [UNIT] * (width - len(places)) for places in coefficients]
    outputs = [rows[g][r] for g, program in enumerate(programs) for r in program.outputs]
    return Schedule(
        np.array(scores, np.intp),
        tuple(blocks),
        np.array(gates, np.intp),
        np.array(padded, np.intp).reshape(len(padded), width),
        np.array(outputs, np.intp),
    )


def _by_level(programs: Sequence[Program]) -> Iterator[tuple[int, list]]:
    """(0 for Products or the number of summands, [(program, register, operation)]), lower levels first."""
    found: dict[tuple[int, int], list] = {}
    for g, program in enumerate(programs):
        for k, operation in enumerate(program.operations, 1):
            kind = 0 if isinstance(operation, Product) else len(operation.summands)
            found.setdefault((operation.level, kind), []).append((g, k, operation))
    for (_, kind), members in sorted(found.items()):
        if not kind:
            members.sort(key=lambda each: -len(each[2].factors))
        yield kind, members


def on_device(schedule: Schedule, torch: Any, device: Any) -> Schedule:
    """The schedule with its places as tensors, so that nothing is moved while it runs."""

    def moved(places: np.ndarray) -> Any:
        return torch.as_tensor(places, device=device)

    blocks = tuple(
        ProductBlock(b.start, b.stop, tuple(Factor(f.count, moved(f.registers), f.gates) for f in b.factors))
        if isinstance(b, ProductBlock)
        else SumBlock(b.start, b.stop, moved(b.registers), b.coefficients)
        for b in schedule.blocks
    )
    arrays = (schedule.scores, schedule.gates, schedule.coefficients, schedule.outputs)
    scores, gates, places, outputs = map(moved, arrays)
    return Schedule(scores, blocks, gates, places, outputs)


def coefficients(schedule: Schedule, retention: Any, xp: Any) -> tuple[Any, Any]:
    """Gates and coefficients of a schedule, for one value a retention: columns, ready to multiply rows of registers.

    Args:
        retention: (edges,) array or tensor of the dtype to compute in.
        xp: numpy or torch.
    """
    constants = np.ones(2, retention.dtype) if xp is np else retention.new_ones(2)
    constants[ZERO] = 0
    numbers = xp.concatenate([constants, retention, 1 - retention])
    products = numbers[schedule.coefficients[:, 0]] if schedule.coefficients.shape[1] else numbers[:0]
    for k in range(1, schedule.coefficients.shape[1]):
        products = products * numbers[schedule.coefficients[:, k]]
    return numbers[schedule.gates][:, None], products[:, None]


def run_numpy(schedule: Schedule, p: np.ndarray, gates: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Marginals (criteria, responses) of scores (criteria, responses), in their dtype."""
    registers = np.concatenate([p, np.ones((1, p.shape[1]), p.dtype)])[schedule.scores]
    complements = 1 - gates
    for block in schedule.blocks:
        if isinstance(block, ProductBlock):
            for factor in block.factors:
                value = registers[factor.registers]
                value *= complements[factor.gates]
                value += gates[factor.gates]
                registers[block.start : block.start + factor.count] *= value
        else:
            rows, summands = block.registers.shape
            value = registers[block.registers]
            value *= products[block.coefficients].reshape(rows, summands, 1)
            value.sum(axis=1, out=registers[block.start : block.stop])
    return registers[schedule.outputs]


def run_torch(schedule: Schedule, p: Any, gates: Any, products: Any, torch: Any) -> Any:
    """The same on tensors, without writing in place, so that gradients pass."""
    scaled = torch.cat([p, p.new_ones(1, p.shape[1])])[schedule.scores]
    registers = scaled[:1]
    for block in schedule.blocks:
        if isinstance(block, ProductBlock):
            value = scaled[block.start : block.stop]
            for factor in block.factors:
                gate = gates[factor.gates]
                product = value[: factor.count] * (gate + (1 - gate) * registers[factor.registers])
                value = torch.cat([product, value[factor.count :]])
        else:
            rows, summands = block.registers.shape
            coefficient = products[block.coefficients].reshape(rows, summands, 1)
            value = (registers[block.registers] * coefficient).sum(1)
        registers = torch.cat([registers, value])
    return registers[schedule.outputs]
