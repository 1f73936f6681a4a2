"""Retentions learned from preferences instead of fixed by type, with the uncertainty that a few hundred pairs leave.

A pair says that one response to a rubric's prompt was preferred to another. The rewards S of the two, by exact
marginals, decide how likely that is:

    P(chosen over rejected) = sigmoid(beta (S(chosen) - S(rejected)))         Bradley and Terry; beta: sharpness

The unknowns are the logits of the retentions, one a type or one an edge, and log beta, with the Gaussian prior of
`Prior`. S is linear in each single retention, so its derivative by it is the difference of two evaluations, at 1 and at
0; with it Fisher scoring finds the mode. Elliptical slice sampling around the mode then draws from the posterior
itself, not from its Gaussian approximation, and has nothing to tune.

The paper fixes the retentions (table 7) and names learning them per edge or per domain as open (section 6).
Sources: R. Bradley and M. Terry, Biometrika 39 (1952) 324-345; I. Murray, R. Adams and D. MacKay, Elliptical slice
sampling (AISTATS 2010); R. Nishihara, I. Murray and R. Adams, Parallel MCMC with generalized elliptical slice sampling
(JMLR 15, 2014), here with one chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from reprise.rubric.errors import RubricError
from reprise.rubric.graph import Edge, EdgeType, RubricGraph
from reprise.rubric.preferences import PackedPairs, Pair
from reprise.rubric.retention import DEFAULT_RETENTION

MODE_STEPS = 50
MODE_TOLERANCE = 1e-4  # step of a parameter at which the mode counts as found; it only centres the sampler
WIDER = 1.5  # the sampler's Gaussian against the Laplace approximation, so that it covers the posterior's tails


class Level(StrEnum):
    """What shares a retention: nothing is learned but the sharpness, all edges of a type, or no two edges."""

    FIXED = "fixed"
    TYPE = "type"
    EDGE = "edge"


@dataclass(frozen=True)
class Prior:
    """Gaussian prior of the logits of the retentions and of log sharpness. The paper gives none; our choice.

    Attributes:
        centre: retention of each type at the prior's centre; values are kept `margin` away from 0 and 1, which have
            no logit.
        spread: standard deviation of a type's logit. 1.5 puts 95 % of a weak retention between 0.07 and 0.97.
        edge_spread: standard deviation of an edge's logit around its type's.
        sharpness: median of beta. At 10, a reward difference of 0.1 is preferred 73 times in 100.
        sharpness_spread: standard deviation of log beta.
    """

    centre: Mapping[EdgeType, float] = field(default_factory=lambda: DEFAULT_RETENTION)
    margin: float = 0.05
    spread: float = 1.5
    edge_spread: float = 1.0
    sharpness: float = 10.0
    sharpness_spread: float = 1.0


@dataclass(frozen=True)
class RetentionFit:
    """A posterior over retentions.

    Attributes:
        level: what shares a retention.
        groups: names of the retentions learned: types, or (graph fingerprint, parent, child) of edges; none for FIXED.
        draws: [draws, groups] retentions.
        sharpness: [draws] beta.
        seen: how many pairs were fitted.
    """

    level: Level
    groups: tuple
    draws: np.ndarray
    sharpness: np.ndarray
    seen: int

    def mean(self) -> np.ndarray:
        """(groups,) posterior means."""
        return self.draws.mean(0)

    def interval(self, confidence: float = 0.95) -> np.ndarray:
        """[groups, 2] ends of the equal-tailed posterior intervals."""
        return np.quantile(self.draws, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0).T

    def apply(self, graph: RubricGraph) -> RubricGraph:
        """The graph with the posterior means as its edges' own retentions.

        At level EDGE a graph that was not fitted has no learned edges, and FIXED learns none: they keep what they had.
        """
        learned = dict(zip(self.groups, self.mean().tolist(), strict=True))
        edges = [replace(e, retention=learned.get(_group(graph, e, self.level), e.retention)) for e in graph.edges]
        return RubricGraph(graph.criteria, edges)

    def probabilities(self, pairs: Iterable[Pair]) -> np.ndarray:
        """(pairs,) posterior probability that the response chosen was the one to be preferred."""
        packed = PackedPairs(pairs)
        place = {name: k for k, name in enumerate(self.groups)}
        keys = [_group(graph, e, self.level) for graph in packed.graphs for e in graph.edges]
        groups = np.array([place.get(key, -1) for key in keys], dtype=int)
        total = np.zeros(len(packed.rubric))
        for retention, beta in zip(self.draws, self.sharpness, strict=True):
            values = np.where(groups >= 0, np.append(retention, np.nan)[groups], packed.own)
            total += _sigmoid(beta * packed.margins(values))
        return total / len(self.draws)


def fit_retention(
    pairs: Iterable[Pair], level: Level | str = Level.TYPE, *, prior: Prior = Prior(), draws: int = 500, seed: int = 0
) -> RetentionFit:
    """Posterior over the retentions given preferred responses.

    Args:
        pairs: a few hundred; they may belong to many rubrics.
        level: what shares a retention. FIXED keeps the graphs' own and learns the sharpness alone: the reference that
            held-out pairs are compared with.
        prior: of logits and log sharpness.
        draws: from the posterior, after a tenth as many that are thrown away.
        seed: of the sampler.

    Raises:
        PreferenceError: there is no pair, or a pair's scores do not fit its rubric.
        RubricError: `level` is none.
    """
    try:
        level = Level(level)
    except ValueError:
        raise RubricError(f"level={level!r}: expected one of {', '.join(Level)}") from None
    posterior = _Posterior(PackedPairs(pairs), level, prior)
    mode, covariance = posterior.mode()
    logits = _slice_samples(posterior, mode, WIDER**2 * covariance, draws, np.random.default_rng(seed))
    return RetentionFit(
        level, posterior.names, _sigmoid(logits[:, :-1]), np.exp(logits[:, -1]), len(posterior.packed.rubric)
    )


class _Posterior:
    """Log posterior density of (logits of the groups, log beta), up to a constant."""

    def __init__(self, packed: PackedPairs, level: Level, prior: Prior):
        self.packed = packed
        keys = [_group(graph, e, level) for graph in packed.graphs for e in graph.edges]
        self.names = tuple(dict.fromkeys(keys)) if level is not Level.FIXED else ()
        place = {name: k for k, name in enumerate(self.names)}
        self.groups = np.array([place.get(key, -1) for key in keys], dtype=int)
        types = [packed.edges[keys.index(name)].type for name in self.names]
        centre = np.clip([prior.centre[t] for t in types], prior.margin, 1 - prior.margin)
        self.centre = np.append(_logit(centre), np.log(prior.sharpness))
        same = np.array([[a == b for b in types] for a in types], dtype=float).reshape(len(types), len(types))
        cov = prior.spread**2 * same + (prior.edge_spread**2 * np.eye(len(types)) if level is Level.EDGE else 0)
        self.precision = np.zeros((len(types) + 1,) * 2)
        self.precision[:-1, :-1] = np.linalg.inv(cov)
        self.precision[-1, -1] = prior.sharpness_spread**-2

    def retention(self, point: np.ndarray) -> np.ndarray:
        """(edges,) retentions at a point; those not learned are the edges' own."""
        return np.where(self.groups >= 0, np.append(_sigmoid(point[:-1]), np.nan)[self.groups], self.packed.own)

    def log_density(self, point: np.ndarray) -> float:
        away = point - self.centre
        margins = np.exp(point[-1]) * self.packed.margins(self.retention(point))
        return float(-np.logaddexp(0, -margins).sum() - away @ self.precision @ away / 2)

    def mode(self) -> tuple[np.ndarray, np.ndarray]:
        """The most probable point and the covariance of the Laplace approximation there, by Fisher scoring."""
        point, value = self.centre.copy(), self.log_density(self.centre)
        for _ in range(MODE_STEPS):
            gradient, information = self._local(point)
            step = np.linalg.solve(information, gradient)
            while (reached := self.log_density(point + step)) < value and np.abs(step).max() > MODE_TOLERANCE:
                step = step / 2
            if np.abs(step).max() <= MODE_TOLERANCE:
                break
            point, value = point + step, reached
        return point, np.linalg.inv(self._local(point)[1])

    def _local(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient of the log density and expected information."""
        retention = self.retention(point)
        margins = np.exp(point[-1]) * self.packed.margins(retention)
        slopes = np.exp(point[-1]) * self.packed.slopes(retention)
        jacobian = np.zeros((len(margins), len(point)))
        first, rows = self.packed.first_edge[:-1][self.packed.rubric], np.arange(len(margins))
        for k in range(slopes.shape[1]):
            edge = np.minimum(first + k, len(retention) - 1)  # beyond a rubric's own edges the slope is 0
            learned = self.groups[edge] >= 0
            by_logit = slopes[:, k] * retention[edge] * (1 - retention[edge])
            jacobian[rows[learned], self.groups[edge][learned]] += by_logit[learned]
        jacobian[:, -1] = margins
        chance = _sigmoid(margins)
        gradient = jacobian.T @ (1 - chance) - self.precision @ (point - self.centre)
        return gradient, (jacobian.T * (chance * (1 - chance))) @ jacobian + self.precision


def _slice_samples(posterior: _Posterior, centre: np.ndarray, covariance: np.ndarray, draws: int, rng) -> np.ndarray:
    """Elliptical slice sampling of the posterior, seen as the Gaussian given times the rest.

    Returns:
        [draws, parameters].
    """
    root, precision = np.linalg.cholesky(covariance), np.linalg.inv(covariance)

    def rest(away):
        return posterior.log_density(centre + away) + away @ precision @ away / 2

    away = np.zeros(len(centre))
    value, kept = rest(away), []
    burn = draws // 10
    for n in range(burn + draws):
        other = root @ rng.standard_normal(len(centre))
        level = value + np.log(rng.random())
        angle = rng.uniform(0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        while True:
            proposal = away * np.cos(angle) + other * np.sin(angle)
            value = rest(proposal)
            if value > level:
                break
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)
        away = proposal
        if n >= burn:
            kept.append(centre + away)
    return np.array(kept)


def _group(graph: RubricGraph, edge: Edge, level: Level):
    """What names the retention that an edge takes."""
    return edge.type if level is Level.TYPE else (graph.fingerprint(), edge.parent, edge.child)


def _sigmoid(x):
    # 1 / (1 + exp(-x)) would overflow far below 0
    return 0.5 + 0.5 * np.tanh(x / 2)


def _logit(share):
    return np.log(share) - np.log1p(-share)
