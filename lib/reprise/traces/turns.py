"""One executed turn of an agent run, whatever framework wrote it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that a turn asks for; `arguments` as logged (an object, or its text where that is no JSON object)."""

    name: str
    arguments: Any
    id: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered; `id` is that of the call, "" where the log has none."""

    name: str
    content: str
    id: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """Who acted, how, and what could be seen of it.

    `role` is the speaker (agent, tool or user), `action` the kind of act ("say", "tool:search", "handoff"), `content`
    its observable text. `raw` keeps the source record untouched, `calls` and `results` what it says of tools; these
    three take no part in comparisons.
    Source: AgentForesight, problem formulation, t_i = (role_i, action_i, content_i).
    """

    role: str
    action: str
    content: str
    raw: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    calls: tuple[ToolCall, ...] = field(default=(), compare=False, repr=False)
    results: tuple[ToolResult, ...] = field(default=(), compare=False, repr=False)
