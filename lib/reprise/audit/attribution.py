"""Post-hoc failure attribution: who made the decisive error, and when, asked of a judge in three ways.

all_at_once    one call on the whole log
step_by_step   after each turn: is it the error? ends at the first yes
binary_search  which half of the turns holds it? until one turn is left, at most ceil(log2 N) calls

The run is known to have failed, so the judge sees all of it, unlike an online auditor.
Source: Zhang et al., ICML 2025, section 4; the wording of the questions is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from reprise.audit.errors import AuditError
from reprise.audit.prompt import transcript
from reprise.audit.trajectory import Trajectory, normalize_agent

Judge = Callable[[list[dict]], str]

PROTOCOLS = ("all_at_once", "step_by_step", "binary_search")
SYSTEM = (
    "You find the decisive error in the log of a failed run: the earliest turn whose correction would have saved it."
)
ANSWER = re.compile(
    r"agent(?: name)?\W*:\s*\**\s*(.+?)\s*$.*?step(?: number)?\W*:\s*\**\s*(\d{1,9})\b", re.I | re.M | re.S
)
WORD = re.compile(r"\b(yes|no)\b", re.I)
HALF = re.compile(r"\b(first|upper|second|lower)\b", re.I)


@dataclass(frozen=True)
class Attribution:
    """A judge's answer: step and agent, None where it gave none; calls it took, and answers that were not read."""

    step: int | None
    agent: str | None
    calls: int
    unread: int


def attribute(
    log: Trajectory, protocol: str, judge: Judge, reference: str | None = None, turn_chars: int | None = None
) -> Attribution:
    """Ask a judge who failed and when.

    Args:
        log: a failed run; its labels are not shown.
        protocol: one of PROTOCOLS.
        judge: chat messages -> text.
        reference: the task's right answer, for the setting in which the judge is told.
        turn_chars: characters shown of each turn; None shows all.

    Returns:
        step and agent in the log's own terms. An answer that cannot be read, or names no turn of the log, is counted;
        it ends all_at_once and binary_search without a prediction and is a no to step_by_step.

    Raises:
        AuditError: an unknown protocol. What the judge raises passes through.
    """
    if protocol not in PROTOCOLS:
        raise AuditError(f"protocol={protocol!r}: expected one of {', '.join(PROTOCOLS)}")
    asking = _Asking(log, judge, reference, turn_chars)
    search = {"all_at_once": _all_at_once, "step_by_step": _step_by_step, "binary_search": _binary_search}[protocol]
    step, agent = search(log, asking)
    return Attribution(step, agent, asking.calls, asking.unread)


def most_calls(turns: int, protocol: str) -> int:
    """Most calls that a protocol makes on a log of so many turns.

    >>> [most_calls(9, each) for each in PROTOCOLS]
    [1, 9, 4]
    """
    return {"all_at_once": 1, "step_by_step": turns, "binary_search": (turns - 1).bit_length()}[protocol]


class _Asking:
    """Puts questions about turns start..end to the judge and counts."""

    def __init__(self, log: Trajectory, judge: Judge, reference: str | None, turn_chars: int | None):
        self.log, self.judge, self.turn_chars = log, judge, turn_chars
        self.reference = "" if reference is None else f"The right answer to the task is: {reference}\n\n"
        self.calls = self.unread = 0

    def ask(self, start: int, end: int, question: str, pattern: re.Pattern) -> re.Match | None:
        """What the pattern finds in the answer to a question about turns start..end."""
        shown = transcript(self.log.turns[start : end + 1], self.turn_chars, start)
        user = f"{self.reference}The log, one turn a line:\n{shown}\n{question}"
        self.calls += 1
        found = pattern.search(self.judge([{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]))
        self.unread += found is None
        return found


def _all_at_once(log: Trajectory, asking: _Asking) -> tuple[int | None, str | None]:
    question = (
        "Which agent made the decisive error, and at which turn? Answer on three lines:\n"
        "Agent Name: ...\nStep Number: ...\nReason: ..."
    )
    found = asking.ask(0, len(log) - 1, question, ANSWER)
    if found is None:
        return None, None
    agent, step = normalize_agent(found[1].strip("*() ")), int(found[2])
    if step >= len(log):
        asking.unread += 1
        return None, agent
    return step, agent


def _step_by_step(log: Trajectory, asking: _Asking) -> tuple[int | None, str | None]:
    for k, turn in enumerate(log.turns):
        question = f"Is turn {k}, by {turn.role}, the decisive error? Answer Yes or No, then say why."
        found = asking.ask(0, k, question, WORD)
        if found is not None and found[1].lower() == "yes":
            return k, turn.role
    return None, None


def _binary_search(log: Trajectory, asking: _Asking) -> tuple[int | None, str | None]:
    start, end = 0, len(log) - 1
    while start < end:
        middle = (start + end) // 2
        question = (
            f"Does the decisive error lie in the first half (turns {start} to {middle}) or in the second half "
            f"(turns {middle + 1} to {end})? Answer: first half, or second half."
        )
        found = asking.ask(start, end, question, HALF)
        if found is None:
            return None, None
        if found[1].lower() in ("first", "upper"):
            end = middle
        else:
            start = middle + 1
    return start, log.turns[start].role
