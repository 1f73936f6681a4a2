"""How a careful agent plays a case: every required read, each action in a valid order, every confirmation.

It uses the hidden specification (that is what makes it a reference), but acts only through the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

from reprise.evidence.environment import Environment
from reprise.evidence.model import Action, Atom, Case, CaseView, FactOf, FoundBy, OutputOf, Protocol, Requirement
from reprise.evidence.trajectory import Trajectory

Wrap = Callable[[CaseView, Callable], Callable]


class Player:
    """One episode in which each link can be left out. `seen` holds what the responses showed.

    `wrap` puts something between the agent and the tools, from the public half of the case and the plain call.
    """

    def __init__(self, case: Case, alternative: int = 0, wrap: Wrap | None = None):
        self.case, self.environment, self.alternative = case, Environment(case), alternative
        self._call = wrap(case.view, self.environment.call) if wrap else self.environment.call
        self.outputs: dict[str, dict] = {}
        self.seen: dict[tuple[str, str], object] = {}
        self.changed: set[str] = set()

    def read(self, requirement: Requirement) -> None:
        """Look at every record that one alternative of a requirement needs."""
        atoms = requirement.any_of[min(self.alternative, len(requirement.any_of) - 1)]
        done = []
        for atom in atoms:
            if atom.entity not in done:
                done.append(atom.entity)
                self.look(atom)

    def look(self, atom: Atom) -> None:
        """One read; the search first if the entity has to be found."""
        entity = atom.entity
        if isinstance(entity, FoundBy):
            entity = self.call(entity.tool, **entity.args)["record"]
        if isinstance(entity, OutputOf):
            entity = self.outputs[entity.action][entity.field]
        kind = self.case.hidden.world[entity]["kind"]
        if kind == "overview":
            self.call("read_overview")
        elif kind == "archive":
            self.call("read_archive", record_id=entity.removesuffix("/archive"))
        else:
            self.call(f"read_{kind}", **{f"{kind}_id": entity})

    def call(self, tool: str, **args) -> dict:
        """A call, remembering what it showed and who was reported as changed."""
        response = self._call(tool, **args)
        if "record" in response:
            self.seen |= {(response["record"], name): value for name, value in response.items()}
        self.changed |= set(response.get("changed", ()))
        return response

    def arguments(self, action: Action) -> dict:
        """The right arguments, from what this episode showed and returned."""
        args = {}
        for name, wanted in action.args.items():
            if isinstance(wanted, OutputOf):
                wanted = self.outputs.get(wanted.action, {}).get(wanted.field, "unknown")
            elif isinstance(wanted, FactOf):
                world = self.case.hidden.world[wanted.entity]
                wanted = str(self.seen.get((wanted.entity, wanted.field), world[wanted.field]))
            args[name] = wanted
        return args

    def act(self, action: Action, **changed) -> dict:
        """The action, with some arguments replaced."""
        response = self.call(action.tool, **{**self.arguments(action), **changed})
        self.outputs[action.id] = response
        return response

    def refresh(self, names: Sequence[str]) -> None:
        """Read again what was reported as changed."""
        for name in names:
            atoms = self.case.requirement[name].any_of[0]
            if self.changed & {atom.entity for atom in atoms if isinstance(atom.entity, str)}:
                self.read(self.case.requirement[name])

    def confirm(self, action: Action) -> None:
        for name in action.confirm:
            self.read(self.case.requirement[name])


def reference(case: Case, order: Sequence[str] = (), alternative: int = 0, reads_first: bool = False) -> Trajectory:
    """A right trajectory. `order` lists action ids; `alternative` picks the retrieval path where there are several.

    `reads_first` makes every read before the first action (confirmations stay where they belong).
    """
    player = Player(case, alternative)
    if case.view.protocol is Protocol.LEGACY:
        return player.environment.decide(case.hidden.decision)
    for name in case.hidden.investigate:
        player.read(case.requirement[name])
    actions = [case.action[name] for name in order] or list(case.hidden.actions)
    if reads_first:
        for action in actions:
            for name in action.requires:
                player.read(case.requirement[name])
    for action in actions:
        if not reads_first:
            for name in action.requires:
                player.read(case.requirement[name])
        player.refresh(action.requires)
        player.act(action)
        player.confirm(action)
    return player.environment.finish()


def topological_orders(case: Case) -> Iterator[tuple[str, ...]]:
    """Every order of the actions that respects their dependencies."""
    for order in permutations(case.action):
        place = {name: k for k, name in enumerate(order)}
        if all(place[p] < place[a.id] for a in case.hidden.actions for p in a.after):
            yield order
