"""What a note is worth: the questions that are answered with it and not without it, one note left out at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reprise.memory.gate import compare
from reprise.memory.items import Item
from reprise.memory.loop import MistakeNotebook
from reprise.memory.working import Working


@dataclass(frozen=True)
class Credit:
    """One note's part in the answers to some questions.

    Attributes:
        id, subject: of the note.
        used: questions it is retrieved for.
        gains: answered rightly with it and wrongly without it.
        harms: the other way round.
    """

    id: str
    subject: str
    used: int
    gains: int
    harms: int


def leave_one_out(book: MistakeNotebook, items: Sequence[Item]) -> list[Credit]:
    """Credit of every note of the book's store over the same questions, most useful first.

    Questions a note is not retrieved for keep their prompt, so only the others are asked again, once a note. Credits do
    not add up: two notes that say the same have none each. With a policy or judge that draws, the comparison is fair
    only if a question draws the same in both answers.

    Returns:
        one entry a note, by gains minus harms, then by id.
    """
    memory = Working.of(book.store.snapshot())
    whole = book.evaluate(items, memory)
    credits = []
    for place, note in enumerate(memory.notes):
        touched = [k for k, prompt in enumerate(whole.prompts) if any(each.id == note.id for each in prompt.notes)]
        keep = [k for k in range(len(memory.notes)) if k != place]
        rest = Working(tuple(memory.notes[k] for k in keep), memory.vectors[keep])
        without = book.evaluate([items[k] for k in touched], rest) if touched else None
        found = compare(without.rewards if without else [], [whole.rewards[k] for k in touched])
        credits.append(Credit(note.id, note.subject, len(touched), found.wins, found.losses))
    return sorted(credits, key=lambda credit: (credit.harms - credit.gains, credit.id))
