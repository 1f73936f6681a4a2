"""A writer and a tester: every function is run, in a process of its own, and the sentinel means that all tests passed.

    user ask "f0 x + 3 ; f1 max(x, 4)" · CodeWriter write "def f0(x): return x + 3" ·
    CodeTester test "f0 12 of 12 passed" or smoke "f0 looks fine" · ... · CodeTester pass "FINAL_VERIFIED_TESTS_PASSED"

The tester runs its twelve tests with probability `p_check` and otherwise stamps what it got. Told of a failure, the
writer writes the function anew; if it was right all the same, it stands by it with probability `p_stand` and else
breaks it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import numpy as np

from reprise.audit.environment import Task
from reprise.labs.agent_runs.chances import check_chances
from reprise.labs.agent_runs.code_runner import OPERATIONS, UNIT, CodeRunner, Specification, expression, shared_runner
from reprise.traces import Turn

WRITER, TESTER = "CodeWriter", "CodeTester"
SENTINEL = "FINAL_VERIFIED_TESTS_PASSED"
COUNT = re.compile(r"f\d (\d+) of (\d+) passed")
ACTIONS = {"user": {"ask"}, WRITER: {"write", "fix"}, TESTER: {"test", "smoke", "pass", "tool_error"}}


@dataclass(frozen=True)
class State:
    """What the transcript says: texts settled, the one awaiting its test, how the run stands."""

    settled: tuple[str, ...] = ()
    pending: str | None = None
    disputed: bool = False
    ended: bool = False


@dataclass(frozen=True)
class CodeEnv:
    """The system, with its chances: of a bug, a real test, standing by right code, a test run that fails."""

    p_slip: float = 0.1
    p_check: float = 0.35
    p_stand: float = 0.3
    p_tool_error: float = 0.02
    runner: CodeRunner = field(default_factory=shared_runner, compare=False, repr=False)

    domain = "coding"

    def __post_init__(self):
        check_chances(self)

    def draw_task(self, rng: np.random.Generator) -> Task:
        """One to four functions with constants of 2..9."""
        names = sorted(OPERATIONS)
        functions = [
            {"name": f"f{i}", "operation": names[int(rng.integers(len(names)))], "a": int(rng.integers(2, 10))}
            for i in range(int(rng.integers(1, 5)))
        ]
        return {"domain": self.domain, "functions": functions}

    def next_turn(self, task: Task, turns: tuple[Turn, ...], rng: np.random.Generator) -> Turn | None:
        if not turns:
            return ask(task)
        now = state(turns)
        if now.ended:
            return None
        if now.pending is not None and not now.disputed:
            return self._test(task, now, rng)
        if now.pending is None and len(now.settled) == len(task["functions"]):
            return Turn(TESTER, "pass", SENTINEL)
        return self._write(task, now, rng)

    def _test(self, task: Task, now: State, rng: np.random.Generator) -> Turn:
        function = at_hand(task, now)
        if rng.random() < self.p_tool_error:
            return Turn(TESTER, "tool_error", "runner error")
        if rng.random() < self.p_check:
            return Turn(TESTER, "test", report(function, self.runner.unit_passed(now.pending, function)))
        return Turn(TESTER, "smoke", f"{function['name']} looks fine")

    def _write(self, task: Task, now: State, rng: np.random.Generator) -> Turn:
        function = at_hand(task, now)
        if now.disputed and self.runner.correct(now.pending, [function]):
            broken = rng.random() >= self.p_stand
        else:
            broken = rng.random() < self.p_slip
        text = bug(function, rng) if broken else code(function)
        return Turn(WRITER, "fix" if now.disputed else "write", text)

    def omega(self, task: Task, turns: tuple[Turn, ...]) -> bool:
        """Whether the run ended and its program passes every hidden test."""
        now = state(turns)
        texts = written(now)
        if not now.ended or len(texts) < len(task["functions"]):
            return False
        return self.runner.correct("\n".join(texts), task["functions"])

    def locally_wrong(self, task: Task, turns: tuple[Turn, ...], k: int) -> bool:
        turn = turns[k]
        if turn.action in ("ask", "tool_error"):
            return False
        if turn.action == "pass":
            return not self.omega(task, turns[: k + 1])
        now = state(turns[:k])
        function = at_hand(task, now)
        if turn.role == WRITER:
            return not self.runner.correct(turn.content, [function])
        if turn.action == "test":
            return turn.content != report(function, self.runner.unit_passed(now.pending, function))
        return not self.runner.correct(now.pending, [function])

    def on_track(self, task: Task, turns: tuple[Turn, ...]) -> bool:
        """Whether nothing in the transcript stands that a right run would not have."""
        now = state(turns)
        if now.ended:
            return self.omega(task, turns)
        pairs = zip(written(now), task["functions"], strict=False)
        return not now.disputed and all(self.runner.correct(text, [function]) for text, function in pairs)

    def fix(self, task: Task, turns: tuple[Turn, ...], k: int, rng: np.random.Generator) -> Turn | None:
        """What the system does at k without bugs, shortcuts or failing tools."""
        return replace(self, p_slip=0.0, p_check=1.0, p_stand=1.0, p_tool_error=0.0).next_turn(task, turns[:k], rng)

    def legal(self, turn: Turn) -> bool:
        return turn.action in ACTIONS.get(turn.role, ())

    def tool_error(self, turn: Turn) -> bool:
        return turn.action == "tool_error"


def ask(task: Task) -> Turn:
    """The task message."""
    return Turn("user", "ask", " ; ".join(f"{f['name']} {expression(f)}" for f in task["functions"]))


def written(now: State) -> tuple[str, ...]:
    """The program so far, tested or not."""
    return now.settled if now.pending is None else (*now.settled, now.pending)


def at_hand(task: Task, now: State) -> Specification:
    """The function that is written or tested next."""
    return task["functions"][len(now.settled)]


def code(function: Specification) -> str:
    """Right code for a function."""
    return f"def {function['name']}(x): return {expression(function)}"


def bug(function: Specification, rng: np.random.Generator) -> str:
    """Code with another constant, another operation or a name that does not exist; it may still be right by chance."""
    kind = int(rng.integers(5))
    if kind < 2:
        return code({**function, "a": function["a"] + int(rng.choice((-1, 1)))})
    if kind < 4:
        others = sorted(set(OPERATIONS) - {function["operation"]})
        return code({**function, "operation": others[int(rng.integers(len(others)))]})
    return code(function).replace("return", "return y +")


def report(function: Specification, passed: int) -> str:
    """What a test run says."""
    return f"{function['name']} {passed} of {len(UNIT)} passed"


def state(turns: tuple[Turn, ...]) -> State:
    """Read the transcript; a test that did not pass in full puts the text in dispute."""
    now = State()
    for turn in turns:
        if turn.action in ("write", "fix"):
            now = State(now.settled, turn.content)
        elif turn.action == "test" and not _full(turn.content):
            now = replace(now, disputed=True)
        elif turn.action in ("test", "smoke") and now.pending is not None:
            now = State((*now.settled, now.pending))
        elif turn.action == "pass":
            now = replace(now, ended=True)
    return now


def _full(content: str) -> bool:
    found = COUNT.match(content)
    return found is not None and found[1] == found[2]
