"""Programs of graphs seen before: a prompt comes back every epoch, read anew from its record."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from reprise.rubric.errors import ExactTooLarge
from reprise.rubric.graph import RubricGraph
from reprise.rubric.marginals import Program, exact_program, mean_field_program

KEPT_TERMS = 500_000  # in all programs kept, about 100 MB


def program_for(graph: RubricGraph, inference: str, max_terms: int) -> tuple[Program, str]:
    """A graph's program for an inference, and the name of what it does; see `compile_batch`.

    A graph too dense for moments gets mean field: the answer of "auto", and for "exact" the rows that elimination
    writes over.
    """
    if inference in ("mean_field", "bounds"):
        return _kept.get(graph, "mean_field", 0), inference
    found = _kept.get(graph, "exact", max_terms)
    if isinstance(found, Program):
        return found, "exact"
    return _kept.get(graph, "mean_field", 0), "elimination" if inference == "exact" else "mean_field"


class _Kept:
    """Programs by the shape of their graph, which is all they depend on; the least recently used go first."""

    def __init__(self):
        self.programs: OrderedDict[tuple, Program | ExactTooLarge] = OrderedDict()
        self.terms = 0
        self.lock = Lock()  # trainers call reward functions from several threads

    def get(self, graph: RubricGraph, kind: str, max_terms: int) -> Program | ExactTooLarge:
        key = graph.parents, kind, max_terms
        with self.lock:
            return self._get(key, graph, kind, max_terms)

    def _get(self, key: tuple, graph: RubricGraph, kind: str, max_terms: int) -> Program | ExactTooLarge:
        if key in self.programs:
            self.programs.move_to_end(key)
            return self.programs[key]
        try:
            made = mean_field_program(graph) if kind == "mean_field" else exact_program(graph, max_terms)
        except ExactTooLarge as error:
            made = error.with_traceback(None)
        self.programs[key] = made
        self.terms += _size(made)
        while self.terms > KEPT_TERMS and len(self.programs) > 1:
            self.terms -= _size(self.programs.popitem(last=False)[1])
        return made


def _size(program: Program | ExactTooLarge) -> int:
    return program.terms if isinstance(program, Program) else 1


_kept = _Kept()


def forget() -> None:
    """Drop all programs kept, to measure what compiling costs."""
    global _kept
    _kept = _Kept()
