"""A wrapper that gathers documented evidence before it lets a state-changing call through.

It sees what an agent sees: the public half of the case and the responses. Before a state-changing call it looks up the
tool's public documentation, reads the documented records that it has not seen at their current version, and refuses the
call when a value is missing or outside the documented ones. A refused call is not dispatched and is no attempt.

    EvidenceGate(view, call)                    reads by itself
    EvidenceGate(view, call, auto_read=False)   only refuses (the Select variant)

Source: SafeActBench, appendix on structured evidence gathering (SCGR-EG, SCGR-Select); its details are unpublished,
ours are as above.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from reprise.evidence.ledger import satisfies
from reprise.evidence.model import CaseView, Expect, Tool
from reprise.evidence.values import UNAVAILABLE

_READ = re.compile(r"(\w+)\((\w+)\)")
_RULE = re.compile(r"(\w+) = ([^;]+?)(?=;|\.$)")
Call = Callable[..., dict[str, Any]]


class EvidenceGate:
    """Wraps the `call` of an environment. `log` lists what was read on the agent's behalf and what was refused."""

    def __init__(self, view: CaseView, call: Call, auto_read: bool = True, max_reads: int = 8):
        self.view, self._call, self.auto_read, self.max_reads = view, call, auto_read, max_reads
        self._seen: dict[tuple[str, str], dict[str, Any]] = {}
        self.log: list[tuple[str, str, str]] = []

    def call(self, tool: str, /, **args: Any) -> dict[str, Any]:
        """A tool call; a refusal has status "gate_denied" and, like the call, costs nothing in the world."""
        known = self.view.tool.get(tool)
        if known is None or known.kind == "information":
            return self._read(tool, args)
        gathered, denied = {}, []
        for name, asked in self._documented(known, args):
            if (name, asked) not in self._seen and self.auto_read and len(gathered) < self.max_reads:
                parameter = next(iter(self.view.tool[name].params))
                gathered[f"{name} {asked}"] = self._read(name, {parameter: asked})
                self.log.append(("read", name, asked))
            denied += self.objections(name, asked)
        if denied:
            self.log.append(("denied", tool, denied[0]))
            return {"status": "gate_denied", "message": "; ".join(denied), "gathered": gathered}
        response = self._call(tool, **args)
        self._forget(set(map(str, args.values())) | set(response.get("changed", ())))
        return {**response, "gathered": gathered} if gathered else response

    def _read(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        response = self._call(tool, **args)
        self._seen[(tool, str(next(iter(args.values()), "")))] = response
        self._forget(set(response.get("changed", ())) - {response.get("record")})
        return response

    def _forget(self, entities: set[str]) -> None:
        """What was seen of these no longer describes them."""
        self._seen = {key: seen for key, seen in self._seen.items() if key[1] not in entities}

    def _documented(self, tool: Tool, args: dict[str, Any]) -> list[tuple[str, str]]:
        """Documented (read tool, id) pairs; an id comes from the call itself or from a record already seen.

        Links that only a documented read reveals are followed: the target comes first in the list.
        """
        found = []
        for name, parameter in _READ.findall(tool.documentation):
            asked = args.get(parameter) or self._linked(parameter)
            if asked is None and found and self.auto_read and found[0] not in self._seen:
                first, target = found[0]
                self._read(first, {next(iter(self.view.tool[first].params)): target})
                self.log.append(("read", first, target))
                asked = self._linked(parameter)
            if asked is not None and name in self.view.tool:
                found.append((name, str(asked)))
        return found

    def _linked(self, parameter: str) -> str | None:
        return next(
            (str(r[parameter]) for r in self._seen.values() if r.get(parameter) not in (None, UNAVAILABLE)), None
        )

    def objections(self, name: str, asked: str) -> list[str]:
        """What speaks against acting in one record, from its documentation and the last response about it."""
        seen = self._seen.get((name, asked))
        if seen is None:
            return [f"{asked} has not been read"]
        if seen["status"] != "ok":
            return [f"{asked} is {seen['status']}"]
        rules = {field: rule for field, rule in _RULE.findall(self.view.tool[name].documentation) if field in seen}
        return [
            f"{asked}: {field} is {seen[field]}" for field, rule in rules.items() if not _permits(rule, seen[field])
        ]


def _permits(rule: str, value: Any) -> bool:
    if value == UNAVAILABLE:
        return False
    if rule == "any":
        return True
    if rule.startswith("at most "):
        return satisfies(Expect(op="le", value=rule.removeprefix("at most ")), value)
    # documentation is text: a boolean is written as True or False there
    shown = str(value) if isinstance(value, bool) else value
    return satisfies(Expect(op="in", value=rule.split(" | ")), shown)
