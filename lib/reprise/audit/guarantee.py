"""A bound on false alarms over a whole run: thresholds from the largest score that safe runs ever reach.

An auditor scores every prefix and alarms at the first score above a threshold q. A safe run of N turns is looked at N
times, so a threshold with false-alarm rate a at one look has rate 1 - (1 - a)^N over N independent looks. The alarm
of a run is one event, however many looks it takes: it happens iff the run's largest score M = max_k s_k exceeds q.
Calibrating the largest scores M_1..M_n of n safe runs instead of the single looks gives, for every auditor,

    P(M_{n+1} > M_(r)) <= (n + 1 - r) / (n + 1) <= alpha,     r = ceil((n + 1)(1 - alpha)),

with M_(r) the r-th smallest: among n + 1 exchangeable numbers at most n + 1 - r exceed the r-th smallest of the
others. It assumes that the new safe run and the n calibration runs are exchangeable (drawn alike, in an order that
tells nothing) and nothing about scores, turns or lengths. Since "alarm by turn k" implies "alarm ever", the bound
holds at every k at once. It is an average over calibration sets; `confidence` gives a bound for the set at hand.

Source: our addition; V. Vovk, A. Gammerman and G. Shafer, Algorithmic Learning in a Random World (2005), chapter 2;
for the law of the rate given the calibration set, V. Vovk, Conditional validity of inductive conformal predictors,
Machine Learning 92 (2013) 349-376. AgentForesight reports the false-alarm rate it happens to have.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, inf, isfinite

import numpy as np

from reprise.audit.errors import AuditError


@dataclass(frozen=True)
class Threshold:
    """Alarm iff a score is strictly above `value`; inf, never, where there are too few calibration runs for `alpha`.

    `rank` r of `runs` n calibration maxima; n + 1 stands for inf. Without ties among scores the false-alarm rate of
    safe runs is `mean` = (n + 1 - r)/(n + 1) on average over calibration sets, and Beta(n + 1 - r, r) over them.
    """

    value: float
    alpha: float
    rank: int
    runs: int

    @property
    def mean(self) -> float:
        """Expected false-alarm rate of a safe run; an upper bound where scores tie."""
        return (self.runs + 1 - self.rank) / (self.runs + 1)

    def quantile(self, level: float) -> float:
        """Quantile, over calibration sets, of the false-alarm rate that one such threshold has."""
        from scipy.special import betaincinv

        if not 0 < level < 1:
            raise AuditError(f"level={level}: expected a level in (0, 1)")
        return float(betaincinv(self.runs + 1 - self.rank, self.rank, level)) if self.rank <= self.runs else 0.0


def run_maxima(runs: Sequence[Sequence[float]]) -> np.ndarray:
    """Largest score of each run, (runs,) float64.

    Raises AuditError at a run without scores and at one with a NaN, which compares with nothing; infinities are scores.
    """
    if not len(runs):
        raise AuditError("runs=[]: expected at least one run")
    maxima = np.empty(len(runs))
    for number, scores in enumerate(runs):
        scores = np.asarray(scores, dtype=np.float64)
        if scores.ndim != 1 or not scores.size:
            raise AuditError(f"runs[{number}]: shape {scores.shape}: expected one score a turn, at least one")
        if np.isnan(scores).any():
            turn = int(np.isnan(scores).argmax())
            raise AuditError(f"runs[{number}][{turn}]=nan: expected a score that compares with others")
        maxima[number] = scores.max()
    return maxima


def conformal_rank(runs: int, alpha: float, confidence: float | None = None) -> int:
    """Rank r in 1..n+1 of the run maximum that serves as threshold; n + 1 where none of n is high enough.

    Args:
        runs: number n of calibration runs.
        alpha: largest acceptable probability of any alarm over a safe run, in (0, 1); read as the decimal it prints.
        confidence: None bounds the rate on average over calibration sets. A level c asks that the rate of this
            calibration set exceed alpha with probability at most 1 - c: the smallest r with P(Bin(n, 1 - alpha) >= r)
            <= 1 - c, since the rate exceeds alpha iff at least r of n maxima lie below the (1 - alpha)-quantile.

    >>> conformal_rank(99, 0.05), conformal_rank(18, 0.05), conformal_rank(99, 0.05, 0.9)
    (95, 19, 98)
    """
    if runs < 1:
        raise AuditError(f"runs={runs}: expected at least 1")
    _alpha(alpha)
    if confidence is None:
        # 1 - 0.7 is not 0.3 in binary, and a ceiling notices
        return runs + 1 - floor(Fraction(str(float(alpha))) * (runs + 1))
    if not 0 < confidence < 1:
        raise AuditError(f"confidence={confidence}: expected a level in (0, 1), or None")
    from scipy.special import betainc

    ranks = np.arange(1, runs + 1)
    rare = betainc(ranks, runs + 1 - ranks, 1 - alpha) <= 1 - confidence  # P(Bin(n, p) >= r) = I_p(r, n + 1 - r)
    return int(ranks[rare.argmax()]) if rare.any() else runs + 1


def calibrate(runs: Sequence[Sequence[float]], alpha: float, confidence: float | None = None) -> Threshold:
    """Threshold under which a safe run raises any alarm with probability at most alpha, however long it is.

    Args:
        runs: scores of safe runs that played no part in making the auditor, one a turn, higher for more suspicion.
        alpha, confidence: of `conformal_rank`.

    Raises:
        AuditError: an argument outside its range, a run without scores, or a NaN among them.

    >>> calibrate([[0.1, 0.7], [0.3], [0.2, 0.2, 0.9], [0.4]], alpha=0.4)
    Threshold(value=0.7, alpha=0.4, rank=3, runs=4)
    """
    maxima = np.sort(run_maxima(runs))
    rank = conformal_rank(len(maxima), alpha, confidence)
    return Threshold(float(maxima[rank - 1]) if rank <= len(maxima) else inf, float(alpha), rank, len(maxima))


def calibrate_by(
    groups: Sequence[Hashable], runs: Sequence[Sequence[float]], alpha: float, confidence: float | None = None
) -> dict[Hashable, Threshold]:
    """A threshold for each group, and with it the bound within each group instead of on average over all.

    A group has to be known before the run is: its domain, its framework, the size of its task; never its length.

    Args:
        groups: one label a run.
        runs, alpha, confidence: of `calibrate`.
    """
    if len(groups) != len(runs):
        raise AuditError(f"groups: {len(groups)} labels: expected {len(runs)}, one a run")
    return {
        group: calibrate([scores for scores, own in zip(runs, groups, strict=True) if own == group], alpha, confidence)
        for group in dict.fromkeys(groups)
    }


def calibrate_per_look(runs: Sequence[Sequence[float]], alpha: float) -> Threshold:
    """The tempting threshold, for comparison: rate alpha at one look drawn from all looks, and no bound over a run."""
    run_maxima(runs)  # the same refusals
    looks = np.sort(np.concatenate([np.asarray(scores, dtype=np.float64) for scores in runs]))
    rank = conformal_rank(len(looks), alpha)
    return Threshold(float(looks[rank - 1]) if rank <= len(looks) else inf, float(alpha), rank, len(looks))


def compounded(rate: float, looks: float) -> float:
    """Probability 1 - (1 - rate)^looks of any alarm over independent looks.

    >>> round(compounded(0.024, 11.5), 3)
    0.244
    """
    if not 0 <= rate <= 1:
        raise AuditError(f"rate={rate}: expected a probability")
    return 1 - (1 - rate) ** looks


def first_alarm(scores: Sequence[float], threshold: float) -> int | None:
    """First turn whose score is above the threshold, or None.

    >>> first_alarm([0.2, 0.9, 0.5, 0.9], 0.5), first_alarm([0.2], 0.2)
    (1, None)
    """
    above = np.asarray(scores, dtype=np.float64) > threshold
    return int(above.argmax()) if above.any() else None


def _alpha(alpha: float) -> None:
    if not (isfinite(alpha) and 0 < alpha < 1):
        raise AuditError(f"alpha={alpha}: expected a probability in (0, 1)")
