"""Exact marginals by variable elimination, for graphs whose moment program is too long.

The table of an event with many parents splits into a hidden state h of that event and one small table a parent,

    P(c_i | parents) = sum over h in {0, 1} of  A_i[c_i, h] * prod over parents of G_ji[h, c_j]
    A_i = [[1, -p_i], [0, p_i]],   G_ji[0, c] = 1,   G_ji[1, c] = retention_ji ^ (1 - c),

so that no table grows with the number of parents. What is left is one contraction a criterion, over its ancestors; in
which order is opt_einsum's work. Its tables have entries of both signs: the result is as exact as floats are, to about
1e-12, where moments lose nothing.

Source: Diez and Galan, "Efficient computation for the noisy MAX", Int. J. Intelligent Systems 18 (2003) 165-177.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reprise.rubric.errors import ExactTooLarge
from reprise.rubric.graph import RubricGraph
from reprise.rubric.scores import torch_of

MAX_TABLE = 1 << 24  # entries of the largest intermediate table: 128 MB of float64


def eliminate(graph: RubricGraph, p: Any, retention: Any, max_table: int = MAX_TABLE) -> Any:
    """Marginals of the Bayesian network; arrays or tensors, with gradients.

    Args:
        graph: a valid graph.
        p: (criteria, responses) scores.
        retention: (edges,), of p's kind.
        max_table: most entries an intermediate table may have.

    Returns:
        (criteria, responses).

    Raises:
        ExactTooLarge: a criterion needs a larger table; nothing was computed.
    """
    xp = torch_of(p) or np
    plans = [_plan(graph, i, max_table) for i in range(len(graph))]
    columns = []
    for response in range(p.shape[1]):
        tables = _tables(graph, p[:, response], retention, xp)
        columns.append(xp.stack([run(*(tables[name] for name in names)) for run, names in plans]))
    return xp.stack(columns, 1) if columns else p


def _plan(graph: RubricGraph, i: int, max_table: int) -> tuple[Any, list[tuple]]:
    """The contraction that gives P(C_i = 1), and the names of its tables; each state is named by its criterion."""
    import opt_einsum

    family, waiting = {i}, [i]
    while waiting:
        above = {j for j, _ in graph.parents[waiting.pop()]} - family
        family |= above
        waiting += above
    # C_i itself is known, so only its hidden state 1 is left: p_i and one vector a parent
    names, states = [("p", i)], [[]]
    for j, edge in graph.parents[i]:
        names.append(("known", edge))
        states.append([("c", j)])
    for k in sorted(family - {i}):
        names.append(("event", k) if graph.parents[k] else ("root", k))
        states.append([("c", k), ("h", k)] if graph.parents[k] else [("c", k)])
        for j, edge in graph.parents[k]:
            names.append(("gate", edge))
            states.append([("h", k), ("c", j)])
    symbols: dict[tuple, str] = {}
    for state in (state for each in states for state in each):
        symbols.setdefault(state, opt_einsum.get_symbol(len(symbols)))
    equation = ",".join("".join(symbols[state] for state in each) for each in states) + "->"
    shapes = [(2,) * len(each) for each in states]
    path, info = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize="auto")
    if info.largest_intermediate > max_table:
        raise ExactTooLarge(int(info.largest_intermediate), max_table, "entries in a table of variable elimination")
    return opt_einsum.contract_expression(equation, *shapes, optimize=path), names


def _tables(graph: RubricGraph, p: Any, retention: Any, xp: Any) -> dict[tuple, Any]:
    """All tables of one response by name."""
    tables = {}
    one = xp.ones_like(p[0])
    for i, above in enumerate(graph.parents):
        tables["p", i] = p[i]
        if above:
            tables["event", i] = xp.stack([xp.stack([one, -p[i]]), xp.stack([0 * one, p[i]])])
        else:
            tables["root", i] = xp.stack([1 - p[i], p[i]])
        for _, edge in above:
            tables["known", edge] = xp.stack([retention[edge] * one, one])
            tables["gate", edge] = xp.stack([xp.stack([one, one]), tables["known", edge]])
    return tables
