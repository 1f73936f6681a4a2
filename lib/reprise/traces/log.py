"""One run as it was read: its turns, and every record that is no turn with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprise.traces.errors import TraceError
from reprise.traces.turns import Turn

MOST_TURNS = 100_000  # of one run


@dataclass(frozen=True, slots=True)
class Dropped:
    """A record that did not become a turn: its place in the source ("[3].events[7]") and why."""

    place: str
    reason: str


@dataclass(frozen=True)
class Log:
    """A run.

    Attributes:
        turns: in the order in which they became visible.
        dropped: the records that are no turn, in the order of the source.
        format: name of the format it was read in.
        run: the run's own name in its file; "" where the file holds one run and does not name it.
        meta: what the source says about the run as a whole: task, labels, model; values as they stand there.

    Raises TraceError without turns or with more than MOST_TURNS.
    """

    turns: tuple[Turn, ...]
    dropped: tuple[Dropped, ...]
    format: str
    run: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self):
        if not 0 < len(self.turns) <= MOST_TURNS:
            why = "; ".join(f"{count} x {reason}" for reason, count in self.reasons.most_common(3))
            name = f"run {self.run!r}: " if self.run else ""
            raise TraceError(
                f"{name}{len(self.turns)} turns: expected 1 to {MOST_TURNS}" + (f" ({why})" if why else "")
            )

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def reasons(self) -> Counter[str]:
        """How many records were dropped for each reason."""
        return Counter(each.reason for each in self.dropped)
