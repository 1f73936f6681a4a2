"""Which criteria a policy farms: utility paid without what licenses it, by criterion, edge and training step.

A criterion leaks in a response when it is met and one of its parents is not; what leaks is what was paid for it,

    |w_i| / W+ * q_i     once, however many parents are unmet, as a share of the rubric's positive points.

A criterion is called farmed when its leak per response grew over training: the slope over steps is above 0 at 95 %
for all criteria of the log together (Bonferroni), so that a log of thousands of criteria names none by chance. A leak
that does not grow is a matter of the rubric or the judge, not of the policy; a leak of a penalty costs the policy.

Source: the cases are GEAR's (section 4.3); the account by criterion and step, and the trend, are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from reprise.rubric.farming_sums import Sums
from reprise.rubric.graph import Criterion, Edge
from reprise.rubric.leakage import EDGE_TYPES, THRESHOLD, FCPReport, Options, considered, report
from reprise.rubric.rollout_log import Rollout
from reprise.rubric.trend import Trends, trends
from reprise.stats import Interval, wilson_interval

CONFIDENCE = 0.95
FEW_PROMPTS = 10  # below, resampling whole prompts says little: prompt and step together are drawn; our choice


@dataclass(frozen=True)
class CriterionLeak:
    """One criterion of one prompt, or of all prompts that name it.

    Attributes:
        prompt, excerpt: the prompt's label and the beginning of its text; "" where prompts share criteria.
        criterion: its id, weight and text.
        responses: that were scored on it.
        leak: mean over responses of the share of the positive points that leaked.
        growth: of that mean from first to last step, along the fitted line; None where it cannot be told.
        share: of all utility that leaked in the log.
        farmed: a criterion of positive weight whose growth is above 0, for all criteria together.
    """

    prompt: str
    excerpt: str
    criterion: Criterion
    responses: int
    leak: Interval
    growth: Interval | None
    share: float
    farmed: bool


@dataclass(frozen=True)
class EdgeLeak:
    """One edge: how often its child was met without its parent, and what was paid then.

    Attributes:
        prompt: as in CriterionLeak.
        edge: parent, child, type.
        violated, satisfied: cases.
        violated_share: violated / (violated + satisfied) with its Wilson interval, of independent responses.
        leakage: mean over violated cases, the edge's own L.
    """

    prompt: str
    edge: Edge
    violated: int
    satisfied: int
    violated_share: Interval
    leakage: float


@dataclass(frozen=True)
class StepLeak:
    """One training step: mean leak of a response, and L over the step's violated cases, None without one."""

    step: int
    responses: int
    leak: Interval
    leakage: float | None


@dataclass(frozen=True)
class Audit:
    """A whole log.

    Attributes:
        fcp: L and P of what was paid ("paid"), of the flat sum ("flat"), of the paper's rule at its defaults ("gear"),
            and of whatever else the log holds for every response.
        criteria: those with a leak; farmed ones first, then by the lower end of the leak.
        edges: those with a violated case, by what leaked through them.
        steps: in order.
        growth: of the mean leak of a response over training; None where it cannot be told.
        shared: whether criteria of one id were taken for the same in all prompts.
    """

    fcp: FCPReport
    criteria: tuple[CriterionLeak, ...]
    edges: tuple[EdgeLeak, ...]
    steps: tuple[StepLeak, ...]
    growth: Interval | None
    prompts: int
    shared: bool


def audit(
    rollouts: Iterable[Rollout],
    threshold: float = THRESHOLD,
    edge_types: Sequence[str] | str = EDGE_TYPES,
    shared: bool | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Audit:
    """Account for the leaked utility of a log, reading each rollout once.

    Args:
        rollouts: in any order.
        threshold, edge_types: as for `fcp_metrics`.
        shared: take criteria of one id for the same in all prompts. None: if the whole log has one rubric.
        resamples, seed: of the bootstrap, which draws prompts.

    Raises:
        RubricError: there is no rollout, or an option is unknown.
    """
    sums = Sums(threshold, considered(edge_types))
    for rollout in rollouts:
        sums.add(rollout)
    sums.flush()
    if shared is None:
        shared = len(sums.fingerprints) == 1
    growth, steps = _over_time(sums)
    return Audit(
        _fcp(sums, resamples, seed), _criteria(sums, shared), _edges(sums, shared), steps, growth, sums.prompts, shared
    )


def _fcp(sums: Sums, resamples: int, seed: int) -> FCPReport:
    by_prompt = sums.prompts >= FEW_PROMPTS
    prompt = sums.prompt_of
    labels = [prompt[place] if by_prompt else (prompt[place], step) for place, step in sums.groups]
    rows = np.array([group.cases for group in sums.groups.values()], dtype=np.float64)
    rows = np.concatenate([rows, *(sums.of_method(name) for name in sums.methods)], axis=1)
    unit = "prompt" if by_prompt else "prompt and step"
    options = Options(sums.threshold, sums.types, resamples, seed, CONFIDENCE)
    return report(rows, labels, sums.methods, sums.responses, unit, options)


def _criteria(sums: Sums, shared: bool) -> tuple[CriterionLeak, ...]:
    """Every criterion with a leak, ranked."""
    names: dict[tuple, int] = {}
    origin, columns = [], []
    for (place, step), group in sums.groups.items():
        for k, criterion in enumerate(sums.graphs[place].criteria):
            series = names.setdefault((criterion.id,) if shared else (place, k), len(names))
            if series == len(origin):
                origin.append((place, criterion))
            columns.append((series, sums.prompt_of[place], step, group.responses, *group.leak[:, k]))
    fitted = trends(*np.array(columns).T, CONFIDENCE, 1 - (1 - CONFIDENCE) / len(names))
    everything = float((fitted.mean * fitted.responses).sum())
    found = []
    for series, (place, criterion) in enumerate(origin):
        if fitted.mean[series] <= 0:
            continue
        leak, growth = _intervals(fitted, series)
        label = ("", "") if shared else (sums.labels[place], sums.excerpts[place])
        share = fitted.mean[series] * fitted.responses[series] / everything
        farmed = growth is not None and growth.low > 0 and criterion.weight > 0
        responses = int(fitted.responses[series])
        found.append(CriterionLeak(*label, criterion, responses, leak, growth, float(share), farmed))
    return tuple(sorted(found, key=_rank))


def _rank(each: CriterionLeak) -> tuple:
    return (0, -each.growth.low) if each.farmed else (1, -each.share)


def _edges(sums: Sums, shared: bool) -> tuple[EdgeLeak, ...]:
    totals: dict[tuple, np.ndarray] = {}
    for (place, _), group in sums.groups.items():
        for k, position in enumerate(sums.considered[place]):
            edge = sums.graphs[place].edges[position]
            key = ("" if shared else sums.labels[place], edge)
            totals[key] = totals.get(key, 0) + group.edges[:, k]
    found = []
    for (label, edge), (violated, satisfied, leaked) in totals.items():
        if violated:
            cases = int(violated + satisfied)
            share = Interval(float(violated / cases), *wilson_interval(int(violated), cases))
            found.append(
                (leaked, EdgeLeak(label, edge, int(violated), int(satisfied), share, float(leaked / violated)))
            )
    return tuple(each for _, each in sorted(found, key=lambda pair: -pair[0]))


def _over_time(sums: Sums) -> tuple[Interval | None, tuple[StepLeak, ...]]:
    """Growth of the mean leak of a response, and the steps."""
    groups = sums.groups.items()
    rows = np.array([(sums.prompt_of[place], step, each.responses, *each.total) for (place, step), each in groups])
    prompt, step, n, y, yy = rows.T
    whole = trends(np.zeros(len(rows)), prompt, step, n, y, yy)
    numbers, series = np.unique(step, return_inverse=True)
    each = trends(series, prompt, step, n, y, yy)
    cases = np.zeros((len(numbers), 2))
    np.add.at(cases, series, [(group.cases[0], group.paid) for group in sums.groups.values()])
    steps = []
    for k, number in enumerate(numbers):
        leakage = float(cases[k, 1] / cases[k, 0]) if cases[k, 0] else None
        steps.append(StepLeak(int(number), int(each.responses[k]), _intervals(each, k)[0], leakage))
    return _intervals(whole, 0)[1], tuple(steps)


def _intervals(fitted: Trends, k: int) -> tuple[Interval, Interval | None]:
    """Mean and growth of one series; an interval that cannot be told is NaN at both ends, or no growth at all."""
    leak = Interval(*(float(each[k]) for each in (fitted.mean, fitted.mean_low, fitted.mean_high)))
    growth = Interval(*(float(each[k]) for each in (fitted.growth, fitted.growth_low, fitted.growth_high)))
    return leak, None if np.isnan(growth).any() else growth
