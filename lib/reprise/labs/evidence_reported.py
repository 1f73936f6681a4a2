"""What SafeActBench's printed numbers can and cannot mean: counts behind percentages, pairs behind two margins.

Source: SafeActBench, main results, diagnostics, interventions and appendix.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from reprise.stats_exact import exact_paired_bootstrap, feasible_pairs, grim


def counts_behind(table: pd.DataFrame) -> pd.DataFrame:
    """Each printed percentage (columns value as text, episodes) with the counts that round to it, as text.

    Metrics are means over three repeats of equal size, so a mean is a count over all episodes of the three.
    """
    return table.assign(counts=[worded(value, int(n)) for value, n in zip(table.value, table.episodes, strict=True)])


def worded(value: str, episodes: int) -> str:
    """The counts that round to a printed percentage, in words.

    >>> worded("37.7", 1968), worded("58.0", 132)
    ('741 or 742', 'none')
    """
    return " or ".join(map(str, grim(value, episodes))) or "none"


def sizes_that_fit(values: Sequence[str], smallest: int = 20, largest: int = 199) -> list[int]:
    """Sample sizes under which every one of these printed percentages is a count over the size."""
    return [n for n in range(smallest, largest + 1) if all(grim(value, n) for value in values)]


def pair_intervals(before: int, after: int, pairs: int) -> pd.DataFrame:
    """Exact bootstrap interval of the change in percent, for every table of pairs with these margins.

    Columns: lost (acted before only), gained (acted after only), change, low, high in percentage points, excludes_zero.
    """
    rows = []
    for lost, gained in feasible_pairs(pairs, before, after):
        law = exact_paired_bootstrap(pairs, lost, gained)
        change = 100 * (gained - lost) / pairs
        # an end that is exactly zero has been reached, which is not excluded
        rows.append((lost, gained, change, 100 * law.low, 100 * law.high, law.low > 0 or law.high < 0))
    return pd.DataFrame(rows, columns=["lost", "gained", "change", "low", "high", "excludes_zero"])


def matched_pairings(gap: int, static: range, interactive: range, cases: int) -> bool:
    """Whether a gap excludes zero under every pairing of every two success counts so far apart in the ranges."""
    tables = [pair_intervals(s, i, cases) for s in static for i in interactive if s - i == gap and 0 <= i <= cases >= s]
    return bool(tables) and all(table.excludes_zero.all() for table in tables)
