"""Arithmetic on printed scores: exact decimals in, text with the printed number of digits out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from math import sqrt

from reprise.errors import RepriseError


def mean(printed: Sequence[str]) -> Decimal:
    """Exact mean of printed figures.

    >>> mean(["64.8", "83.3", "80.4", "62.9"])
    Decimal('72.85')
    """
    if not len(printed):
        raise RepriseError("printed=[]: expected at least one figure")
    return sum(map(Decimal, printed)) / len(printed)


def gain(ours: str, theirs: str) -> str:
    """Exact difference of two printed figures, with their number of digits."""
    return str(Decimal(ours) - Decimal(theirs))


def sampling_error(percent: float, problems: int, samples: int) -> float:
    """Largest standard error, in percentage points, that drawing the answers can cause in a mean over problems.

    With the set of problems fixed the variance of the mean is sum p_i (1 - p_i) / (samples problems²), which for a
    given mean p is at most p (1 - p) / (samples problems). Another training run, another seed or another set of
    problems come on top of it.

    Args:
        percent: mean score, 0 to 100.
        problems: problems of the benchmark.
        samples: independent answers to each problem.
    """
    if not 0 <= percent <= 100:
        raise RepriseError(f"percent={percent}: expected 0 to 100")
    if problems < 1 or samples < 1:
        raise RepriseError(f"problems={problems}, samples={samples}: expected at least 1 each")
    p = percent / 100
    return 100 * sqrt(p * (1 - p) / (problems * samples))


def difference_error(ours: Sequence[str], theirs: Sequence[str], problems: int, samples: int, of: int = 4) -> float:
    """Largest standard error that drawing answers can cause in the difference of two averages.

    Args:
        ours, theirs: printed scores of benchmarks with `problems` problems each, in percent.
        problems, samples: as in `sampling_error`.
        of: number of benchmarks in the average; those not among the scores are taken as free of error.
    """
    return sqrt(sum(sampling_error(float(x), problems, samples) ** 2 for x in [*ours, *theirs])) / of


def audit(scores: Mapping[str, Mapping[str, str]], gains: Mapping[str, Mapping[str, str]]) -> list[dict]:
    """Every printed average and gain beside its recomputation.

    Args:
        scores: row -> {benchmark: printed score, ..., "average": printed average}.
        gains: row -> {"over": row, benchmark: printed gain or "" for none, ..., "average": printed gain}.

    Returns:
        rows with kind, row, column, printed, exact (the recomputation) and offset (their difference in units of the
        last digit printed). A gain of averages is recomputed twice, from printed and from exact averages.
    """
    benchmarks = [name for name in next(iter(scores.values())) if name != "average"]
    exact = {row: mean([cells[name] for name in benchmarks]) for row, cells in scores.items()}
    found = [("average", row, "average", cells["average"], exact[row]) for row, cells in scores.items()]
    for row, cells in gains.items():
        over = cells["over"]
        for name in benchmarks:
            if cells[name]:
                found.append(("gain", row, name, cells[name], Decimal(gain(scores[row][name], scores[over][name]))))
        one, other = Decimal(scores[row]["average"]), Decimal(scores[over]["average"])
        found.append(("gain of printed averages", row, "average", cells["average"], one - other))
        found.append(("gain of exact averages", row, "average", cells["average"], exact[row] - exact[over]))
    names = ("kind", "row", "column", "printed", "exact")
    return [dict(zip(names, entry, strict=True)) | {"offset": _offset(entry[3], entry[4])} for entry in found]


def _offset(printed: str, exact: Decimal) -> float:
    return float((exact - Decimal(printed)) * 10 ** len(printed.partition(".")[2]))
