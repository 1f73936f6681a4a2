"""Settings of the loop, and what it reports."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from reprise.memory.errors import MemoryFault
from reprise.memory.gate import Comparison, SequentialGate, compare
from reprise.memory.items import Item, Prompt


@dataclass(frozen=True)
class Config:
    """Settings of the loop.

    Attributes:
        batch: questions a batch (paper: 16 in its main runs).
        top_k, threshold: notes retrieved a question, and the least cosine, which belongs to one embedding space.
        merge_top_k, merge_threshold: notes a new one may replace, and the least cosine to its subject.
        close: weight of a win in Delta_B (our choice 1: the released code commits when wins exceed losses).
        success_threshold: a reward counts as success from here on (our choice).
        limit: characters a note may take in a prompt.
        ask_applicability: whether the prompt asks to check each note first.
        supervised: whether items must have references.
        gate: "delta" (the paper), "always" (no gate, for ablations), or a `SequentialGate`.
        judge_flip: probability that one judgement is wrong, where it is known; states `BatchReport.false_accept`.
        cluster_scope: "failures" (the paper) or "all": subjects are asked for every item of the batch.
        merging: "replace" (the paper) or "append": the new note is added and the old ones stay.
        missing: "loss" (our choice) or "ignore": an item without an answer leaves the comparison.
    """

    batch: int = 16
    top_k: int = 4
    threshold: float = 0.6
    merge_top_k: int = 3
    merge_threshold: float = 0.9
    close: int | str | Fraction = 1
    success_threshold: float = 0.5
    limit: int = 2048
    ask_applicability: bool = True
    supervised: bool = True
    gate: str | SequentialGate = "delta"
    judge_flip: float | None = None
    cluster_scope: str = "failures"
    merging: str = "replace"
    missing: str = "loss"

    def __post_init__(self):
        for name, low in (("batch", 1), ("top_k", 0), ("merge_top_k", 0), ("limit", 1)):
            if getattr(self, name) < low:
                raise MemoryFault(f"{name}={getattr(self, name)}: expected at least {low}")
        choices = {
            "cluster_scope": ("failures", "all"),
            "merging": ("replace", "append"),
            "missing": ("loss", "ignore"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise MemoryFault(f"{name}={getattr(self, name)!r}: expected one of {', '.join(allowed)}")
        if not isinstance(self.gate, SequentialGate) and self.gate not in ("delta", "always"):
            raise MemoryFault(f"gate={self.gate!r}: expected delta, always or a SequentialGate")
        compare([], [], self.close)


# snapshot dc7de75 of the released code: where it does something else than the paper says
PUBLIC_CODE = {"cluster_scope": "all", "merging": "append", "missing": "ignore"}


@dataclass(frozen=True)
class BatchReport:
    """What became of a batch.

    Attributes:
        outcome: "no failures", "nothing to add", "accepted" or "rolled back".
        comparisons: before and after, one for each evaluation the gate asked for.
        clusters: subject -> failures in it.
        added, superseded: ids of notes, as committed.
        invalid: clusters whose note was not valid.
        unknown: items the judge could not judge before the change.
        false_accept: probability that a change of no use reaches the delta seen, for a known `judge_flip`.
        version: of the store afterwards.
        calls: questions answered, answers judged, tuner calls, embedding requests.
    """

    outcome: str
    comparisons: tuple[Comparison, ...] = ()
    clusters: dict[str, int] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    invalid: int = 0
    unknown: int = 0
    false_accept: float | None = None
    version: int = 0
    calls: Counter = field(default_factory=Counter)

    @property
    def accepted(self) -> bool:
        return self.outcome == "accepted"


@dataclass(frozen=True)
class Evaluation:
    """Answers with the memory as it stands; rewards hold None where the judge failed or no answer came."""

    items: tuple[Item, ...]
    prompts: tuple[Prompt, ...]
    answers: tuple[str | None, ...]
    rewards: tuple[float | None, ...]

    def accuracy(self, success_threshold: float = 0.5) -> float:
        """Share of items answered rightly; an item without a reward counts as wrong."""
        right = sum(reward is not None and reward >= success_threshold for reward in self.rewards)
        return right / len(self.rewards) if self.rewards else 0.0

    @property
    def guidance_characters(self) -> float:
        """Mean characters that notes add to a prompt."""
        added = [len(prompt.text) - len(prompt.item.query) for prompt in self.prompts]
        return sum(added) / len(added) if added else 0.0
