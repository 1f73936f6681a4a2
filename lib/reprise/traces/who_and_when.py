"""Who&When: one failed run a JSON file, with a human label of the decisive error.

{"question", "question_ID", "ground_truth", "is_correct", "mistake_agent", "mistake_step", "mistake_reason", "history"}

`history` is a list of {content, role} in hand-crafted systems ("Orchestrator (-> WebSurfer)" is a role) and of
{content, role, name} in algorithm-generated ones, where the agent stands in `name`. `mistake_step` is a string.
Source: ag2ai/Agents_Failure_Attribution (MIT); Zhang et al., ICML 2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprise.traces.fields import get, parts_text, records
from reprise.traces.log import Log
from reprise.traces.turns import Turn

NAME = "who_and_when"


def looks_like(document: Any) -> bool:
    """Whether it has a history and a label."""
    return isinstance(document, Mapping) and "history" in document and "mistake_step" in document


def read(document: Any) -> list[Log]:
    """The one run.

    Raises:
        TraceError: a turn without content, or without a speaker.
    """
    turns = []
    for k, record in enumerate(records(document.get("history"), "history")):
        place = f"history[{k}]"
        speaker = get(record, "name", str, place, default="") or get(record, "role", str, place)
        # "Orchestrator (-> WebSurfer)" speaks as Orchestrator and acts on WebSurfer
        role, bracket, rest = speaker.partition(" (")
        if "content" not in record:
            get(record, "content", str, place)
        action = rest.removesuffix(")") if bracket else "say"
        turns.append(Turn(role.strip() or speaker, action or "say", parts_text(record["content"]), record))
    meta = {name: value for name, value in document.items() if name != "history"}
    return [Log(tuple(turns), (), NAME, str(document.get("question_ID", "")), meta)]
