"""Do heuristics in its prompt change how a real language model calls the tools of the convention sandbox?

The model is shown a task and the ways in which one call can be made, and picks one; what it picked for every convention
is then what the trial-and-error solver sets out with, so that the service itself says what the choice was worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd

from reprise.labs.convention_sandbox import CONVENTIONS, HUMAN_GUIDELINE, SLOTS, SPACE, draw_task, guideline, steps
from reprise.labs.lm_choices import KeptChoices, Messages
from reprise.labs.practice_experiments import evaluated, scrambled
from reprise.memory.practice import Task

FAMILY = {"put": "store", "send": "pay", "log": "note", "search": "find"}
# a heuristic in words
SAYS: Mapping[str, Mapping] = {
    "key": {
        "as given": "keys are written as given",
        "lower": "keys are written in lower case",
        "upper": "keys are written in upper case",
        "title": "keys begin with a capital letter",
    },
    "flush": {True: "call flush after put", False: "put needs no flush"},
    "recipient": {
        "plain": "a recipient is the plain name",
        "at": "a recipient is written with @ before the name",
        "user": "a recipient is written with user: before the name",
        "acct": "a recipient is written with acct: before the name",
    },
    "amount": {
        "dollars": "amounts are dollars, such as 12.50",
        "cents": "amounts are whole cents, such as 1250",
        "cents with suffix": "amounts are whole cents with a c behind, such as 1250c",
        "dollars with sign": "amounts are dollars with a sign, such as $12.50",
    },
    "session": {True: "call open_session before send", False: "send needs no session"},
    "date": {
        "iso": "dates look like 2025-12-31",
        "slashed": "dates look like 2025/12/31",
        "dotted": "dates look like 2025.12.31",
        "day first": "dates look like 31-12-2025",
        "compact": "dates look like 20251231",
        "month first": "dates look like 12.31.2025",
    },
    "page": {page: f"the first page of a search is page {page}" for page in SPACE["page"]},
    "currency": {"left out": "the currency is left out", "named": "the currency is named"},
    "level": {level: f"the level of a log entry is {level}" for level in SPACE["level"]},
}
IDLE = {"currency": "named", "level": "debug"}  # what makes no difference: the control


def heuristics(seed: int) -> dict[str, dict[str, object]]:
    """slot -> value of what the prompt says: nothing, the conventions, other values of them, or what is of no use."""
    wrong = {slot: each.value for slot, each in scrambled(guideline(), seed).items()}
    return {"none": {}, "right": HUMAN_GUIDELINE, "wrong": wrong, "idle": IDLE}


def asked(task: Task, slot: str, said: Mapping[str, object]) -> tuple[Messages, list[str], str]:
    """(messages, options, prefix): the calls of a task with each value of a slot, all else done the usual way."""
    tool = next(tool for tool, slots in SLOTS.items() if slot in slots)
    usual = {name: values[0] for name, values in SPACE.items()}
    options = [f" {_calls(task, tool, {**usual, slot: value})}" for value in SPACE[slot]]
    p = task.params
    goal = {
        "put": f"store {p['value']} under the key {p['key']}",
        "send": f"pay {p['cents'] / 100:.2f} dollars to {p['recipient']}",
        "log": f"note {p['value']} in the log on {p['day']:%B} {p['day'].day}, {p['day'].year}",
        "search": f"find the entries about {p['word']}",
    }[tool]
    learned = "".join(f"- {SAYS[name][value]}\n" for name, value in said.items())
    learned = f"What was learned about this service:\n{learned}\n" if learned else ""
    messages = [
        {"role": "system", "content": "You work with a service by calling its tools."},
        {"role": "user", "content": f"{learned}Task: {goal}."},
    ]
    return messages, options, "Calls:"


def chosen(
    choices: KeptChoices,
    seeds: Iterable[int],
    done: Callable[[], object] = lambda: None,
) -> pd.DataFrame:
    """What the model picks for every convention, under each kind of heuristics, for the tasks of each seed.

    Returns:
        columns seed, heuristics, slot, value, right (1 where it is the convention), followed (1 where it is what the
        prompt said), margin (score of the convention minus the best other one, natural logarithms a token).
    """
    rows = []
    for seed in seeds:
        rng = np.random.default_rng([seed, 41])
        tasks = {tool: draw_task(family, rng) for tool, family in FAMILY.items()}
        for kind, said in heuristics(seed).items():
            for tool, slots in SLOTS.items():
                for slot in (slot for slot in slots if slot in CONVENTIONS):
                    found = choices.choose(*asked(tasks[tool], slot, said))
                    value, best = SPACE[slot][found.chosen], SPACE[slot].index(HUMAN_GUIDELINE[slot])
                    others = [score for k, score in enumerate(found.scores) if k != best]
                    row = {"seed": seed, "heuristics": kind, "slot": slot, "value": value}
                    right, followed = found.chosen == best, slot in said and value == said[slot]
                    row |= {"right": int(right), "followed": int(followed)}
                    rows.append(row | {"margin": round(found.scores[best] - max(others), 4)})
                    done()
    return pd.DataFrame(rows)


def worth(rows: pd.DataFrame, tasks: int = 25) -> pd.DataFrame:
    """Success and calls of the solver that sets out with what was picked; the first value of each slot, for comparison.

    Returns:
        columns seed, heuristics, success, calls.
    """
    found = []
    for (seed, kind), part in rows.groupby(["seed", "heuristics"], sort=False):
        picked = guideline(dict(zip(part.slot, part.value, strict=True)))
        found.append({"seed": seed, "heuristics": kind, **evaluated(picked, int(seed), tasks=tasks)})
    return pd.DataFrame(found)


def _calls(task: Task, tool: str, settings: Mapping[str, object]) -> str:
    shown = []
    for name, arguments in steps(task, tool, settings):
        named = {key: value for key, value in arguments.items() if value != "left out" and key != "level"}
        shown.append(f"{name}({', '.join(f'{key}={value!r}' for key, value in named.items())})")
    return "; ".join(shown)
