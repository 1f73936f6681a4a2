"""Reading cases from YAML or JSON, and refusing those that nobody could pass or judge.

Source: SafeActBench, case validation (schema checks, workflow structure).
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reprise.evidence.errors import CaseError
from reprise.evidence.model import Case, FoundBy, OutputOf, Protocol

MAX_BYTES = 4 << 20


def parse_case(data: Any, name: str = "case") -> Case:
    """A checked case from parsed YAML or JSON. Raises CaseError naming the field, its value and what was expected."""
    try:
        case = Case.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CaseError(f"{name}: {where}={str(first.get('input'))[:80]!r}: {first['msg']}") from None
    check_case(case)
    return case


def load_cases(folder: str | Path) -> list[Case]:
    """Every case of a folder of .yaml, .yml and .json files (one case or a list a file), ordered by file name.

    Raises CaseError for an empty folder, a file over 4 MiB, text that is no YAML, a broken case or an id that stands
    twice.
    """
    from yaml import YAMLError

    folder = Path(folder)
    files = sorted(path for path in folder.glob("*") if path.suffix in (".yaml", ".yml", ".json"))
    if not files:
        raise CaseError(f"cases={str(folder)!r}: expected a folder with .yaml or .json files")
    cases: dict[str, Case] = {}
    for path in files:
        if path.stat().st_size > MAX_BYTES:
            raise CaseError(f"{path.name}: {path.stat().st_size} bytes: expected at most {MAX_BYTES}")
        try:
            data = _parse(path.read_text(encoding="utf-8"))
        except (YAMLError, UnicodeDecodeError, RecursionError) as error:
            raise CaseError(f"{path.name}: {str(error).splitlines()[0]}: expected YAML or JSON") from None
        for number, item in enumerate(data if isinstance(data, list) else [data], 1):
            case = parse_case(item, f"{path.name}: case {number}")
            if case.view.id in cases:
                raise CaseError(f"{path.name}: case {case.view.id!r} stands twice: expected unique ids")
            cases[case.view.id] = case
    return list(cases.values())


def _parse(text: str) -> Any:
    """YAML without aliases, which turn a few lines into any amount of data, and with dates left as text."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {
            first: [each for each in found if each[0] != "tag:yaml.org,2002:timestamp"]
            for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def compose_node(self, parent, index):
            if self.check_event(yaml.AliasEvent):
                alias = self.peek_event()
                raise yaml.YAMLError(f"line {alias.start_mark.line + 1}: alias *{alias.anchor}: not allowed here")
            return super().compose_node(parent, index)

    loader = Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


ACTIONS = {
    Protocol.LEGACY: (0, 0),
    Protocol.V0: (0, 0),
    Protocol.V1: (1, 1),
    Protocol.V2: (2, 99),
    Protocol.V3: (2, 99),
}


def check_case(case: Case) -> None:
    """Raise CaseError for a case nobody could pass or judge: cycles, dangling references, requirements that say
    nothing."""
    view, hidden = case.view, case.hidden
    name = f"case {view.id!r}"
    for kind, items in (("requirement", hidden.requirements), ("action", hidden.actions)):
        ids = [each.id for each in items]
        if twice := sorted({i for i in ids if ids.count(i) > 1}):
            raise CaseError(f"{name}: {kind} {twice[0]!r} stands twice: expected unique ids")
    for requirement in hidden.requirements:
        if not requirement.any_of or not all(requirement.any_of):
            raise CaseError(
                f"{name}: requirement {requirement.id!r}: any_of={requirement.any_of}: expected at least one atom"
            )
    _check_actions(case, name)
    low, high = ACTIONS[view.protocol]
    if not low <= len(hidden.actions) <= high:
        raise CaseError(f"{name}: protocol {view.protocol} has {len(hidden.actions)} actions: expected {low} to {high}")
    if (view.protocol is Protocol.LEGACY) != (hidden.decision is not None):
        raise CaseError(
            f"{name}: protocol {view.protocol} with decision={hidden.decision}: expected one for legacy only"
        )
    if view.protocol is Protocol.V0 and not hidden.investigate:
        raise CaseError(f"{name}: investigate=(): expected the reads that a justified non-action needs")
    _check_references(case, name)


def _check_actions(case: Case, name: str) -> None:
    hidden, actions = case.hidden, case.action
    for action in hidden.actions:
        if not action.requires:
            raise CaseError(f"{name}: action {action.id!r}: requires=(): expected at least one requirement")
        if unknown := [p for p in action.after if p not in actions]:
            raise CaseError(f"{name}: action {action.id!r}: after {unknown[0]!r}: expected one of {sorted(actions)}")
        tool = case.view.tool.get(action.tool)
        if tool is None or tool.kind != "consequential":
            raise CaseError(
                f"{name}: action {action.id!r}: tool={action.tool!r}: expected a consequential tool of the case"
            )
        if unknown := sorted(set(action.args) - set(tool.params)):
            raise CaseError(
                f"{name}: action {action.id!r}: argument {unknown[0]!r}: expected one of {sorted(tool.params)}"
            )
    try:
        order = list(TopologicalSorter({a.id: a.after for a in hidden.actions}).static_order())
    except CycleError as error:
        raise CaseError(
            f"{name}: after: {' -> '.join(error.args[1])} is a cycle: expected an acyclic workflow"
        ) from None
    if case.view.protocol is Protocol.V2:
        ids = [a.id for a in hidden.actions]
        chain = {i: (() if k == 0 else (ids[k - 1],)) for k, i in enumerate(ids)}
        if bad := [i for i in ids if actions[i].after != chain[i]]:
            raise CaseError(
                f"{name}: action {bad[0]!r}: after={actions[bad[0]].after}: expected the previous action only"
            )
    known = set()
    for i in order:
        for argument, value in actions[i].args.items():
            if isinstance(value, OutputOf) and value.action not in known:
                raise CaseError(
                    f"{name}: action {i!r}: {argument!r} refers to {value.action!r}: expected an earlier action"
                )
        known.add(i)


def _check_references(case: Case, name: str) -> None:
    hidden = case.hidden
    named = [(f"action {a.id!r}", r) for a in hidden.actions for r in (*a.requires, *a.confirm)]
    named += [("investigate", r) for r in hidden.investigate]
    for where, requirement in named:
        if requirement not in case.requirement:
            raise CaseError(f"{name}: {where}: requirement {requirement!r}: expected one of {sorted(case.requirement)}")
    for requirement in hidden.requirements:
        for atom in (atom for alternative in requirement.any_of for atom in alternative):
            if isinstance(atom.entity, OutputOf) and atom.entity.action not in case.action:
                raise CaseError(
                    f"{name}: requirement {requirement.id!r}: output of {atom.entity.action!r}: expected an action"
                )
            if isinstance(atom.entity, FoundBy) and atom.entity.tool not in case.view.tool:
                raise CaseError(
                    f"{name}: requirement {requirement.id!r}: tool {atom.entity.tool!r}: expected a tool of the case"
                )
    for kind, rules in (("information", hidden.reads), ("consequential", hidden.effects)):
        tools = {tool.name for tool in case.view.tools if tool.kind == kind}
        if odd := sorted(tools ^ set(rules)):
            raise CaseError(f"{name}: tool {odd[0]!r}: expected every {kind} tool to have exactly one rule")
