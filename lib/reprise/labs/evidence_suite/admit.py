"""Admission of a case: it is played right in every way it allows, and wrong in every way we know, before it counts."""

from __future__ import annotations

from dataclasses import dataclass

from reprise.evidence.environment import check_replay
from reprise.evidence.evaluate import evaluate
from reprise.evidence.model import Case, Protocol
from reprise.labs.evidence_suite.mutate import MUTATIONS, mutate
from reprise.labs.evidence_suite.reference import reference, topological_orders


@dataclass(frozen=True)
class Admission:
    """What was tried on a case: right plays, and for each mutation whether it failed with a code of its family."""

    case_id: str
    protocol: Protocol
    orders: int
    right_plays: int
    problems: tuple[str, ...]
    killed: dict[str, bool]

    @property
    def admitted(self) -> bool:
        return not self.problems and all(self.killed.values())


def validate_case(case: Case) -> Admission:
    """Reference, every topological order, both retrieval paths, all reads first, replay; then all mutations."""
    problems, plays = [], 0
    orders = list(topological_orders(case)) if case.hidden.actions else [()]
    for order in orders:
        for alternative in (0, 1):
            for reads_first in (False, True):
                trajectory = reference(case, order, alternative, reads_first)
                check_replay(case, trajectory)
                verdict = evaluate(case, trajectory)
                plays += 1
                if not verdict.ecs:
                    problems.append(f"order {order}, path {alternative}: {verdict.codes[0][1]}")
    killed = {}
    for kind, mutation in MUTATIONS.items():
        if case.view.protocol in mutation.protocols:
            changed, trajectory = mutate(case, kind)
            check_replay(changed, trajectory)
            codes = {code.split(":", 1)[0] for _, code in evaluate(changed, trajectory).codes}
            killed[kind] = bool(codes & set(mutation.codes))
    return Admission(case.view.id, case.view.protocol, len(orders), plays, tuple(problems), killed)
