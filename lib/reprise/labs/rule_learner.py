"""A learner without a language model: a frozen policy that obeys hints, and a tuner that induces them from failures.

An answer is a set of parts (clauses of a query, steps of a pipeline). The policy can read some phrases; for the rest it
obeys structured hints: where a trigger phrase occurs, add a part. The tuner sees which part a wrong answer lacks and
generalises the questions that need it to phrases that tell them from the others of the batch.

ASSUMED: the policy obeys a hint whose trigger occurs; hints can express the missing part; the right answer's parts are
known (supervised). EMERGES: which trigger is induced, whether it carries over to unseen questions, what batch size,
repetition, merging and the gate do, and which notes crowd each other out in retrieval.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from reprise.memory.items import Draft, Failure, Item, Prompt
from reprise.memory.notes import Guidance, Note

LONGEST = 4  # tokens of a trigger
FALSE_POSITIVE = 2  # how many right matches a wrong one outweighs; our choice
KEPT = 12  # questions a note keeps of each kind


@lru_cache(maxsize=100_000)
def tokens(text: str) -> tuple[str, ...]:
    """Lower-case words of a question."""
    return tuple(re.findall(r"[a-z0-9]+", text.lower()))


@lru_cache(maxsize=100_000)
def ngrams(text: str) -> frozenset[tuple[str, ...]]:
    """All phrases of up to `LONGEST` words."""
    words = tokens(text)
    return frozenset(words[k : k + n] for n in range(1, LONGEST + 1) for k in range(len(words) - n + 1))


def induce(positives: Sequence[str], negatives: Sequence[str], explained: frozenset[str]) -> list[tuple[str, ...]]:
    """Phrases that occur in the positives and not in the negatives, fewest first: a greedy cover.

    Each phrase is the one of largest (positives matched) - 2 (negatives matched) among those left; ties go to the
    longer, then to the alphabetically first. It neither starts nor ends with a word the policy can explain by itself.
    """
    left, found = set(range(len(positives))), []
    while left:
        candidates = {gram for k in left for gram in ngrams(positives[k])}
        scored = []
        for gram in candidates:
            if gram[0] in explained or gram[-1] in explained:
                continue
            hits = sum(gram in ngrams(positives[k]) for k in left)
            misses = sum(gram in ngrams(text) for text in negatives)
            scored.append((-(hits - FALSE_POSITIVE * misses), -len(gram), gram))
        if not scored or min(scored)[0] >= 0:
            return found
        best = min(scored)[2]
        found.append(best)
        left -= {k for k in left if best in ngrams(positives[k])}
    return found


@dataclass(frozen=True)
class Hint:
    """In a domain, where one of the triggers occurs, add a part; with the questions it was induced from."""

    domain: str
    part: str
    triggers: tuple[tuple[str, ...], ...]
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()

    def applies(self, domain: str, question: str) -> bool:
        return domain == self.domain and any(trigger in ngrams(question) for trigger in self.triggers)

    def to_payload(self) -> str:
        return json.dumps(self.__dict__, sort_keys=True)

    @classmethod
    def from_payload(cls, text: str) -> Hint | None:
        value = json.loads(text)
        if not isinstance(value, dict):
            return None
        triggers = tuple(tuple(trigger) for trigger in value["triggers"])
        return cls(value["domain"], value["part"], triggers, tuple(value["positives"]), tuple(value["negatives"]))


class World:
    """What a domain must offer; `sqlworld` and `pipelines` do.

    Attributes:
        explained: words the policy reads by itself.
    """

    explained: frozenset[str]

    def read(self, item: Item) -> frozenset[str]:
        """Parts the policy finds in the question without any note."""
        raise NotImplementedError

    def needed(self, item: Item) -> frozenset[str]:
        """Parts of the right answer."""
        raise NotImplementedError

    def compose(self, item: Item, parts: frozenset[str]) -> str:
        """The answer made of these parts."""
        raise NotImplementedError

    def parts(self, item: Item, answer: str) -> frozenset[str]:
        """Parts of an answer."""
        raise NotImplementedError


@dataclass
class HintPolicy:
    """Answers from what it reads and from the hints of its notes, right or wrong."""

    world: World

    def answer(self, prompts: Sequence[Prompt]) -> list[str | None]:
        return [self._one(prompt) for prompt in prompts]

    def _one(self, prompt: Prompt) -> str:
        parts = set(self.world.read(prompt.item))
        for note in prompt.notes:
            hint = Hint.from_payload(note.payload)
            if hint and hint.applies(prompt.item.meta["domain"], prompt.item.query):
                parts.add(hint.part)
        return self.world.compose(prompt.item, frozenset(parts))


@dataclass
class RuleTuner:
    """Induces one hint a cluster from the questions that need its part and those that do not.

    Attributes:
        generalise: off, a note fits its own questions word for word (a placebo of generalisation).
        cluster: off, every failure is a cluster of its own.
        questions: item id -> query of what it has seen.
    """

    world: World
    generalise: bool = True
    cluster: bool = True
    questions: dict[str, str] = field(default_factory=dict)
    _labels: dict[str, tuple[str, str]] = field(default_factory=dict)

    def subjects(self, failures: Sequence[Failure]) -> list[str]:
        found = []
        for k, failure in enumerate(failures):
            self.questions[failure.item.id] = failure.item.query
            missing = self.world.needed(failure.item) - self.world.parts(failure.item, failure.answer or "")
            part = min(missing, default="")
            label = f"{failure.item.meta['domain']}: {part}" + ("" if self.cluster else f" [{k}]")
            self._labels[label] = (failure.item.meta["domain"], part)
            found.append(label)
        return found

    def extract(self, subject: str, failures: Sequence[Failure], passed: Sequence[Item]) -> Draft | None:
        domain, part = self._labels[subject]
        if not part:
            return None  # nothing is missing: a note that did not apply has added too much
        self.questions |= {item.id: item.query for item in passed}
        others = [item for item in passed if part not in self.world.needed(item)]
        return self._draft(domain, part, [f.item.id for f in failures], [item.id for item in others])

    def merge(self, existing: Sequence[Note], draft: Draft) -> Draft | None:
        """Generalises again over the questions of all notes that are about the same part; others are left alone."""
        new = Hint.from_payload(draft.payload)
        old = [Hint.from_payload(note.payload) for note in existing]
        if new is None or any(hint is None or (hint.domain, hint.part) != (new.domain, new.part) for hint in old):
            return None
        positives = [id for hint in [*old, new] for id in hint.positives]
        negatives = [id for hint in [*old, new] for id in hint.negatives]
        return self._draft(new.domain, new.part, positives, negatives)

    def _draft(self, domain: str, part: str, positives: Sequence[str], negatives: Sequence[str]) -> Draft | None:
        positives, negatives = (list(dict.fromkeys(ids))[-KEPT:] for ids in (positives, negatives))
        texts = [[self.questions[id] for id in ids] for ids in (positives, negatives)]
        if self.generalise:
            triggers = induce(texts[0], texts[1], self.world.explained)
        else:
            triggers = [max(ngrams(text), key=lambda gram: (len(gram), gram)) for text in texts[0]]
        if not triggers:
            return None
        hint = Hint(domain, part, tuple(triggers), tuple(positives), tuple(negatives))
        phrases = ", ".join(" ".join(trigger) for trigger in triggers)
        guidance = Guidance(
            tuple(f"{text} -> {part}" for text in texts[0][:3]),
            f"where the question says {phrases}, add {part}",
            f"{part} was left out",
            f"in {domain}, these words mean {part}",
            f"leave it out where the words do not occur; seen without it: {len(negatives)} questions",
        )
        return Draft(f"{domain}: {phrases}", guidance, hint.to_payload())


def garbled(tuner: RuleTuner, rng, share: float, per_batch: bool = True):
    """A tuner some of whose corrections are random: with probability `share` a batch (or a cluster) gets wrong parts.

    Returns:
        an object with the tuner's methods; its randomness comes from `rng` alone.
    """

    class Garbled(RuleTuner):
        spoilt = False

        def subjects(self, failures):
            self.spoilt = rng.random() < share
            return super().subjects(failures)

        def extract(self, subject, failures, passed):
            domain, part = self._labels[subject]
            if self.spoilt if per_batch else rng.random() < share:
                others = sorted(self.world.all_parts(domain) - {part})
                self._labels[subject] = (domain, others[rng.integers(len(others))])
            return super().extract(subject, failures, passed)

    return Garbled(tuner.world, tuner.generalise, tuner.cluster, tuner.questions)
