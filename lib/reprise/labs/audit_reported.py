"""What the reported table of auditors leaves possible: counts, false alarms, F1 in the other reading; and looks.

Percentages of 332 runs come from few whole counts. Where a row leaves several, a quantity is given as the ends over all
of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from reprise.audit.counts import (
    OVERALL,
    Counts,
    Shifts,
    false_alarm_bounds,
    reconstruct_counts,
    reconstruct_shifts,
    unsafe_bounds,
)
from reprise.audit.metrics import AuditMetrics, AuditRecord, audit_metrics, record
from reprise.audit.replay import replay
from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import SAFE, Verdict, alarm
from reprise.traces import Turn

# the deployable region of figure 4, in percent
MOST_FALSE_ALARMS, LEAST_STEP_ACC = 20, 50


class Possible(NamedTuple):
    """One possibility of a row: its counts, and its shifts if they were printed."""

    counts: Counts
    shifts: tuple[Shifts, ...]


class Row(NamedTuple):
    """Ends of what a row of the table leaves possible, in percent.

    `far` follows from F1 alone, `far_with_shift` from the shifts too; `text_f1` is the F1 of the printed formula.
    """

    hits: tuple[int, int]
    alarms: tuple[int, int]
    step_acc: tuple[float, float]
    far: tuple[float, float]
    far_with_shift: tuple[float, float]
    text_f1: tuple[float, float]


def cells(row: Mapping[str, str], metric: str, domains: Sequence[str]) -> dict[str, str]:
    """Cells of a row by domain and overall, from columns named such as "Math F1"."""
    return {name: row[f"{name} {metric}"] for name in (*domains, OVERALL)}


def possibilities(
    row: Mapping[str, str], n_by_domain: Mapping[str, int], unsafe: Sequence[int], false_alarms: int | None = None
) -> list[Possible]:
    """Counts that print as a row's F1, with the shifts that print as its mean step shift; those without any are out.

    Args:
        row: columns such as "Math F1" and "Math ASS".
        n_by_domain: runs of each domain.
        unsafe: unsafe ones among them.
        false_alarms: safe runs with an alarm, where known.
    """
    found = []
    for counts in reconstruct_counts(cells(row, "F1", n_by_domain), n_by_domain, unsafe):
        shifts = reconstruct_shifts(cells(row, "ASS", n_by_domain), counts, n_by_domain, unsafe, false_alarms)
        if shifts:
            found.append(Possible(counts, tuple(shifts)))
    return found


def ends(possible: Sequence[Possible], n_by_domain: Mapping[str, int], unsafe: Sequence[int]) -> Row:
    """Ends over all possibilities of a row.

    >>> row = {f"{d} F1": f for d, f in [("Math", "50.00"), ("Overall", "50.00")]}
    >>> row |= {f"{d} ASS": s for d, s in [("Math", "0.50"), ("Overall", "0.50")]}
    >>> possible = possibilities(row, {"Math": 4}, [2])
    >>> ends(possible, {"Math": 4}, [2]).far
    (0.0, 50.0)
    """
    total, safe = sum(unsafe), sum(n_by_domain.values()) - sum(unsafe)
    hits, alarms, by_f1, by_shift, text = [], [], [], [], []
    for counts, shifts in possible:
        hits.append(sum(counts.hits))
        alarms.append(sum(counts.alarms(unsafe)))
        by_f1 += false_alarm_bounds(counts, n_by_domain, unsafe)
        detected = [sum(each.detected) for each in shifts]
        by_shift += [alarms[-1] - each for each in detected]
        text += [200 * hits[-1] / (total + each) for each in detected]

    def span(values, scale=1):
        return min(values) * scale, max(values) * scale

    return Row(span(hits), span(alarms), span(hits, 100 / total), span(by_f1, 100 / safe),
               span(by_shift, 100 / safe), span(text))  # fmt: skip


def f1_cells(counts: Counts) -> list[float]:
    """F1 of each domain and overall, in percent."""
    pairs = [*zip(counts.hits, counts.flagged, strict=True), (sum(counts.hits), sum(counts.flagged))]
    return [200 * hits / flagged for hits, flagged in pairs]


def shift_cells(shifts: Shifts) -> list[float | None]:
    """Mean shift of each domain and overall, in turns; None without a detected run."""
    pairs = [*zip(shifts.detected, shifts.shift, strict=True), (sum(shifts.detected), sum(shifts.shift))]
    return [shift / detected if detected else None for detected, shift in pairs]


def formatted(scored: AuditMetrics, names: Sequence[str]) -> list[str]:
    """Metrics with their intervals as text; a dash where undefined."""
    texts = []
    for name in names:
        value, interval = getattr(scored, name), scored.intervals.get(name)
        text = "-" if value is None else f"{value:.1f}"
        texts.append(f"{text} ({interval[0]:.1f} to {interval[1]:.1f})" if interval and value is not None else text)
    return texts


def unsafe_allowed(
    rows: Mapping[str, Sequence[Counts]], n_by_domain: Mapping[str, int], domain: str, reading: str
) -> list[tuple[str, int, int]]:
    """(auditor, fewest, most) unsafe runs of a domain, for every possibility of every row that has any."""
    at = list(n_by_domain).index(domain)
    found = [(name, unsafe_bounds(each, n_by_domain, reading)) for name, row in rows.items() for each in row]
    return [(name, *bounds[at]) for name, bounds in found if all(low <= high for low, high in bounds)]


def runs(counts: Counts, shifts: Shifts, n_by_domain: Mapping[str, int], unsafe: Sequence[int]) -> list[AuditRecord]:
    """Records with these counts; shifts are spread so that their sum is right, each run is a family of its own."""
    made: list[AuditRecord] = []
    rows = zip(n_by_domain, n_by_domain.values(), unsafe, counts.hits, counts.alarms(unsafe), *shifts, strict=True)
    for domain, n, u, hits, alarms, detected, shift in rows:
        off = detected - hits
        # every miss by one step, and the rest of the sum in the last run
        steps = [0] * hits + [1] * max(0, off - 1) + [shift - max(0, off - 1)] * (off > 0)
        pairs = [(0, step) for step in steps] + [(0, None)] * (u - detected)
        pairs += [(None, 0)] * (alarms - detected) + [(None, None)] * (n - u - alarms + detected)
        made += [AuditRecord(f"{domain} {i}", *pair, domain=domain) for i, pair in enumerate(pairs)]
    return made


# -- one look at a safe run, or one after every turn -------------------------------------------------------------------


class Chance:
    """An auditor that flags the last turn with probability q at each look, whatever it sees.

    Args:
        q: probability of an alarm a look.
        rng: the only source of chance; one number a look.
    """

    def __init__(self, q: float, rng: np.random.Generator):
        self.q, self.rng = q, rng

    def __call__(self, turns: tuple[Turn, ...]) -> Verdict:
        return alarm(len(turns) - 1, turns[-1].role) if self.rng.random() < self.q else SAFE


def safe_runs(n: int, mean_turns: float, rng: np.random.Generator) -> Iterator[Trajectory]:
    """Safe runs of at least 3 turns, 3 + Poisson(mean - 3)."""
    for i, more in enumerate(rng.poisson(mean_turns - 3, n)):
        turns = tuple(Turn("agent", "say", str(k)) for k in range(3 + int(more)))
        yield Trajectory(f"run {i}", turns)


def by_chance(q: float, n: int, mean_turns: float, protocol: str, rng: np.random.Generator) -> AuditMetrics:
    """False alarms of `Chance` on n safe runs, under a protocol of `reprise.audit.replay`."""
    auditor = Chance(q, rng)
    return audit_metrics(record(run, replay(auditor, run, protocol)) for run in safe_runs(n, mean_turns, rng))
