"""A labelled corpus of runs: safe ones that pass three checks, and failures whose decisive error is known.

Mathematics and coding: every task is run until a run is safe, and faults are put into copies of it. Search: failures
come about by themselves on the way to a safe run and are labelled by counterfactual rollouts. What is not kept is
counted by reason. Every draw has a generator of its own, named by seed, domain, task and attempt, so that a corpus is
the same to the byte wherever it is built.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from reprise.audit.decisive import decisive_step
from reprise.audit.environment import BUDGET, Environment, Task, roll
from reprise.audit.safe_filter import Rejection, safe_filter
from reprise.audit.trajectory import Trajectory
from reprise.errors import RepriseError
from reprise.labs.agent_runs import faults
from reprise.labs.agent_runs.coding_env import CodeEnv
from reprise.labs.agent_runs.math_env import MathEnv
from reprise.labs.agent_runs.rollout import Discard, inject_fault, repaired
from reprise.labs.agent_runs.search_env import SearchEnv
from reprise.traces import Turn

ENVIRONMENTS: Mapping[str, type] = {"math": MathEnv, "coding": CodeEnv, "search": SearchEnv}
DOMAINS = tuple(ENVIRONMENTS)
ATTEMPTS = 60  # runs of a task before it is given up


class CorpusError(RepriseError):
    """An argument or a line of a corpus file that cannot be used; the message names it."""


@dataclass(frozen=True)
class Corpus:
    """Safe and unsafe runs with labels, and what was not kept.

    `discards` counts (domain, reason): reasons of the safe filter begin with "safe: ", the others belong to failures.
    """

    safe: tuple[Trajectory, ...]
    unsafe: tuple[Trajectory, ...]
    discards: Mapping[tuple[str, str], int] = field(default_factory=Counter)
    tasks: tuple[Task, ...] = ()

    def __iter__(self):
        return iter((*self.safe, *self.unsafe))

    def __len__(self) -> int:
        return len(self.safe) + len(self.unsafe)

    def to_jsonl(self) -> str:
        """One run a line, safe ones first; two corpora are equal when these texts are."""
        return "".join(json.dumps(_record(t), sort_keys=True, separators=(",", ":")) + "\n" for t in self)

    @classmethod
    def from_jsonl(cls, text: str) -> Corpus:
        """The runs of `to_jsonl`; discards are not in the text. Raises CorpusError naming the line."""
        runs = [_trajectory(line, number) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
        tasks = {json.dumps(t.meta["task"], sort_keys=True): t.meta["task"] for t in runs}
        return cls(
            tuple(t for t in runs if t.decisive_step is None),
            tuple(t for t in runs if t.decisive_step is not None),
            tasks=tuple(tasks.values()),
        )


def build_corpus(
    tasks_per_domain: int,
    variants: int = 2,
    seed: int = 0,
    p_slip: float | None = None,
    domains: Iterable[str] = DOMAINS,
    environments: Mapping[str, Environment] | None = None,
    budget: int = BUDGET,
) -> Corpus:
    """Run, filter, inject and label.

    Args:
        tasks_per_domain: tasks drawn for each domain; a task gives one safe run, or none after `ATTEMPTS`.
        variants: injections tried for each safe run, or natural failures kept for each task of the search domain.
        seed: names every draw.
        p_slip: chance of a slip in every domain; by default the environment's own.
        domains: any of math, coding and search.
        environments: systems to use in place of the default ones, by domain.
        budget: most turns of a run.

    Returns:
        The corpus; `meta` of a run holds its task, origin ("safe", "injected", "natural") and fault category.

    Raises:
        CorpusError: a count or a domain outside its range.
    """
    domains = tuple(domains)
    if tasks_per_domain < 1 or variants < 0:
        raise CorpusError(f"tasks_per_domain={tasks_per_domain}, variants={variants}: expected at least 1 and 0")
    if unknown := [name for name in domains if name not in DOMAINS]:
        raise CorpusError(f"domains={unknown}: expected any of {', '.join(DOMAINS)}")
    settings = {} if p_slip is None else {"p_slip": p_slip}
    systems = {name: ENVIRONMENTS[name](**settings) for name in domains if name not in (environments or {})}
    systems |= environments or {}
    safe, unsafe, discards, tasks = [], [], Counter(), []
    for name in domains:
        for index in range(tasks_per_domain):
            made = _task_runs(systems[name], index, variants, seed, budget, discards)
            tasks.append(made.task)
            safe += made.safe
            unsafe += made.unsafe
    return Corpus(tuple(safe), tuple(unsafe), discards, tuple(tasks))


class _Made(NamedTuple):
    task: Task
    safe: list[Trajectory]
    unsafe: list[Trajectory]


def _task_runs(system: Environment, index: int, variants: int, seed: int, budget: int, discards: Counter) -> _Made:
    """The safe run of one task and the failures that belong to it."""
    domain = system.domain
    injected = bool(faults.CATEGORIES[domain])
    task = {**system.draw_task(_rng(seed, domain, index, 0, 0)), "id": f"{domain}-{index:04d}"}
    natural: list[Trajectory] = []
    for attempt in range(ATTEMPTS):
        run = roll(system, task, (), _rng(seed, domain, index, 1, attempt), budget)
        rejection = safe_filter(system, task, run)
        if rejection is None:
            safe = _label(task, f"{task['id']}-safe", run.turns, "safe", outcome=True)
            variant = _injections(system, safe, variants, seed, index, budget, discards) if injected else natural
            return _Made(task, [safe], variant)
        discards[domain, f"safe: {rejection}"] += 1
        if rejection == Rejection.OUTCOME and not injected and len(natural) < variants:
            name = f"{task['id']}-natural-{attempt}"
            natural += _natural(system, _label(task, name, run.turns, "natural"), run.finished, seed, budget, discards)
    discards[domain, "no safe run"] += 1
    return _Made(task, [], natural)


def _injections(system, safe: Trajectory, variants: int, seed: int, index: int, budget: int, discards: Counter):
    """Variants of a safe run whose injected step is the decisive one."""
    kept = []
    task = safe.meta["task"]
    for variant in range(variants):
        made = inject_fault(system, task, safe.turns, _rng(seed, system.domain, index, 2, variant), budget)
        if made.discard:
            discards[system.domain, str(made.discard)] += 1
            continue
        run = _label(task, f"{task['id']}-injected-{variant}", made.run.turns, "injected", made.step, made.category)
        if decisive_step(system, run, seed=seed, budget=budget) != made.step:
            discards[system.domain, str(Discard.LABEL_CONFLICT)] += 1
            continue
        kept.append(run)
    return kept


def _natural(system, run: Trajectory, finished: bool, seed: int, budget: int, discards: Counter) -> list[Trajectory]:
    """A failure that came about by itself, with the step that counterfactual rollouts give it."""
    step = decisive_step(system, run, seed=seed, budget=budget) if finished else None
    if step is None:
        discards[system.domain, "no decisive step" if finished else str(Discard.BUDGET)] += 1
        return []
    if repaired(system, run.meta["task"], run.turns, step):
        discards[system.domain, str(Discard.REPAIRED)] += 1
        return []
    return [_label(run.meta["task"], run.id, run.turns, "natural", step)]


def _label(task, name, turns, origin, step=None, category=None, outcome=False) -> Trajectory:
    meta = {"task": task, "origin": origin, "category": category}
    agent = None if step is None else turns[step].role
    return Trajectory(name, turns, task["domain"], task["id"], step, agent, outcome, meta)


def _rng(seed: int, domain: str, index: int, purpose: int, attempt: int) -> np.random.Generator:
    return np.random.default_rng([seed, DOMAINS.index(domain), index, purpose, attempt])


def _record(run: Trajectory) -> dict[str, Any]:
    names = ("id", "domain", "family", "decisive_step", "decisive_agent", "outcome")
    turns = [[turn.role, turn.action, turn.content] for turn in run.turns]
    return {name: getattr(run, name) for name in names} | {"turns": turns, "meta": dict(run.meta)}


def _trajectory(line: str, number: int) -> Trajectory:
    try:
        record = json.loads(line)
        turns = tuple(Turn(*turn) for turn in record.pop("turns"))
        record["meta"]["task"]  # a corpus without tasks could not be rolled again
        return Trajectory(turns=turns, **record)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"line {number}: expected a run as to_jsonl writes it ({error})") from None
