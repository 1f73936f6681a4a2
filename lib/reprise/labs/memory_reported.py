"""Reported scores of Mistake Notebook Learning, by what they are of: exact decimals as printed."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pandas as pd

from reprise.errors import RepriseError
from reprise.printed import half_up

KEYS = ("model", "benchmark", "method", "metric", "version")


class Reported:
    """The table `results.csv`: one row a printed figure.

    Args:
        path: CSV with the columns of `KEYS`, value, unit and source.

    Attributes:
        rows: the table, values as numbers.
    """

    def __init__(self, path: str | Path):
        self.rows = pd.read_csv(path)
        self._printed = pd.read_csv(path, dtype=str)

    def get(self, model: str, benchmark: str, method: str, metric: str, version: str = "published") -> Decimal:
        """One figure, as printed.

        Raises:
            RepriseError: none or several are reported under these names.
        """
        named = dict(zip(KEYS, (model, benchmark, method, metric, version), strict=True))
        found = self._printed[(self._printed[list(KEYS)] == pd.Series(named)).all(axis=1)].value
        if len(found) != 1:
            raise RepriseError(f"{', '.join(named.values())}: {len(found)} figures, expected one")
        return Decimal(found.iloc[0])


def rounded(value: Decimal | float, digits: int = 1) -> float:
    """A number rounded as a table prints it, halves away from zero.

    >>> rounded(Decimal("2.25")), rounded(0.45, 0)
    (2.3, 0.0)
    """
    return float(half_up(Decimal(str(value)), digits))
