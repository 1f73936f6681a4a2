"""The loop of Mistake Notebook Learning in worlds that execute, with every mechanism as a switch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from reprise.labs.pipelines import PipelineWorld
from reprise.labs.rule_learner import Hint, HintPolicy, RuleTuner, garbled
from reprise.labs.sqlworld import SqlWorld
from reprise.memory.credit import leave_one_out
from reprise.memory.embedders import HashedNgrams, MiniLM
from reprise.memory.items import Item
from reprise.memory.loop import MistakeNotebook
from reprise.memory.retrieval import Index
from reprise.memory.settings import Config
from reprise.memory.store import EmbeddingSpace, NoteStore, Snapshot
from reprise.memory.working import Working

WORLDS = {"sql": SqlWorld, "pipelines": PipelineWorld}
# thresholds belong to a space; chosen on the design seeds 0-3: notes about one part merge, others rarely meet
SPACES = {"hashed": (HashedNgrams, 0.0, 0.5), "minilm": (MiniLM, 0.0, 0.6)}
CALLS = ("tuner", "policy", "embed")


class RandomVectors:
    """An embedder without meaning: a direction for each text, drawn from its bytes. The placebo of retrieval."""

    space = EmbeddingSpace("random", "1", 64)

    def encode(self, texts: list[str]) -> np.ndarray:
        rows = [np.random.default_rng(list(text.encode())).normal(size=self.space.dim) for text in texts]
        return np.array(rows, np.float32).reshape(len(texts), self.space.dim)


_LOADED: dict[str, object] = {}


def embedder(name: str):
    """(embedder, retrieval threshold, merge threshold) by name, loaded once."""
    kind, threshold, merge = SPACES.get(name, (RandomVectors, -1.0, 0.5))
    if name not in _LOADED:
        _LOADED[name] = kind()
    return _LOADED[name], threshold, merge


def learn(
    seed: int,
    world: str = "sql",
    *,
    batch: int = 16,
    top_k: int = 4,
    epochs: int = 1,
    merging: str = "replace",
    gate="delta",
    flip: float = 0.0,
    garbage: float = 0.0,
    per_batch: bool = True,
    generalise: bool = True,
    cluster: bool = True,
    space: str = "hashed",
    top_ks: Sequence[int] = (),
    test_on_train: bool = False,
) -> list[dict]:
    """One run of the loop: learn from the world's questions, then answer them and the unseen ones with the exact judge.

    Args:
        flip: probability that a judgement in the loop is wrong.
        garbage: share of batches (or clusters, with per_batch=False) whose corrections are random.
        generalise, cluster: off for the placebos of generalisation.
        top_ks: further retrieval widths at which the final memory is tested.
        test_on_train: the placebo of repetition.

    Returns:
        one row an epoch (and one for each of `top_ks`): epoch, top_k, vanilla, train, test, scrambled (test with the
        hints' triggers permuted), notes, guidance (characters), tuner, policy, embed (calls so far), accepted, batches.
    """
    stage, (encoder, threshold, merge) = WORLDS[world](), embedder(space)
    train, test = stage.draw(seed)
    test = train if test_on_train else test
    rng = np.random.default_rng([seed, 17])
    tuner = RuleTuner(stage, generalise, cluster)
    tuner = garbled(tuner, rng, garbage, per_batch) if garbage else tuner
    config = Config(batch=batch, top_k=top_k, threshold=threshold, merge_threshold=merge, merging=merging, gate=gate)

    def noisy(item: Item, answer: str) -> float:
        return abs(stage.judge(item, answer) - (rng.random() < flip)) if flip else stage.judge(item, answer)

    rows = []
    with tempfile.TemporaryDirectory() as folder, NoteStore(Path(folder) / "notes", encoder.space) as store:
        book = MistakeNotebook(HintPolicy(stage), tuner, noisy, store, encoder, config)
        exact = MistakeNotebook(HintPolicy(stage), tuner, stage.judge, store, encoder, config)
        vanilla, reports = exact.evaluate(test).accuracy(), []
        for epoch in range(1, epochs + 1):
            reports += book.fit(train)
            row = {"seed": seed, "epoch": epoch, "top_k": top_k, "vanilla": vanilla}
            row |= {"notes": len(store.snapshot().notes), **{name: book.calls[name] for name in CALLS}}
            row |= {"accepted": sum(report.accepted for report in reports), "batches": len(reports)}
            rows.append(row | _scores(exact, train, test, seed))
        for width in top_ks:
            exact.config = replace(config, top_k=width)
            rows.append({**rows[epochs - 1], "top_k": width, **_scores(exact, train, test, seed)})
    return rows


def _scores(book: MistakeNotebook, train: list[Item], test: list[Item], seed: int) -> dict[str, float]:
    snapshot, unseen = book.store.snapshot(), book.evaluate(test)
    return {
        "train": book.evaluate(train).accuracy(),
        "test": unseen.accuracy(),
        "scrambled": book.evaluate(test, _scrambled(snapshot, seed)).accuracy(),
        "guidance": unseen.guidance_characters,
    }


def _scrambled(snapshot: Snapshot, seed: int) -> Working:
    """The same notes, found by the same subjects, with their triggers handed round: the placebo of what was learned."""
    hints = [Hint.from_payload(note.payload) for note in snapshot.notes]
    order = np.random.default_rng([seed, 19]).permutation(len(hints))
    notes = [
        replace(note, payload=replace(hint, triggers=hints[k].triggers).to_payload())
        for note, hint, k in zip(snapshot.notes, hints, order, strict=True)
    ]
    return Working(tuple(notes), snapshot.vectors)


def table(seeds: Iterable[int], settings: Iterable[dict]) -> pd.DataFrame:
    """`learn` for every setting and seed, one row after another, with the setting's values as columns."""
    return pd.DataFrame([{**row, **chosen} for chosen in settings for seed in seeds for row in learn(seed, **chosen)])


def credits(seed: int) -> pd.DataFrame:
    """Leave-one-out credit of each note of one run of SQL questions, over the unseen questions.

    Returns:
        columns subject, used, gains, harms; most useful first.
    """
    stage, (encoder, threshold, merge) = WORLDS["sql"](), embedder("hashed")
    train, test = stage.draw(seed)
    config = Config(batch=16, top_k=4, threshold=threshold, merge_threshold=merge)
    with tempfile.TemporaryDirectory() as folder, NoteStore(Path(folder) / "notes", encoder.space) as store:
        book = MistakeNotebook(HintPolicy(stage), RuleTuner(stage), stage.judge, store, encoder, config)
        book.fit(train)
        found = leave_one_out(book, test)
    return pd.DataFrame(
        [(c.subject, c.used, c.gains, c.harms) for c in found], columns=["subject", "used", "gains", "harms"]
    )


def instances(seeds: Iterable[int], top_ks: Sequence[int], checked: bool) -> pd.DataFrame:
    """Memory of raw mistakes: each failed SQL question with its correction, all of it applied when it is found.

    A simple stand-in for instance-level memories, not a published one.

    Args:
        checked: apply a correction only where a phrase of its question occurs in the new one (four words, or all).

    Returns:
        columns seed, top_k, test, notes, guidance (characters).
    """
    stage, (encoder, threshold, _), rows = WORLDS["sql"](), embedder("hashed"), []
    for seed in seeds:
        train, test = stage.draw(seed)
        kept = [item for item in train if not stage.judge(item, stage.compose(item, stage.read(item)))]
        index = Index(encoder.encode([item.query for item in kept]))
        queries = encoder.encode([item.query for item in test])
        for k in top_ks:
            found = [[kept[hit.row] for hit in hits] for hits in index.search(queries, k, threshold)]
            right, length = [], []
            for item, near in zip(test, found, strict=True):
                near = [other for other in near if other.meta["domain"] == item.meta["domain"]]
                near = [other for other in near if not checked or _shares_phrase(other.query, item.query)]
                parts = stage.read(item).union(*(stage.needed(other) for other in near))
                right.append(stage.judge(item, stage.compose(item, parts)))
                length.append(sum(len(other.query) + len(other.reference) for other in near))
            row = {"seed": seed, "top_k": k, "test": np.mean(right), "notes": len(kept), "guidance": np.mean(length)}
            rows.append(row)
    return pd.DataFrame(rows)


def _shares_phrase(one: str, other: str) -> bool:
    from reprise.labs.rule_learner import LONGEST, ngrams

    return any(len(gram) == LONGEST for gram in ngrams(one) & ngrams(other))
