"""What a notebook shows of a corpus, as rows: the funnel, the readings of the definition, checks, votes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reprise.audit.decisive import decisive_step
from reprise.audit.environment import Environment
from reprise.audit.propose_verify import admission_rate
from reprise.audit.trajectory import Trajectory
from reprise.labs.agent_runs.corpus import Corpus
from reprise.labs.agent_runs.judges import Panel, Truth, vote
from reprise.labs.agent_runs.label_check import first_false_turn, first_fatal_turn

SAFE = "safe: "


def funnel(corpus: Corpus) -> list[dict[str, Any]]:
    """Counts by domain, stage ("runs" on the way to safe ones, "failures" made or met) and what became of them."""
    rows = []
    for domain in dict.fromkeys(task["domain"] for task in corpus.tasks):
        kept = {"runs": corpus.safe, "failures": corpus.unsafe}
        for stage, trajectories in kept.items():
            count = sum(run.domain == domain for run in trajectories)
            rows.append({"domain": domain, "stage": stage, "fate": "kept", "count": count})
        for (name, reason), count in sorted(corpus.discards.items()):
            if name == domain:
                stage = "runs" if reason.startswith(SAFE) else "failures"
                rows.append({"domain": domain, "stage": stage, "fate": reason.removeprefix(SAFE), "count": count})
    return rows


def readings(
    runs: Iterable[Trajectory], environments: Mapping[str, Environment], n_rollouts: int = 32
) -> list[dict[str, Any]]:
    """For each failure its label, the three readings of the definition, and the slack between label and no return."""
    rows = []
    for run in runs:
        system = environments[run.domain]
        found = {
            "earliest_flip": decisive_step(system, run),
            "literal": decisive_step(system, run, "literal", n_rollouts),
            "no_return": decisive_step(system, run, "point_of_no_return", n_rollouts),
        }
        row = {"id": run.id, "domain": run.domain, "turns": len(run), "label": run.decisive_step, **found}
        rows.append(row | {"slack": found["no_return"] - run.decisive_step})
    return rows


def disagreements(corpus: Corpus, environments: Mapping[str, Environment]) -> dict[str, int]:
    """How many labels, safe runs included, differ from each of two oracles that share no code with them."""
    wrong = {"text": 0, "believing system": 0}
    for run in corpus:
        wrong["text"] += first_false_turn(run) != run.decisive_step
        wrong["believing system"] += first_fatal_turn(environments[run.domain], run) != run.decisive_step
    return wrong


def votes(
    runs: Sequence[Trajectory], truths: Sequence[Truth], panels: Iterable[Panel], seeds: Iterable[int]
) -> list[dict[str, Any]]:
    """One row a panel and seed: what propose-and-verify, a majority and a single guess reach, and the ceiling."""
    seeds = tuple(seeds)
    return [
        {
            "hit": panel.hit,
            "accuracy": panel.accuracy,
            "shared": panel.shared,
            "seed": seed,
            **vote(panel, runs, truths, seed)._asdict(),
            "ceiling": admission_rate(panel.accuracy**4),
        }
        for panel in panels
        for seed in seeds
    ]
