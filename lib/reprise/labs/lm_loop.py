"""The loop of Mistake Notebook Learning with a real language model as the reader of notes, and as their writer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from reprise.labs.lm_choices import KeptChoices
from reprise.labs.lm_questions import WORLDS, ChoosingPolicy, draw
from reprise.labs.memory_experiments import embedder
from reprise.labs.rule_learner import Hint, RuleTuner, garbled
from reprise.memory.items import Failure, Item
from reprise.memory.loop import MistakeNotebook
from reprise.memory.settings import BatchReport, Config, Evaluation
from reprise.memory.store import NoteStore, Snapshot
from reprise.memory.tuner import ChatTuner
from reprise.memory.working import Working

BATCH, BATCHES, UNSEEN = 16, 2, 40
SPACE, THRESHOLD, TOP_K = "minilm", 0.4, 1  # chosen on the design seeds 0-2, from retrieval alone


def loop(
    choices: KeptChoices,
    world: str,
    seed: int,
    batches: int = BATCHES,
    unseen: int = UNSEEN,
    space: str = SPACE,
    done: Callable[[], object] = lambda: None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Learn from some batches, then answer unseen questions without notes, with them, and with scrambled ones.

    The gate is then shown the first batch again, from an empty memory, with notes that are about wrong conditions.

    Returns:
        (answers: world, seed, item, memory ("none", "notes", "scrambled"), right, found (a note was retrieved),
        relevant (it is about the question's condition); decisions: world, seed, batch, tuner ("rule", "garbled"),
        wins, losses, ties, outcome, notes).
    """
    stage, (encoder, _, merge) = WORLDS[world](), embedder(space)
    train, test = draw(world, seed)
    train, test = train[: BATCH * batches], test[:unseen]
    config = Config(batch=BATCH, top_k=TOP_K, threshold=THRESHOLD, merge_threshold=merge)
    policy = ChoosingPolicy(stage, choices, done)
    with tempfile.TemporaryDirectory() as folder, NoteStore(Path(folder) / "notes", encoder.space) as store:
        book = MistakeNotebook(policy, RuleTuner(stage), stage.judge, store, encoder, config)
        decisions = [_decision(report, k, "rule") for k, report in enumerate(book.fit(train), 1)]
        snapshot = store.snapshot()
        memories = {"none": Working((), snapshot.vectors[:0]), "notes": Working.of(snapshot)}
        memories["scrambled"] = scrambled(snapshot, seed)
        answers = [row for name, memory in memories.items() for row in _answers(book.evaluate(test, memory), name)]
    with tempfile.TemporaryDirectory() as folder, NoteStore(Path(folder) / "notes", encoder.space) as store:
        tuner = garbled(RuleTuner(stage), np.random.default_rng([seed, 31]), share=1.0)
        report = MistakeNotebook(policy, tuner, stage.judge, store, encoder, config).step(train[:BATCH])
        decisions.append(_decision(report, 1, "garbled"))
    labels = {"world": world, "seed": seed}
    return pd.DataFrame([labels | row for row in answers]), pd.DataFrame([labels | row for row in decisions])


def scrambled(snapshot: Snapshot, seed: int) -> Working:
    """The same subjects, found as before, each with another note's guidance: the placebo of what was learned."""
    order = np.random.default_rng([seed, 37]).permutation(len(snapshot.notes))
    after = dict(zip(order, np.roll(order, 1), strict=True))  # one cycle: no note keeps its own
    notes = [replace(note, guidance=snapshot.notes[after[k]].guidance) for k, note in enumerate(snapshot.notes)]
    return Working(tuple(notes), snapshot.vectors)


def _answers(found: Evaluation, memory: str) -> list[dict]:
    return [
        {
            "item": item.id,
            "memory": memory,
            "right": int(reward or 0),
            "found": int(bool(prompt.notes)),
            "relevant": int(any(Hint.from_payload(n.payload).part in item.meta["needed"] for n in prompt.notes)),
        }
        for item, prompt, reward in zip(found.items, found.prompts, found.rewards, strict=True)
    ]


def _decision(report: BatchReport, batch: int, tuner: str) -> dict:
    counts = {"wins": 0, "losses": 0, "ties": 0}
    if report.comparisons:
        (last,) = report.comparisons
        counts = {"wins": last.wins, "losses": last.losses, "ties": last.ties}
    return {"batch": batch, "tuner": tuner, **counts, "outcome": report.outcome, "notes": len(report.added)}


def written(choices: KeptChoices, world: str, seed: int, clusters: int = 8, max_new_tokens: int = 200) -> pd.DataFrame:
    """The model itself as tuner: it names subjects once, and writes a note for each of some clusters.

    Clusters are the questions of a seed by condition, largest first, as if each had been answered with another option.

    Returns:
        columns cluster, failures, valid (a note with five parts came), asked (replies), and repairs by name.
    """
    by_part: dict[tuple, list[Item]] = {}
    for item in draw(world, seed)[0]:
        by_part.setdefault((item.meta["domain"], *item.meta["needed"]), []).append(item)
    largest = sorted(by_part.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:clusters]
    groups = [[_failed(world, item) for item in items[:2]] for _, items in largest]
    rows = [_wrote(choices, "(subjects)", [group[0] for group in groups[:4]], max_new_tokens)]
    for (domain, part), failures in zip([key for key, _ in largest], groups, strict=True):
        rows.append(_wrote(choices, f"{domain}: {part}", failures, max_new_tokens))
    return pd.DataFrame(rows).fillna(0)


def _failed(world: str, item: Item) -> Failure:
    wrong = next(option for option in item.meta["options"] if option not in item.meta["needed"])
    return Failure(item, WORLDS[world]().compose(item, frozenset([wrong])))


def _wrote(choices: KeptChoices, cluster: str, failures: Sequence[Failure], max_new_tokens: int) -> dict:
    replies = []

    def ask(prompt: str, temperature: float, sample: int = 0) -> str:
        replies.append(choices.write(prompt, temperature, max_new_tokens, seed=sample))
        return replies[-1]

    tuner = ChatTuner(ask, parse_retries=1)
    if cluster == "(subjects)":
        valid = not tuner.subjects(failures)[0].startswith("unclassified")
    else:
        valid = tuner.extract(cluster, failures, []) is not None
    row = {"cluster": cluster, "failures": len(failures), "valid": int(valid), "asked": len(replies)}
    return row | {name.replace(" ", "_"): int(count) for name, count in tuner.repairs.items()}
