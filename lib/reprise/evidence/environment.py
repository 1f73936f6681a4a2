"""The world behind a case's tools: reads, state-changing calls, concurrent changes, and a record of what happened.

Everything is a function of the case and the calls made: no wall clock, no randomness. Generated identifiers cannot be
guessed, yet a replay of the same calls yields the same ones.

Source: SafeActBench, interaction protocol; blocked calls count as attempts, infrastructure errors do not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from reprise.evidence.errors import EvidenceError, TrajectoryError
from reprise.evidence.ledger import satisfies
from reprise.evidence.model import Case, Effect, Protocol, Reads, Source, Tool
from reprise.evidence.trajectory import Fact, Outcome, Step, Trajectory
from reprise.evidence.values import UNAVAILABLE, same

TYPES = {"string": str, "number": (int, float), "integer": int, "boolean": bool}


class Environment:
    """One episode of one case.

    >>> # env = Environment(case); env.call("read_charge", charge_id="C1"); env.finish()

    `call` returns what the agent sees, a dictionary with "status" "ok", "unavailable", "blocked" or "error", and
    "changed" when somebody else has just changed a record. Calls
    after the end, or beyond the step budget, raise EvidenceError; an episode that never finishes is a timeout.
    """

    def __init__(self, case: Case):
        self.case = case
        self.finished = False
        self._decision: str | None = None
        self._world = deepcopy(case.hidden.world)
        self._unavailable = set(case.hidden.unavailable)
        self._versions: dict[str, int] = {}
        self._steps: list[Step] = []
        self._idempotent: dict[str, Mapping[str, Any]] = {}

    def call(self, tool: str, /, **args: Any) -> dict[str, Any]:
        """One tool call: the response as the agent sees it."""
        self._open()
        seq = len(self._steps) + 1
        known = self.case.view.tool.get(tool)
        problem = f"unknown tool {tool!r}" if known is None else _schema_problem(known, args)
        if problem:
            step, seen = Step(seq, tool, args, Outcome.ERROR, message=problem), {"status": "error", "message": problem}
        elif known.kind == "information":
            step, seen = self._read(seq, tool, args, self.case.hidden.reads[tool])
        else:
            step, seen = self._act(seq, known, args, self.case.hidden.effects[tool])
        for change in self.case.hidden.changes:
            if change.after_call == seq:
                self._world.setdefault(change.entity, {}).update(change.sets)
                step = _bumped(step, change.entity)
                seen = {**seen, "changed": [change.entity]}
        for entity in step.bumped:
            self._versions[entity] = self._versions.get(entity, 0) + 1
        self._steps.append(step)
        return {**seen, "time": self.case.view.reference_time}

    def finish(self) -> Trajectory:
        """End the episode."""
        self._open()
        self.finished = True
        return self.trajectory()

    def decide(self, decision: str) -> Trajectory:
        """End a legacy episode with its structured answer."""
        self._decision = decision
        return self.finish()

    def trajectory(self) -> Trajectory:
        """The record so far."""
        return Trajectory(
            self.case.view.id, tuple(self._steps), context_facts(self.case), self.finished, self._decision
        )

    def _open(self) -> None:
        if self.finished:
            raise EvidenceError(f"case {self.case.view.id!r}: a call after the end of the episode")
        if len(self._steps) >= self.case.view.step_budget:
            raise EvidenceError(
                f"case {self.case.view.id!r}: step budget of {self.case.view.step_budget} calls is spent"
            )

    def _read(self, seq: int, tool: str, args: Mapping[str, Any], rule: Reads) -> tuple[Step, dict[str, Any]]:
        entity = _entity(rule, args)
        record = self._world.get(entity) if entity is not None else None
        bound = entity if entity is not None else f"{tool}({_canonical(args)})"
        version = self._versions.get(bound, 0)
        values = {name: self._visible(bound, record, name) for name in rule.fields}
        facts = tuple(Fact(seq, Source.OBSERVATION, bound, version, name, value) for name, value in values.items())
        step = Step(seq, tool, dict(args), Outcome.READ, facts, answered=entity if record is not None else None)
        if all(value == UNAVAILABLE for value in values.values()):
            return step, {"status": "unavailable", "message": "the record could not be retrieved"}
        return step, {"status": "ok", "record": bound, "version": version, **values}

    def _visible(self, entity: str, record: Mapping[str, Any] | None, field: str) -> Any:
        hidden = {(entity, field), (entity, "*")} & self._unavailable
        return UNAVAILABLE if record is None or hidden else record.get(field, UNAVAILABLE)

    def _act(self, seq: int, tool: Tool, args: Mapping[str, Any], rule: Effect) -> tuple[Step, dict[str, Any]]:
        key = tool.name + _canonical(args)
        if tool.idempotent and key in self._idempotent:
            outputs = self._idempotent[key]
            return Step(seq, tool.name, dict(args), Outcome.NOOP, outputs=outputs), {"status": "ok", **outputs}
        target = None if rule.target is None else args.get(rule.target)
        if refusal := self._refusal(target, rule):
            step = Step(seq, tool.name, dict(args), Outcome.BLOCKED, message=refusal)
            return step, {"status": "blocked", "message": refusal}
        outputs: dict[str, Any] = {}
        for name, value in rule.outputs.items():
            outputs[name] = self._fill(value, args, outputs, seq, tool.name)
        if rule.sets:
            filled = {name: self._fill(value, args, outputs, seq, tool.name) for name, value in rule.sets.items()}
            self._world[target].update(filled)
        for output, fields in rule.creates.items():
            record = {name: self._fill(value, args, outputs, seq, tool.name) for name, value in fields.items()}
            self._world[outputs[output]] = record
        instance = f"{tool.name}#{seq}"
        facts = tuple(Fact(seq, Source.ACTION_RESULT, instance, 0, name, value) for name, value in outputs.items())
        bumped = (target,) if rule.sets else ()
        if tool.idempotent:
            self._idempotent[key] = outputs
        return Step(seq, tool.name, dict(args), Outcome.EXECUTED, facts, outputs, bumped), {"status": "ok", **outputs}

    def _refusal(self, target: Any, rule: Effect) -> str:
        if rule.target is not None and (not isinstance(target, str) or target not in self._world):
            return f"{rule.target}={target!r} does not exist"
        for guard in rule.guards:
            value = self._world.get(guard.entity or target, {}).get(guard.field, UNAVAILABLE)
            if not satisfies(guard.expect, value):
                return f"not possible in the current state of {guard.entity or target}"
        return ""

    def _fill(self, value: Any, args: Mapping[str, Any], outputs: Mapping[str, Any], seq: int, tool: str) -> Any:
        if not isinstance(value, dict) or len(value) != 1:
            return value
        ((kind, name),) = value.items()
        if kind == "generated":
            text = f"{self.case.hidden.seed}|{tool}|{_canonical(args)}|{seq}"
            return name + hashlib.sha256(text.encode()).hexdigest()[:10]
        return {"arg": args, "output": outputs}.get(kind, {}).get(name, value)


def context_facts(case: Case) -> tuple[Fact, ...]:
    """The facts that the task itself states."""
    return tuple(
        Fact(0, Source.CONTEXT, each.entity, each.version, each.field, each.value, each.observed_at)
        for each in case.view.context
    )


def replay(case: Case, calls: Iterable[tuple[str, Mapping[str, Any]]], finish: bool = True) -> Trajectory:
    """The trajectory of these calls, made in order in a fresh world."""
    environment = Environment(case)
    for tool, args in calls:
        environment.call(tool, **args)
    return environment.finish() if finish else environment.trajectory()


def check_replay(case: Case, trajectory: Trajectory) -> None:
    """Raise TrajectoryError at the first step whose recorded outcome, facts or outputs the case's world does not
    give."""
    if case.view.protocol is Protocol.LEGACY:
        return
    if trajectory.context != context_facts(case):
        raise TrajectoryError("context: expected the facts that the case states")
    again = replay(case, [(step.tool, step.args) for step in trajectory.steps], finish=False)
    for recorded, expected in zip(trajectory.steps, again.steps, strict=True):
        for name in ("outcome", "facts", "outputs", "bumped", "answered"):
            ours, theirs = getattr(expected, name), getattr(recorded, name)
            if ours != theirs:
                raise TrajectoryError(f"step {recorded.seq}: {name}={theirs!r}: expected {ours!r} on replay")


def _entity(rule: Reads, args: Mapping[str, Any]) -> str | None:
    if rule.fixed is not None:
        return rule.fixed
    asked = str(args.get(rule.param, "")).strip()
    if rule.index is not None:
        return next((entity for query, entity in rule.index.items() if same(query.lower(), asked.lower())), None)
    return rule.aliases.get(asked, asked)


def _schema_problem(tool: Tool, args: Mapping[str, Any]) -> str:
    for name, parameter in tool.params.items():
        if name not in args:
            if parameter.required:
                return f"{tool.name}: argument {name!r} is missing"
            continue
        value = args[name]
        boolean = isinstance(value, bool)
        if not isinstance(value, TYPES[parameter.type]) or boolean != (parameter.type == "boolean"):
            return f"{tool.name}: {name}={value!r}: expected a {parameter.type}"
    unknown = [name for name in args if name not in tool.params]
    return f"{tool.name}: unknown argument {unknown[0]!r}" if unknown else ""


def _canonical(args: Mapping[str, Any]) -> str:
    return json.dumps(args, sort_keys=True, ensure_ascii=False, default=str)


def _bumped(step: Step, entity: str) -> Step:
    return Step(
        step.seq,
        step.tool,
        step.args,
        step.outcome,
        step.facts,
        step.outputs,
        (*step.bumped, entity),
        step.answered,
        step.message,
    )
