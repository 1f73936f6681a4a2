"""Which format a log is in, by the keys of its first records; a log that fits several is refused, not guessed."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from reprise.traces import (
    aftraj,
    autogen,
    inspect_log,
    langgraph,
    mcp,
    openai_messages,
    otel,
    smolagents,
    who_and_when,
)
from reprise.traces.errors import TraceError
from reprise.traces.fields import shown

READERS: dict[str, ModuleType] = {
    reader.NAME: reader
    for reader in (
        who_and_when,
        aftraj,
        autogen,
        langgraph,
        smolagents,
        otel,
        inspect_log,
        openai_messages,
        mcp,
    )
}


def candidates(document: Any) -> list[str]:
    """Names of the formats whose first record this could be."""
    return [name for name, reader in READERS.items() if reader.looks_like(document)]


def detect(document: Any) -> str:
    """The one format that fits.

    Raises:
        TraceError: none does, or several do; the message names them.
    """
    found = candidates(document)
    if len(found) == 1:
        return found[0]
    if found:
        raise TraceError(f"format: {' and '.join(found)} both fit: expected one of them to be named")
    first = document[0] if isinstance(document, list) and document else document
    keys = f"keys {', '.join(map(str, first))[:120]}" if isinstance(first, dict) else shown(first)
    raise TraceError(f"format: {keys}: expected a log of {', '.join(READERS)}")
