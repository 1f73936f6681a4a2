"""Faults put into clean runs: which categories fit a turn, and the faulty turn itself.

The paper lists the categories and leaves open which speaker each belongs to; the pairing here is our choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from reprise.audit.environment import Task
from reprise.labs.agent_runs import coding_env, math_env
from reprise.traces import Turn

# AgentForesight, appendix B.3.1: four categories in mathematics, three in coding, none for the agentic tasks
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "math": ("computation_slip", "premature_finalization", "verification_shortcut", "verdict_misread"),
    "coding": ("code_bug", "verification_skip", "verdict_misread"),
    "search": (),
}
Fault = Callable[[Task, tuple[Turn, ...], np.random.Generator], Turn]


# (speaker, action) of a turn in a clean run -> the categories that fit it
FITTING = {
    (math_env.SOLVER, "compute"): ("computation_slip", "premature_finalization"),
    (math_env.VERIFIER, "check"): ("verification_shortcut", "verdict_misread"),
    (math_env.VERIFIER, "accept"): ("verification_shortcut", "verdict_misread"),
    (coding_env.WRITER, "write"): ("code_bug",),
    (coding_env.TESTER, "test"): ("verification_skip", "verdict_misread"),
    (coding_env.TESTER, "smoke"): ("verification_skip", "verdict_misread"),
}


def fitting(turn: Turn) -> tuple[str, ...]:
    """Categories that fit a turn of a clean run."""
    return FITTING.get((turn.role, turn.action), ())


def faulty_turn(category: str, task: Task, prefix: tuple[Turn, ...], rng: np.random.Generator) -> Turn:
    """The turn that follows `prefix` with a fault of `category` in it."""
    return FAULTS[task["domain"]][category](task, prefix, rng)


def _computation_slip(task: Task, prefix: tuple[Turn, ...], rng: np.random.Generator) -> Turn:
    now = math_env.state(task, prefix)
    value = math_env.target(task, now) + int(rng.choice(math_env.SHIFTS))
    return Turn(math_env.SOLVER, "compute", math_env.equation(task, now, value))


def _premature_finalization(task: Task, prefix: tuple[Turn, ...], rng: np.random.Generator) -> Turn:
    return Turn(math_env.SOLVER, "final", f"answer {math_env.state(task, prefix).value}")


def _verification_shortcut(task: Task, prefix: tuple[Turn, ...], rng: np.random.Generator) -> Turn:
    return Turn(math_env.VERIFIER, "pass", math_env.SENTINEL)


def _math_misread(task: Task, prefix: tuple[Turn, ...], rng: np.random.Generator) -> Turn:
    now = math_env.state(task, prefix)
    return Turn(math_env.VERIFIER, "check", f"{math_env.equation(task, now, now.pending)} mismatch")


def _code_bug(task: Task, prefix: tuple[Turn, ...], rng: np.random.Generator) -> Turn:
    function = coding_env.at_hand(task, coding_env.state(prefix))
    return Turn(coding_env.WRITER, "write", coding_env.bug(function, rng))


def _verification_skip(task: Task, prefix: tuple[Turn, ...], rng: np.random.Generator) -> Turn:
    return Turn(coding_env.TESTER, "pass", coding_env.SENTINEL)


def _coding_misread(task: Task, prefix: tuple[Turn, ...], rng: np.random.Generator) -> Turn:
    function = coding_env.at_hand(task, coding_env.state(prefix))
    passed = int(rng.integers(len(coding_env.UNIT)))
    return Turn(coding_env.TESTER, "test", coding_env.report(function, passed))


FAULTS: Mapping[str, Mapping[str, Fault]] = {
    "math": {
        "computation_slip": _computation_slip,
        "premature_finalization": _premature_finalization,
        "verification_shortcut": _verification_shortcut,
        "verdict_misread": _math_misread,
    },
    "coding": {
        "code_bug": _code_bug,
        "verification_skip": _verification_skip,
        "verdict_misread": _coding_misread,
    },
}
