"""Evidence that accumulates turn by turn, and an alarm whose false-alarm rate holds for runs of any length.

Under the null hypothesis a run is safe: given the turns before, the p-value p_k of turn k's score is no smaller than
uniform, P(p_k <= u | past) <= u. A bet is a non-increasing f >= 0 with integral at most 1, so E[f(p_k) | past] <= 1,
and products of bets form a non-negative supermartingale. The error may happen at any turn j, so bets that start at
j = 0, 1, ... are mixed with weights w_j = h (1 - h)^j:

    E_k = sum_{j <= k} w_j prod_{i=j..k} f(p_i)  +  sum_{j > k} w_j,      E_{-1} = 1.

By Ville's inequality P(sup_k E_k >= 1 / alpha) <= alpha: a bound at every stopping time and for every length, longer
runs than any in the calibration included. What it assumes is the law of p_k given the past, which exchangeable runs
do not give: with p-values from a context's safe scores it holds if, in that context, the score of a safe turn does not
depend on the past any further and the calibration is large. A score that stays high once it is high breaks it.
Calibrating the run maximum of log E (`guarantee.calibrate`) and taking the larger of that threshold and log(1/alpha)
bounds the rate if either assumption holds.

Source: our addition; J. Ville, Etude critique de la notion de collectif (1939); for bets on p-values, V. Vovk and
R. Wang, E-values: calibration, combination and applications, Annals of Statistics 49 (2021) 1736-1754.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reprise.audit.errors import AuditError


@dataclass(frozen=True)
class Null:
    """Sorted scores of safe turns in each context, against which a new turn's score is ranked."""

    scores: Mapping[Hashable, np.ndarray]

    @classmethod
    def fit(cls, runs: Sequence[Sequence[float]], contexts: Sequence[Sequence[Hashable]]) -> Null:
        """Scores of safe runs that played no part in making the auditor; a context is seen before its turn's score.

        Args:
            runs: scores of each run, one a turn, higher for more suspicion.
            contexts: one label a turn (the speaker, the kind of act).
        """
        kept: dict[Hashable, list[float]] = {}
        for number, (scores, labels) in enumerate(zip(runs, contexts, strict=True)):
            if len(scores) != len(labels):
                raise AuditError(f"contexts[{number}]: {len(labels)} labels: expected {len(scores)}, one a score")
            for score, label in zip(scores, labels, strict=True):
                if np.isnan(score):
                    raise AuditError(f"runs[{number}]: a score is nan: expected one that compares with others")
                kept.setdefault(label, []).append(float(score))
        return cls({label: np.sort(values) for label, values in kept.items()})

    def p_values(self, scores: Sequence[float], contexts: Sequence[Hashable]) -> np.ndarray:
        """(1 + safe scores of the context at least as high) / (1 + safe scores of the context); 1 in an unseen context.

        >>> Null.fit([[1.0, 2.0, 3.0]], ["aaa"]).p_values([2.5, 0.0, 9.0], "aab").tolist()
        [0.5, 1.0, 1.0]
        """
        p = np.ones(len(scores))
        for turn, (score, label) in enumerate(zip(scores, contexts, strict=True)):
            known = self.scores.get(label)
            if known is not None:
                # a NaN sorts behind every score and would look like the strongest evidence there is
                above = len(known) if np.isnan(score) else len(known) - np.searchsorted(known, score, side="left")
                p[turn] = (1 + above) / (1 + len(known))
        return p


@dataclass(frozen=True)
class Bet:
    """A step function f on (0, 1]: `heights`[i] on (edges[i], edges[i + 1]], non-increasing with integral at most 1.

    Raises AuditError for anything else, because then products of bets bound nothing.
    """

    edges: tuple[float, ...]
    heights: tuple[float, ...]

    def __post_init__(self):
        edges, heights = np.asarray(self.edges), np.asarray(self.heights)
        if len(edges) != len(heights) + 1 or edges[0] != 0 or edges[-1] != 1 or (np.diff(edges) <= 0).any():
            raise AuditError(f"edges={self.edges}: expected 0 < ... < 1, one more than the {len(heights)} heights")
        if (heights < 0).any() or (np.diff(heights) > 0).any():
            raise AuditError(f"heights={self.heights}: expected non-increasing numbers of at least 0")
        if (total := float(heights @ np.diff(edges))) > 1 + 1e-12:
            raise AuditError(f"heights={self.heights}: integral {total:.6g}: expected at most 1")

    @classmethod
    def fit(cls, p: Sequence[float], finest: float, floor: float = 0.1) -> Bet:
        """The density of p-values at decisive errors, made non-increasing, mixed with a uniform share `floor`.

        Betting with the density of the alternative makes evidence grow fastest (J. Kelly, 1956); the uniform share
        keeps f above 0, so that one unremarkable turn does not end a bet.

        Args:
            p: p-values of turns that are decisive errors, of runs used for nothing else.
            finest: width of the first step; below the smallest p-value a context can give, there is nothing to see.
            floor: in (0, 1]; 1 never bets.
        """
        p = np.asarray(p, dtype=np.float64)
        if not p.size or not ((p > 0) & (p <= 1)).all():
            raise AuditError(f"p: {p.size} values: expected at least one, each in (0, 1]")
        if not 0 < finest < 1 or not 0 < floor <= 1:
            raise AuditError(f"finest={finest}, floor={floor}: expected 0 < finest < 1 and 0 < floor <= 1")
        steps = max(1, int(np.ceil(np.log2(1 / finest))))
        edges = np.concatenate([[0.0], finest ** (1 - np.arange(steps + 1) / steps)])
        edges[-1] = 1.0
        share = np.histogram(p, np.nextafter(edges, 2))[0] / p.size
        density = floor + (1 - floor) * _non_increasing(share, np.diff(edges))
        return cls(tuple(edges.tolist()), tuple((density / (density @ np.diff(edges))).tolist()))

    def __call__(self, p: np.ndarray) -> np.ndarray:
        """f(p), p in (0, 1]."""
        return np.asarray(self.heights)[np.searchsorted(self.edges, p, side="left") - 1]


def log_evidence(p: Sequence[float], bet: Bet, hazard: float) -> np.ndarray:
    """log E_k after each turn: alarm where it reaches log(1/alpha).

    Args:
        p: p-values of a run's turns, (turns,), in (0, 1].
        bet: f.
        hazard: h in (0, 1), the chance a turn is thought to have of being the error; a wrong one costs delay only.

    >>> log_evidence([0.01], Bet((0, 0.01, 1), (100, 0)), 0.1).round(4).tolist()
    [2.3888]
    """
    p = np.asarray(p, dtype=np.float64)
    if not 0 < hazard < 1:
        raise AuditError(f"hazard={hazard}: expected a probability in (0, 1)")
    if not ((p > 0) & (p <= 1)).all():
        raise AuditError(f"p={p[~((p > 0) & (p <= 1))][0]}: expected a p-value in (0, 1]")
    with np.errstate(divide="ignore"):
        gains = np.log(bet(p))
        waiting, started, out = 0.0, -np.inf, np.empty(len(p))
        for turn, gain in enumerate(gains):
            started = np.logaddexp(started, waiting + np.log(hazard)) + gain
            waiting += np.log1p(-hazard)
            out[turn] = np.logaddexp(started, waiting)
    return out


def _non_increasing(share: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Closest non-increasing density to a histogram: neighbours that rise are pooled until none does."""
    blocks: list[list[float]] = []  # mass, width, steps
    for mass, wide in zip(share, width, strict=True):
        blocks.append([mass, wide, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] <= blocks[-1][0] / blocks[-1][1]:
            mass, wide, count = blocks.pop()
            blocks[-1] = [blocks[-1][0] + mass, blocks[-1][1] + wide, blocks[-1][2] + count]
    return np.concatenate([np.full(int(count), mass / wide) for mass, wide, count in blocks])
