"""Scripted agents with one known fault each: they validate the instrument and are no models of any language model.

A fault is a probability per opportunity; an agent without faults is the reference. Which records matter is taken from
the hidden half of the case, because the faults are about leaving them out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprise.evidence.evaluate import evaluate
from reprise.evidence.gather import EvidenceGate
from reprise.evidence.metrics import Episode, Summary, summarize
from reprise.evidence.model import Action, Case, OutputOf, Protocol
from reprise.evidence.trajectory import Trajectory
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
    for name in rng.permutation(names) if wary else names:
        if rng.random() < faults.skip:
            continue
        before = len(player.environment.trajectory().steps)
        player.read(case.requirement[name])
        if wary and _forbids(player, before):
            return


def _forbids(player: Player, before: int) -> bool:
    """Whether one of the last reads showed something outside the documented values."""
    gate = EvidenceGate(player.case.view, lambda tool, **args: responses[tool])
    for step in player.environment.trajectory().steps[before:]:
        shown = {fact.field: fact.value for fact in step.facts}
        responses = {step.tool: {"status": "ok" if step.answered else "unavailable", **shown}}
        asked = str(next(iter(step.args.values()), ""))
        gate.call(step.tool, **step.args)
        if gate.objections(step.tool, asked):
            return True
    return False


def _arguments(action: Action, faults: Faults, rng: np.random.Generator) -> dict[str, str]:
    changed = {}
    for name, wanted in action.args.items():
        if isinstance(wanted, OutputOf) and rng.random() < faults.wrong_ref:
            changed[name] = "ID-0000000000"
        elif name == "value" and rng.random() < faults.wrong_param:
            changed[name] = "not what was read"
    return changed
