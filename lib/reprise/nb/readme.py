"""The scoreboard in small that the README shows, kept equal to the committed results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reprise.errors import RepriseError
from reprise.nb.claims import STATUSES

BEGIN, END = "<!-- scoreboard: written by `reprise scoreboard --commit` -->", "<!-- /scoreboard -->"
KINDS = ("exact", "analytic", "reduced", "recorded", "measured")


def block(rows: Iterable[Mapping[str, Any]]) -> str:
    """Markdown table of claims by system and kind against status, between the two markers."""
    counted = Counter((row["system"], row["kind"], row["status"]) for row in rows)
    shown = [status for status in STATUSES if any(key[2] == status for key in counted)]
    lines = [f"| system | kind | {' | '.join(shown)} |", "|---|---|" + "--:|" * len(shown)]
    for system in sorted({key[0] for key in counted}):
        for kind in KINDS:
            numbers = [counted[system, kind, status] for status in shown]
            if any(numbers):
                lines.append(f"| {system} | {kind} | " + " | ".join(str(n) if n else "" for n in numbers) + " |")
    return "\n".join([BEGIN, *lines, END])


def update(readme: Path, rows: Iterable[Mapping[str, Any]]) -> bool:
    """Replace the block in `readme`; returns whether the file changed, False where it holds no block.

    Raises:
        RepriseError: only one of the two markers, or either of them twice.
    """
    from reprise.durable import atomic_write

    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    counts = text.count(BEGIN), text.count(END)
    if counts == (0, 0):
        return False
    if counts != (1, 1) or text.index(BEGIN) > text.index(END):
        raise RepriseError(f"{readme.name}: markers {counts}: expected {BEGIN} once and {END} once after it")
    before, rest = text.split(BEGIN)
    fresh = before + block(rows) + rest.split(END)[1]
    if fresh != text:
        atomic_write(readme, fresh.encode())
    return fresh != text
