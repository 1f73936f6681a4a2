"""False alarms over whole runs: what is promised, what is realised on fresh safe runs, what it costs, what breaks it.

Every method gets the same scores and the same safe calibration runs:

    per look                the threshold has rate alpha at one look; the switch that is off
    run maximum             the run's largest score is calibrated (reprise.audit.guarantee)
    run maximum of ranks    half of the runs rank scores within their context, the others calibrate the largest rank
    martingale              bets on p-values within each context, alarm at 1 / alpha (reprise.audit.martingale)
    either                  the larger of 1 / alpha and a calibrated maximum of evidence: holds if one assumption does
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, permutations, product

import numpy as np

from reprise.audit.environment import Environment
from reprise.audit.guarantee import calibrate, calibrate_per_look, conformal_rank, first_alarm, run_maxima
from reprise.audit.martingale import Bet, Null, log_evidence
from reprise.audit.trajectory import Trajectory
from reprise.errors import RepriseError
from reprise.labs.agent_runs import CodeEnv
from reprise.labs.audit_scorers import LongMath, Scorer, contexts, safe_runs
from reprise.stats import wilson_interval

HALVED = ("run maximum of ranks", "either")
METHODS = ("per look", "run maximum", "run maximum of ranks", "martingale", "either")
# one error in ten turns, near 1 / (mean turns of a run); chosen before any run, and a wrong one costs delay only
HAZARD = 0.1


@dataclass(frozen=True)
class Scored:
    """Scores, contexts and decisive steps of runs, in the same order."""

    scores: tuple[np.ndarray, ...]
    contexts: tuple[tuple[Hashable, ...], ...]
    decisive: tuple[int | None, ...]

    @classmethod
    def of(cls, runs: Sequence[Trajectory], scorer: Scorer) -> Scored:
        labels = (tuple(contexts(run)) for run in runs)
        return cls(tuple(scorer(runs)), tuple(labels), tuple(run.decisive_step for run in runs))

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, part: slice) -> Scored:
        return Scored(self.scores[part], self.contexts[part], self.decisive[part])


class Detector:
    """A method after calibration, at every alpha.

    Args:
        method: one of METHODS.
        calibration: safe runs.
        errors: unsafe runs that tell the bet what p-values of decisive errors look like; they are used for nothing
            else, and the methods that do not bet do not look at them.
    """

    def __init__(self, method: str, calibration: Scored, errors: Scored):
        if method not in METHODS:
            raise RepriseError(f"method={method!r}: expected one of {', '.join(METHODS)}")
        self.method, self.null, self.bet = method, None, None
        half = len(calibration) // 2
        ranking, rest = (calibration[:half], calibration[half:]) if method in HALVED else (calibration, calibration)
        if method not in ("per look", "run maximum"):
            self.null = Null.fit(ranking.scores, ranking.contexts)
        if method in ("martingale", "either"):
            at_error = [p[step] for p, step in zip(self._p_values(errors), errors.decisive, strict=True)]
            # every context has about one turn a run or more: the rarest p-value it gives falls into the first step
            self.bet = Bet.fit(at_error, 1 / len(ranking))
        self._calibration = None if method == "martingale" else self.statistics(rest)

    def threshold(self, alpha: float) -> float:
        """Alarm iff a statistic is strictly above it."""
        if self.method == "per look":
            return calibrate_per_look(self._calibration, alpha).value
        ville = float(np.nextafter(-np.log(alpha), -np.inf))  # alarm where the evidence reaches 1 / alpha
        if self.method == "martingale":
            return ville
        value = calibrate(self._calibration, alpha).value
        return max(ville, value) if self.method == "either" else value

    def statistics(self, runs: Scored) -> list[np.ndarray]:
        """What is compared with the threshold, one number a turn."""
        if self.null is None:
            return list(runs.scores)
        if self.bet is None:
            return [-np.log(p) for p in self._p_values(runs)]
        return [log_evidence(p, self.bet, HAZARD) for p in self._p_values(runs)]

    def alarms(self, runs: Scored, alpha: float) -> np.ndarray:
        """The first turn after which each run is stopped, (runs,); inf for never."""
        return first_turns(self.statistics(runs), self.threshold(alpha))

    def _p_values(self, runs: Scored) -> list[np.ndarray]:
        return [self.null.p_values(*pair) for pair in zip(runs.scores, runs.contexts, strict=True)]


def first_turns(statistics: Sequence[np.ndarray], threshold: float) -> np.ndarray:
    """(runs,) first turn above the threshold, inf where there is none."""
    firsts = (first_alarm(each, threshold) for each in statistics)
    return np.array([np.inf if each is None else each for each in firsts])


def realised(
    safe: Scored,
    calibration: int,
    test: int,
    alphas: Sequence[float],
    errors: Scored,
    methods: Sequence[str] = METHODS,
) -> list[dict]:
    """False-alarm rates over whole fresh runs; every block of `safe` is calibration + test and serves once.

    Returns:
        one row a block, method and alpha: seed, method, alpha, alarms, runs, far, turns (mean of the test runs).
    """
    rows, size = [], calibration + test
    for seed in range(len(safe) // size):
        block = safe[seed * size : (seed + 1) * size]
        fresh = block[calibration:]
        turns = float(np.mean([len(scores) for scores in fresh.scores]))
        for method in methods:
            detector = Detector(method, block[:calibration], errors)
            largest = run_maxima(detector.statistics(fresh))
            for alpha in alphas:
                count = int((largest > detector.threshold(alpha)).sum())
                key = {"seed": seed, "method": method, "alpha": alpha, "alarms": count, "runs": test}
                rows.append({**key, "far": count / test, "turns": turns})
    return rows


def cost(detectors: Mapping[str, Detector], safe: Scored, unsafe: Scored, alphas: Sequence[float]) -> list[dict]:
    """What each calibrated method catches.

    Returns:
        one row a method and alpha: far; recall, the share of unsafe runs whose first alarm is at the decisive turn;
        detected, the share with the first alarm from that turn on; premature, with an earlier one; delay, mean turns
        from the decisive one to the alarm where it was detected.
    """
    decisive, rows = np.array(unsafe.decisive), []
    for method, detector in detectors.items():
        largest, statistics = run_maxima(detector.statistics(safe)), detector.statistics(unsafe)
        for alpha in alphas:
            first = first_turns(statistics, detector.threshold(alpha))
            caught = (first >= decisive) & np.isfinite(first)
            shares = {"recall": first == decisive, "detected": caught, "premature": first < decisive}
            rows.append({
                "method": method, "alpha": alpha, "far": float((largest > detector.threshold(alpha)).mean()),
                **{name: float(mask.mean()) for name, mask in shares.items()},
                "delay": float((first - decisive)[caught].mean()) if caught.any() else float("nan"),
            })  # fmt: skip
    return rows


def by_turn(detector: Detector, safe: Scored, alpha: float, turns: int) -> np.ndarray:
    """Share of runs with an alarm after turn 0, 1, ..., turns - 1 at the latest; runs that have ended count on."""
    first = detector.alarms(safe, alpha)
    return np.array([(first <= k).mean() for k in range(turns)])


def conditions(systems: Mapping[str, Environment], runs: int, unseen: int, seed: int) -> dict[str, list[Trajectory]]:
    """Safe runs as in the calibration, and safe runs that are not, by what is different."""
    every = list(systems.values())
    return {
        "as calibrated": safe_runs(every, runs, seed),
        "mathematics alone": safe_runs([systems["math"]], runs, seed + 1),
        "search alone": safe_runs([systems["search"]], runs, seed + 2),
        # slips so rare that safe runs of this length are found at all
        "mathematics, 3 x longer": safe_runs([LongMath(p_slip=0.01, p_tool_error=0.0)], runs, seed + 3),
        "verifier always checks": safe_runs([replace(systems["math"], p_check=1.0)], runs, seed + 4),
        "coding, not calibrated": safe_runs([CodeEnv()], unseen, seed + 5),
    }


def gain_of_ranks(safe: Scored, unsafe: Scored, calibration: int, step: int, alpha: float) -> list[dict]:
    """Recall of the run maximum of ranks less that of the run maximum, for blocks of fresh runs.

    Args:
        safe: every `step` runs hold a calibration set at their beginning.
        unsafe: shared out among the blocks.

    Returns:
        one row a block: "by context", and "one context", where every turn is ranked among all turns.
    """
    merged = [replace(each, contexts=tuple(("",) * len(own) for own in each.contexts)) for each in (safe, unsafe)]
    rows, blocks = [], len(safe) // step
    for block in range(blocks):
        part, row = slice(block * step, block * step + calibration), {}
        for name, (good, bad) in {"by context": (safe, unsafe), "one context": merged}.items():
            bad = bad[block::blocks]
            recall = {
                method: np.mean(Detector(method, good[part], bad).alarms(bad, alpha) == np.array(bad.decisive))
                for method in ("run maximum", "run maximum of ranks")
            }
            row[name] = float(recall["run maximum of ranks"] - recall["run maximum"])
        rows.append(row)
    return rows


def on_other_runs(
    safe: Scored, other: Scored, errors: Scored, calibration: int, step: int, alpha: float, methods: Sequence[str]
) -> list[dict]:
    """False-alarm rates of each method on runs unlike its calibration, shared out among blocks of calibration runs."""
    blocks = len(safe) // step
    return [
        {
            method: float(np.isfinite(Detector(method, safe[part], errors).alarms(other[block::blocks], alpha)).mean())
            for method in methods
        }
        for block in range(blocks)
        for part in [slice(block * step, block * step + calibration)]
    ]


def rate_interval(alarms: np.ndarray) -> dict[str, float]:
    """Share of runs with an alarm and its Wilson interval, from `Detector.alarms`."""
    count = int(np.isfinite(alarms).sum())
    low, high = wilson_interval(count, len(alarms))
    return {"far": count / len(alarms), "low": low, "high": high}


def over_calibrations(
    safe: Scored, runs: int, test: Scored, alpha: float, confidence: float | None = None
) -> np.ndarray:
    """False-alarm rate on `test` of the run-maximum threshold from each block of `runs` calibration runs."""
    maxima, fresh = run_maxima(safe.scores), np.sort(run_maxima(test.scores))
    rank = conformal_rank(runs, alpha, confidence)
    blocks = maxima[: len(maxima) // runs * runs].reshape(-1, runs)
    if rank > runs:
        return np.zeros(len(blocks))
    thresholds = np.sort(blocks, axis=1)[:, rank - 1]
    return 1 - np.searchsorted(fresh, thresholds, side="right") / len(fresh)


def worst_share(runs: int) -> list[dict]:
    """Every order, ties included, in which `runs` + 1 exchangeable run maxima can come: how often the last one alarms.

    A tied pattern is a non-decreasing list of levels; all its arrangements are equally likely.

    Returns:
        one row an alpha on a grid: alpha, worst (largest share of alarms over the patterns), allowed.
    """
    rows = []
    for alpha in (0.05, 0.1, 0.2, 0.25, 0.34, 0.5):
        worst = 0.0
        for pattern in combinations_with_replacement(range(runs + 1), runs + 1):
            orders = list(permutations(pattern))
            alarms = sum(order[-1] > calibrate([[x] for x in order[:-1]], alpha).value for order in orders)
            worst = max(worst, alarms / len(orders))
        rows.append({"alpha": alpha, "worst": worst, "allowed": (runs + 1 - conformal_rank(runs, alpha)) / (runs + 1)})
    return rows


def ville_share(levels: int, turns: int, alpha: float, bet: Bet, hazard: float) -> tuple[float, float]:
    """(probability that E ever reaches 1 / alpha, mean of the last E) over all paths of uniform p-values on a grid."""
    grid = (1 + np.arange(levels)) / levels
    paths = [log_evidence(path, bet, hazard) for path in product(grid, repeat=turns)]
    reached = np.mean([path.max() >= -np.log(alpha) - 1e-12 for path in paths])
    return float(reached), float(np.mean([np.exp(path[-1]) for path in paths]))
