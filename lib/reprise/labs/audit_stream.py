"""Example logs streamed turn by turn through an auditor without a model, and what streaming saves in prompt tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations

from reprise.audit.kv_stream import prompt_tokens
from reprise.audit.logs import trajectory
from reprise.audit.online import OnlineAuditor
from reprise.audit.prompt import build_messages
from reprise.audit.verdict import SAFE, Verdict, alarm
from reprise.traces import Log, Turn

NUMBER = re.compile(r"\d{4,}")
# acts whose text comes from outside; a number may appear there first
SOURCES = re.compile(r"tool|search|execut", re.IGNORECASE)


def unsupported_number(prefix: Sequence[Turn]) -> Verdict:
    """Alarm where the last turn has a number of four digits or more that nothing before it supports.

    Supported are numbers of earlier turns, sums and differences of two of them, and numbers in what a tool returns or
    the task says.
    """
    *before, turn = prefix
    if not before or SOURCES.search(turn.action) or turn.role == "environment":
        return SAFE
    seen = {int(found) for each in before for found in NUMBER.findall(each.content)}
    derived = seen | {a + b for a, b in permutations(seen, 2)} | {a - b for a, b in permutations(seen, 2)}
    new = [found for found in NUMBER.findall(turn.content) if int(found) not in derived]
    return alarm(len(before), turn.role, f"{new[0]} has no source") if new else SAFE


def streamed(log: Log, name: str, judge: Callable[[Sequence[Turn]], Verdict] = unsupported_number) -> list[dict]:
    """One row a turn: log, turn, speaker, act, seen ("safe", "alarm", or "not asked" after the first alarm), step and
    reason of an alarm, and whether the log labels this turn as the decisive error."""
    auditor = OnlineAuditor(judge, ask=None)
    label = trajectory(log, name).decisive_step
    rows = []
    for k, turn in enumerate(log.turns):
        auditor.observe(turn)
        verdict = auditor.observed[-1].verdict
        rows.append({
            "log": name, "turn": k, "speaker": turn.role, "act": turn.action,
            "seen": "not asked" if verdict is None else verdict.kind if verdict.valid else "invalid",
            "step": verdict.step if verdict else None,
            "reason": verdict.reason if verdict else None, "labelled": k == label,
        })  # fmt: skip
    return rows


def prompt_growth(logs: Iterable[tuple[str, Log]]) -> list[dict]:
    """Characters of prompt that an auditor asked after every turn reads, with the question behind or before the run.

    Returns:
        one row a log: turns; whole, every prompt from its beginning; append and paper, what is new to a prefix cache
        in either layout; saved, whole over append.
    """
    rows = []
    for name, log in logs:
        whole, append = prompt_tokens(log.turns, str.encode)
        _, paper = prompt_tokens(log.turns, str.encode, lambda prefix: build_messages(prefix, layout="paper"))
        row = {"log": name, "turns": len(log), "whole": whole, "append": append, "paper": paper}
        rows.append({**row, "saved": whole / append})
    return rows
