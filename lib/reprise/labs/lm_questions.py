"""Questions of the two worlds as choices: one house word, the right condition or step among five, and notes about it.

Only questions with one condition are asked, so that one choice answers them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprise.labs import pipelines, sqlworld
from reprise.labs.lm_choices import Choice, KeptChoices, Messages
from reprise.labs.pipelines import PipelineWorld
from reprise.labs.rule_learner import RuleTuner, World
from reprise.labs.sqlworld import SqlWorld
from reprise.memory.items import Failure, Item, Prompt
from reprise.memory.notes import Note

WORLDS = {"sql": SqlWorld, "pipelines": PipelineWorld}
OPTIONS = 5
WRITTEN_FROM = 3  # questions a note is written from


def phrases(world: str, item: Item) -> tuple[str, ...]:
    """The ways in which the question's condition can be put."""
    domain = (sqlworld if world == "sql" else pipelines).DOMAINS[item.meta["domain"]]
    return domain[-1][item.meta["needed"][0]]


def phrase(world: str, item: Item) -> str:
    """The way in which it is put."""
    return next(each for each in phrases(world, item) if each in item.query)


def draw(world: str, seed: int) -> tuple[list[Item], list[Item]]:
    """Questions of the world's `draw` with one condition, each with five conditions of its domain to choose from.

    `meta["options"]` holds them, the right one at a random place.
    """
    stage, rng = WORLDS[world](), np.random.default_rng([seed, 23])
    parts = []
    for items in stage.draw(seed):
        chosen = []
        for item in items:
            if len(item.meta["needed"]) == 1:
                (right,) = item.meta["needed"]
                others = sorted(stage.all_parts(item.meta["domain"]) - {right})
                options = [right, *(others[k] for k in rng.choice(len(others), OPTIONS - 1, replace=False))]
                options = tuple(options[k] for k in rng.permutation(OPTIONS))
                chosen.append(replace(item, meta={**item.meta, "options": options, "world": world}))
        parts.append(chosen)
    return parts[0], parts[1]


def asked(item: Item, text: str) -> tuple[Messages, list[str], str]:
    """(messages, options, prefix) that put a question to the model; `text` is the question, with notes or without."""
    domain = item.meta["domain"]
    if item.meta["world"] == "sql":
        table, _, measures, _ = sqlworld.DOMAINS[domain]
        system = f"You write SQL for the table {table} ({', '.join([*measures, *sqlworld.COLUMNS[domain]])})."
        prefix = f"SELECT {item.meta['head']} FROM {table} WHERE"
    else:
        system = f"You prepare lists. The steps are: {', '.join(pipelines.DOMAINS[domain][1])}."
        prefix = "The step is:"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return messages, [f" {option}" for option in item.meta["options"]], prefix


def decide(choices: KeptChoices, item: Item, text: str) -> tuple[str, Choice]:
    """(the condition or step chosen, how)."""
    found = choices.choose(*asked(item, text))
    return item.meta["options"][found.chosen], found


@dataclass
class ChoosingPolicy:
    """`Policy` of a language model that picks one of the item's options and answers with it."""

    world: World
    choices: KeptChoices
    done: Callable[[], object] = lambda: None

    def answer(self, prompts: Sequence[Prompt]) -> list[str | None]:
        # prompts with the same notes follow one another, so that the model reads the notes once
        order = sorted(range(len(prompts)), key=lambda k: (prompts[k].item.meta["domain"], prompts[k].text))
        found: list[str | None] = [None] * len(prompts)
        for k in order:
            part, _ = decide(self.choices, prompts[k].item, prompts[k].text)
            found[k] = self.world.compose(prompts[k].item, frozenset([part]))
            self.done()
        return found


def note_about(
    world: str, domain: str, part: str, pool: Sequence[Item], like: Item | None = None, same_words: bool = False
) -> Note | None:
    """A note about a condition, written by the rule learner from questions of a pool.

    Args:
        like: a question about the condition that the note is not written from.
        same_words: whether one question of the note puts the condition as `like` does, or none.

    Returns:
        None where the pool has no such question, or nothing in them tells the condition from the others.
    """
    about = [item for item in pool if item.meta["domain"] == domain]
    positive = [item for item in about if item.meta["needed"] == (part,)]
    other = [item for item in about if item.meta["needed"] != (part,)]
    if like is not None:
        own = phrase(world, like)
        first = [item for item in positive if own in item.query and item.query != like.query][:1]
        if same_words and not first:
            return None
        positive = first * same_words + [item for item in positive if own not in item.query]
    failures = [Failure(item, "") for item in positive[:WRITTEN_FROM]]
    if not failures:
        return None
    tuner = RuleTuner(WORLDS[world]())
    draft = tuner.extract(tuner.subjects(failures)[0], failures, other)
    return draft and Note(draft.subject, draft.guidance, payload=draft.payload)


def one_line(note: Note) -> str:
    """The note in one sentence: its rule alone."""
    return f"Note: {note.guidance.correct_approach}."
