"""What an auditor says after a turn, and the reader of its text, which refuses but never raises.

An answer looks like this, after the model has thought aloud:

    <think>...</think><answer>{"answer": 3, "agent": "Verifier", "reason": "accepted 19 for 14 + 6"}</answer>
    <think>...</think><answer>{"answer": "SAFE", "agent": null, "reason": null}</answer>

Only the last answer after the last `</think>` counts, so that an answer quoted while thinking is not taken for one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from reprise.audit.errors import AuditError, shown
from reprise.audit.trajectory import normalize_agent

KEYS = ("answer", "agent", "reason")
# the paper's responses end at 1,500 tokens; a longer answer block is no verdict and is not worth decoding
ANSWER_CHARACTERS = 20_000
FENCE = "```"
LANGUAGE = re.compile(r"[a-zA-Z]*")
DIGITS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Continue, or an alarm that names the step and the agent of the decisive error.

    `kind` is "safe" or "alarm". `step` counts turns from 0 and `agent` is its speaker; both are None on "safe", and an
    auditor that cannot tell the agent leaves it None. Output that is no verdict is `valid=False` with kind "safe" and
    the reason in `error`: it lets the run continue and is counted. `valid` is the format gate G of the reward.

    Raises AuditError for an unknown kind, an alarm without a step, a safe verdict with one, or an error on a valid one.
    Source: AgentForesight, online auditing, y_k in {Continue} or {Alarm} x {0..k} x agents.
    """

    kind: str = "safe"
    step: int | None = None
    agent: str | None = None
    reason: str | None = None
    valid: bool = True
    error: str | None = None

    def __post_init__(self):
        if self.kind not in ("safe", "alarm"):
            raise AuditError(f"kind={self.kind!r}: expected 'safe' or 'alarm'")
        if self.kind == "alarm" and (type(self.step) is not int or self.step < 0):
            raise AuditError(f"step={self.step!r}: expected an int of at least 0 in an alarm")
        if self.kind == "safe" and (self.step is not None or self.agent is not None):
            raise AuditError(f"step={self.step!r}, agent={self.agent!r}: expected None in a safe verdict")
        if self.valid == (self.error is not None) or not self.valid and self.kind == "alarm":
            raise AuditError(
                f"valid={self.valid}, error={self.error!r}: expected a valid verdict, or an error and kind 'safe'"
            )

    @property
    def is_alarm(self) -> bool:
        """Whether the run is stopped here."""
        return self.kind == "alarm"


SAFE = Verdict()


def alarm(step: int, agent: str | None = None, reason: str | None = None) -> Verdict:
    """The decisive error is turn `step`, made by `agent`."""
    return Verdict("alarm", step, agent, reason)


def invalid(error: str) -> Verdict:
    """Output that cannot be read as a verdict; the run continues."""
    return Verdict(valid=False, error=error)


class _Refused(Exception):
    """Why a text is no verdict."""


def parse_verdict(text: str, k: int, roles: Collection[str], lenient: bool = False) -> Verdict:
    """Read the answer that an auditor gave on turns 0..k.

    Valid are: "SAFE" with agent and reason null; an int (not true, 3.0 or "3") in 0..k with a non-empty reason and an
    agent who spoke in the prefix, compared without a recipient (`normalize_agent`). Strict JSON with exactly the keys
    answer, agent and reason, none twice; one markdown fence around it is taken off. Everything else is invalid.

    Args:
        text: the response, whatever it is.
        k: last visible turn.
        roles: speakers of turns 0..k.
        lenient: also accept a step in digits ("3") and a response without a think block, to score models that were not
            trained for the format. The ranges stay.

    Returns:
        a verdict; never raises on any `text`. An invalid one has `valid=False` and says why in `error`.

    Source: AgentForesight, verdict format and structural axis of the reward; "grounded" is read as: step and agent
    exist in the visible prefix.

    >>> parse_verdict('<think>.</think><answer>{"answer": 1, "agent": "A", "reason": "r"}</answer>', 1, {"A", "B"})
    Verdict(kind='alarm', step=1, agent='A', reason='r', valid=True, error=None)
    """
    try:
        fields = _fields(_answer_block(text, lenient))
        return _verdict(fields, k, {normalize_agent(role) for role in roles} - {""}, lenient)
    except _Refused as refused:
        return invalid(str(refused))


def _answer_block(text: Any, lenient: bool) -> str:
    if not isinstance(text, str):
        raise _Refused(f"response of type {type(text).__name__}: expected text")
    thought, closed, rest = text.rpartition("</think>")
    if not lenient and not (closed and "<think>" in thought):
        raise _Refused("no think block: expected <think>...</think> before the answer")
    _, opened, block = rest.rpartition("<answer>")
    if not opened:
        raise _Refused("no <answer> after the last </think>")
    block, closed, _ = block.partition("</answer>")
    if not closed:
        raise _Refused("answer is not closed: expected </answer>")
    if len(block) > ANSWER_CHARACTERS:
        raise _Refused(f"answer of {len(block)} characters: expected at most {ANSWER_CHARACTERS}")
    block = block.strip()
    if len(block) >= 2 * len(FENCE) and block.startswith(FENCE) and block.endswith(FENCE):
        block = block[len(FENCE) : -len(FENCE)]
        block = block[LANGUAGE.match(block).end() :]
    return block


def _fields(block: str) -> dict[str, Any]:
    try:
        fields = json.loads(block, parse_constant=_no_constant, object_pairs_hook=_once)
    # RecursionError: nesting; ValueError: malformed, or an int of more digits than Python converts
    except (ValueError, RecursionError) as error:
        raise _Refused(f"answer is not strict JSON: {type(error).__name__}: {shown(str(error))}") from None
    if not isinstance(fields, dict) or sorted(fields) != sorted(KEYS):
        found = sorted(fields) if isinstance(fields, dict) else type(fields).__name__
        raise _Refused(f"answer has {shown(found)}: expected exactly the keys {', '.join(KEYS)}")
    return fields


def _no_constant(name: str) -> None:
    raise _Refused(f"{name} is not strict JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _Refused("answer has a key twice")
    return fields


def _verdict(fields: dict[str, Any], k: int, speakers: set[str], lenient: bool) -> Verdict:
    step, agent, reason = (fields[key] for key in KEYS)
    if step == "SAFE":
        if agent is not None or reason is not None:
            raise _Refused("agent and reason: expected null with SAFE")
        return SAFE
    if lenient and isinstance(step, str) and DIGITS.fullmatch(step):
        step = int(step)
    if type(step) is not int or not 0 <= step <= k:
        raise _Refused(f"answer={shown(step)}: expected 'SAFE' or an int in 0..{k}")
    if not isinstance(agent, str) or normalize_agent(agent) not in speakers:
        raise _Refused(f"agent={shown(agent)}: expected one who spoke in turns 0..{k}")
    if not isinstance(reason, str) or not reason.strip():
        raise _Refused(f"reason={shown(reason)}: expected a text")
    return alarm(step, normalize_agent(agent), reason)
