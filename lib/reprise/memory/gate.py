"""Accept a change only if the batch got better, and say how often a useless change would have passed.

Mistake Notebook Learning, section 3.3: Delta_B = sum_i (CLOSE 1[r'_i > r_i] - 1[r'_i < r_i]), commit iff Delta_B > 0.
With a noisy judge that rule lets a change that does nothing pass up to 44 % of the time; `accept_probability` is its
closed form, `SequentialGate` a gate that keeps to a bound. Both are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from reprise.memory.errors import MemoryFault


@dataclass(frozen=True)
class Comparison:
    """A batch before and after a change.

    Attributes:
        wins: items answered only after the change.
        losses: items answered only before it.
        ties: all others.
        delta: CLOSE * wins - losses, exact.
        coverage: share of the batch with a judged answer both before and after.
    """

    wins: int
    losses: int
    ties: int
    delta: Fraction
    coverage: Fraction

    @property
    def accepted(self) -> bool:
        return self.delta > 0


def compare(
    before: Sequence[float | None],
    after: Sequence[float | None],
    close: int | str | Fraction = 1,
    success_threshold: float = 0.5,
) -> Comparison:
    """Delta_B of one batch.

    Args:
        before: rewards without the change; None where the judge failed, which is a tie.
        after: rewards with it; None where an answer is missing, a loss if the item was right before, else a tie.
        close: weight of a win, at least 0; a fraction such as "1/3" stays exact.
        success_threshold: a reward counts as success from here on.

    Raises:
        MemoryFault: lengths differ, a reward is not finite, or close is negative.
    """
    weight = _close(close)
    if len(before) != len(after):
        raise MemoryFault(f"after={len(after)} rewards: expected {len(before)}, as many as before")
    for name, rewards in (("before", before), ("after", after)):
        for k, reward in enumerate(rewards):
            if reward is not None and not math.isfinite(reward):
                raise MemoryFault(f"{name}[{k}]={reward}: expected a finite reward, or None")
    pairs = [
        (b >= success_threshold, a is not None and a >= success_threshold)
        for b, a in zip(before, after, strict=True)
        if b is not None
    ]
    wins = sum(a and not b for b, a in pairs)
    losses = sum(b and not a for b, a in pairs)
    judged = sum(b is not None and a is not None for b, a in zip(before, after, strict=True))
    coverage = Fraction(judged, len(before)) if before else Fraction(1)
    return Comparison(wins, losses, len(before) - wins - losses, weight * wins - losses, coverage)


def delta_distribution(
    batch: int, gains: int, losses: int, flip: float, close: int | str | Fraction = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Distribution of Delta_B when each of the two judgements of an item is flipped independently.

    Args:
        batch: items; `gains` of them really wrong before and right after, `losses` the other way round.
        flip: probability that a judgement is wrong, 0 to 1/2.
        close: weight of a win.

    Returns:
        (values, probabilities), float64, values increasing.

    Raises:
        MemoryFault: an argument outside its range.
    """
    weight = _close(close)
    if min(batch, gains, losses) < 0 or gains + losses > batch:
        raise MemoryFault(f"gains={gains}, losses={losses}: expected counts with a sum of at most batch={batch}")
    if not 0 <= flip <= 0.5:
        raise MemoryFault(f"flip={flip}: expected 0 <= flip <= 0.5")
    keep = 1 - flip
    win, loss = weight.numerator, weight.denominator  # Delta in units of 1 / denominator
    step = {  # kind of item -> (P(win), P(loss))
        "gain": (keep * keep, flip * flip),
        "loss": (flip * flip, keep * keep),
        "same": (flip * keep, flip * keep),
    }
    # index 0 is a Delta of -batch; each item moves it up by `win`, down by `loss`, or not at all
    total = np.zeros(batch * (win + loss) + 1)
    total[batch * loss] = 1.0
    for kind, count in (("gain", gains), ("loss", losses), ("same", batch - gains - losses)):
        up, down = step[kind]
        for _ in range(count):
            moved = (1 - up - down) * total
            moved[win:] += up * total[: total.size - win]
            moved[: total.size - loss] += down * total[loss:]
            total = moved
    values = (np.arange(total.size) - batch * loss) / loss
    return values, total


def accept_probability(batch: int, gains: int, losses: int, flip: float, close: int | str | Fraction = 1) -> float:
    """P(Delta_B > 0): how often the gate lets a change through that really gains and loses that many items."""
    values, probability = delta_distribution(batch, gains, losses, flip, close)
    return float(probability[values > 0].sum())


def false_accept(batch: int, delta: Fraction, flip: float, close: int | str | Fraction = 1) -> float:
    """P(Delta_B >= delta) of a change that does nothing: how easily noise alone reaches what a commit showed."""
    values, probability = delta_distribution(batch, 0, 0, flip, close)
    return float(probability[values >= float(delta) - 1e-12].sum())


@dataclass(frozen=True)
class SequentialGate:
    """Judge a batch again and again until the evidence for a gain is strong enough, or a limit is reached.

    Every judged pair multiplies the evidence e by 2 theta for a win, 2 (1 - theta) for a loss and 1 for a tie. If the
    change gains no more items than it loses, e is a supermartingale: an item that gains and one that loses multiply to
    1 - (x (2 theta - 1))^2 <= 1 in expectation, x being the same for both. So P(e ever reaches 1 / alpha) <= alpha
    (Ville's inequality), whenever one stops. Each evaluation judges both sides afresh, with noise independent of the
    others': a deterministic judge that is wrong is wrong each time, and no repetition helps.

    Attributes:
        alpha: bound on the probability of accepting a change that gains no more than it loses.
        theta: share of wins among decided pairs that the test is tuned for, between 1/2 and 1.
        hopeless: evidence at which a change is given up.
        max_evaluations: evaluations of the batch before a change that is still undecided is given up.
    """

    alpha: float = 0.05
    theta: float = 0.75
    hopeless: float = 0.05
    max_evaluations: int = 8

    def __post_init__(self):
        if not 0 < self.alpha < 1:
            raise MemoryFault(f"alpha={self.alpha}: expected a probability in (0, 1)")
        if not 0.5 < self.theta < 1:
            raise MemoryFault(f"theta={self.theta}: expected a share in (1/2, 1)")
        if not 0 <= self.hopeless < 1:
            raise MemoryFault(f"hopeless={self.hopeless}: expected 0 <= hopeless < 1")
        if self.max_evaluations < 1:
            raise MemoryFault(f"max_evaluations={self.max_evaluations}: expected at least 1")

    def log_evidence(self, comparisons: Sequence[Comparison]) -> float:
        """Natural logarithm of the evidence after these evaluations, in any order."""
        wins, losses = sum(c.wins for c in comparisons), sum(c.losses for c in comparisons)
        return wins * math.log(2 * self.theta) + losses * math.log(2 * (1 - self.theta))

    def decide(self, comparisons: Sequence[Comparison]) -> bool | None:
        """True to accept, False to give up, None to evaluate once more."""
        evidence = self.log_evidence(comparisons)
        if evidence >= -math.log(self.alpha):
            return True
        given_up = self.hopeless > 0 and evidence <= math.log(self.hopeless)
        return False if given_up or len(comparisons) >= self.max_evaluations else None


def _close(close: int | str | float | Fraction) -> Fraction:
    try:
        weight = Fraction(str(close))
    except (ValueError, ZeroDivisionError):
        raise MemoryFault(f"close={close!r}: expected a number of at least 0") from None
    if weight < 0:
        raise MemoryFault(f"close={close}: expected a weight of at least 0")
    return weight
