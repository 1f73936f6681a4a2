"""Changes of an episode that must not matter to its verdict, and changes that must.

Source: SafeActBench, path-equivalence audit (extra reads, swapped independent actions, equivalent numbers, other
retrieval paths) and its negative controls (wrong entity, stale evidence). Renaming is ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from reprise.evidence.cases import parse_case
from reprise.evidence.evaluate import evaluate
from reprise.evidence.model import Case, Protocol
from reprise.evidence.trajectory import Trajectory
from reprise.evidence.values import norm
from reprise.labs.evidence_suite.mutate import MUTATIONS, mutate
from reprise.labs.evidence_suite.reference import Player, reference


def metamorphic(cases: Iterable[Case], seed: int = 0) -> pd.DataFrame:
    """Columns change, passed, tried: episodes that still succeed when told in another way."""
    told: dict[str, Callable[[Case], tuple[Case, Trajectory]]] = {
        "unrelated records read too": lambda case: (case, careful(case, seed, extra=True)),
        "everything read twice": lambda case: (case, careful(case, seed, repeats=2)),
        "reads in another order": lambda case: (case, careful(case, seed, shuffled=True)),
        "other ids throughout": lambda case: (renamed(case), reference(renamed(case))),
        "numbers written differently": lambda case: (case, careful(case, seed, rewrite=True)),
    }
    played = [case for case in cases if case.view.protocol is not Protocol.LEGACY]
    rows = [(name, sum(evaluate(*make(case)).ecs for case in played), len(played)) for name, make in told.items()]
    return pd.DataFrame(rows, columns=["change", "passed", "tried"])


def negative_controls(cases: Iterable[Case], seed: int = 0) -> pd.DataFrame:
    """Columns change, passed, tried: episodes whose evidence is of another record, or out of date. None may pass."""
    names = {"wrong_entity": "another record with equal values", "stale": "changed after it was read"}
    rows, cases = [], list(cases)
    for kind, name in names.items():
        fit = [case for case in cases if case.view.protocol in MUTATIONS[kind].protocols]
        rows.append((name, sum(evaluate(*mutate(case, kind, seed)).ecs for case in fit), len(fit)))
    return pd.DataFrame(rows, columns=["change", "passed", "tried"])


def careful(case, seed, extra=False, repeats=1, shuffled=False, rewrite=False) -> Trajectory:
    """A right episode, told differently."""
    rng = np.random.default_rng([seed, case.hidden.seed])
    player = Player(case)

    def look(names: tuple[str, ...]) -> None:
        for name in rng.permutation(names) if shuffled and names else names:
            for _ in range(repeats):
                player.read(case.requirement[name])

    if extra:
        for entity, record in case.hidden.world.items():
            kind = record["kind"]
            if f"read_{kind}" in case.view.tool and kind not in ("overview", "archive"):
                player.call(f"read_{kind}", **{f"{kind}_id": entity})
    look(case.hidden.investigate)
    for action in case.hidden.actions:
        look(action.requires)
        player.refresh(action.requires)
        changed = {"value": rewritten(player.arguments(action)["value"])} if rewrite else {}
        player.act(action, **changed)
        player.confirm(action)
    return player.environment.finish()


def rewritten(text: str) -> str:
    """The same number in another notation; a text that is no number stays.

    >>> rewritten("$49.99"), rewritten("8"), rewritten("b-2210")
    ('49.990 USD', '8.0', 'b-2210')
    """
    key = norm(text)
    if key[0] != "num":
        return text
    digits = text.strip("$")
    digits += "0" if "." in digits else ".0"
    return f"{digits} USD" if key[2] else digits


def renamed(case: Case) -> Case:
    """The case with every record id replaced by another one, in the task, the world and the requirements."""
    text = case.model_dump_json()
    ids = sorted({e for e in case.hidden.world if re.fullmatch(r"[A-Z]{2}-\d{4}", e)})
    table = {name: f"{name[1]}{name[0]}-{9999 - int(name[3:]):04d}X" for name in ids}
    return parse_case(json.loads(re.sub(r"\b[A-Z]{2}-\d{4}\b", lambda m: table.get(m[0], m[0]), text)))
