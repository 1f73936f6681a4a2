"""A small service with seven conventions nobody wrote down, and two agents that work in it by trial and error.

ASSUMED: the conventions are among the ways of doing things that the agents can think of (`SPACE`), beside others that
make no difference; the explorer may open fresh sandboxes; a heuristic settles one slot. EMERGES: which conventions
practice finds, what else it believes, how often tasks fail and how long they take. Nothing in solver or explorer knows
the conventions; the checker is for evaluation.

The service is a SQLite database behind tools that answer with a code: "E0" is busy and passes, other codes mean that
some argument was not liked, and say no more. A write that was not flushed and page 0 of a search fail without a code.
"""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reprise.errors import RepriseError
from reprise.memory.practice import Heuristic, Memory, Task, Trajectory, Witness

BUSY = "E0"
# slot -> the ways an agent can think of, the first one what it does by default
SPACE: dict[str, tuple] = {
    "key": ("as given", "lower", "upper", "title"),
    "flush": (False, True),
    "recipient": ("plain", "at", "user", "acct"),
    "amount": ("dollars", "cents", "cents with suffix", "dollars with sign"),
    "session": (False, True),
    "date": ("iso", "slashed", "dotted", "day first", "compact", "month first"),
    "page": (0, 1, 2),
    # these make no difference, which the agents do not know
    "currency": ("left out", "named"),
    "level": ("info", "debug", "warning"),
}
CONVENTIONS = tuple(SPACE)[:7]
HUMAN_GUIDELINE = dict(
    key="upper", flush=True, recipient="acct", amount="cents with suffix", session=True, date="dotted", page=1
)
SLOTS = {
    "put": ("key", "flush"),
    "send": ("recipient", "amount", "session", "currency"),
    "log": ("date", "level"),
    "search": ("page",),
}
FAMILIES: dict[str, tuple[str, ...]] = {
    "store": ("put",),
    "pay": ("send",),
    "note": ("log",),
    "find": ("search",),
    "store+pay": ("put", "send"),
    "note+store": ("log", "put"),
    "pay+find": ("send", "search"),
    "store+pay+note": ("put", "send", "log"),
}
DATES = dict(zip(SPACE["date"], ("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d-%m-%Y", "%Y%m%d", "%m.%d.%Y"), strict=True))
NAMES = ("ada", "grace", "alan", "edsger", "barbara", "donald")


class Sandbox:
    """One fresh copy of the service; close it after use.

    Args:
        flake: probability that a call answers `BUSY` and does nothing.
        rng: draws that.

    Attributes:
        calls: tool calls so far.
    """

    def __init__(self, flake: float, rng: np.random.Generator):
        if not 0 <= flake < 1:
            raise RepriseError(f"flake={flake}: expected 0 <= flake < 1")
        self._flake, self._rng, self.calls = flake, rng, 0
        self._pending: dict[str, str] = {}
        self._session = False
        self.database = sqlite3.connect(":memory:")
        self.database.execute("create table entries (key text primary key, value text)")
        self.database.execute("create table transfers (recipient text, cents integer)")
        self.database.execute("create table log (day text, text text)")

    def call(self, tool: str, **arguments) -> str | list | int:
        """A tool's answer: a string that starts with "E" for a code, else what it found, or "ok"."""
        self.calls += 1
        if self._rng.random() < self._flake:
            return BUSY
        return getattr(self, f"_{tool}")(**arguments)

    def _put(self, key: str, value: str) -> str:
        if key != key.upper():
            return "E3"
        self._pending[key] = value
        return "ok"

    def _flush(self) -> str:
        self.database.executemany("insert or replace into entries values (?, ?)", self._pending.items())
        self._pending = {}
        return "ok"

    def _get(self, key: str) -> str:
        row = self.database.execute("select value from entries where key = ?", (key,)).fetchone()
        return row[0] if row else "none"

    def _open_session(self) -> str:
        self._session = True
        return "ok"

    def _send(self, recipient: str, amount: str, currency: str) -> str:
        liked = self._session and recipient.startswith("acct:") and amount.endswith("c") and amount[:-1].isdigit()
        if not liked:
            return "E5"
        self.database.execute(
            "insert into transfers values (?, ?)", (recipient.removeprefix("acct:"), int(amount[:-1]))
        )
        return "ok"

    def _balance(self, name: str) -> int:
        return self.database.execute(
            "select coalesce(sum(cents), 0) from transfers where recipient = ?", (name,)
        ).fetchone()[0]

    def _log(self, day: str, text: str, level: str) -> str:
        if len(day) != 10 or day[4] != "." or day[7] != ".":
            return "E2"
        self.database.execute("insert into log values (?, ?)", (day, text))
        return "ok"

    def _read_log(self) -> list:
        return [text for (text,) in self.database.execute("select text from log")]

    def _search(self, word: str, page: int) -> list:
        return [f"{word} {k}" for k in range(3)] if page == 1 else []

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc) -> None:
        self.close()


def draw_task(family: str, rng: np.random.Generator) -> Task:
    """A task of a family with fresh parameters."""
    day = datetime.date(2026, 1, 1) + datetime.timedelta(days=int(rng.integers(365)))
    params = {
        "key": f"{NAMES[rng.integers(len(NAMES))]}-{rng.integers(1000)}",
        "value": f"v{rng.integers(10**6)}",
        "recipient": NAMES[rng.integers(len(NAMES))],
        "cents": int(rng.integers(100, 100_000)),
        "day": day,
        "word": NAMES[rng.integers(len(NAMES))],
    }
    return Task(family, params, " and ".join(FAMILIES[family]))


def steps(task: Task, tool: str, settings: Mapping[str, Any]) -> list[tuple[str, dict]]:
    """The calls that a tool's part of a task takes when things are done as `settings` say."""
    p = task.params
    if tool == "put":
        form = {"as given": str, "lower": str.lower, "upper": str.upper, "title": str.title}[settings["key"]]
        return [("put", {"key": form(p["key"]), "value": p["value"]})] + [("flush", {})] * settings["flush"]
    if tool == "send":
        prefix = {"plain": "", "at": "@", "user": "user:", "acct": "acct:"}[settings["recipient"]]
        dollars = f"{p['cents'] / 100:.2f}"
        forms = {"dollars": dollars, "cents": str(p["cents"]), "cents with suffix": f"{p['cents']}c"}
        amount = forms.get(settings["amount"], f"${dollars}")
        send = ("send", {"recipient": prefix + p["recipient"], "amount": amount, "currency": settings["currency"]})
        return [("open_session", {})] * settings["session"] + [send]
    if tool == "log":
        day = p["day"].strftime(DATES[settings["date"]])
        return [("log", {"day": day, "text": p["value"], "level": settings["level"]})]
    return [("search", {"word": p["word"], "page": settings["page"]})]


def read_back(sandbox: Sandbox, task: Task, answer: list | None) -> bool:
    """Whether the goal shows, through tools the solver could call as well: what an agent can know without a checker."""

    def look(tool, **arguments):
        while (found := sandbox.call(tool, **arguments)) == BUSY:
            pass
        return found

    p, tools = task.params, FAMILIES[task.family]
    forms = (form(p["key"]) for form in (str, str.lower, str.upper, str.title))
    return (
        ("put" not in tools or any(look("get", key=key) == p["value"] for key in forms))
        and ("send" not in tools or look("balance", name=p["recipient"]) == p["cents"])
        and ("log" not in tools or p["value"] in look("read_log"))
        and ("search" not in tools or bool(answer))
    )


def true_check(sandbox: Sandbox, task: Task, answer: list | None) -> bool:
    """The hidden checker: looks into the database. For evaluation only; practice never calls it."""
    p, tools, ask = task.params, FAMILIES[task.family], sandbox.database.execute
    entries = ask("select key, value from entries").fetchall()
    transfers = ask("select recipient, cents from transfers").fetchall()
    return (
        ("put" not in tools or (p["key"].upper(), p["value"]) in entries)
        and ("send" not in tools or transfers == [(p["recipient"], p["cents"])])
        and (
            "log" not in tools
            or ask("select day, text from log").fetchall() == [(p["day"].strftime("%Y.%m.%d"), p["value"])]
        )
        and ("search" not in tools or answer == [f"{p['word']} {k}" for k in range(3)])
    )


@dataclass
class TrialAndError:
    """A solver that does things its usual way, changes something when it meets a code, and stops when it meets none.

    Attributes:
        flake: of the sandboxes it works in.
        budget: most tool calls an attempt.
        judge: how success is told: `read_back` in practice, `true_check` in evaluation.
    """

    flake: float = 0.1
    budget: int = 10
    judge: Any = read_back

    def attempt(self, task: Task, memory: Memory, rng: np.random.Generator) -> Trajectory:
        """One attempt in a fresh sandbox."""
        start = {slot: values[0] for slot, values in SPACE.items()} | {h.slot: h.value for h in memory.values()}
        settings, answer = dict(start), None
        with Sandbox(self.flake, rng) as sandbox:
            for tool in FAMILIES[task.family]:
                answer = self._use(sandbox, task, tool, settings, rng) or answer
            calls = sandbox.calls
            done = calls <= self.budget and self.judge(sandbox, task, answer)
        return Trajectory(task, bool(done), min(calls, self.budget), start)

    def _use(self, sandbox: Sandbox, task: Task, tool: str, settings: dict, rng: np.random.Generator) -> list | None:
        """Work on one tool until it answers without a code or the budget is gone."""
        while sandbox.calls < self.budget:
            for name, arguments in steps(task, tool, settings):
                found = self._call(sandbox, name, arguments, rng)
                if isinstance(found, str) and found.startswith("E"):
                    break
            else:
                return found if isinstance(found, list) else None
            slot = SLOTS[tool][rng.integers(len(SLOTS[tool]))]
            others = [value for value in SPACE[slot] if value != settings[slot]]
            settings[slot] = others[rng.integers(len(others))]
        return None

    def _call(self, sandbox: Sandbox, tool: str, arguments: dict, rng: np.random.Generator):
        found = sandbox.call(tool, **arguments)
        while found == BUSY and sandbox.calls < self.budget and rng.random() < 0.5:
            found = sandbox.call(tool, **arguments)
        return found


@dataclass
class RandomExplorer:
    """An explorer that tries random ways in fresh sandboxes until the goal shows.

    Attributes:
        budget: most sandboxes a proposal.
    """

    flake: float = 0.1
    budget: int = 60
    families: tuple[str, ...] = tuple(FAMILIES)

    def propose(self, family: str, rng: np.random.Generator) -> Witness | None:
        """A task with a configuration of the slots it touches under which it was seen to succeed."""
        task = draw_task(family, rng)
        slots = [slot for tool in FAMILIES[family] for slot in SLOTS[tool]]
        for tries in range(1, self.budget + 1):
            chosen = {slot: SPACE[slot][rng.integers(len(SPACE[slot]))] for slot in slots}
            if self._works(task, chosen, rng):
                return Witness(task, chosen, 1 / tries, tries)
        return None

    def another(self, task: Task, rng: np.random.Generator) -> Task:
        return draw_task(task.family, rng)

    def _works(self, task: Task, settings: dict, rng: np.random.Generator) -> bool:
        answer = None
        with Sandbox(self.flake, rng) as sandbox:
            for tool in FAMILIES[task.family]:
                for name, arguments in steps(task, tool, settings):
                    found = sandbox.call(name, **arguments)
                    if isinstance(found, str) and found.startswith("E"):
                        return False
                    answer = found if isinstance(found, list) else answer
            return read_back(sandbox, task, answer)


def guideline(settings: Mapping[str, Any] | None = None) -> dict[str, Heuristic]:
    """What a person who knows the service would write down: the seven conventions, or the settings given."""
    return {slot: Heuristic(slot, value, "guideline") for slot, value in (settings or HUMAN_GUIDELINE).items()}
