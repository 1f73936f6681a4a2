"""What an alarm is worth: on an alarm the flagged turn is drawn again and the run goes on from there.

The run under an auditor shares its task and its first draws with the run without one, so that both are the same up to
the first alarm: a run that fails alone and succeeds audited was rescued, and the reverse was broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reprise.audit.environment import BUDGET, Environment, Task, roll
from reprise.audit.online import OnlineAuditor
from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import SAFE, Verdict, alarm
from reprise.labs.audit_guarantee import Detector, Scored
from reprise.labs.audit_scorers import NORMAL, Scorer, noise
from reprise.traces import Turn

Judge = Callable[[tuple[Turn, ...]], Verdict]
# (system, task, name of the run) -> what is asked after every turn of it
JudgeMaker = Callable[[Environment, Task, str], Judge]
REPAIRS = 2  # times a turn is drawn again before the loop goes on with it; our choice


@dataclass(frozen=True)
class Supervised:
    """One run under an auditor.

    Attributes:
        success: the outcome.
        turns: those of the run as it ended.
        executed: turns executed in all, those taken back included.
        alarms: how often a turn was drawn again; `false_alarms` of them while every visible turn was right, and
            `late_alarms` at a right turn behind a wrong one.
    """

    success: bool
    turns: tuple[Turn, ...]
    executed: int
    alarms: int
    false_alarms: int
    late_alarms: int


def supervise(system: Environment, task: Task, judge: Judge, seed: Sequence[int], repairs: int = REPAIRS) -> Supervised:
    """Run a system turn by turn under an auditor that may take turns back.

    Args:
        system, task: what runs.
        judge: asked after every turn; on an alarm its step and all after it are taken back.
        seed: of the run; a turn drawn again has draws of its own.
        repairs: most alarms that are heeded at one step.
    """
    auditor = OnlineAuditor(judge, ask=None, continue_after_alarm=True)
    rng, heeded, false_alarms, late_alarms, executed = np.random.default_rng([*seed, 0]), {}, 0, 0, 0
    turns: tuple[Turn, ...] = ()
    while len(turns) < BUDGET and (turn := system.next_turn(task, turns, rng)) is not None:
        executed += 1
        turns = (*turns, turn)
        verdict = auditor.observe(turn)
        if verdict.is_alarm and heeded.get(verdict.step, 0) < repairs:
            heeded[verdict.step] = heeded.get(verdict.step, 0) + 1
            wrong = [system.locally_wrong(task, turns, k) for k in range(len(turns))]
            false_alarms += not any(wrong)
            late_alarms += any(wrong) and not wrong[verdict.step]
            turns = turns[: verdict.step]
            rng = np.random.default_rng([*seed, len(auditor.rewinds) + 1])
            auditor.rewind(verdict.step)
    return Supervised(system.omega(task, turns), turns, executed, len(auditor.rewinds), false_alarms, late_alarms)


def nobody(system: Environment, task: Task, name: str) -> Judge:
    """No auditor."""
    return lambda prefix: SAFE


def oracle(system: Environment, task: Task, name: str) -> Judge:
    """Alarms at every wrong turn and at no other."""

    def judge(prefix: tuple[Turn, ...]) -> Verdict:
        last = len(prefix) - 1
        return alarm(last, prefix[last].role) if system.locally_wrong(task, prefix, last) else SAFE

    return judge


def at_random(rate: float, seed: int) -> JudgeMaker:
    """Alarms at a share `rate` of turns, whatever they say."""
    threshold = NORMAL.inv_cdf(1 - rate)

    def made(system: Environment, task: Task, name: str) -> Judge:
        def judge(prefix: tuple[Turn, ...]) -> Verdict:
            last = len(prefix) - 1
            drawn = noise(Trajectory(name, prefix, system.domain), seed)[last]
            return alarm(last, prefix[last].role) if drawn > threshold else SAFE

        return judge

    return made


def calibrated(detector: Detector, scorer: Scorer, alpha: float) -> JudgeMaker:
    """Alarms where a calibrated auditor does, at the turn it has just read."""
    threshold = detector.threshold(alpha)

    def made(system: Environment, task: Task, name: str) -> Judge:
        def judge(prefix: tuple[Turn, ...]) -> Verdict:
            run = Trajectory(name, prefix, system.domain, meta={"task": task})
            last = len(prefix) - 1
            (statistic,) = detector.statistics(Scored.of([run], scorer))
            return alarm(last, prefix[last].role) if statistic[last] > threshold else SAFE

        return judge

    return made


def rescue(
    system: Environment, makers: dict[str, JudgeMaker], runs: int, seed: int, repairs: int = REPAIRS
) -> list[dict]:
    """The same tasks under each auditor, beside no auditor.

    Returns:
        one row an auditor: failures and safe, runs that fail or are safe without an auditor; rescued and broken, those
        whose outcome the auditor turned, and broken_late, broken ones with an alarm at a right turn behind a wrong
        one; success, share of runs, and gain, that less the share alone; alarms a run, and
        rate, alarms an executed turn; false_alarms in all, and interrupted, safe runs with any; extra, turns executed a
        run beyond those without an auditor.
    """
    tasks = [system.draw_task(np.random.default_rng([seed, number, 9])) for number in range(runs)]
    alone = [supervise(system, task, nobody(system, task, ""), (seed, k)) for k, task in enumerate(tasks)]
    clean = [
        run.success and not any(system.locally_wrong(task, run.turns, k) for k in range(len(run.turns)))
        for task, run in zip(tasks, alone, strict=True)
    ]
    rows = []
    for name, make in makers.items():
        named = ((task, f"{system.domain}-{seed}-{k}") for k, task in enumerate(tasks))
        watched = [
            supervise(system, task, make(system, task, own), (seed, k), repairs) for k, (task, own) in enumerate(named)
        ]
        pairs = list(zip(alone, watched, strict=True))
        rows.append({
            "seed": seed, "auditor": name, "runs": runs,
            "failures": sum(not a.success for a in alone), "safe": sum(clean),
            "rescued": sum(b.success and not a.success for a, b in pairs),
            "broken": sum(a.success and not b.success for a, b in pairs),
            "broken_late": sum(a.success and not b.success and b.late_alarms > 0 for a, b in pairs),
            "success": float(np.mean([b.success for b in watched])),
            "gain": float(np.mean([b.success - a.success for a, b in pairs])),
            "alarms": float(np.mean([b.alarms for b in watched])),
            "rate": sum(b.alarms for b in watched) / sum(b.executed for b in watched),
            "false_alarms": sum(b.false_alarms for b in watched),
            "interrupted": sum(ok and b.false_alarms > 0 for ok, b in zip(clean, watched, strict=True)),
            "extra": float(np.mean([b.executed - a.executed for a, b in pairs])),
        })  # fmt: skip
    return rows


def stopping(systems: Sequence[Environment], detector: Detector, scorer: Scorer, alpha: float, runs: int, seed: int):
    """Turns that are never executed if an alarm ends the run, against safe runs that it ends.

    Returns:
        dict of saved, turns after the alarm in failed runs; failed, failed runs stopped of failures; interrupted, safe
        runs stopped of safe.
    """
    drawn, outcome = [], []
    for number in range(runs):
        system, rng = systems[number % len(systems)], np.random.default_rng([seed, number])
        task = system.draw_task(rng)
        turns = roll(system, task, (), rng).turns
        drawn.append(Trajectory(f"{system.domain}-{seed}-{number}", turns, system.domain, meta={"task": task}))
        wrong = any(system.locally_wrong(task, turns, k) for k in range(len(turns)))
        outcome.append("failed" if not system.omega(task, turns) else "recovered" if wrong else "safe")
    first = detector.alarms(Scored.of(drawn, scorer), alpha)
    failed, safe = (np.array([each == name for each in outcome]) for name in ("failed", "safe"))
    stopped, lengths = np.isfinite(first), np.array([len(run) for run in drawn])
    return {
        "saved": int((lengths - 1 - first)[failed & stopped].sum()),
        "failed": int((failed & stopped).sum()),
        "failures": int(failed.sum()),
        "interrupted": int((safe & stopped).sum()),
        "safe": int(safe.sum()),
    }
