"""What can go wrong with a memory of notes."""

from __future__ import annotations

from reprise.errors import RepriseError


class MemoryFault(RepriseError):
    """A note, store or query that cannot be used; the message names the field, its value and what was expected."""


class InvalidGuidance(MemoryFault):
    """A note's five parts are not all there."""


class EmbeddingSpaceError(MemoryFault):
    """Vectors of one embedding space were offered to a store of another; `reembed` moves a store over."""


class StaleVersion(MemoryFault):
    """Somebody else committed since the snapshot a change was built on."""


class UnknownSchema(MemoryFault):
    """A store written by a newer version of this library: readable, not writable."""
