"""The loop: answer a batch, turn its failures into notes, answer again, keep the notes if the batch got better.

Mistake Notebook Learning, section 3. `settings.Config()` follows the paper; `settings.PUBLIC_CODE` names where the
released code departs from it. Whatever the paper leaves open is marked there as our choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reprise.memory import prompts
from reprise.memory.errors import EmbeddingSpaceError, MemoryFault
from reprise.memory.gate import Comparison, SequentialGate, compare, false_accept
from reprise.memory.items import Draft, Embedder, Failure, Item, Judge, Policy, Prompt, Tuner, check_items
from reprise.memory.notes import Evidence, Note
from reprise.memory.settings import BatchReport, Config, Evaluation
from reprise.memory.store import NoteStore
from reprise.memory.working import Working


class MistakeNotebook:
    """The loop over one store.

    Args:
        policy, tuner, judge, embedder: see `reprise.memory.items`; a judge that raises leaves its item unknown.
        store: where accepted notes go; of the embedder's space.

    Raises:
        EmbeddingSpaceError: embedder and store are of different spaces.
    """

    def __init__(
        self,
        policy: Policy,
        tuner: Tuner,
        judge: Judge,
        store: NoteStore,
        embedder: Embedder,
        config: Config | None = None,
    ):
        if embedder.space != store.space:
            raise EmbeddingSpaceError(f"embedder of {embedder.space}: expected {store.space}, the store's")
        self.policy, self.tuner, self.judge = policy, tuner, judge
        self.store, self.embedder, self.config = store, embedder, config or Config()
        self.calls: Counter[str] = Counter()
        self._vectors: dict[str, np.ndarray] = {}

    def fit(self, items: Sequence[Item], epochs: int = 1, rng: np.random.Generator | None = None) -> list[BatchReport]:
        """Batches in order, or in an order drawn anew each epoch where `rng` is given."""
        check_items(items, self.config.supervised)
        reports = []
        for _ in range(epochs):
            order = range(len(items)) if rng is None else rng.permutation(len(items))
            ordered = [items[k] for k in order]
            size = self.config.batch
            reports += [self.step(ordered[start : start + size]) for start in range(0, len(ordered), size)]
        return reports

    def evaluate(self, items: Sequence[Item], memory: Working | None = None) -> Evaluation:
        """Answer and judge with the memory as it stands, or with another one; nothing changes."""
        return self._run(items, Working.of(self.store.snapshot()) if memory is None else memory)

    def step(self, batch: Sequence[Item]) -> BatchReport:
        """One batch. The store changes only if the change is accepted.

        Raises:
            MemoryFault: an item that cannot be used, before any model call.
        """
        check_items(batch, self.config.supervised)
        calls = Counter(self.calls)
        # a fixed order, so that the order inside a batch decides nothing
        items = sorted(batch, key=lambda item: item.id)
        snapshot = self.store.snapshot()
        memory = Working.of(snapshot)
        before = self._run(items, memory)
        report = self._learn(items, memory, before, snapshot.version)
        return replace(report, unknown=before.rewards.count(None), calls=self.calls - calls)

    def _learn(self, items: list[Item], memory: Working, before: Evaluation, version: int) -> BatchReport:
        failures = self._failures(before)
        if not failures:
            return BatchReport("no failures", version=version)
        clusters = self._clusters(before, failures)
        passed = [item for item, ok in zip(items, map(self._success, before.rewards), strict=True) if ok]
        drafts = []
        for subject, members in clusters.items():
            self.calls["tuner"] += 1
            drafts.append(self.tuner.extract(subject, members, passed))
        sizes = {subject: len(members) for subject, members in clusters.items()}
        report = BatchReport("nothing to add", clusters=sizes, invalid=drafts.count(None), version=version)
        evidence = [_evidence(members, passed) for members in clusters.values()]
        new = [(draft, e) for draft, e in zip(drafts, evidence, strict=True) if draft is not None]
        if not new:
            return report
        candidate = self._candidate(memory, new)
        comparisons = self._compare(items, before, candidate)
        report = replace(report, comparisons=tuple(comparisons), false_accept=self._chance(comparisons))
        if not self._accepts(comparisons):
            return replace(report, outcome="rolled back")
        operations = memory.operations_to(candidate)
        old, here = {note.id for note in memory.notes}, {note.id for note in candidate.notes}
        version = self.store.commit(operations, version) if operations else version
        added = tuple(note.id for note in candidate.notes if note.id not in old)
        gone = tuple(note.id for note in memory.notes if note.id not in here)
        return replace(report, outcome="accepted", added=added, superseded=gone, version=version)

    def _failures(self, before: Evaluation) -> list[Failure]:
        triples = zip(before.items, before.answers, before.rewards, strict=True)
        return [
            Failure(item, answer)
            for item, answer, reward in triples
            if reward is not None and not self._success(reward)
        ]

    def _success(self, reward: float | None) -> bool:
        return reward is not None and reward >= self.config.success_threshold

    def _clusters(self, before: Evaluation, failures: list[Failure]) -> dict[str, list[Failure]]:
        """Failures by subject, subjects sorted."""
        asked = failures
        if self.config.cluster_scope == "all":
            asked = [Failure(item, answer) for item, answer in zip(before.items, before.answers, strict=True)]
        self.calls["tuner"] += 1
        named = dict(zip((each.item.id for each in asked), self.tuner.subjects(asked), strict=True))
        clusters: dict[str, list[Failure]] = {}
        for failure in failures:
            clusters.setdefault(named[failure.item.id], []).append(failure)
        return dict(sorted(clusters.items()))

    def _candidate(self, memory: Working, drafts: list[tuple[Draft, Evidence]]) -> Working:
        """The memory with the new notes, each merged with its nearest ones or appended."""
        self._embed([draft.subject for draft, _ in drafts])
        for draft, evidence in drafts:
            vector = self._vectors[draft.subject]
            near = memory.search(vector[None], self.config.merge_top_k, self.config.merge_threshold)[0]
            merged = self._merged(near, draft) if near else None
            gone = near if merged is not None and self.config.merging == "replace" else ()
            for note in gone:
                evidence = note.evidence.merged(evidence)
            draft = draft if merged is None else merged
            self._embed([draft.subject])
            payload = dict(supersedes=tuple(sorted(note.id for note in gone)), evidence=evidence, payload=draft.payload)
            memory = memory.replaced(gone, Note(draft.subject, draft.guidance, **payload), self._vectors[draft.subject])
        return memory

    def _merged(self, near: Sequence[Note], draft: Draft) -> Draft | None:
        self.calls["tuner"] += 1
        return self.tuner.merge(near, draft)

    def _compare(self, items: list[Item], before: Evaluation, candidate: Working) -> list[Comparison]:
        """Evaluations of the candidate until the gate decides; a prompt that did not change is not asked again."""
        after = self._run(items, candidate, before)
        comparisons = [self._comparison(before, after)]
        gate = self.config.gate
        while isinstance(gate, SequentialGate) and gate.decide(comparisons) is None:
            # both sides afresh, where the prompts differ: the noise must be independent
            changed = [k for k, prompt in enumerate(after.prompts) if prompt.text != before.prompts[k].text]
            again = [self._answers([side.prompts[k] for k in changed]) for side in (before, after)]
            sides = [_with(side, changed, new) for side, new in zip((before, after), again, strict=True)]
            comparisons.append(self._comparison(*sides))
        return comparisons

    def _comparison(self, before: Evaluation, after: Evaluation) -> Comparison:
        pairs = list(zip(before.rewards, after.rewards, strict=True))
        if self.config.missing == "ignore":
            pairs = [(b, a) for b, a in pairs if b is not None and a is not None]
        first, second = [b for b, _ in pairs], [a for _, a in pairs]
        return compare(first, second, self.config.close, self.config.success_threshold)

    def _accepts(self, comparisons: list[Comparison]) -> bool:
        if isinstance(self.config.gate, SequentialGate):
            return bool(self.config.gate.decide(comparisons))
        return self.config.gate == "always" or comparisons[-1].accepted

    def _chance(self, comparisons: list[Comparison]) -> float | None:
        flip, first = self.config.judge_flip, comparisons[0]
        size = first.wins + first.losses + first.ties
        return None if flip is None else false_accept(size, first.delta, flip, self.config.close)

    def _run(self, items: Sequence[Item], memory: Working, before: Evaluation | None = None) -> Evaluation:
        """Retrieve, answer and judge; answers and rewards of unchanged prompts are taken from `before`."""
        self._embed([item.query for item in items])
        vectors = np.array([self._vectors[item.query] for item in items]).reshape(len(items), self.store.space.dim)
        found = memory.search(vectors, self.config.top_k, self.config.threshold)
        limit, ask = self.config.limit, self.config.ask_applicability
        asked = [
            Prompt(item, notes, prompts.with_notes(item.query, notes, limit, ask))
            for item, notes in zip(items, found, strict=True)
        ]
        known: dict[str, tuple] = {}
        if before:
            texts = (prompt.text for prompt in before.prompts)
            known = dict(zip(texts, zip(before.answers, before.rewards, strict=True), strict=True))
        new = [prompt for prompt in asked if prompt.text not in known]
        known |= zip((prompt.text for prompt in new), self._answers(new), strict=True)
        pairs = [known[prompt.text] for prompt in asked]
        return Evaluation(tuple(items), tuple(asked), tuple(a for a, _ in pairs), tuple(r for _, r in pairs))

    def _answers(self, asked: Sequence[Prompt]) -> list[tuple[str | None, float | None]]:
        self.calls["policy"] += len(asked)
        answers = self.policy.answer(asked) if asked else []
        return [(answer, self._reward(prompt.item, answer)) for prompt, answer in zip(asked, answers, strict=True)]

    def _reward(self, item: Item, answer: str | None) -> float | None:
        if answer is None:
            return None
        self.calls["judge"] += 1
        try:
            reward = float(self.judge(item, answer))
        except Exception:  # a judge may be a network, a database or a model; its item is unknown, and counted
            return None
        if not np.isfinite(reward):
            raise MemoryFault(f"item {item.id!r}: reward={reward}: expected a finite number")
        return reward

    def _embed(self, texts: Sequence[str]) -> None:
        new = sorted(set(texts) - self._vectors.keys())
        if new:
            self.calls["embed"] += 1
            self._vectors |= zip(new, np.asarray(self.embedder.encode(new), np.float32), strict=True)


def _evidence(members: Sequence[Failure], passed: Sequence[Item]) -> Evidence:
    return Evidence().merged(Evidence(tuple(f.item.id for f in members), tuple(item.id for item in passed)))


def _with(side: Evaluation, changed: Sequence[int], new: Sequence[tuple[str | None, float | None]]) -> Evaluation:
    answers, rewards = list(side.answers), list(side.rewards)
    for k, (answer, reward) in zip(changed, new, strict=True):
        answers[k], rewards[k] = answer, reward
    return replace(side, answers=tuple(answers), rewards=tuple(rewards))
