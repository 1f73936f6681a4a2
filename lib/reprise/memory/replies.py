"""JSON out of a language model's reply: bare, fenced, or inside other text; never evaluated, bounded in size."""

from __future__ import annotations

import json

from reprise.memory.errors import MemoryFault

LONGEST = 200_000  # characters of a reply that are looked at


class BadReply(MemoryFault):
    """A reply without the JSON that was asked for."""


def json_in(reply: str | None, kind: type):
    """The first JSON value of a kind in a reply.

    Args:
        reply: what the model wrote, or None.
        kind: `list` or `dict`.

    Raises:
        BadReply: there is none; the message shows how the reply starts.
    """
    text, opening = (reply or "")[:LONGEST], "[" if kind is list else "{"
    decoder, at = json.JSONDecoder(), -1
    # bounded: an essay full of brackets costs a thousand attempts, not a quadratic scan
    for _ in range(1000):
        at = text.find(opening, at + 1)
        if at < 0:
            break
        try:
            value, _ = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, kind):
            return value
    raise BadReply(f"reply={text[:60]!r}: expected a JSON {'list' if kind is list else 'object'}")
