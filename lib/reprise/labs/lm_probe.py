"""Does a note change what a real language model chooses? Questions under every condition of note, length and error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from reprise.labs.lm_choices import KeptChoices
from reprise.labs.lm_questions import WORLDS, decide, draw, note_about, one_line
from reprise.labs.rule_learner import Hint
from reprise.memory.items import Item
from reprise.memory.notes import Note
from reprise.memory.prompts import with_notes
from reprise.stats import Interval, paired_bootstrap, wilson_interval

SHORT = 330  # characters of a short note
POOL = 10_000  # added to a seed: questions that notes are written from


@dataclass(frozen=True)
class Case:
    """A question and four notes.

    Attributes:
        note: about its condition, in its words among others.
        other_words: about its condition, not in its words.
        irrelevant: about another of its options.
        elsewhere: about another domain, whose conditions are no options.
    """

    item: Item
    note: Note
    other_words: Note
    irrelevant: Note
    elsewhere: Note


# condition -> prompt; the frame asks whether a note applies. Prompts that begin alike stand together
CONDITIONS: Mapping[str, Callable[[Case], str]] = {
    "none": lambda c: c.item.query,
    "line": lambda c: f"{one_line(c.note)}\n\n{c.item.query}",
    "irrelevant line": lambda c: f"{one_line(c.irrelevant)}\n\n{c.item.query}",
    "five": lambda c: with_notes(c.item.query, [c.note]),
    "five + irrelevant": lambda c: with_notes(c.item.query, [c.note, c.irrelevant]),
    "five, short": lambda c: with_notes(c.item.query, [c.note], SHORT),
    "five, other words": lambda c: with_notes(c.item.query, [c.other_words]),
    "irrelevant": lambda c: with_notes(c.item.query, [c.irrelevant]),
    "irrelevant + five": lambda c: with_notes(c.item.query, [c.irrelevant, c.note]),
    "elsewhere": lambda c: with_notes(c.item.query, [c.elsewhere]),
    "five, no frame": lambda c: with_notes(c.item.query, [c.note], ask_applicability=False),
    "irrelevant, no frame": lambda c: with_notes(c.item.query, [c.irrelevant], ask_applicability=False),
}


def cases(world: str, seed: int, count: int) -> list[Case]:
    """`count` unseen questions of a seed with their notes, no two about the same condition.

    Questions for which the rule learner finds no words to write a note with are left out.
    """
    rng = np.random.default_rng([seed, 29])
    _, test = draw(world, seed)
    pool = [item for extra in range(4) for part in draw(world, POOL + 4 * seed + extra) for item in part]
    # ids count within a draw; across draws a question is known by its text
    pool = list({item.query: replace(item, id=item.query) for item in pool}.values())
    domains = sorted({item.meta["domain"] for item in pool})
    chosen: dict[tuple, Case] = {}
    for item in test:
        domain, (right,) = item.meta["domain"], item.meta["needed"]
        others = [option for option in item.meta["options"] if option != right]
        wrong = others[rng.integers(len(others))]
        away = domains[(domains.index(domain) + 1) % len(domains)]
        steps = sorted(WORLDS[world]().all_parts(away) - set(item.meta["options"]))
        notes = (
            note_about(world, domain, right, pool, item, same_words=True),
            note_about(world, domain, right, pool, item),
            note_about(world, domain, wrong, pool),
            note_about(world, away, steps[rng.integers(len(steps))], pool),
        )
        if (domain, right) not in chosen and all(notes) and len(chosen) < count:
            chosen[domain, right] = Case(item, *notes)
    return list(chosen.values())


def probe(
    choices: KeptChoices,
    seeds: Iterable[int],
    count: int,
    worlds: Sequence[str] = tuple(WORLDS),
    done: Callable[[], object] = lambda: None,
) -> pd.DataFrame:
    """Every case under every condition.

    Args:
        seeds, count: seeds of questions, and questions of each.
        done: called after each choice.

    Returns:
        columns world, seed, item, condition, right (0 or 1), followed (1 where the choice is what the irrelevant note
        is about), margin (score of the right option minus the best other one, natural logarithms a token), tokens.
    """
    rows = []
    for seed in seeds:
        for world in worlds:
            for case in cases(world, seed, count):
                for condition, prompt in CONDITIONS.items():
                    rows.append({"world": world, "seed": seed, **_row(choices, case, condition, prompt(case))})
                    done()
    return pd.DataFrame(rows)


def _row(choices: KeptChoices, case: Case, condition: str, text: str) -> dict:
    part, found = decide(choices, case.item, text)
    options, (right,) = case.item.meta["options"], case.item.meta["needed"]
    best = max(score for score, option in zip(found.scores, options, strict=True) if option != right)
    return {
        "item": case.item.id,
        "condition": condition,
        "right": int(part == right),
        "followed": int(part == Hint.from_payload(case.irrelevant.payload).part),
        "margin": round(found.scores[options.index(right)] - best, 4),
        "tokens": found.tokens,
    }


def shares(rows: pd.DataFrame, by: str = "condition") -> pd.DataFrame:
    """Share of right choices with its Wilson interval, in the order in which the conditions occur.

    Returns:
        columns `by`, questions, right, low, high, and the means of tokens and followed where `rows` has them.
    """
    found = []
    for name, part in rows.groupby(by, sort=False):
        low, high = wilson_interval(int(part.right.sum()), len(part))
        row = {by: name, "questions": len(part), "right": part.right.mean(), "low": low, "high": high}
        found.append(row | {column: part[column].mean() for column in ("tokens", "followed") if column in part})
    return pd.DataFrame(found)


def difference(rows: pd.DataFrame, one: str, other: str) -> Interval:
    """Share right under one condition minus under the other, paired over questions, with a bootstrap interval."""
    table = rows.pivot_table(index=["world", "seed", "item"], columns="condition", values="right")
    return paired_bootstrap(table[one].to_numpy(), table[other].to_numpy())
