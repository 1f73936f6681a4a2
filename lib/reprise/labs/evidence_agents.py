"""Scripted agents with one known fault each: they validate the instrument and are no models of any language model.

A fault is a probability per opportunity; an agent without faults is the reference. Which records matter is taken from
the hidden half of the case, because the faults are about leaving them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reprise.evidence.evaluate import evaluate
from reprise.evidence.gather import EvidenceGate
from reprise.evidence.metrics import Episode, Summary, summarize
from reprise.evidence.model import Action, Case, OutputOf, Protocol
from reprise.evidence.trajectory import Step, Trajectory
from reprise.evidence.values import UNAVAILABLE
from reprise.labs.evidence_suite.reference import Player, reference


@dataclass(frozen=True)
class Faults:
    """Probabilities: `skip` a required read; `eager` acting before any of an action's reads; `early_stop` ending the
    investigation of a non-action half-way; `stop_at_bad` ending it at the first record that forbids the action;
    `wrong_ref` passing another id than the one returned; `wrong_param` passing another value than the one read."""

    skip: float = 0.0
    eager: float = 0.0
    early_stop: float = 0.0
    stop_at_bad: float = 0.0
    wrong_ref: float = 0.0
    wrong_param: float = 0.0


THOROUGH = Faults()


def play(case: Case, faults: Faults, seed: int, gather: bool = False, auto_read: bool = True) -> Trajectory:
    """One episode. `gather` puts the evidence-gathering wrapper between agent and tools (`auto_read` False: Select)."""
    if case.view.protocol is Protocol.LEGACY:
        return reference(case)
    rng = np.random.default_rng([seed, case.hidden.seed])
    wrap = (lambda view, call: EvidenceGate(view, call, auto_read).call) if gather else None
    player = Player(case, wrap=wrap)
    _investigate(player, faults, rng)
    for action in case.hidden.actions:
        if rng.random() >= faults.eager:
            for name in action.requires:
                if rng.random() >= faults.skip:
                    player.read(case.requirement[name])
            player.refresh(action.requires)
        player.act(action, **_arguments(action, faults, rng))
        player.confirm(action)
    return player.environment.finish()


def undocumented(case: Case) -> Case:
    """The case with the documentation of its tools emptied."""
    tools = tuple(tool.model_copy(update={"documentation": ""}) for tool in case.view.tools)
    return Case(view=case.view.model_copy(update={"tools": tools}), hidden=case.hidden)


def moved(summary: Summary) -> set[str]:
    """Which diagnostics differ from a faultless agent's."""
    found = {name for name in ("bsr", "par") if getattr(summary, name).percent > 0}
    found |= {"cas"} if summary.cas.percent < 100 else set()
    return found | {
        name for name in ("gap", "part") if any(rate.percent > 0 for rate in getattr(summary, name).values())
    }


def row(summary: Summary) -> dict[str, float]:
    """Percentages of a summary: ECS by protocol and over all, the diagnostics; Gap and Part as means of V2 and V3."""
    means = {name: sum(r.percent for r in getattr(summary, name).values()) / 2 for name in ("gap", "part")}
    rates = {name: getattr(summary, name).percent for name in ("ecs", "bsr", "par", "cas")}
    return {**rates, **means, **{name: rate.percent for name, rate in summary.by_protocol.items()}}


def suite_summary(cases: list[Case], faults: Faults, repeats: int = 3, seed: int = 0, **play_options) -> Summary:
    """The metric table of one agent over whole repeats of the suite."""
    return summarize(
        Episode(repeat, evaluate(case, play(case, faults, 1000 * seed + repeat, **play_options)))
        for repeat in range(repeats)
        for case in cases
    )


def _investigate(player: Player, faults: Faults, rng: np.random.Generator) -> None:
    case = player.case
    names = list(case.hidden.investigate)
    if names and rng.random() < faults.early_stop:
        names = names[: rng.integers(len(names))]
    wary = rng.random() < faults.stop_at_bad
    watcher = Watcher(player)
    for name in rng.permutation(names) if wary else names:
        if rng.random() < faults.skip:
            continue
        player.read(case.requirement[name])
        if wary and watcher.objects():
            return


class Watcher:
    """Tells whether what a player has just read speaks against acting, from public documentation alone."""

    def __init__(self, player: Player):
        self._player, self._done, self._shown = player, 0, {}
        self._told: dict[tuple[str, str], object] = {}
        self._gate = EvidenceGate(player.case.view, lambda tool, **args: self._shown)

    def objects(self) -> bool:
        """Whether any read since the last time showed a record that is not there, a value that is not permitted, or
        one that another response about the same id contradicts."""
        steps = self._player.environment.trajectory().steps
        fresh, self._done = steps[self._done :], len(steps)
        return any(self._speaks_against(step) for step in fresh)

    def _speaks_against(self, step: Step) -> bool:
        values = {fact.field: fact.value for fact in step.facts}
        missing = not values or all(value == UNAVAILABLE for value in values.values())
        self._shown = {"status": "unavailable" if missing else "ok", **values}
        self._gate.call(step.tool, **step.args)
        asked = str(next(iter(step.args.values()), ""))
        conflict = any(self._told.setdefault((asked, name), value) != value for name, value in values.items())
        return conflict or bool(self._gate.objections(step.tool, asked))


def _arguments(action: Action, faults: Faults, rng: np.random.Generator) -> dict[str, str]:
    changed = {}
    for name, wanted in action.args.items():
        if isinstance(wanted, OutputOf) and rng.random() < faults.wrong_ref:
            changed[name] = "ID-0000000000"
        elif name == "value" and rng.random() < faults.wrong_param:
            changed[name] = "not what was read"
    return changed


def over_suites(suites: Sequence[list[Case]], faults: Faults, seed: int = 0, **options) -> list[Summary]:
    """One agent's metric table on each suite, played once with seeds of its own; options as for `play`."""
    return [suite_summary(suite, faults, 1, seed + k, **options) for k, suite in enumerate(suites)]


def part_without_gap(summary: Summary) -> float:
    """The smaller Part of V2 and V3 in percent, or 0 where any Gap is not 0."""
    gap_free = all(rate.percent == 0 for rate in summary.gap.values())
    return min(rate.percent for rate in summary.part.values()) if gap_free else 0.0


def least_rise(summaries: Sequence[Summary]) -> float:
    """The smallest step, in points, that Gap or Part (means of V2 and V3) makes along a series of agents."""
    series = [[np.mean([r.percent for r in getattr(s, name).values()]) for s in summaries] for name in ("gap", "part")]
    return float(np.diff(series).min())


def gains(after: Sequence[Summary], before: Sequence[Summary], part: str = "ecs") -> np.ndarray:
    """ECS gained on each suite, in points: over all protocols ("ecs") or the mean of V2 and V3 ("workflows")."""

    def level(summary: Summary) -> float:
        rates = row(summary)
        return (rates["v2"] + rates["v3"]) / 2 if part == "workflows" else rates[part]

    return np.array([level(a) - level(b) for a, b in zip(after, before, strict=True)])
