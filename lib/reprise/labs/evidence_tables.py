"""Tables about suites and episodes: which mutation was named, which read supports which action."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from reprise.evidence.evaluate import ATTEMPTS, Verdict
from reprise.evidence.ledger import Status
from reprise.evidence.model import Case
from reprise.evidence.trajectory import Outcome, Trajectory
from reprise.labs.evidence_suite.admit import Admission


def mutation_table(admissions: Iterable[Admission]) -> pd.DataFrame:
    """Columns mutation, protocol, killed, tried: how many faults were failed with a code of their family."""
    rows = [(kind, a.protocol.value, ok) for a in admissions for kind, ok in a.killed.items()]
    table = pd.DataFrame(rows, columns=["mutation", "protocol", "killed"])
    grouped = table.groupby(["mutation", "protocol"], sort=False).killed.agg(["sum", "size"]).reset_index()
    return grouped.rename(columns={"sum": "killed", "size": "tried"})


def ledger_table(trajectory: Trajectory) -> pd.DataFrame:
    """Every fact of a run: columns seq, tool, source, entity, version, field, value."""
    rows = [(f.seq, "task", f.source.value, f.entity, f.version, f.field, f.value) for f in trajectory.context]
    for step in trajectory.steps:
        rows += [(f.seq, step.tool, f.source.value, f.entity, f.version, f.field, f.value) for f in step.facts]
    return pd.DataFrame(rows, columns=["seq", "tool", "source", "entity", "version", "field", "value"])


def chain(case: Case, trajectory: Trajectory, verdict: Verdict) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Calls (seq, label, kind, good) and links (read, action, good) from what was read to what it had to support.

    A read that supports nothing is not good. A link to a requirement that is not established starts at the last read
    before the action and is not good.
    """
    points = {point.seq: point for point in verdict.checkpoints}
    calls, links, latest = [], [], {}
    for step in trajectory.steps:
        if step.outcome is Outcome.READ:
            shown = step.answered or next(iter(step.args.values()), step.tool)
            calls.append((step.seq, shown, "read", True))
            latest |= {(fact.entity, fact.field): step.seq for fact in step.facts}
        elif step.outcome in ATTEMPTS:
            point = points[step.seq]
            calls.append((step.seq, step.tool.replace("_", " "), "action", not point.codes))
            for name, status in point.statuses.items():
                atoms = case.requirement[name].any_of[0]
                seen = [latest[key] for a in atoms if (key := (a.entity, a.field)) in latest]
                links.append((max(seen, default=step.seq - 1), step.seq, status is Status.OK))
    used = {read for read, _, good in links if good}
    calls = [(seq, label, kind, good and (kind == "action" or seq in used)) for seq, label, kind, good in calls]
    return pd.DataFrame(calls, columns=["seq", "label", "kind", "good"]), pd.DataFrame(
        links, columns=["read", "action", "good"]
    )
