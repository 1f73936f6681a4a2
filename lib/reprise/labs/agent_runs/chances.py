"""Probabilities of an environment, checked once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from reprise.errors import RepriseError


class ChanceError(RepriseError):
    """A setting of an environment that cannot be; the message names it."""


def check_chances(environment: Any) -> None:
    """Refuse a field `p_*` outside [0, 1]."""
    for field in fields(environment):
        value = getattr(environment, field.name)
        if field.name.startswith("p_") and not 0 <= value <= 1:
            raise ChanceError(f"{field.name}={value}: expected a probability in [0, 1]")
