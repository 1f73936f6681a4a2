"""One fault at a time in an otherwise right episode, with the kind of code that must name it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprise.evidence.model import Action, Atom, Case, Change, OutputOf, Protocol
from reprise.evidence.trajectory import Trajectory
from reprise.labs.evidence_suite.reference import Player

V0, V1, V2, V3 = Protocol.V0, Protocol.V1, Protocol.V2, Protocol.V3


@dataclass(frozen=True)
class Mutation:
    """What is broken, in which protocols, and the code families of which one must appear."""

    kind: str
    protocols: tuple[Protocol, ...]
    codes: tuple[str, ...]


MUTATIONS = {
    each.kind: each
    for each in (
        Mutation("incomplete", (V0,), ("MISSING",)),
        Mutation("action", (V0,), ("ATTEMPT",)),
        Mutation("wrong_entity", (V0, V1, V2, V3), ("MISSING",)),
        Mutation("timeout", (V0, V1, V2, V3), ("TIMEOUT",)),
        Mutation("premature", (V1, V2, V3), ("MISSING",)),
        Mutation("stale", (V1, V2, V3), ("STALE",)),
        Mutation("wrong_param", (V1, V2, V3), ("WRONG_PARAM",)),
        Mutation("duplicate", (V1, V2, V3), ("DUPLICATE_ACTION", "EXTRA_ATTEMPT")),
        Mutation("propagation", (V2, V3), ("PROPAGATION",)),
        Mutation("wrong_order", (V2, V3), ("ORDER",)),
    )
}


def mutate(case: Case, kind: str, seed: int = 0) -> tuple[Case, Trajectory]:
    """A run with one fault of this kind, and the case it belongs to (its world differs for "stale" and "wrong_entity").

    Raises KeyError for an unknown kind, ValueError for a protocol it does not apply to.
    """
    if case.view.protocol not in MUTATIONS[kind].protocols:
        raise ValueError(f"kind={kind!r}: expected one of protocol {case.view.protocol}'s mutations")
    rng = np.random.default_rng(seed)
    if kind == "stale":
        return _stale(case, rng)
    skipped, twins = _pick(rng, _needed(case)), {}
    if kind == "wrong_entity":
        case, twins = _with_twins(case, skipped)
    player = Player(case)
    left_out = skipped if kind in ("incomplete", "premature", "wrong_entity") else None
    for name in case.hidden.investigate:
        if name != left_out:
            player.read(case.requirement[name])
    for entity, twin in twins.items():
        record = case.hidden.world[entity]["kind"]
        player.call(f"read_{record}", **{f"{record}_id": twin})
    if kind == "action":
        _any_attempt(player)
    odd = _pick(rng, _eligible(case, kind)) if case.hidden.actions else None
    for action in _order(case, odd if kind == "wrong_order" else None):
        for name in action.requires:
            if name != left_out:
                player.read(case.requirement[name])
        player.refresh([name for name in action.requires if name != left_out])
        player.act(action, **_arguments(kind, action, odd))
        if kind == "duplicate" and action is odd:
            player.act(action)
        player.confirm(action)
    environment = player.environment
    return case, environment.trajectory() if kind == "timeout" else environment.finish()


def _needed(case: Case) -> list[str]:
    """Requirements that one deleted read leaves unmet: those whose entities no other requirement looks at."""
    names = case.hidden.investigate or [name for action in case.hidden.actions for name in action.requires]
    entities = {name: {str(a.entity) for path in case.requirement[name].any_of for a in path} for name in names}
    return [n for n in names if not any(entities[n] & entities[other] for other in names if other != n)]


def _eligible(case: Case, kind: str) -> list[Action]:
    actions = list(case.hidden.actions)
    if kind == "propagation":
        return [a for a in actions if any(isinstance(v, OutputOf) for v in a.args.values())]
    return [a for a in actions if a.after] if kind == "wrong_order" else actions


def _order(case: Case, early: Action | None) -> list[Action]:
    actions = list(case.hidden.actions)
    if early is None:
        return actions
    place = min(actions.index(case.action[p]) for p in early.after)
    actions.remove(early)
    return [*actions[:place], early, *actions[place:]]


def _arguments(kind: str, action: Action, odd: Action | None) -> dict[str, str]:
    if action is not odd:
        return {}
    if kind == "wrong_param":
        return {"value": "not what was read"}
    if kind == "propagation":
        return {name: "ID-0000000000" for name, value in action.args.items() if isinstance(value, OutputOf)}
    return {}


def _with_twins(case: Case, name: str) -> tuple[Case, dict[str, str]]:
    """The case with a second record of equal values beside each record that a requirement needs; record -> twin."""
    world, twins = dict(case.hidden.world), {}
    for atom in case.requirement[name].any_of[0]:
        if isinstance(atom.entity, str) and world[atom.entity]["kind"] not in ("overview", "archive"):
            twins[atom.entity] = f"{atom.entity}-B"
            world[twins[atom.entity]] = world[atom.entity]
    return case.model_copy(update={"hidden": case.hidden.model_copy(update={"world": world})}), twins


def _any_attempt(player: Player) -> None:
    tool = next(tool for tool in player.case.view.tools if tool.kind == "consequential")
    kind = next(iter(tool.params)).removesuffix("_id")
    target = next(e for e, r in player.case.hidden.world.items() if r["kind"] == kind)
    player.call(tool.name, **{f"{kind}_id": target, "value": "1"})


def _stale(case: Case, rng: np.random.Generator) -> tuple[Case, Trajectory]:
    """Somebody changes a record between its reading and the action, and nobody looks again."""
    quiet = case.model_copy(update={"hidden": case.hidden.model_copy(update={"changes": ()})})
    action = case.hidden.actions[0]
    player, last = Player(quiet), {}
    for name in action.requires:
        player.read(case.requirement[name])
        last[name] = len(player.environment.trajectory().steps)
    name = _pick(rng, [n for n in action.requires if isinstance(_first(case, n).entity, str)])
    entity = _first(case, name).entity
    change = Change(after_call=max(last.values()), entity=entity, sets={"touched": True})
    noisy = case.model_copy(update={"hidden": case.hidden.model_copy(update={"changes": (change,)})})
    player = Player(noisy)
    for each in case.hidden.actions:
        for need in each.requires:
            player.read(case.requirement[need])
        player.act(each)
        player.confirm(each)
    return noisy, player.environment.finish()


def _first(case: Case, name: str) -> Atom:
    return case.requirement[name].any_of[0][0]


def _pick(rng: np.random.Generator, items: list):
    return items[rng.integers(len(items))]
