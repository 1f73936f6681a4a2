"""One decision rule, told the facts or left to find them, and the same agent under controlled changes of its task.

The rule is the documentation's: go ahead unless a record seen is missing, not permitted or contradicted by another.
Reactions to what a task says can be switched on one at a time. No agent here is a model of any language model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reprise.evidence.errors import CaseError
from reprise.evidence.evaluate import evaluate
from reprise.evidence.interventions import URGENCY, decisive_requirement, intervene
from reprise.evidence.model import Case, Protocol
from reprise.evidence.trajectory import Trajectory
from reprise.labs.evidence_agents import Watcher
from reprise.labs.evidence_learners import attempt
from reprise.labs.evidence_suite.reference import Player

NOTICE = "read_notice"


@dataclass(frozen=True)
class Reactions:
    """`skip` a read, with this probability; `trusts_claims`: what a requester says is checked is not looked at;
    `trusts_quotes`: records quoted in the task are not looked at; `hurries`: half of the reads of an urgent task are
    left out; `curious`: everything on the board is read."""

    skip: float = 0.0
    trusts_claims: bool = False
    trusts_quotes: bool = False
    hurries: bool = False
    curious: bool = False


def run(case: Case, reactions: Reactions, seed: int = 0) -> Trajectory:
    """One episode: look, then act unless something seen speaks against it."""
    rng = np.random.default_rng([seed, case.hidden.seed])
    player = Player(case)
    watcher = Watcher(player)
    if reactions.curious and NOTICE in case.view.tool:
        for entity in (e for e, record in case.hidden.world.items() if record["kind"] == "notice"):
            player.call(NOTICE, notice_id=entity)
        watcher.objects()  # a notice has no documentation that could forbid anything
    skip = 0.5 if reactions.hurries and URGENCY in case.view.prompt else reactions.skip
    against = False
    for name in required(case):
        if rng.random() < skip or _believed(case, name, reactions):
            continue
        player.read(case.requirement[name])
        against |= watcher.objects()
    if not against:
        attempt(player)
    return player.environment.finish()


def required(case: Case) -> tuple[str, ...]:
    """Names of what must be looked at, in a case with one action or none."""
    return case.hidden.investigate or case.hidden.actions[0].requires


def static_and_interactive(cases: Sequence[Case], skip: float, repeats: int, seed: int = 0) -> pd.DataFrame:
    """The rule told every fact, and the rule that skips each read with a probability, on cases and repeats.

    Columns case, reads (number of requirements k), static and interactive (right or not). Cases that somebody changes
    while they are played are left out: a second look at what has changed makes up for a skipped first one.
    """
    rows = []
    for case in (c for c in cases if not c.hidden.changes):
        told = _acts(case, run(case, Reactions())) == (case.view.protocol is Protocol.V1)
        for repeat in range(repeats):
            ecs = evaluate(case, run(case, Reactions(skip), 1000 * seed + repeat)).ecs
            rows.append((case.view.id, len(required(case)), told, ecs))
    return pd.DataFrame(rows, columns=["case", "reads", "static", "interactive"])


def by_reads(table: pd.DataFrame) -> pd.DataFrame:
    """Shares in percent at each number of reads, from `static_and_interactive`: columns static, interactive, gap."""
    means = 100 * table.groupby("reads")[["static", "interactive"]].mean()
    return means.assign(gap=means.static - means.interactive)


def growth(table: pd.DataFrame) -> float:
    """Correlation of the gap with the number of reads; 0 where the gap does not vary."""
    gap = by_reads(table).gap
    return float(np.corrcoef(gap.index, gap)[0, 1]) if gap.std() > 0 else 0.0


def suited(cases: Sequence[Case], count: int = 43) -> list[Case]:
    """The first V1 cases with evidence that could forbid the action, taken from all domains in turn."""
    by_domain: dict[str, list[Case]] = {}
    for case in cases:
        if case.view.protocol is Protocol.V1 and not case.hidden.changes and _fits(case):
            by_domain.setdefault(case.view.domain, []).append(case)
    longest = max(map(len, by_domain.values()))
    turns = [each[k] for k in range(longest) for each in by_domain.values() if k < len(each)]
    return turns[:count]


def under_interventions(
    cases: Sequence[Case], kinds: Sequence[str], agents: Mapping[str, Reactions], seed: int = 0
) -> pd.DataFrame:
    """Every agent on every case under every intervention ("original" for none).

    Columns agent, kind, case, acted, ecs, reads.
    """
    rows = []
    for case in cases:
        for kind in kinds:
            changed = case if kind == "original" else intervene(case, kind, seed)
            for name, reactions in agents.items():
                trajectory = run(changed, reactions, seed)
                verdict = evaluate(changed, trajectory)
                rows.append((name, kind, case.view.id, verdict.attempted, verdict.ecs, verdict.reads))
    return pd.DataFrame(rows, columns=["agent", "kind", "case", "acted", "ecs", "reads"])


def _believed(case: Case, name: str, reactions: Reactions) -> bool:
    entities = {a.entity for a in case.requirement[name].any_of[0] if isinstance(a.entity, str)}
    if reactions.trusts_quotes and entities and entities <= {stated.entity for stated in case.view.context}:
        return True
    said = case.view.prompt.partition("I have already checked ")[2].partition(";")[0].split(" and ")
    return reactions.trusts_claims and bool(entities & set(said))


def _acts(case: Case, trajectory: Trajectory) -> bool:
    return evaluate(case, trajectory).attempted


def _fits(case: Case) -> bool:
    try:
        decisive_requirement(case)
    except CaseError:
        return False
    return True
