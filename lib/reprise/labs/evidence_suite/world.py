"""Records, tools and rules of one case: what the episodes of every protocol are built from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reprise.evidence.model import Effect, Expect, Parameter, Reads, Tool
from reprise.labs.evidence_suite.domains import Act, Domain, Record

# amounts above it need somebody else
LIMIT = "$500.00"


@dataclass
class World:
    """Records drawn so far. `ids` maps a kind of record to the id that the case is about."""

    domain: Domain
    rng: np.random.Generator
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    def draw(self, kind: str) -> str:
        """The id of the case's record of this kind, made on first use with values that permit the action."""
        if kind not in self.ids:
            record = record_of(self.domain, kind)
            self.ids[kind] = self._new_id(record)
            values = {f.name: f.good[self.rng.integers(len(f.good))] for f in record.fields}
            self.records[self.ids[kind]] = {"kind": kind, "state": "open", **values}
        return self.ids[kind]

    def link(self, source: str, kinds: tuple[str, ...]) -> None:
        """Let a record name the others that belong to it, so that an agent can find them."""
        for kind in kinds:
            self.records[self.ids[source]][f"{kind}_id"] = self.draw(kind)

    def twin(self, kind: str) -> str:
        """Another record with identical values and another id: reading it establishes nothing about the first."""
        twin = self._new_id(record_of(self.domain, kind))
        self.records[twin] = dict(self.records[self.ids[kind]])
        return twin

    def bad(self, kind: str, name: str) -> Any:
        """A value of a field that forbids the action."""
        values = next(f for f in record_of(self.domain, kind).fields if f.name == name).bad
        return values[self.rng.integers(len(values))]

    def _new_id(self, record: Record) -> str:
        while True:
            name = f"{record.prefix}-{self.rng.integers(1000, 10000)}"
            if name not in self.records:
                return name


def record_of(domain: Domain, kind: str) -> Record:
    return next(record for record in domain.records if record.kind == kind)


def expectation(domain: Domain, kind: str, name: str) -> Expect:
    """The values of a field under which an action may go ahead; amounts up to a limit."""
    good = next(f for f in record_of(domain, kind).fields if f.name == name).good
    if str(good[0]).startswith("$"):
        return Expect(op="le", value=LIMIT)
    return Expect(op="eq", value=good[0]) if len(good) == 1 else Expect(op="in", value=list(good))


def permitted(expect: Expect) -> str:
    """An expectation in words that `gather` can read back."""
    values = expect.value if expect.op == "in" else [expect.value]
    return {"any": "any", "le": f"at most {expect.value}"}.get(expect.op, " | ".join(map(str, values)))


def read_tool(domain: Domain, kind: str) -> Tool:
    """A read, documented with the values of each field that permit changes: the same for all cases of the domain."""
    fields = [f.name for f in record_of(domain, kind).fields]
    rules = "; ".join(f"{name} = {permitted(expectation(domain, kind, name))}" for name in fields)
    return Tool(
        name=f"read_{kind}",
        kind="information",
        description=f"Reads one {kind.replace('_', ' ')} record by its id.",
        params={f"{kind}_id": Parameter()},
        documentation=f"Changes are permitted with {rules}.",
    )


def act_tool(act: Act) -> Tool:
    """The state-changing tool. `value` is what was observed, `basis` and `second_basis` ids that earlier steps
    returned."""
    noun = act.kind.replace("_", " ")
    reads = ", ".join(f"read_{kind}({kind}_id)" for kind in act.documented.split())
    params = {
        f"{act.kind}_id": Parameter(description=f"the {noun}"),
        "value": Parameter(description=f"{act.value.replace('_', ' ')} of the {noun}, as recorded"),
        "basis": Parameter(description="id returned by the step that this one builds on", required=False),
        "second_basis": Parameter(description="id returned by a second such step", required=False),
        "note": Parameter(description="free text", required=False),
    }
    return Tool(
        name=act.tool,
        kind="consequential",
        description=f"Changes records: {act.phrase}.",
        params=params,
        documentation=f"{act.tool}: consult before use: {reads}.",
    )


def reads_of(world: World, kind: str) -> Reads:
    """A read returns everything on the record, links included, under the id that answered."""
    kinds = {record.kind for record in world.domain.records}
    links = sorted({k for r in world.records.values() if r["kind"] == kind for k in r if k[:-3] in kinds})
    names = tuple(f.name for f in record_of(world.domain, kind).fields)
    return Reads(fields=("state", *names, *links), param=f"{kind}_id")


def effect_of(act: Act) -> Effect:
    return Effect(
        target=f"{act.kind}_id",
        sets={"state": act.state},
        outputs={act.output: {"generated": act.output[:2].upper() + "-"}},
    )
