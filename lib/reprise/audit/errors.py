"""Errors of the auditor: each names the record or field, the value, and what was expected."""

from typing import Any

from reprise.errors import RepriseError


class AuditError(RepriseError):
    """Base class of everything `reprise.audit` refuses."""


def shown(value: Any, length: int = 60) -> str:
    """`value` in ASCII for a message; an int of any size and text of any length."""
    if type(value) is int and abs(value) >= 10**20:
        return f"an int of {value.bit_length()} bits"
    try:
        text = ascii(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= length else f"{text[:length]}..."
