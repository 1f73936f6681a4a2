"""A case: what the agent sees, what the world holds, and what must be established before each action.

The public part (`CaseView`) and the hidden part (`Hidden`) are separate models; an agent gets `case.view` and nothing
else.

    protocol legacy   a static judgement of one candidate action: allow, block or defer
             v0       investigate, then do nothing
             v1       one action, after its evidence
             v2       a chain of actions, each using what the one before it produced
             v3       a graph of actions, any order that respects it

Source: SafeActBench, task structure and protocols. The layout of a case is ours; the paper's cases are not published.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field


class Protocol(StrEnum):
    LEGACY = "legacy"
    V0 = "v0"
    V1 = "v1"
    V2 = "v2"
    V3 = "v3"


class Decision(StrEnum):
    """BLOCK: the candidate itself is wrong or forbidden. DEFER: evidence is missing, stale or conflicting."""

    ALLOW = "allow"
    BLOCK = "block"
    DEFER = "defer"


class Source(StrEnum):
    CONTEXT = "context"
    OBSERVATION = "observation"
    ACTION_RESULT = "action_result"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def model_copy(self, **options: Any) -> Self:
        """A changed copy; what was derived from the original and kept is derived again."""
        copied = super().model_copy(**options)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


# -- what must be established ------------------------------------------------------------------------------------------


class Expect(_Model):
    """What an observed value must satisfy; `any`: that it was observed at all."""

    op: Literal["eq", "in", "le", "ge", "any"] = "any"
    value: Any = None


class OutputOf(_Model):
    """A value that action `action` of this episode returned under `field`."""

    action: str
    field: str


class FoundBy(_Model):
    """The entity that answered the read `tool` with these arguments, once somebody asked."""

    tool: str
    args: dict[str, Any] = Field(default_factory=dict)


class Atom(_Model):
    """One fact: `field` of `entity`, from an allowed source, recent enough, satisfying `expect`.

    `max_age` is in seconds of the episode's virtual clock. `scope` "current_version" refuses facts from before the last
    change of the entity.
    """

    entity: str | OutputOf | FoundBy
    field: str
    expect: Expect = Expect()
    sources: tuple[Source, ...] = tuple(Source)
    max_age: float | None = Field(None, ge=0)
    scope: Literal["current_version", "any_version"] = "current_version"


class Requirement(_Model):
    """Alternatives, each a conjunction of atoms: met when every atom of one alternative is."""

    id: str
    any_of: tuple[tuple[Atom, ...], ...]


class FactOf(_Model):
    """The value of `field` of `entity` as last observed."""

    entity: str
    field: str


class Action(_Model):
    """One consequential call that the task calls for.

    `args` maps each argument to a literal, to an output of an earlier action or to an observed fact; `after` lists the
    actions it depends on; `confirm` the requirements that must be observed *after* it, before anything that depends on
    it; `free_args` are texts whose wording does not matter.
    """

    id: str
    tool: str
    args: dict[str, OutputOf | FactOf | Any] = Field(default_factory=dict)
    requires: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    free_args: tuple[str, ...] = ()


# -- the world behind the tools ----------------------------------------------------------------------------------------


class Reads(_Model):
    """How an information tool answers: from the entity named by parameter `param`, found in `index`, or `fixed`.

    `index` maps a query, in lower case, to an entity. `aliases` maps an id that was asked for to the entity that
    answers.
    """

    fields: tuple[str, ...]
    param: str | None = None
    index: dict[str, str] | None = None
    fixed: str | None = None
    aliases: dict[str, str] = Field(default_factory=dict)


class Guard(_Model):
    """A precondition the environment itself enforces: otherwise the call is blocked."""

    entity: str | None = None
    field: str
    expect: Expect


class Effect(_Model):
    """What a consequential tool does: guards, changed fields of the target, outputs, perhaps a new entity.

    Values of `sets`, `outputs` and `creates` are literals, {"arg": name}, {"generated": prefix} or {"output": name}.
    `creates` is keyed by the output that holds the new entity's id.
    """

    target: str | None = None
    guards: tuple[Guard, ...] = ()
    sets: dict[str, Any] = Field(default_factory=dict)
    outputs: dict[str, Any] = Field(default_factory=dict)
    creates: dict[str, dict[str, Any]] = Field(default_factory=dict)


class Change(_Model):
    """Somebody else changes the world right after the agent's call number `after_call` (from 1)."""

    after_call: int = Field(ge=1)
    entity: str
    sets: dict[str, Any]


# -- the two halves ----------------------------------------------------------------------------------------------------


class Parameter(_Model):
    type: Literal["string", "number", "integer", "boolean"] = "string"
    description: str = ""
    required: bool = True


class Tool(_Model):
    """Public interface of a tool. `documentation` is the same for all cases of a domain."""

    name: str
    kind: Literal["information", "consequential"]
    description: str = ""
    params: dict[str, Parameter] = Field(default_factory=dict)
    idempotent: bool = False
    documentation: str = ""

    def schema_(self) -> dict[str, Any]:
        """The tool in the layout of OpenAI-compatible endpoints."""
        properties = {name: {"type": p.type, "description": p.description} for name, p in self.params.items()}
        required = [name for name, p in self.params.items() if p.required]
        parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return {
            "type": "function",
            "function": dict(name=self.name, description=self.description, parameters=parameters),
        }


class Stated(_Model):
    """A fact that the task itself hands over; `observed_at` in seconds before the reference time, as a negative
    number."""

    entity: str
    field: str
    value: Any
    version: int = 0
    observed_at: float = 0


class CaseView(_Model):
    """All that an agent may see of a case."""

    id: str
    domain: str
    protocol: Protocol
    prompt: str
    tools: tuple[Tool, ...] = ()
    context: tuple[Stated, ...] = ()
    reference_time: str = "2026-01-05T09:00:00Z"
    step_budget: int = Field(40, ge=1)
    candidate: dict[str, Any] | None = None

    @cached_property
    def tool(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.tools}


class Hidden(_Model):
    """What only the environment and the evaluator know. `unavailable` lists (entity, field) pairs; field "*" means
    all."""

    seed: int = 0
    world: dict[str, dict[str, Any]] = Field(default_factory=dict)
    unavailable: tuple[tuple[str, str], ...] = ()
    reads: dict[str, Reads] = Field(default_factory=dict)
    effects: dict[str, Effect] = Field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    investigate: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()
    confirm_at_end: bool = False
    decision: Decision | None = None
    reason: str = ""
    world_id: str = ""


class Case(_Model):
    """Both halves. `cases.parse_case` checks what a model cannot: cycles, references, rules for every tool."""

    view: CaseView
    hidden: Hidden

    @cached_property
    def requirement(self) -> dict[str, Requirement]:
        return {r.id: r for r in self.hidden.requirements}

    @cached_property
    def action(self) -> dict[str, Action]:
        return {a.id: a for a in self.hidden.actions}

    @cached_property
    def confirmations(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Action -> the (earlier action, requirement) pairs it must have seen confirmed."""
        return {a.id: tuple((p, r) for p in a.after for r in self.action[p].confirm) for a in self.hidden.actions}
