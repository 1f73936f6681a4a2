"""A rubric as a scorer of inspect_ai: the reward as the score, where it comes from in its metadata.

Source: inspect_ai 0.3, scorer protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reprise.rubric.judging import Scorer
from reprise.rubric.reward_rows import RewardRow, RewardRows, Row, graph_of

if TYPE_CHECKING:
    from inspect_ai.scorer import Scorer as InspectScorer


def rubric_scorer(
    scorer: Scorer,
    *,
    on_missing: str = "none",
    column: str = "reward_model",
    name: str = "gear",
    **options: Any,
) -> InspectScorer:
    """A scorer for `Task(scorer=...)`; metrics are the mean and its standard error.

    Args:
        scorer: judges one response.
        on_missing: what a missing score does; see `RewardRows`.
        column: of the sample's metadata, with the rubric.
        name: under which inspect logs.
        options: further arguments of `aggregate`.

    Returns:
        a scorer whose Score has the reward as value, and in its metadata p and q by criterion, flat, missing and the
        graph's fingerprint. A sample without a rubric or a reward is unscored, which inspect leaves out of metrics.

    Raises:
        RubricError, TypeError: an option that is refused.  ImportError: inspect_ai is not installed.
    """
    from inspect_ai.scorer import Score, Target, mean, stderr
    from inspect_ai.scorer import scorer as registered
    from inspect_ai.solver import TaskState

    core = RewardRows(scorer, on_missing, options)

    @registered(metrics=[mean(), stderr()], name=name)
    def make():
        async def score(state: TaskState, target: Target) -> Score:
            row = Row(state.input_text, state.output.completion, graph_of(state.metadata.get(column)))
            (result,) = await core.arewards([row]) if core.is_async else core.rewards([row])
            if result.scored:
                return Score(value=result.reward, answer=row.response, metadata=_metadata(result))
            reason = "scoring_failed" if result.graph is None else "grader_failed"
            return Score.unscored(reason=reason, answer=row.response, metadata=_metadata(result))

        return score

    return make()


def _metadata(row: RewardRow) -> dict[str, Any]:
    if row.graph is None:
        return {"missing": 0}

    def named(values: np.ndarray) -> dict[str, float | None]:
        pairs = zip(row.graph.ids, values, strict=True)
        return {id: None if np.isnan(value) else float(value) for id, value in pairs}

    return {
        "p": named(row.p),
        "q": named(row.q),
        "flat": row.flat if row.scored else None,
        "missing": row.missing,
        "fingerprint": row.graph.fingerprint(),
    }
