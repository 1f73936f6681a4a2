"""Runs candidate functions in the sandbox and compares what they return with what was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from reprise.sandbox import Limits, Sandbox

# what can be asked of a function of x, with a constant a of 2..9: name -> (how it is written, what it returns)
OPERATIONS = {
    "add": ("x + {a}", lambda x, a: x + a),
    "subtract": ("x - {a}", lambda x, a: x - a),
    "multiply": ("x * {a}", lambda x, a: x * a),
    "most": ("max(x, {a})", max),
    "least": ("min(x, {a})", min),
    "remainder": ("x % {a}", lambda x, a: x % a),
}
HIDDEN = tuple(range(-4, 21))
UNIT = tuple(range(-3, 21, 2))  # twelve of them, which the tester knows
LIMITS = Limits(wall_seconds=15.0)  # AgentForesight, appendix B.3.1: tests may take 15 s

Specification = Mapping[str, Any]  # {"name": "f0", "operation": "add", "a": 3}


class CodeRunner:
    """Tests programs, each text once: results are kept by program and specification.

    `jobs` counts the processes that were started. A program that crashes, hangs or imports what it may not fails every
    test; it never raises here.
    """

    def __init__(self, limits: Limits = LIMITS, sandbox: Sandbox | None = None):
        self._limits, self._sandbox = limits, sandbox
        self._known: dict[tuple, dict[str, tuple[bool, ...]]] = {}
        self.jobs = 0

    def passed(self, program: str, functions: Sequence[Specification]) -> dict[str, tuple[bool, ...]]:
        """For each function, which of the inputs `HIDDEN` it answers rightly."""
        key = (program, tuple((f["name"], f["operation"], f["a"]) for f in functions))
        if key not in self._known:
            self._known[key] = self._run(program, functions)
        return self._known[key]

    def _run(self, program: str, functions: Sequence[Specification]) -> dict[str, tuple[bool, ...]]:
        self._sandbox = self._sandbox or Sandbox()
        self.jobs += 1
        calls = [(function["name"], [x]) for function in functions for x in HIDDEN]
        answers = self._sandbox.evaluate(program, calls, self._limits).calls or [(False, None)] * len(calls)
        wanted = [wanted_value(function, x) for function in functions for x in HIDDEN]
        # True == 1 in Python, but a truth value is no number here
        right = [ok and type(got) is int and got == want for (ok, got), want in zip(answers, wanted, strict=True)]
        n = len(HIDDEN)
        return {function["name"]: tuple(right[i * n : (i + 1) * n]) for i, function in enumerate(functions)}

    def correct(self, program: str, functions: Sequence[Specification]) -> bool:
        """Whether every function answers every hidden input rightly."""
        return all(all(marks) for marks in self.passed(program, functions).values())

    def unit_passed(self, text: str, function: Specification) -> int:
        """How many of the tester's inputs one function answers rightly."""
        marks = self.passed(text, [function])[function["name"]]
        return sum(mark for x, mark in zip(HIDDEN, marks, strict=True) if x in UNIT)


@cache
def shared_runner() -> CodeRunner:
    """The runner of every coding environment that is not given one."""
    return CodeRunner()


def wanted_value(function: Specification, x: int) -> int:
    """What the function is asked to return."""
    return OPERATIONS[function["operation"]][1](x, function["a"])


def expression(function: Specification) -> str:
    """How the task states the function, which is also right code for it."""
    return OPERATIONS[function["operation"]][0].format(a=function["a"])
