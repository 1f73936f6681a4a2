"""What each action rested on: action <- requirement <- fact <- call, as plain data, and where the chain broke.

    provenance(case, trajectory)    one Support an action, and one for the end where the case asks for something there
    explain(support)                the same as lines of text
    graph(trajectory, supports)     nodes and edges for a drawing

Source: SafeActBench, evidence-action chain and diagnosis by checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from reprise.evidence.evaluate import END, Verdict, evaluate
from reprise.evidence.ledger import Ledger, Status
from reprise.evidence.model import Atom, Case, Expect
from reprise.evidence.trajectory import Fact, Outcome, Step, Trajectory

PHRASES = {
    Status.MISSING: "never observed before the call",
    Status.STALE: "observed, but it changed or grew old before the call",
    Status.VIOLATED: "observed, and it does not allow the call",
    Status.OK: "established",
}


@dataclass(frozen=True, slots=True)
class Needed:
    """One atom of a requirement: what had to be observed, the fact that was, and near misses.

    `entity` is None while nobody had found it. `elsewhere` lists other entities whose field of this name was observed:
    evidence about another record supports nothing.
    """

    entity: str | None
    field: str
    expect: str
    status: Status
    fact: Fact | None
    tool: str | None
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A requirement, its status just before the call, and the atoms of the alternative that came nearest."""

    requirement: str
    status: Status
    atoms: tuple[Needed, ...]


@dataclass(frozen=True, slots=True)
class Support:
    """An attempted action (or the end of the episode, `seq` END) with everything it rested on.

    `codes` is the evaluator's diagnosis of this call; empty means that it was supported.
    """

    seq: int
    tool: str
    action: str | None
    args: dict[str, Any]
    outcome: str
    links: tuple[Link, ...]
    codes: tuple[str, ...]

    @property
    def supported(self) -> bool:
        return not self.codes


def provenance(case: Case, trajectory: Trajectory, verdict: Verdict | None = None) -> tuple[Support, ...]:
    """The chain of each attempt in order, then what was due at the end (investigations, confirmations, finishing).

    Raises TrajectoryError as `evaluate`.
    """
    verdict = evaluate(case, trajectory) if verdict is None else verdict
    codes: dict[int, list[str]] = {}
    for seq, code in verdict.codes:
        codes.setdefault(seq, []).append(code)
    points = {point.seq: point for point in verdict.checkpoints}
    ledger, seen, unseen = Ledger(trajectory.context), _Seen(trajectory.context), []
    supports, done = [], {}
    for step in trajectory.steps:
        if unseen and (step.turn is None or step.turn != unseen[-1].turn):
            _see(ledger, seen, unseen)
        if point := points.get(step.seq):
            after = {name: done.get(earlier, -1) for earlier, name in case.confirmations.get(point.action, ())}
            links = tuple(
                _link(case, ledger, seen, name, status, after.get(name, -1)) for name, status in point.statuses.items()
            )
            found = tuple(codes.get(step.seq, ()))
            supports.append(Support(step.seq, step.tool, point.action, dict(step.args), step.outcome, links, found))
            if point.action and point.executed:
                ledger.produced(point.action, step.outputs)
                done[point.action] = step.seq
        unseen.append(step)
        ledger.bump(step.bumped)
    _see(ledger, seen, unseen)
    if END in codes or case.hidden.investigate:
        links = tuple(
            _link(case, ledger, seen, name, ledger.status(case.requirement[name])) for name in case.hidden.investigate
        )
        supports.append(Support(END, "", None, {}, "end", links, tuple(codes.get(END, ()))))
    return tuple(supports)


def explain(support: Support) -> Iterator[str]:
    """The chain as lines of text: the call, what it needed, where each came from, and the codes."""
    if support.seq == END:
        yield f"end of the episode: {'complete' if support.supported else 'BROKEN'}"
    else:
        args = ", ".join(f"{name}={value!r}" for name, value in support.args.items())
        call = f"call {support.seq}: {support.tool}({args}) {support.outcome}"
        yield f"{call}: {'supported' if support.supported else 'NOT SUPPORTED'}"
    for link in support.links:
        yield f"  needs {link.requirement}: {PHRASES[link.status]}"
        for atom in link.atoms:
            name = f"{atom.entity or 'a record not found yet'}.{atom.field}{atom.expect}"
            yield f"    {name}: {_origin(atom)}"
    for code in support.codes:
        yield f"  broke: {code}"


def graph(trajectory: Trajectory, supports: Iterable[Support]) -> tuple[list[dict], list[dict]]:
    """Nodes (id, kind "action", "requirement", "fact" or "call", label, good) and edges (source, target, good).

    Edges run from what supports to what is supported. A fact that was never observed has no call; a read that supports
    nothing has no edge, and is not good.
    """
    nodes: dict[str, dict] = {}
    edges: dict[tuple[str, str], dict] = {}
    labels = {0: "stated in the task"} | {
        step.seq: f"{step.seq}: {step.tool} {' '.join(map(str, step.args.values()))}".rstrip()
        for step in trajectory.steps
    }

    def node(id: str, kind: str, label: str, good: bool) -> str:
        nodes.setdefault(id, {"id": id, "kind": kind, "label": label, "good": good})
        return id

    def edge(source: str, target: str, good: bool) -> None:
        edges.setdefault((source, target), {"source": source, "target": target, "good": good})

    for step in trajectory.steps:
        if step.outcome is Outcome.READ:
            node(f"call {step.seq}", "call", labels[step.seq], False)
    for support in supports:
        end = support.seq == END
        label = "end" if end else labels[support.seq]
        action = node(f"action {support.seq}", "action", label, support.supported)
        for link in support.links:
            good = link.status is Status.OK
            need = node(f"{action} {link.requirement}", "requirement", link.requirement, good)
            edge(need, action, good)
            for atom in link.atoms:
                met = atom.status is Status.OK
                known = f"{atom.fact.seq}" if atom.fact else "never"
                name = f"{atom.entity}.{atom.field}"
                fact = node(f"fact {known} {name} {met}", "fact", name + atom.expect, met)
                edge(fact, need, met)
                if atom.fact is not None:
                    call = node(f"call {atom.fact.seq}", "call", labels[atom.fact.seq], True)
                    nodes[call]["good"] = True
                    edge(call, fact, met)
    return list(nodes.values()), list(edges.values())


class _Seen:
    """Which entities a field was observed of, and the tool of each call."""

    def __init__(self, context: Iterable[Fact]):
        self.entities: dict[str, list[str]] = {}
        self.tools = {0: "stated in the task"}
        self.add(context)

    def add(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            names = self.entities.setdefault(fact.field, [])
            if fact.entity not in names:
                names.append(fact.entity)


def _see(ledger: Ledger, seen: _Seen, steps: list[Step]) -> None:
    for step in steps:
        if step.answered is not None:
            ledger.answered(step.tool, step.args, step.answered)
        ledger.add(step.facts)
        seen.add(step.facts)
        seen.tools[step.seq] = step.tool
    steps.clear()


def _link(case: Case, ledger: Ledger, seen: _Seen, name: str, status: Status, after: int = -1) -> Link:
    alternatives = case.requirement[name].any_of
    best = max(alternatives, key=lambda atoms: min(ledger.atom_status(atom, after) for atom in atoms))
    return Link(name, status, tuple(_needed(ledger, seen, atom, after) for atom in best))


def _needed(ledger: Ledger, seen: _Seen, atom: Atom, after: int) -> Needed:
    entity, status = ledger.entity(atom.entity), ledger.atom_status(atom, after)
    fact = None if entity is None or status is Status.MISSING else ledger.latest(entity, atom.field)
    tool = None if fact is None else seen.tools[fact.seq]
    others = seen.entities.get(atom.field, ()) if status is Status.MISSING else ()
    elsewhere = tuple(other for other in others if other != entity)
    return Needed(entity, atom.field, _expected(atom.expect), status, fact, tool, elsewhere)


def _origin(atom: Needed) -> str:
    if atom.fact is None:
        seen = f"; it was observed of {', '.join(atom.elsewhere)}" if atom.elsewhere else ""
        return f"{Status.MISSING.name}{seen}"
    place = atom.tool if atom.fact.seq == 0 else f"call {atom.fact.seq}, {atom.tool}"
    note = "" if atom.status is Status.OK else f" {atom.status.name}"
    return f"{atom.fact.value!r} ({place}){note}"


def _expected(expect: Expect) -> str:
    if expect.op == "any":
        return ""
    sign = {"eq": "=", "in": "in", "le": "<=", "ge": ">="}[expect.op]
    return f" {sign} {expect.value!r}"
