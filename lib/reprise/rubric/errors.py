"""What rubric aggregation refuses, by kind."""

from typing import Any

from reprise.errors import RepriseError

LONGEST_SHOWN = 80  # characters of a value in a message


class RubricError(RepriseError):
    """The base of this system's errors; raised itself for an unknown choice."""


class GraphError(RubricError):
    """Criteria and edges that form no typed acyclic graph; the message names the criterion and the edge."""


class RetentionError(RubricError):
    """A retention, or an exponent on it, outside its range."""


class ScoreError(RubricError):
    """Judge scores of the wrong number, missing, or outside [0, 1]; the message names the criterion."""


class ExactTooLarge(RubricError):
    """Exact marginals would cost more than the limit allows.

    Attributes:
        terms: terms counted when compilation stopped.
        limit: the limit that was passed.
    """

    def __init__(self, terms: int, limit: int, unit: str = "terms", hint: str = "inference='bounds' or 'auto'"):
        super().__init__(f"exact marginals: {terms} {unit}: expected at most {limit}; {hint} always works")
        self.terms, self.limit = terms, limit


def shown(value: Any) -> str:
    """`repr` for a message: cut where it is long, and safe where a whole number has more digits than Python prints."""
    try:
        text = repr(value)
    except ValueError:
        return f"{type(value).__name__} too long to show"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
