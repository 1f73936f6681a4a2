"""What reported leakages imply about the rubrics behind them: the least error with which any one population fits.

At exponent gamma a violated child keeps prod_j [q_j + (1 - q_j) retention_j^gamma] of its score, and the corpus L is an
average of such curves over gamma, weighted by what each case leaks in the flat sum. Each curve is linear in every q_j,
so that only the ends of their ranges matter: a linear program over a short list of curves gives the least possible
error, whatever the rubrics, the scores and the weights are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from reprise.rubric.leakage import EDGE_TYPES, THRESHOLD
from reprise.rubric.retention import DEFAULT_RETENTION

COLUMNS = 100  # taken into a linear program at a time
PARENTS = 4  # GEAR, section 4.7: 94.4 % of dependent criteria have one or two, the rest 3.25 on average


@dataclass(frozen=True)
class Curves:
    """Shares kept of a violated child's score.

    Attributes:
        kept: [curves, gammas], 1 at gamma = 0.
        parents: [curves] number of parents of the child.
        names: what each curve is.
    """

    kept: np.ndarray
    parents: np.ndarray
    names: tuple[str, ...]


def violated_children(gammas: Sequence[float], most_parents: int = PARENTS, chains: bool = False) -> Curves:
    """The extreme curves of a violated child.

    At least one parent is unmet across a weak or strong edge: its score is below the threshold, and q between 0 and
    there. A parent with q = 1 suppresses nothing and is left out.

    Args:
        gammas: exponents >= 0.
        most_parents: of the child.
        chains: let a parent have a parent of its own, so that its q falls with gamma too. Without, parents are roots.
    """
    gammas = np.asarray(gammas, dtype=np.float64)
    options = _parent_curves(gammas, chains)
    kept, parents, names = [], [], []
    for count in range(1, most_parents + 1):
        for chosen in combinations_with_replacement(options, count):
            if any(option[2] for option in chosen):
                kept.append(np.prod([option[1] for option in chosen], axis=0))
                parents.append(count)
                names.append(" x ".join(option[0] for option in chosen))
    return Curves(np.array(kept), np.array(parents), tuple(names))


def _parent_curves(gammas: np.ndarray, chains: bool) -> list[tuple[str, np.ndarray, bool]]:
    """(name, factor at each gamma, whether it is an unmet parent of a considered type)."""
    above = {"": np.ones(len(gammas))}
    if chains:
        for kind, retention in DEFAULT_RETENTION.items():
            for score in (0.0, 1.0 - THRESHOLD):
                above[f" < {kind} {score:g}"] = score + (1 - score) * retention**gammas
    options = []
    for kind, retention in DEFAULT_RETENTION.items():
        for score in (0.0, THRESHOLD, 1.0):
            for name, factor in above.items():
                if score == 0 and name or score == 1 and not name:
                    continue
                q = score * factor
                unmet = score < 1 and kind in EDGE_TYPES
                options.append((f"{kind} {score:g}{name}", q + (1 - q) * retention**gammas, unmet))
    return options


def any_monotone(gammas: Sequence[float], rates: int = 400) -> Curves:
    """exp(-rate * gamma) for rates from 0 to infinity: what root parents of any number and any retentions average to.

    A product of q + (1 - q) retention^gamma expands into such exponentials with weights >= 0.
    """
    gammas = np.asarray(gammas, dtype=np.float64)
    grid = np.concatenate([[0.0], np.geomspace(1e-3, 60, rates)])
    kept = np.exp(-np.outer(grid, gammas))
    kept = np.vstack([kept, np.where(gammas == 0, 1.0, 0.0)])
    names = (*(f"rate {rate:.3g}" for rate in grid), "rate infinite")
    return Curves(kept, np.zeros(len(kept), dtype=int), names)


@dataclass(frozen=True)
class Fit:
    """The population that comes closest.

    Attributes:
        error: largest distance to a reported value.
        values: [gammas] what it gives.
        mass: [curves] leaked mass on each, summing to the flat leakage.
    """

    error: float
    values: np.ndarray
    mass: np.ndarray


def closest(reported: Sequence[float], curves: Curves) -> Fit:
    """Least largest error of an average of curves, by linear programming.

    Args:
        reported: [gammas] leakages.
        curves: at those gammas.
    """
    reported = np.asarray(reported, dtype=np.float64)
    rows = np.vstack([curves.kept.T, -curves.kept.T])
    error = np.full(2 * len(reported), -1.0)
    limits = np.concatenate([reported, -reported])
    count = len(curves.kept)
    found = _minimise(np.append(np.zeros(count), 1.0), np.column_stack([rows, error]), limits, [count])
    return Fit(float(found[-1]), curves.kept.T @ found[:-1], found[:-1])


def mass_range(
    reported: Sequence[float], curves: Curves, chosen: np.ndarray, tolerance: float, start: Fit
) -> tuple[float, float]:
    """Least and largest share of the leaked mass on the chosen curves, over all averages within the tolerance.

    Args:
        reported: [gammas] leakages, the first at gamma = 0.
        curves: at those gammas.
        chosen: [curves] bool.
        tolerance: largest error of each leakage.
        start: what `closest` found for them.

    Returns:
        shares of reported[0]; NaN twice where no average comes within the tolerance.
    """
    if start.error > tolerance:
        return np.nan, np.nan
    reported = np.asarray(reported, dtype=np.float64)
    rows = np.vstack([curves.kept.T, -curves.kept.T])
    limits = np.concatenate([reported + tolerance, tolerance - reported])
    used = np.flatnonzero(start.mass)
    least, most = (_minimise(sign * chosen, rows, limits, used) @ chosen for sign in (1.0, -1.0))
    return float(least / reported[0]), min(1.0, float(most / reported[0]))


def _minimise(cost: np.ndarray, rows: np.ndarray, limits: np.ndarray, start: Sequence[int]) -> np.ndarray:
    """x >= 0 that minimises cost @ x with rows @ x <= limits, for far more columns than rows.

    Columns are taken in as long as one would lower the cost; the columns of `start` must allow a solution.
    """
    from scipy.optimize import linprog

    active = np.zeros(len(cost), dtype=bool)
    active[list(start)] = True
    while True:
        found = linprog(cost[active], A_ub=rows[:, active], b_ub=limits, method="highs")
        reduced = np.where(active, 0.0, cost - found.ineqlin.marginals @ rows)
        better = np.argsort(reduced, kind="stable")[:COLUMNS]
        better = better[reduced[better] < -1e-10]
        if not len(better):
            break
        active[better] = True
    x = np.zeros(len(cost))
    x[active] = found.x
    return x


def most_single_parent_mass(flat: float, gear: float) -> float:
    """Largest share of the leaked mass on children with one parent: each keeps at least the smallest retention."""
    return gear / flat / DEFAULT_RETENTION[EDGE_TYPES[1]]


def satisfied_rate_ratio(kept_by_hard: float, single_parent_edges: float) -> float:
    """How much more often edges into children with several parents must be satisfied than those into children with one.

    Direct hard gating keeps a satisfied edge's child whole unless another of its parents is unmet, so that a child with
    one parent keeps all. At most `kept_by_hard` of the satisfied edges can then lead to children with one parent.

    Args:
        kept_by_hard: preservation under hard gating.
        single_parent_edges: share of edges into children with one parent.
    """
    several = (1 - kept_by_hard) / (1 - single_parent_edges)
    return several / (kept_by_hard / single_parent_edges)
