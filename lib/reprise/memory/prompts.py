"""How notes stand in a prompt, and what a tuner is asked. The wording is ours and names no domain."""

from __future__ import annotations

import json
from collections.abc import Sequence

from reprise.memory.items import Draft, Failure, Item
from reprise.memory.notes import TITLES, Note

BEFORE = (
    "Notes from earlier mistakes follow. Each one is about its subject only. Check first whether a note applies to the "
    "question below; ignore it where it does not."
)
AFTER = "Say for each note: applicable, partially applicable or irrelevant. Then answer.\n\nQuestion: "


def with_notes(query: str, notes: Sequence[Note], limit: int = 2048, ask_applicability: bool = True) -> str:
    """The prompt of a question with notes; without notes the question itself, byte for byte.

    Args:
        limit: characters of guidance a note may take.
        ask_applicability: whether the check of each note is asked for (the paper's frame).
    """
    if not notes:
        return query
    blocks = [f"[{k}] Subject: {note.subject}\n{note.guidance.render(limit)}" for k, note in enumerate(notes, 1)]
    return "\n\n".join([BEFORE, *blocks, AFTER + query]) if ask_applicability else "\n\n".join([*blocks, query])


def for_subjects(failures: Sequence[Failure]) -> str:
    """Asks for one subject a failure: a JSON list of as many texts as there are failures."""
    return (
        f"{len(failures)} answers were wrong. Name for each the kind of question and the step that failed, in 10 to 50 "
        "words, and use the same words for failures of the same kind. Reply with nothing but a JSON list of "
        f"{len(failures)} strings, in this order.\n\n" + "\n\n".join(map(_failure, failures))
    )


def for_extraction(subject: str, failures: Sequence[Failure], passed: Sequence[Item]) -> str:
    """Asks for the five parts of one cluster's note, as a JSON object."""
    right = "\n".join(f"- {item.query}" for item in passed[:6])
    return (
        f"These answers were wrong for one reason: {subject}\n\n"
        + "\n\n".join(map(_failure, failures))
        + (f"\n\nThese questions were answered rightly and must stay so:\n{right}" if right else "")
        + f"\n\nWrite a note that would have prevented it. {_shape()}"
    )


def for_merge(existing: Sequence[Note], draft: Draft) -> str:
    """Asks for one note in place of several, with its subject, as a JSON object."""
    old = "\n\n".join(f"Subject: {note.subject}\n{note.guidance.render(4096)}" for note in existing)
    new = f"Subject: {draft.subject}\n{draft.guidance.render(4096)}"
    return (
        f"Merge these notes into one that loses nothing.\n\n{old}\n\n{new}\n\n{_shape()} Add a key subject: one of the "
        "subjects above where one covers them all, else a new one."
    )


def _failure(failure: Failure) -> str:
    parts = [f"Question: {failure.item.query}", f"Answer: {failure.answer}"]
    if failure.item.reference is not None:
        parts.append(f"Right answer: {failure.item.reference}")
    return "\n".join(parts)


def _shape() -> str:
    example = {name: "..." for name in TITLES} | {"corrected_examples": ["..."]}
    return f"Reply with nothing but a JSON object like {json.dumps(example)}; 1 to 3 examples, nothing empty."
