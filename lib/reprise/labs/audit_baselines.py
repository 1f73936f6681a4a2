"""Auditors without labels in their weights, on the same base model, and the constants that any auditor must beat.

    perplexity       the turn's negative log-likelihood a token crosses a threshold
    reflection       p_ok = P(no) / (P(yes) + P(no)) of "does the last turn hold an error?" falls below one
    tree of thought  the expected rating, Sure 2, Likely 1, Impossible 0, falls below one
    post hoc         sees the finished run and names its least likely turn

The first three are online: the first crossing is an alarm at that turn and its speaker. The paper gives no thresholds;
here they are the best in F1 on training families.

Source: AgentForesight, method baselines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from reprise.audit.metrics import AuditRecord, audit_metrics, record
from reprise.audit.replay import replay
from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import SAFE, Verdict, alarm
from reprise.labs.agent_runs.corpus import ENVIRONMENTS
from reprise.labs.audit_model import AuditLM, Reader, next_words
from reprise.labs.audit_prompts import Runs
from reprise.labs.audit_vocabulary import ERROR, NO, RATE, RATINGS, YES

RATING_VALUES = (2.0, 1.0, 0.0)
CANDIDATES = 200  # thresholds that are tried
PIECE = 64


def surprise(model: AuditLM, runs: Sequence[Trajectory]) -> list[np.ndarray]:
    """(turns,) mean negative log-probability of each turn's tokens, in nats, for each run."""
    found = []
    for begin in range(0, len(runs), PIECE):
        data = Runs(model.vocabulary, tuple(runs[begin : begin + PIECE]))
        with torch.no_grad():
            nats = Reader(model, data.tokens).surprise().double().numpy()
        for row, ends in zip(nats, data.ends, strict=True):
            edges = np.array([0, *(end - 1 for end in ends)])  # the start mark is not predicted
            found.append(np.diff(np.concatenate([[0], np.cumsum(row)])[edges]) / np.diff(edges))
    return found


def reflection(model: AuditLM, runs: Sequence[Trajectory]) -> list[np.ndarray]:
    """(turns,) 1 - p_ok after each turn."""
    return [np.exp(row[:, 0] - np.logaddexp(row[:, 0], row[:, 1])) for row in _asked(model, runs, ERROR, (YES, NO))]


def tree_of_thought(model: AuditLM, runs: Sequence[Trajectory]) -> list[np.ndarray]:
    """(turns,) 2 less the expected rating after each turn."""
    found = []
    for row in _asked(model, runs, RATE, RATINGS):
        weight = np.exp(row - np.logaddexp.reduce(row, axis=1, keepdims=True))
        found.append(2.0 - weight @ np.array(RATING_VALUES))
    return found


def _asked(model: AuditLM, runs, question: str, words: Sequence[str]) -> list[np.ndarray]:
    found = []
    for begin in range(0, len(runs), PIECE):
        data = Runs(model.vocabulary, tuple(runs[begin : begin + PIECE]))
        width = max(map(len, data.ends))
        grid = np.array([[*ends, *[ends[-1]] * (width - len(ends))] for ends in data.ends])
        logp = next_words(model, data.tokens, grid, question, words)
        found += [row[: len(ends)] for row, ends in zip(logp, data.ends, strict=True)]
    return found


def first_crossing(runs: Sequence[Trajectory], scores: Sequence[np.ndarray], threshold: float) -> list[AuditRecord]:
    """Replay of the auditor that alarms on the last turn where its score is above `threshold`."""

    def auditor(run: Trajectory, score: np.ndarray):
        def verdict(prefix) -> Verdict:
            k = len(prefix) - 1
            return alarm(k, run.turns[k].role) if score[k] > threshold else SAFE

        return verdict

    return [record(run, replay(auditor(run, score), run)) for run, score in zip(runs, scores, strict=True)]


def best_threshold(runs: Sequence[Trajectory], scores: Sequence[np.ndarray]) -> float:
    """The threshold with the highest F1 (table convention), the largest one of equals."""
    values = np.unique(np.quantile(np.concatenate(scores), np.linspace(0, 1, CANDIDATES)))
    unsafe = sum(run.decisive_step is not None for run in runs)
    best, found = -1.0, float(values[-1])
    for threshold in values[::-1]:
        above = [score > threshold for score in scores]
        alarms = sum(bool(row.any()) for row in above)
        hits = sum(
            bool(row.any()) and int(row.argmax()) == run.decisive_step for row, run in zip(above, runs, strict=True)
        )
        if 2 * hits / (unsafe + alarms) > best:
            best, found = 2 * hits / (unsafe + alarms), float(threshold)
    return found


def constant(runs: Sequence[Trajectory], step: int | None) -> list[AuditRecord]:
    """Always Safe (None), or an alarm at turn `step` as soon as it is there."""
    return first_crossing(runs, [np.array([k == step for k in range(len(run))], float) for run in runs], 0.5)


def oracle_rule(runs: Sequence[Trajectory]) -> list[AuditRecord]:
    """Alarm at the first turn that the environment's own check calls wrong."""
    scores = []
    for run in runs:
        system, task = ENVIRONMENTS[run.domain](), run.meta["task"]
        scores.append(np.array([system.locally_wrong(task, run.turns, k) for k in range(len(run))], float))
    return first_crossing(runs, scores, 0.5)


def post_hoc(runs: Sequence[Trajectory], scores: Sequence[np.ndarray]) -> list[AuditRecord]:
    """The least likely turn of the finished run; it takes every run for a failure, as attribution methods do."""
    found = []
    for run, score in zip(runs, scores, strict=True):
        k, last = int(score.argmax()), len(run) - 1
        said = [SAFE] * last + [alarm(k, run.turns[k].role)]
        found.append(record(run, replay(lambda prefix, said=said: said[len(prefix) - 1], run)))
    return found


def baselines(model: AuditLM, train: Sequence[Trajectory], test: Sequence[Trajectory]) -> dict[str, list[AuditRecord]]:
    """Records of every baseline on `test`, thresholds from `train`."""
    found = {
        "always Safe": constant(test, None),
        "alarm at turn 1": constant(test, 1),
        "oracle rule": oracle_rule(test),
    }
    for name, score in {"perplexity": surprise, "reflection": reflection, "tree of thought": tree_of_thought}.items():
        threshold = best_threshold(train, score(model, train))
        found[name] = first_crossing(test, score(model, test), threshold)
    return found | {"post hoc": post_hoc(test, surprise(model, test))}


def summary(records: Sequence[AuditRecord]) -> dict[str, float | None]:
    """The figures of a table row."""
    m = audit_metrics(records, by=None)
    return {
        "F1": m.exact_f1_table,
        "F1 text": m.exact_f1_text,
        "Step-Acc": m.step_acc,
        "ASS": m.ass,
        "FAR": m.far,
        "invalid": m.invalid_rate,
    }
