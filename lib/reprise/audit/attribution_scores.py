"""Scoring of failure attribution: equality, the containment test of the released code, and the uniform guess."""

from __future__ import annotations

from collections.abc import Sequence

from reprise.audit.errors import AuditError

SCORERS = ("exact", "substring")


def step_hit(predicted: int | str | None, actual: int, compat: str = "exact") -> bool:
    """Whether a predicted step counts as right.

    Args:
        predicted: the step; None never counts. A digit string is read as its integer.
        actual: the label.
        compat: "exact" compares integers. "substring" is what the benchmark's released `evaluate.py` does: the label's
            digits occur in the prediction's, so that 10 also counts for 1 and for 0.

    Raises:
        AuditError: an unknown scorer.

    >>> step_hit(10, 1), step_hit(10, 1, "substring")
    (False, True)
    """
    if compat not in SCORERS:
        raise AuditError(f"compat={compat!r}: expected one of {', '.join(SCORERS)}")
    if predicted is None:
        return False
    return str(actual) in str(predicted) if compat == "substring" else int(predicted) == actual


def step_accuracy(predicted: Sequence[int | str | None], actual: Sequence[int], compat: str = "exact") -> float:
    """Share of right steps.

    Raises:
        AuditError: no log, or lists of different lengths.
    """
    if not actual or len(predicted) != len(actual):
        raise AuditError(f"predicted: {len(predicted)} for {len(actual)} labels: expected as many, and at least one")
    return sum(step_hit(p, a, compat) for p, a in zip(predicted, actual, strict=True)) / len(actual)


def uniform_step_accuracy(turns: Sequence[int], actual: Sequence[int], compat: str = "exact") -> float:
    """Expected step accuracy of a uniform guess among each log's turns; nothing is drawn.

    Args:
        turns: N of each log, at least one log.
        actual: k* of each log.
    """
    shares = [sum(step_hit(k, a, compat) for k in range(n)) / n for n, a in zip(turns, actual, strict=True)]
    return sum(shares) / len(shares)
