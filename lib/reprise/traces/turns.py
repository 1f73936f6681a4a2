"""One executed turn of an agent run, whatever framework wrote it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Turn:
    """Who acted, how, and what could be seen of it.

    `role` is the speaker (agent, tool or user), `action` the kind of act ("say", "tool:search", "handoff"), `content`
    its observable text. `raw` keeps the source record untouched; it takes no part in comparisons.
    Source: AgentForesight, problem formulation, t_i = (role_i, action_i, content_i).
    """

    role: str
    action: str
    content: str
    raw: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
