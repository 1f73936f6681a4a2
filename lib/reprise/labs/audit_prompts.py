"""Labelled runs in tokens, prompts on their prefixes, and responses to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import Verdict
from reprise.errors import RepriseError
from reprise.labs.audit_model import AuditLM, respond
from reprise.labs.audit_vocabulary import CLOSE, RESPONSE_TOKENS, VERDICT, Vocabulary

PARTS = 4


class AuditTrainingError(RepriseError):
    """A setting of the training experiments that cannot be used."""


class Prompt(NamedTuple):
    """Turns 0..last of run number `run`, and the label there: k* and a* once it is visible, else None."""

    run: int
    last: int
    step: int | None = None
    agent: str | None = None


@dataclass(frozen=True)
class Runs:
    """Labelled runs in tokens."""

    vocabulary: Vocabulary
    runs: tuple[Trajectory, ...]
    tokens: list[list[int]] = field(init=False, repr=False)
    ends: list[list[int]] = field(init=False, repr=False)

    def __post_init__(self):
        encoded = [self.vocabulary.transcript(run.turns) for run in self.runs]
        object.__setattr__(self, "tokens", [tokens for tokens, _ in encoded])
        object.__setattr__(self, "ends", [ends for _, ends in encoded])

    def prefix(self, prompt: Prompt) -> list[int]:
        return self.tokens[prompt.run][: self.ends[prompt.run][prompt.last]]

    def verdicts(self, prompt: Prompt, responses: np.ndarray) -> list[Verdict]:
        """Verdicts of responses (any, RESPONSE_TOKENS) to a prompt."""
        roles = frozenset(turn.role for turn in self.runs[prompt.run].prefix(prompt.last))
        return [self.vocabulary.parse(self.cut(row), prompt.last, roles) for row in responses]

    def cut(self, response) -> tuple[int, ...]:
        """Without what stands behind the closing word."""
        row = [int(token) for token in response]
        close = self.vocabulary.ids[CLOSE]
        return tuple(row[: row.index(close) + 1] if close in row else row)

    def sample(self, model: AuditLM, prompts: Sequence[Prompt], rng: np.random.Generator, group: int) -> np.ndarray:
        """(prompts, group, RESPONSE_TOKENS) responses drawn from the model at temperature 1."""
        prefixes = [self.prefix(prompt) for prompt in prompts]
        ends = np.repeat([[len(prefix)] for prefix in prefixes], group, axis=1)
        return respond(model, prefixes, ends, VERDICT, rng.random((*ends.shape, RESPONSE_TOKENS)))

    def by_length(self, prompts: Sequence[Prompt]) -> list[np.ndarray]:
        """Indices of prompts in a few parts of like length, since padding to the longest costs a third."""
        lengths = [self.ends[prompt.run][prompt.last] for prompt in prompts]
        return np.array_split(np.argsort(lengths, kind="stable"), min(PARTS, len(prompts)))


def draw_prompts(data: Runs, rng: np.random.Generator, count: int, p_safe: float) -> list[Prompt]:
    """Prompts of stage 2: a share `p_safe` of them with truth Safe.

    Safe prefixes come from safe runs and from the time before an error in equal parts, each uniform over all prefixes;
    the others stand at k* and later in equal parts.
    """
    unsafe = [n for n, run in enumerate(data.runs) if run.decisive_step is not None]
    early = [n for n in unsafe if data.runs[n].decisive_step > 0]
    safe = [n for n, run in enumerate(data.runs) if run.decisive_step is None]
    found = []
    for at in range(count):
        half = rng.random() < 0.5
        # the share is met in every batch up to one prompt
        if at + rng.random() < p_safe * count:
            n = int(rng.choice(safe if half else early))
            run = data.runs[n]
            found.append(Prompt(n, int(rng.integers(len(run) if half else run.decisive_step))))
        else:
            n = int(rng.choice(unsafe))
            run = data.runs[n]
            last = run.decisive_step if half else int(rng.integers(run.decisive_step, len(run)))
            found.append(Prompt(n, last, run.decisive_step, run.decisive_agent))
    return found
