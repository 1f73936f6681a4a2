"""Text to SQL over three real SQLite databases with coded, undocumented columns; the judge executes.

A question names an aggregate (which the policy can read) and one or two conditions in house words (which it cannot):
"how many tenants ..." needs `housing = 'R'`. Sizes follow KaggleDBQA: 87 questions to learn from, 185 to test on.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from functools import lru_cache
from pathlib import Path

import numpy as np

from reprise.labs.rule_learner import World
from reprise.memory.items import Item

TRAIN, TEST = 87, 185

# domain -> (table, what a row is, measures that can be read from their names, condition -> its phrases)
DOMAINS: dict[str, tuple[str, str, tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "school": (
        "student",
        "students",
        ("age", "absences", "grade"),
        {
            "housing = 'R'": ("who rent their home", "living in rented homes", "in rental housing", "who are tenants"),
            "housing = 'O'": ("who own their home", "living in owned homes", "from homeowner families"),
            "guard = 2": ("raised by grandparents", "with a grandparent as guardian", "in the care of grandparents"),
            "guard = 3": ("under state care", "who are wards of the state", "placed by the state"),
            "trv >= 4": ("with a long way to school", "who commute more than an hour", "living far from school"),
            "rep = 'Y'": ("who repeated a year", "held back once", "repeating the class"),
            "st IN ('A','B')": ("in good standing", "without any warning", "with a clean record"),
            "act % 2 = 1": ("in a sports club", "who play sports", "active in sports"),
            "src = 9": ("transferred from abroad", "who came from another country", "from foreign schools"),
        },
    ),
    "clinic": (
        "visit",
        "visits",
        ("minutes", "charge", "age"),
        {
            "adm = 1": ("that ended in admission", "where the patient was admitted", "leading to a hospital stay"),
            "adm = 7": ("where the patient left early", "broken off by the patient", "ended against advice"),
            "pay = 'SP'": ("paid out of pocket", "by self payers", "without insurance"),
            "pay = 'G2'": ("covered by the state", "on public insurance", "paid by the government"),
            "tri <= 2": ("that were urgent", "of high urgency", "triaged as critical"),
            "shift = 'N'": ("during the night", "at night time", "after midnight"),
            "ref = 0": ("of walk in patients", "without a referral", "by people who just came in"),
            "fu IS NOT NULL": ("with a follow up", "needing another appointment", "to be seen again"),
            "lang <> 'EN'": ("that needed an interpreter", "with a translator", "not held in english"),
        },
    ),
    "rail": (
        "trip",
        "trips",
        ("distance", "delay", "fare"),
        {
            "cls = 'F'": ("in first class", "by premium travellers", "with a luxury ticket"),
            "late > 15": ("that were badly delayed", "arriving much too late", "with a serious delay"),
            "canc = 'X'": ("that were cancelled", "which never ran", "called off"),
            "typ IN (3,4)": ("by night trains", "on sleeper services", "in a sleeping car"),
            "seas = 'S'": ("in the holiday season", "during the summer peak", "in vacation time"),
            "op = 'PRV'": ("run by private companies", "of private operators", "not run by the state railway"),
            "xb = 1": ("across the border", "to a foreign station", "crossing into another country"),
            "disc & 2 = 2": ("with a student discount", "at the student fare", "on a reduced ticket for students"),
            "occ >= 0.9": ("that were overcrowded", "with hardly a free seat", "packed to the limit"),
        },
    ),
}
# domain -> coded column -> its values; measures are real numbers
COLUMNS = {
    "school": {
        "housing": "RO",
        "guard": (1, 2, 3, 4),
        "trv": (1, 2, 3, 4, 5),
        "rep": "YN",
        "st": "ABCD",
        "act": (0, 1, 2, 3),
        "src": (1, 2, 9),
    },
    "clinic": {
        "adm": (0, 1, 7),
        "pay": ("SP", "G2", "PR"),
        "tri": (1, 2, 3, 4, 5),
        "shift": "DNE",
        "ref": (0, 1),
        "fu": (None, 7, 14),
        "lang": ("EN", "ES", "ZH"),
    },
    "rail": {
        "cls": "FSE",
        "late": (0, 5, 16, 30),
        "canc": "X-",
        "typ": (1, 2, 3, 4),
        "seas": "SW",
        "op": ("PRV", "NAT"),
        "xb": (0, 1),
        "disc": (0, 1, 2, 3),
        "occ": (0.4, 0.7, 0.95),
    },
}
AGGREGATES = {
    "COUNT(*)": "how many {rows}",
    "AVG({m})": "what is the average {m} of {rows}",
    "MAX({m})": "what is the highest {m} among {rows}",
}
EXPLAINED = frozenset(
    "how many what is the average of highest among and a in by to with that who were was are on at for".split()
)
EXPLAINED |= {word for table, rows, measures, _ in DOMAINS.values() for word in (table, rows, *measures)}


class SqlWorld(World):
    """Questions, databases and the judge; everything but the databases' rows comes from the seed of `draw`."""

    explained = EXPLAINED

    def draw(self, seed: int) -> tuple[list[Item], list[Item]]:
        """(questions to learn from, questions to test on), disjoint."""
        rng = np.random.default_rng([seed, 11])
        seen: dict[str, Item] = {}
        while len(seen) < TRAIN + TEST:
            domain = list(DOMAINS)[rng.integers(len(DOMAINS))]
            item = self._question(domain, rng, len(seen))
            seen.setdefault(item.query, item)
        items = list(seen.values())
        return items[:TRAIN], items[TRAIN:]

    def _question(self, domain: str, rng: np.random.Generator, number: int) -> Item:
        _, rows, measures, conditions = DOMAINS[domain]
        aggregate = list(AGGREGATES)[rng.integers(len(AGGREGATES))]
        measure = measures[rng.integers(len(measures))]
        chosen = sorted(rng.choice(len(conditions), 1 + (rng.random() < 0.35), replace=False))
        names = [list(conditions)[k] for k in chosen]
        phrases = [conditions[name][rng.integers(len(conditions[name]))] for name in names]
        text = f"{AGGREGATES[aggregate].format(m=measure, rows=rows)} {' and '.join(phrases)}?"
        head = aggregate.format(m=measure)
        return Item(
            f"q{number:03d}",
            text,
            _sql(domain, head, sorted(names)),
            {"domain": domain, "head": head, "needed": tuple(names)},
        )

    def read(self, item: Item) -> frozenset[str]:
        """The aggregate is read from the question; conditions are not."""
        return frozenset()

    def needed(self, item: Item) -> frozenset[str]:
        return frozenset(item.meta["needed"])

    def compose(self, item: Item, parts: frozenset[str]) -> str:
        return _sql(item.meta["domain"], item.meta["head"], sorted(parts))

    def parts(self, item: Item, answer: str) -> frozenset[str]:
        _, found, tail = answer.partition(" WHERE ")
        return frozenset(tail.split(" AND ")) if found else frozenset()

    def all_parts(self, domain: str) -> frozenset[str]:
        return frozenset(DOMAINS[domain][3])

    def judge(self, item: Item, answer: str) -> float:
        """Execution accuracy: 1 where the answer runs and returns what the reference returns."""
        return float(execute(item.meta["domain"], answer) == execute(item.meta["domain"], item.reference))


def _sql(domain: str, head: str, conditions) -> str:
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {head} FROM {DOMAINS[domain][0]}{where}"


@lru_cache(maxsize=100_000)
def execute(domain: str, sql: str) -> tuple | None:
    """Rows of a query, rounded to nine digits; None where it is not valid."""
    try:
        rows = _database(domain).execute(sql).fetchmany(100)
    except sqlite3.Error:
        return None
    return tuple(tuple(round(v, 9) if isinstance(v, float) else v for v in row) for row in rows)


@lru_cache(maxsize=8)
def _database(domain: str) -> sqlite3.Connection:
    """A read-only database of 800 rows, the same in every run."""
    table, _, measures, _ = DOMAINS[domain]
    rng = np.random.default_rng(list(DOMAINS).index(domain))
    coded = COLUMNS[domain].items()
    columns = {name: [values[k] for k in rng.integers(len(values), size=800)] for name, values in coded}
    columns |= {name: rng.gamma(2.0, 20.0, 800).round(3).tolist() for name in measures}
    database = sqlite3.connect(":memory:")
    database.execute(f"create table {table} ({', '.join(columns)})")
    places = ", ".join("?" * len(columns))
    database.executemany(f"insert into {table} values ({places})", zip(*columns.values(), strict=True))
    database.execute("pragma query_only = on")
    return database


def dump(world: SqlWorld, seed: int, folder: Path, questions: int) -> Path:
    """Write databases and questions in Spider's layout, as a folder of one's own would have them."""
    entries = []
    for item in [item for part in world.draw(seed) for item in part][:questions]:
        entries.append({"db_id": item.meta["domain"], "question": item.query, "query": item.reference})
    for domain in DOMAINS:
        (folder / "databases" / domain).mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(folder / "databases" / domain / f"{domain}.sqlite")) as copy:
            copy.executescript("\n".join(_database(domain).iterdump()))
    (folder / "questions.json").write_text(json.dumps(entries, indent=1))
    return folder
