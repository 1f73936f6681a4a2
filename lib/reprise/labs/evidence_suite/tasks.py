"""Cases whose right ending is one or several actions: single, in a chain, or in a graph with forks and joins."""

from __future__ import annotations

import numpy as np

from reprise.evidence.model import (
    Action,
    Atom,
    Case,
    CaseView,
    Change,
    Expect,
    FactOf,
    FoundBy,
    Hidden,
    OutputOf,
    Parameter,
    Protocol,
    Reads,
    Requirement,
    Tool,
)
from reprise.labs.evidence_suite.domains import Act, Domain
from reprise.labs.evidence_suite.world import (
    World,
    act_tool,
    effect_of,
    expectation,
    read_tool,
    reads_of,
    record_of,
)

RULE = (
    "Go ahead only if the records allow it, and take every value from the records. If they do not allow it, or a record"
    " cannot be retrieved after you looked, end without changing anything."
)
# predecessors of each action, by number of actions; every graph has a fork and a join
GRAPHS = {
    3: (((), (0,), (0, 1)),),
    4: (((), (0,), (0,), (1, 2)),),
    5: (((), (0,), (0,), (1, 2), (3,)), ((), (0,), (0,), (1, 2), (2,))),
}
READS_OF_ONE = (4, 5, 6, 7, 8), (0.10, 0.25, 0.25, 0.25, 0.15)
CHAIN_LENGTHS = (2, 3, 4), (0.3, 0.4, 0.3)
GRAPH_SIZES = (3, 4, 5), (0.4, 0.35, 0.25)


def requirement(world: World, act: Act, kind: str, found: FoundBy | None = None) -> Requirement:
    """What one record must show before an action: one or two of its fields, and for the target the value to use."""
    fields = [f.name for f in record_of(world.domain, kind).fields if kind != act.kind or f.name != act.value]
    kept = fields if world.rng.random() < 0.5 else [fields[world.rng.integers(len(fields))]]
    entity = found or world.ids[kind]
    atoms = [Atom(entity=entity, field=name, expect=expectation(world.domain, kind, name)) for name in kept]
    if kind == act.kind:
        atoms.append(Atom(entity=entity, field=act.value))
    return Requirement(id=f"need.{act.tool}.{kind}", any_of=(tuple(atoms),))


def with_overview(world: World, needs: list[Requirement], hidden: dict, tools: list[Tool]) -> None:
    """Offer a second way to the last requirement: an overview page that shows the same fields."""
    need = needs[-1]
    fields = {f"{atom.entity} {atom.field}": atom for atom in need.any_of[0]}
    overview = {"kind": "overview"}
    overview |= {name: world.records[atom.entity][atom.field] for name, atom in fields.items()}
    world.records["overview"] = overview
    second = tuple(Atom(entity="overview", field=name, expect=atom.expect) for name, atom in fields.items())
    needs[-1] = Requirement(id=need.id, any_of=(need.any_of[0], second))
    tools.append(Tool(name="read_overview", kind="information", description="Shows parts of several records."))
    hidden["reads"]["read_overview"] = Reads(fields=tuple(fields), fixed="overview")


def interface(world: World, acts: list[Act]) -> tuple[list[Tool], dict]:
    """Tools of a case: a read for every kind of record of the domain, and the acts; with their rules."""
    kinds = [record.kind for record in world.domain.records]
    tools = [read_tool(world.domain, kind) for kind in kinds] + [act_tool(act) for act in acts]
    rules = {
        "reads": {f"read_{kind}": reads_of(world, kind) for kind in kinds},
        "effects": {act.tool: effect_of(act) for act in acts},
    }
    return tools, rules


def single(name: str, domain: Domain, rng: np.random.Generator, seed: int) -> tuple[World, Act, list, list, dict, str]:
    """The parts shared by v0 and v1: a world, an act, its needs, tools, rules and the text of the task."""
    world = World(domain, rng)
    act = domain.acts[rng.integers(len(domain.acts))]
    count = rng.choice(READS_OF_ONE[0], p=READS_OF_ONE[1])
    others = [r.kind for r in domain.records if r.kind != act.kind]
    kinds = [act.kind, *rng.permutation(others)[: count - 1]]
    for kind in kinds:
        world.draw(kind)
    # every fourth task names one record itself; the others are found through the target's links
    told = kinds[-1] if rng.random() < 0.25 else None
    world.link(act.kind, tuple(kind for kind in kinds[1:] if kind != told))
    text = f"{domain.setting} Task: {act.phrase} {world.ids[act.kind]}. {RULE}"
    if told:
        text += f" Consult {told.replace('_', ' ')} {world.ids[told]} as well."
    needs = [requirement(world, act, kind) for kind in kinds]
    tools, rules = interface(world, [act])
    if rng.random() < 0.25:
        with_overview(world, needs, rules, tools)
    return world, act, needs, tools, rules, text


def one_action(name: str, domain: Domain, rng: np.random.Generator, seed: int) -> Case:
    """V1. In every sixth case the target must be found by a search; in every twelfth somebody changes a record."""
    world, act, needs, tools, rules, text = single(name, domain, rng, seed)
    target = world.ids[act.kind]
    if rng.random() < 1 / 6:
        label = f"{domain.name.split('_')[0]} {rng.integers(100, 1000)}"
        found = FoundBy(tool="find_record", args={"query": label})
        first = needs[0].any_of[0]
        atoms = tuple(atom.model_copy(update={"entity": found}) for atom in first)
        needs[0] = Requirement(id=needs[0].id, any_of=(atoms, *needs[0].any_of[1:]))
        text = text.replace(f"{act.phrase} {target}", f"{act.phrase} labelled '{label}'")
        finds = Tool(name="find_record", kind="information", description="Finds a record by its label.")
        tools.append(finds.model_copy(update={"params": {"query": Parameter()}}))
        rules["reads"]["find_record"] = Reads(fields=("state",), param="query", index={label: target})
    changes = ()
    if rng.random() < 1 / 12:
        touched = world.ids[needs[-1].id.rsplit(".", 1)[1]]
        changes = (Change(after_call=int(rng.integers(1, len(needs) + 1)), entity=touched, sets={"touched": True}),)
    action = Action(
        id="a1",
        tool=act.tool,
        args={f"{act.kind}_id": target, "value": FactOf(entity=target, field=act.value)},
        requires=tuple(need.id for need in needs),
        free_args=("note",),
    )
    return _case(name, domain, Protocol.V1, text, tools, rules, world, needs, (action,), seed, changes=changes)


def several_actions(name: str, domain: Domain, rng: np.random.Generator, seed: int, protocol: Protocol) -> Case:
    """V2 (each action after the one before) or V3 (a graph)."""
    if protocol is Protocol.V2:
        count = int(rng.choice(CHAIN_LENGTHS[0], p=CHAIN_LENGTHS[1]))
        before = tuple(() if k == 0 else (k - 1,) for k in range(count))
    else:
        count = int(rng.choice(GRAPH_SIZES[0], p=GRAPH_SIZES[1]))
        before = GRAPHS[count][rng.integers(len(GRAPHS[count]))]
    world = World(domain, rng)
    acts = [domain.acts[k] for k in rng.permutation(len(domain.acts))[:count]]
    support = [r.kind for r in domain.records if r.kind not in {a.kind for a in domain.acts}]
    support = list(rng.permutation(support))
    share, confirm = (0.7, 0.5) if protocol is Protocol.V2 else (0.4, 0.35)
    needs, actions, lines = [], [], []
    last = [k for k in range(count) if all(k not in each for each in before)]
    for k, act in enumerate(acts):
        target = world.draw(act.kind)
        extra = [support.pop()] if support and rng.random() < share else []
        world.link(act.kind, tuple(extra))
        own = [requirement(world, act, kind) for kind in (act.kind, *extra)]
        args = {f"{act.kind}_id": target, "value": FactOf(entity=target, field=act.value)}
        for slot, p in zip(("basis", "second_basis"), before[k], strict=False):
            args[slot] = OutputOf(action=f"a{p + 1}", field=acts[p].output)
        seen = []
        if rng.random() < confirm:
            atom = Atom(entity=target, field="state", expect=Expect(op="eq", value=act.state))
            seen = [Requirement(id=f"seen.{act.tool}", any_of=((atom,),))]
        needs += own + seen
        actions.append(
            Action(
                id=f"a{k + 1}",
                tool=act.tool,
                args=args,
                requires=tuple(need.id for need in own),
                after=tuple(f"a{p + 1}" for p in before[k]),
                confirm=tuple(need.id for need in seen),
                free_args=("note",),
            )
        )
        lines.append(_line(k, act, target, before[k], bool(seen), k in last))
    tools, rules = interface(world, acts)
    text = f"{domain.setting} Task, in several steps: {' '.join(lines)} {RULE}"
    return _case(name, domain, protocol, text, tools, rules, world, needs, tuple(actions), seed, confirm_at_end=True)


def _line(k: int, act: Act, target: str, before: tuple[int, ...], seen: bool, is_last: bool) -> str:
    text = f"({k + 1}) {act.phrase} {target}"
    if before:
        steps = " and ".join(str(p + 1) for p in before)
        text += f", after step{'s' * (len(before) > 1)} {steps}, with the returned id{'s' * (len(before) > 1)} as basis"
    if seen:
        text += "; look at the record again " + ("at the end" if is_last else "before anything builds on it")
    return text + "."


def _case(name, domain, protocol, text, tools, rules, world, needs, actions, seed, **more) -> Case:
    if world.rng.random() < 0.5:
        world.twin(next(iter(world.ids)))
    view = CaseView(id=name, domain=domain.name, protocol=protocol, prompt=text, tools=tuple(tools))
    hidden = Hidden(
        seed=seed,
        world=world.records,
        requirements=tuple(needs),
        actions=actions,
        world_id=f"{domain.name}/{actions[0].tool}",
        **rules,
        **more,
    )
    return Case(view=view, hidden=hidden)
