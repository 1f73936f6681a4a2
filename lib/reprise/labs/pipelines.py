"""A second domain, not SQL: lists that a house wants prepared in its own way; the judge runs the steps.

A question names a list and one or two house words ("for the badge printer"); the answer is a set of steps that are run
in a fixed order on a real list and compared by what comes out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from reprise.labs.rule_learner import World
from reprise.memory.items import Item

TRAIN, TEST = 87, 185

STEPS: dict[str, Callable[[list[str]], list[str]]] = {
    "strip": lambda rows: [row.strip() for row in rows],
    "lower": lambda rows: [row.lower() for row in rows],
    "drop empty": lambda rows: [row for row in rows if row.strip()],
    "unique": lambda rows: list(dict.fromkeys(rows)),
    "surname first": lambda rows: [
        ", ".join(reversed(row.split(" ", 1))) if " " in row.strip() else row for row in rows
    ],
    "initials": lambda rows: ["".join(word[:1] for word in row.split()) for row in rows],
    "sort": sorted,
    "reverse": lambda rows: rows[::-1],
    "first ten": lambda rows: rows[:10],
    "number": lambda rows: [f"{k}. {row}" for k, row in enumerate(rows, 1)],
}
# domain -> (what the list holds, step -> its phrases)
DOMAINS: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "events": (
        "attendees",
        {
            "surname first": ("for the badge printer", "the way the front desk reads names", "in directory style"),
            "unique": ("with nobody invited twice", "one seat a person", "without double bookings"),
            "sort": ("for the alphabetical board", "as the cloakroom needs it", "in the order of the drawers"),
            "first ten": ("for the opening table", "only the inner circle", "for the short programme"),
            "number": ("for the raffle", "with tickets", "as the usher counts them"),
            "initials": ("for the wristbands", "so that guests stay anonymous", "in the short form of the door"),
        },
    ),
    "stock": (
        "articles",
        {
            "lower": ("for the till", "the way the scanner spells", "in machine form"),
            "strip": ("fresh from the supplier sheet", "as pasted from the mail", "out of the old terminal"),
            "drop empty": ("with the gaps closed", "after the inventory", "without unfilled lines"),
            "reverse": ("newest delivery on top", "with the last arrivals first", "as the picker walks"),
            "unique": ("for the catalogue", "each kind once", "as shelves are labelled"),
            "number": ("for the pick list", "with positions", "so that the driver can tick them off"),
        },
    ),
}
EXPLAINED = frozenset("prepare the list of for with as in a and please make attendees articles way that".split())


class PipelineWorld(World):
    """Questions, lists and the judge; the seed of `draw` decides everything."""

    explained = EXPLAINED

    def draw(self, seed: int) -> tuple[list[Item], list[Item]]:
        """(questions to learn from, questions to test on), disjoint."""
        rng, seen = np.random.default_rng([seed, 13]), {}
        while len(seen) < TRAIN + TEST:
            item = self._question(rng, len(seen))
            seen.setdefault(item.query, item)
        items = list(seen.values())
        return items[:TRAIN], items[TRAIN:]

    def _question(self, rng: np.random.Generator, number: int) -> Item:
        domain = list(DOMAINS)[rng.integers(len(DOMAINS))]
        rows, steps = DOMAINS[domain]
        size = 1 + (rng.random() < 0.35)
        chosen = [list(steps)[k] for k in rng.choice(len(steps), size, replace=False)]
        phrases = [steps[step][rng.integers(len(steps[step]))] for step in chosen]
        polite = ("prepare the list of", "please make the list of")[rng.integers(2)]
        needed = tuple(sorted(chosen))
        meta = {"domain": domain, "needed": needed, "rows": _rows(int(rng.integers(10**6)))}
        return Item(f"p{number:03d}", f"{polite} {rows} {' and '.join(phrases)}", json.dumps(needed), meta)

    def read(self, item: Item) -> frozenset[str]:
        return frozenset()

    def needed(self, item: Item) -> frozenset[str]:
        return frozenset(item.meta["needed"])

    def compose(self, item: Item, parts: frozenset[str]) -> str:
        return json.dumps(sorted(parts))

    def parts(self, item: Item, answer: str) -> frozenset[str]:
        return frozenset(json.loads(answer or "[]"))

    def all_parts(self, domain: str) -> frozenset[str]:
        return frozenset(DOMAINS[domain][1])

    def judge(self, item: Item, answer: str) -> float:
        """1 where the steps give the list that the reference's steps give."""
        return float(run(item.meta["rows"], answer) == run(item.meta["rows"], item.reference))


def run(rows: tuple[str, ...], answer: str) -> list[str] | None:
    """The list after the steps named by a JSON list, in the order of `STEPS`; None where a step is unknown."""
    names = json.loads(answer)
    if not set(names) <= STEPS.keys():
        return None
    found = list(rows)
    for name, step in STEPS.items():
        if name in names:
            found = step(found)
    return found


@lru_cache(maxsize=4096)
def _rows(seed: int) -> tuple[str, ...]:
    """A list of 14 entries with repeats, blanks, capitals and spaces around them."""
    rng = np.random.default_rng(seed)
    first, last = ("Ada", "Grace", "alan", "Edsger", "Barbara"), ("Lovelace", "hopper", "Turing", "Dijkstra", "Liskov")
    rows = [f"{first[rng.integers(5)]} {last[rng.integers(5)]}" for _ in range(10)] + ["", "  "]
    rows += [f"  {rows[0]} ", rows[1]]
    return tuple(rows[k] for k in rng.permutation(len(rows)))
