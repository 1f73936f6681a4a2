"""How long a refit takes: a start, then the slower of transport and construction.

With S the bytes of the checkpoint, V those of the payload, B_t the bandwidth of transport t and g the rate at which the
trainer builds deltas,

    T = c + max(V / B_t, S / g).

Transport and construction overlap, so only the slower counts. The form is ours: NeMo-DCR (section 8.7) gives lower
bounds for both and the time that neither covers. Sizes are GB (1e9 bytes), bandwidths GB/s, times seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, isfinite, log, nan
from typing import NamedTuple

import numpy as np

from reprise.errors import RepriseError

# payload over checkpoint by change fraction, locations included: NeMo-DCR, table 4 (2.4-3.8 % for 3 and 5 % changed)
PAYLOAD_SHARE = {0.03: 0.024, 0.05: 0.038}
STEPS = 100  # of the inner least squares, which takes about six
SMALL = 1e-13  # relative change of the predictions at which it has converged


def payload_share(changed: float) -> float:
    """Payload over checkpoint bytes when a share `changed` of the elements changes, after table 4 of NeMo-DCR.

    Between and beyond the two stress fractions, bytes per changed byte are taken as linear in log(changed), as the
    cost of a location nearly is; that is our choice, and below 3 % it is an extrapolation.

    Raises:
        RepriseError: `changed` outside [0, 1].

    >>> round(payload_share(0.03), 6), round(payload_share(0.05), 6), round(payload_share(0.012), 4)
    (0.024, 0.038, 0.0105)
    """
    if not 0 <= changed <= 1:
        raise RepriseError(f"changed={changed}: expected a share in [0, 1]")
    if changed == 0:
        return 0.0
    (low, first), (high, last) = PAYLOAD_SHARE.items()
    slope = (last / high - first / low) / log(high / low)
    return changed * (first / low + slope * log(changed / low))


@dataclass(frozen=True)
class Observation:
    """One refit that was timed.

    Raises:
        RepriseError: a size or time that is not positive and finite.
    """

    transport: str
    size_gb: float
    payload_gb: float
    seconds: float

    def __post_init__(self):
        for name in ("size_gb", "payload_gb", "seconds"):
            value = getattr(self, name)
            if not (isfinite(value) and value > 0):
                raise RepriseError(f"{name}={value}: expected a positive number")


@dataclass(frozen=True)
class LatencyModel:
    """The model with its constants, by transport. A bandwidth of inf is a transport that costs no time.

    Args:
        start_s: c, the time of a refit without anything to send.
        bandwidth: B_t in GB/s.
        build_rate: g in GB of checkpoint a second; inf where construction never binds.
    """

    start_s: Mapping[str, float]
    bandwidth: Mapping[str, float]
    build_rate: float = inf

    def predict(self, transport: str, size_gb, payload_gb):
        """Seconds of a refit; sizes may be arrays of one shape.

        Raises:
            RepriseError: unknown transport.
        """
        start, bandwidth = self._of(transport)
        return start + np.maximum(np.divide(payload_gb, bandwidth), np.divide(size_gb, self.build_rate))

    def transport_share(self, transport: str, size_gb, payload_gb):
        """Time of transport alone over that of the refit: what the paper reports as a lower bound's share."""
        _, bandwidth = self._of(transport)
        return np.divide(payload_gb, bandwidth) / self.predict(transport, size_gb, payload_gb)

    def errors(self, observations: Sequence[Observation]) -> np.ndarray:
        """float64 [n]: predicted over observed, minus 1."""
        times = [self.predict(one.transport, one.size_gb, one.payload_gb) / one.seconds for one in observations]
        return np.array(times) - 1

    def crossover_payload(self, first: str, second: str) -> float:
        """Payload in GB at which two transports take the same time, if construction does not bind; nan if none does."""
        (start, bandwidth), (other_start, other_bandwidth) = self._of(first), self._of(second)
        gain = 1 / bandwidth - 1 / other_bandwidth
        payload = (other_start - start) / gain if gain else nan
        return payload if payload > 0 else nan

    def break_even_bandwidth(self, transport: str, against: str, size_gb: float, payload_gb: float) -> float:
        """GB/s that `transport` needs to be as fast as `against` on one refit; inf if no bandwidth is enough."""
        (start, _), (other_start, other_bandwidth) = self._of(transport), self._of(against)
        build = size_gb / self.build_rate
        left = max(payload_gb / other_bandwidth, build) + (other_start - start)
        return payload_gb / left if left > 0 and left >= build else inf

    def _of(self, transport: str) -> tuple[float, float]:
        if transport not in self.bandwidth:
            raise RepriseError(f"transport={transport!r}: expected one of {', '.join(self.bandwidth)}")
        return self.start_s[transport], self.bandwidth[transport]


def fit(observations: Sequence[Observation], *, build_rate: float = inf, shared_start: bool = True) -> LatencyModel:
    """The model with the least sum of squares of log(predicted / observed), for a given construction rate.

    Where it is known which of the two bounds is the larger at each observation, the prediction is linear in c and
    1/B_t. There are few such cases, and each is solved, with a constant at its end (c = 0, or a bandwidth at which
    both bounds meet) as a case of its own; the best of all is returned. log² is convex in a prediction below e times
    its observation, so within a case the solution is the least one whenever the sum is below 1.

    Args:
        observations: refits over one or more transports.
        build_rate: g, which is not fitted; see `build_rate_profile`.
        shared_start: one c for all transports, or one for each.

    Raises:
        RepriseError: `build_rate` not positive, or observations that do not determine the constants.
    """
    if not build_rate > 0:
        raise RepriseError(f"build_rate={build_rate}: expected a positive number")
    if not observations:
        raise RepriseError("observations: none: expected timed refits of two payload sizes or more")
    seconds = np.array([one.seconds for one in observations])
    transports = sorted({one.transport for one in observations})
    masks = {name: np.array([one.transport == name for one in observations], float) for name in transports}
    starts = [sum(masks.values())] if shared_start else list(masks.values())
    terms = [[_Case(start, 0 * start), _Case(None, 0 * start)] for start in starts]
    terms += [list(_rate_cases(observations, masks[name], build_rate)) for name in transports]
    payload = np.array([one.payload_gb for one in observations])
    columns = [*starts, *(payload * mask for mask in masks.values())]
    if np.linalg.matrix_rank(np.stack(columns, 1)) < len(columns):
        raise RepriseError(
            f"observations: {len(seconds)}, which do not determine {len(starts)} starts and {len(transports)} "
            "bandwidths: expected more payload sizes for each transport"
        )
    best, least = None, inf
    for cases in product(*terms):
        values = _solve(cases, seconds)
        if values is None or min(values) < 0:
            continue
        first, rates = values[: len(starts)], values[len(starts) :]
        first = first * len(transports) if shared_start else first
        bandwidth = {name: 1 / rate if rate else inf for name, rate in zip(transports, rates, strict=True)}
        model = LatencyModel(dict(zip(transports, first, strict=True)), bandwidth, build_rate)
        if (loss := log_loss(model, observations)) < least:
            best, least = model, loss
    return best


def log_loss(model: LatencyModel, observations: Sequence[Observation]) -> float:
    """Sum of squares of log(predicted / observed)."""
    return float((np.log1p(model.errors(observations)) ** 2).sum())


def leave_one_out(observations: Sequence[Observation], **how) -> np.ndarray:
    """float64 [n]: error of each observation under the model fitted to the others; `how` as for `fit`."""
    left_out = [[*observations[:at], *observations[at + 1 :]] for at in range(len(observations))]
    return np.array([fit(rest, **how).errors([one])[0] for rest, one in zip(left_out, observations, strict=True)])


def build_rate_profile(observations: Sequence[Observation], rates: Sequence[float], **how) -> np.ndarray:
    """float64 [len(rates)]: loss of the best model for each construction rate; flat where no rate is better."""
    return np.array([log_loss(fit(observations, build_rate=rate, **how), observations) for rate in rates])


class _Case(NamedTuple):
    """What one constant contributes to the predictions: `offset`, and `column` times the constant unless it is fixed
    at `value` (column None)."""

    column: np.ndarray | None
    offset: np.ndarray
    value: float = 0.0


def _rate_cases(observations: Sequence[Observation], mask: np.ndarray, build_rate: float) -> Iterator[_Case]:
    """The forms that max(V x, S / g) takes as x = 1/B grows from 0: one from each x at which the bounds of an
    observation meet, and that x itself. Below the first of them no prediction depends on x."""
    payload = np.array([one.payload_gb for one in observations])
    build = np.array([one.size_gb for one in observations]) / build_rate
    meets = build / payload
    for x in np.unique(meets[mask > 0]):
        transport_bound = mask * (meets <= x)
        yield _Case(payload * transport_bound, build * (mask - transport_bound))
        yield _Case(None, mask * np.maximum(payload * x, build), float(x))


def _solve(cases: Sequence[_Case], seconds: np.ndarray) -> list[float] | None:
    """Values of the constants, or None where a prediction would be zero whatever they are."""
    free = [case.column for case in cases if case.column is not None]
    offset = np.sum([case.offset for case in cases], axis=0)
    if not (offset + sum(free) > 0).all():
        return None
    solution = iter(_log_least_squares(np.stack(free, 1), offset, seconds) if free else [])
    return [case.value if case.column is None else float(next(solution)) for case in cases]


def _log_least_squares(columns: np.ndarray, offset: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """The x that minimises the sum of log((columns x + offset) / seconds)², as a sequence of linear problems.

    d log(prediction) is relative, so each problem weighs a row by 1 / prediction. Columns and offset are not negative.
    """
    x = seconds.mean() / columns.mean(axis=0)  # positive, so that every prediction is

    def residuals(x):
        predicted = columns @ x + offset
        return np.log(predicted / seconds) if (predicted > 0).all() else np.full(len(seconds), inf)

    for _ in range(STEPS):
        predicted, now = columns @ x + offset, residuals(x)
        step = np.linalg.lstsq(columns / predicted[:, None], -now, rcond=None)[0]
        if np.abs(columns @ step / predicted).max() < SMALL:
            break
        while (residuals(x + step) ** 2).sum() > (now**2).sum() + SMALL:
            step = step / 2
        x = x + step
    return x
