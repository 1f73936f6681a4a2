"""A finished run with its label: the decisive error (step and agent), or none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprise.audit.errors import AuditError
from reprise.traces import Turn


@dataclass(frozen=True)
class Trajectory:
    """Turns 0..N-1 and what is known about them.

    `decisive_step` k* and `decisive_agent` a* are None on a safe run and on an unlabelled one; `outcome` is the
    task's own check of the finished run (Omega: True success, False failure, None unknown). `family` names the safe
    run a variant was made from: variants of one family never stand on both sides of a split. The agent of a human
    label need not be a speaker of the log, so it is not forced to be one.

    Raises AuditError without turns, with a step outside them, or with an agent and no step.
    Source: AgentForesight, decisive error and safe runs.
    """

    id: str
    turns: tuple[Turn, ...]
    domain: str = ""
    family: str = ""
    decisive_step: int | None = None
    decisive_agent: str | None = None
    outcome: bool | None = None
    meta: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self):
        step = self.decisive_step
        if not self.turns:
            raise AuditError(f"trajectory {self.id!r}: turns=(): expected at least one turn")
        if step is not None and (type(step) is not int or not 0 <= step < len(self.turns)):
            raise AuditError(
                f"trajectory {self.id!r}: decisive_step={step!r}: expected an int in 0..{len(self.turns) - 1}"
            )
        if step is None and self.decisive_agent is not None:
            raise AuditError(
                f"trajectory {self.id!r}: decisive_agent={self.decisive_agent!r}: expected None without a step"
            )

    def __len__(self) -> int:
        return len(self.turns)

    def prefix(self, k: int) -> tuple[Turn, ...]:
        """Turns 0..k inclusive, all that an auditor may see after turn k."""
        return self.turns[: k + 1]

    @property
    def roles(self) -> frozenset[str]:
        """Every speaker of the run."""
        return frozenset(turn.role for turn in self.turns)


def normalize_agent(name: str) -> str:
    """The speaker's name without a recipient: "Orchestrator (-> WebSurfer)" becomes "Orchestrator"."""
    return name.split(" (", 1)[0].strip()
