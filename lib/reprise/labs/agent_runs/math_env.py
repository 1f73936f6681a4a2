"""A solver and a verifier add and subtract: every turn is a line of arithmetic that can be recomputed.

    user ask · MathSolver compute "14 + 5 = 19" · Verifier check "14 + 5 = 19 ok" or accept "19 ok" · ... ·
    MathSolver final "answer 19" · Verifier pass "ANSWER_VERIFIED"

The verifier recomputes with probability `p_check` and otherwise stamps what it got. Told of a mismatch, the solver
recomputes; if it was right all the same, it stands by its value with probability `p_stand` and else moves it by 1 or 2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from reprise.audit.environment import Task
from reprise.labs.agent_runs.chances import check_chances
from reprise.traces import Turn

SOLVER, VERIFIER = "MathSolver", "Verifier"
SENTINEL = "ANSWER_VERIFIED"
EQUATION = re.compile(r"(-?\d+) ([+-]) (\d+) = (-?\d+)( ok| mismatch)?")
ACTIONS = {"user": {"ask"}, SOLVER: {"compute", "revise", "final"}, VERIFIER: {"check", "accept", "pass", "tool_error"}}
NUMBER = re.compile(r"-?\d{1,12}(/0*[1-9]\d{0,11})?")
SHIFTS = (-2, -1, 1, 2)


@dataclass(frozen=True)
class State:
    """What the transcript says: operations settled, their value, a value awaiting its check, how the run stands."""

    done: int
    value: int
    pending: int | None = None
    disputed: bool = False
    answer: str | None = None
    ended: bool = False


@dataclass(frozen=True)
class MathEnv:
    """The system, with its chances: of a slip, a real check, standing by a right value, a calculator that fails."""

    p_slip: float = 0.1
    p_check: float = 0.35
    p_stand: float = 0.3
    p_tool_error: float = 0.02

    domain = "math"

    def __post_init__(self):
        check_chances(self)

    def draw_task(self, rng: np.random.Generator) -> Task:
        """A start of 1..20 and two to five operations ±1..9 whose partial values stay in 0..30."""
        value = start = int(rng.integers(1, 21))
        operations = []
        for _ in range(int(rng.integers(2, 6))):
            size = int(rng.integers(1, 10))
            sign = 1 if value - size < 0 else -1 if value + size > 30 else int(rng.choice((-1, 1)))
            value += sign * size
            operations.append(sign * size)
        return {"domain": self.domain, "start": start, "operations": operations}

    def next_turn(self, task: Task, turns: tuple[Turn, ...], rng: np.random.Generator) -> Turn | None:
        if not turns:
            return ask(task)
        now = state(task, turns)
        if now.ended:
            return None
        if now.answer is not None:
            return Turn(VERIFIER, "pass", SENTINEL)
        if now.pending is not None and not now.disputed:
            return self._verify(task, now, rng)
        if now.pending is None and now.done == len(task["operations"]):
            return Turn(SOLVER, "final", f"answer {now.value}")
        return self._solve(task, now, rng)

    def _verify(self, task: Task, now: State, rng: np.random.Generator) -> Turn:
        if rng.random() < self.p_tool_error:
            return Turn(VERIFIER, "tool_error", "calculator error")
        if rng.random() < self.p_check:
            right = now.pending == target(task, now)
            return Turn(VERIFIER, "check", f"{equation(task, now, now.pending)} {'ok' if right else 'mismatch'}")
        return Turn(VERIFIER, "accept", f"{now.pending} ok")

    def _solve(self, task: Task, now: State, rng: np.random.Generator) -> Turn:
        value, action = target(task, now), "revise" if now.disputed else "compute"
        if now.disputed and now.pending == value:
            moved = rng.random() >= self.p_stand
        else:
            moved = rng.random() < self.p_slip
        if moved:
            value += int(rng.choice(SHIFTS))
        return Turn(SOLVER, action, equation(task, now, value))

    def omega(self, task: Task, turns: tuple[Turn, ...]) -> bool:
        """Whether the run ended with an answer that equals the task's value."""
        now = state(task, turns)
        return now.ended and now.answer is not None and equal(now.answer, gold(task))

    def locally_wrong(self, task: Task, turns: tuple[Turn, ...], k: int) -> bool:
        turn = turns[k]
        if turn.action in ("ask", "tool_error"):
            return False
        now = state(task, turns[:k])
        if turn.role == SOLVER:
            if turn.action == "final":
                return now.done < len(task["operations"]) or turn.content != f"answer {now.value}"
            return turn.content != equation(task, now, target(task, now))
        if turn.action == "pass":
            return now.answer is None or not equal(now.answer, gold(task))
        right = now.pending == target(task, now)
        return right if turn.content.endswith("mismatch") else not right

    def on_track(self, task: Task, turns: tuple[Turn, ...]) -> bool:
        """Whether nothing in the transcript stands that a right run would not have."""
        now = state(task, turns)
        if now.ended or now.answer is not None:
            return now.answer is not None and equal(now.answer, gold(task))
        settled = now.value == task["start"] + sum(task["operations"][: now.done])
        return settled and not now.disputed and now.pending in (None, now.pending and target(task, now))

    def fix(self, task: Task, turns: tuple[Turn, ...], k: int, rng: np.random.Generator) -> Turn | None:
        """What the system does at k without slips, shortcuts or failing tools."""
        return replace(self, p_slip=0.0, p_check=1.0, p_stand=1.0, p_tool_error=0.0).next_turn(task, turns[:k], rng)

    def legal(self, turn: Turn) -> bool:
        return turn.action in ACTIONS.get(turn.role, ())

    def tool_error(self, turn: Turn) -> bool:
        return turn.action == "tool_error"


def ask(task: Task) -> Turn:
    """The task message."""
    steps = " , ".join(f"{'+' if size > 0 else '-'} {abs(size)}" for size in task["operations"])
    return Turn("user", "ask", f"start {task['start']} then {steps}")


def gold(task: Task) -> int:
    """The task's right answer."""
    return task["start"] + sum(task["operations"])


def target(task: Task, now: State) -> int:
    """The right value of the operation at hand, given the value it starts from."""
    return now.value + task["operations"][now.done]


def equation(task: Task, now: State, value: int) -> str:
    """The operation at hand with `value` as its result."""
    size = task["operations"][now.done]
    return f"{now.value} {'+' if size > 0 else '-'} {abs(size)} = {value}"


def state(task: Task, turns: tuple[Turn, ...]) -> State:
    """Read the transcript."""
    now = State(0, task["start"])
    for turn in turns:
        if turn.action in ("compute", "revise"):
            found = EQUATION.match(turn.content)
            now = replace(now, pending=int(found[4]) if found else now.value, disputed=False)
        elif turn.action == "check" and turn.content.endswith("mismatch"):
            now = replace(now, disputed=True)
        elif turn.action in ("check", "accept") and now.pending is not None:
            now = State(now.done + 1, now.pending)
        elif turn.action == "final":
            now = replace(now, answer=turn.content.removeprefix("answer "))
        elif turn.action == "pass":
            now = replace(now, ended=True)
    return now


def equal(answer: str, value: int) -> bool:
    """Whether an answer, an integer or a fraction, is the number `value`."""
    return bool(NUMBER.fullmatch(answer)) and Fraction(answer) == value
