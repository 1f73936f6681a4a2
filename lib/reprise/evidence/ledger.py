"""The evidence ledger: facts in the order they were observed, and whether a requirement is established by them.

    MISSING   nobody looked, or looked at another entity
    STALE     it was seen, but the entity changed since or the sight is too old
    VIOLATED  it was seen and does not satisfy the expectation
    OK        established

Source: SafeActBench, evidence ledger, source binding and Supported(a). The order of statuses is our choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from reprise.evidence.model import Atom, Expect, FoundBy, OutputOf, Requirement
from reprise.evidence.trajectory import Fact
from reprise.evidence.values import UNAVAILABLE, at_least, at_most, same


class Status(IntEnum):
    """Rising towards established: the minimum over a conjunction is its worst atom, the maximum over alternatives its
    best."""

    MISSING = 0
    STALE = 1
    VIOLATED = 2
    OK = 3


def satisfies(expect: Expect, value: Any) -> bool:
    """Whether an observed value meets an expectation; an unavailable record meets `any` only."""
    if expect.op == "any":
        return True
    if value == UNAVAILABLE:
        return False
    if expect.op == "eq":
        return same(value, expect.value)
    if expect.op == "in":
        return any(same(value, each) for each in expect.value)
    return at_most(value, expect.value) if expect.op == "le" else at_least(value, expect.value)


class Ledger:
    """Append-only facts, indexed by entity and field; entity versions; outputs of executed actions; who answered a
    read."""

    def __init__(self, context: Iterable[Fact] = ()):
        self._facts: dict[tuple[str, str], list[Fact]] = {}
        self._versions: dict[str, int] = {}
        self._outputs: dict[str, Mapping[str, Any]] = {}
        self._answers: list[tuple[str, Mapping[str, Any], str]] = []
        self.now = 0.0
        self.add(context)

    def add(self, facts: Iterable[Fact]) -> None:
        """Append facts; none is ever edited."""
        index = self._facts
        for fact in facts:
            index.setdefault((fact.entity, fact.field), []).append(fact)

    def bump(self, entities: Iterable[str]) -> None:
        """Record that these entities changed: earlier facts about them no longer describe their current version."""
        for entity in entities:
            self._versions[entity] = self._versions.get(entity, 0) + 1

    def produced(self, action: str, outputs: Mapping[str, Any]) -> None:
        """Record what an executed action of the specification returned."""
        self._outputs[action] = outputs

    def answered(self, tool: str, args: Mapping[str, Any], entity: str) -> None:
        """Record which entity a read described, for entities that are discovered on the way."""
        self._answers.append((tool, args, entity))

    def output(self, reference: OutputOf) -> Any:
        """The value an action returned in this episode, or None."""
        return self._outputs.get(reference.action, {}).get(reference.field)

    def entity(self, reference: str | OutputOf | FoundBy) -> str | None:
        """The entity a reference stands for at this point, or None while nobody found it."""
        if isinstance(reference, str):
            return reference
        if isinstance(reference, OutputOf):
            found = self.output(reference)
            return found if isinstance(found, str) else None
        for tool, args, entity in reversed(self._answers):
            if tool == reference.tool and args.keys() == reference.args.keys():
                if all(same(args[name], reference.args[name]) for name in args):
                    return entity
        return None

    def latest(self, entity: str, field: str) -> Fact | None:
        """The last fact about a field, whatever its version."""
        facts = self._facts.get((entity, field))
        return facts[-1] if facts else None

    def atom_status(self, atom: Atom, after: int = -1) -> Status:
        """Status of one atom now; facts up to call `after` count as stale (a confirmation must follow its action)."""
        entity = self.entity(atom.entity)
        facts = [] if entity is None else self._facts.get((entity, atom.field), [])
        version, latest, seen = self._versions.get(entity, 0), None, False
        for fact in reversed(facts):
            if fact.source not in atom.sources:
                continue
            seen = True
            fresh = atom.max_age is None or self.now - fact.observed_at <= atom.max_age
            current = atom.scope == "any_version" or fact.version == version
            if fresh and current and fact.seq > after:
                latest = fact
                break
        if latest is None:
            return Status.STALE if seen else Status.MISSING
        return Status.OK if satisfies(atom.expect, latest.value) else Status.VIOLATED

    def status(self, requirement: Requirement, after: int = -1) -> Status:
        """Best alternative, each as bad as its worst atom."""
        return max(min(self.atom_status(atom, after) for atom in atoms) for atoms in requirement.any_of)
