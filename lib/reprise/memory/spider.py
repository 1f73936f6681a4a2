"""A folder of SQLite databases in the layout of Spider and KaggleDBQA: questions as items, execution as judge.

FOLDER/QUESTIONS.json                        [{"db_id": ..., "question": ..., "query": ...}, ...]
FOLDER/databases/DB_ID/DB_ID.sqlite          or FOLDER/database/..., as the archives have it
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from reprise.memory.errors import MemoryFault
from reprise.memory.items import Item

MOST_ROWS = 10_000
SECONDS = 10.0  # for one query; a model may write a cross join


class SpiderFolder:
    """Questions and databases of one folder; databases are opened read-only.

    Args:
        folder: see above.
        questions: name of the file with the questions.

    Raises:
        MemoryFault: a file is missing or an entry lacks a field; the message has its number.
    """

    def __init__(self, folder: str | Path, questions: str = "questions.json"):
        self.folder = Path(folder)
        path = self.folder / questions
        if not path.is_file():
            raise MemoryFault(f"questions={questions!r}: no such file in {self.folder}")
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise MemoryFault(f"{path.name}: expected JSON ({error})") from None
        if not isinstance(entries, list):
            raise MemoryFault(f"{path.name}: expected a list of questions")
        self.items = [self._item(k, entry) for k, entry in enumerate(entries)]

    def _item(self, k: int, entry) -> Item:
        for name in ("db_id", "question", "query"):
            if not isinstance(entry, dict) or not isinstance(entry.get(name), str):
                raise MemoryFault(f"questions[{k}].{name}: expected a text")
        self.database(entry["db_id"])
        return Item(f"{k:05d}", entry["question"], entry["query"], {"domain": entry["db_id"]})

    def database(self, name: str) -> Path:
        """Path of a database.

        Raises:
            MemoryFault: there is none of that name.
        """
        if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
            raise MemoryFault(f"db_id={name!r}: expected letters, digits, dots and dashes")
        for parent in ("databases", "database"):
            path = self.folder / parent / name / f"{name}.sqlite"
            if path.is_file():
                return path
        raise MemoryFault(f"db_id={name!r}: no database {name}/{name}.sqlite in {self.folder}")

    def schema(self, item: Item) -> str:
        """The statements that made an item's tables: the context of its prompt."""
        rows = self._run(item.meta["domain"], "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
        return "Answer with one SQLite query.\n\n" + "\n".join(sql for (sql,) in rows or [])

    def judge(self, item: Item, answer: str) -> float:
        """Execution accuracy: 1 where both return the same rows, in any order unless the reference sorts.

        Raises:
            MemoryFault: the reference itself does not run.
        """
        right = self._run(item.meta["domain"], item.reference)
        if right is None:
            raise MemoryFault(f"item {item.id}: the reference does not run: {item.reference}")
        found = self._run(item.meta["domain"], answer)
        if found is None:
            return 0.0
        if re.search(r"\border\s+by\b", item.reference, re.IGNORECASE):
            return float(found == right)
        return float(Counter(found) == Counter(right))

    def _run(self, name: str, sql: str) -> list[tuple] | None:
        """Rows, floats rounded to nine digits; None for what is not valid, writes, or takes too long."""
        with closing(sqlite3.connect(f"file:{self.database(name)}?mode=ro", uri=True)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            until = time.monotonic() + SECONDS
            database.set_progress_handler(lambda: time.monotonic() > until, 10_000)
            try:
                rows = database.execute(sql).fetchmany(MOST_ROWS)
            except (sqlite3.Error, sqlite3.Warning, ValueError):
                return None
        return [tuple(round(v, 9) if isinstance(v, float) else v for v in row) for row in rows]
