"""A second opinion on the labels of a corpus that shares no code with what made them.

Two oracles. `first_false_turn` reads the transcript's text with parsers of its own, recomputes every statement and
returns the first that is false; the code it meets is evaluated here, not run. `first_fatal_turn` knows nothing about
any turn: it lets a system that believes whatever it reads go on from every prefix, and returns the first turn after
which that system no longer succeeds.
"""

from __future__ import annotations

import ast
import operator
from dataclasses import fields, replace
from typing import Any

import numpy as np

from reprise.audit.environment import Environment, roll
from reprise.audit.trajectory import Trajectory
from reprise.traces import Turn

SEEDS = 4


def first_fatal_turn(environment: Environment, run: Trajectory) -> int | None:
    """The first turn k such that the trusting system succeeds from turns[:k] and not from turns[:k + 1].

    The trusting system makes no errors, checks nothing and yields to every objection: all chances are 0. None where
    it succeeds from every prefix, the whole run included.
    """
    chances = {field.name: 0.0 for field in fields(environment) if field.name.startswith("p_")}
    trusting = replace(environment, **chances)
    task = run.meta["task"]

    def succeeds(prefix: tuple[Turn, ...]) -> bool:
        rollouts = (roll(trusting, task, prefix, np.random.default_rng(s)).turns for s in range(SEEDS))
        return all(environment.omega(task, turns) for turns in rollouts)

    return next((k for k in range(len(run)) if not succeeds(run.turns[: k + 1])), None)


def first_false_turn(run: Trajectory) -> int | None:
    """The first turn that states or does something false, from the text alone; None where there is none."""
    reader = {"math": _false_math, "coding": _false_coding, "search": _false_search}[run.domain]
    return next(iter(reader([(turn.role, turn.action, turn.content.split()) for turn in run.turns])), None)


def _false_math(turns: list[tuple[str, str, list[str]]]):
    head = turns[0][2]
    total, todo = int(head[1]), [int(sign + size) for sign, size in zip(head[3::3], head[4::3], strict=True)]
    target, claimed, closed = total + sum(todo), None, False
    for k, (role, action, words) in enumerate(turns[1:], start=1):
        if (role, action) in {("MathSolver", "compute"), ("MathSolver", "revise")}:
            left, sign, size, _, claimed = words
            claimed = int(claimed)
            if int(left) != total or int(sign + size) != todo[0] or int(left) + int(sign + size) != claimed:
                yield k
        elif action in ("check", "accept"):
            objected = words[-1] == "mismatch"
            if objected != (claimed != total + todo[0]):
                yield k
            if not objected:
                total, todo = claimed, todo[1:]
        elif action == "final":
            closed = int(words[1]) == target
            if not closed or todo:
                yield k
        elif action == "pass" and not closed:
            yield k


def _false_search(turns: list[tuple[str, str, list[str]]]):
    from reprise.labs.agent_runs.search_env import ENTITIES, RELATIONS  # the world itself, not its readers

    world = {
        (relation, name): ENTITIES[(a * i + b) % len(ENTITIES)]
        for relation, (a, b) in RELATIONS.items()
        for i, name in enumerate(ENTITIES)
    }
    head = turns[0][2]
    at, chain = head[1], [word for word in head[3:] if word != ","]
    asked = found = said = None
    for k, (_, action, words) in enumerate(turns[1:], start=1):
        if action == "delegate":
            query = (words[0], words[2])
            if said is not None and query != asked:  # the report was believed
                at, chain = said, chain[1:]
            elif said is not None and said == found:
                yield k
            asked, said = query, None
            if not chain or query != (chain[0], at):
                yield k
        elif action == "doc":
            found = words[-1]
            if world[asked] != found:
                yield k
        elif action == "report":
            said = words[0]
            if said != found:
                yield k
        elif action == "final" and (len(chain) != 1 or words[1] != said):
            yield k


def _false_coding(turns: list[tuple[str, str, list[str]]]):
    asked = [part.split(maxsplit=1)[1] for part in " ".join(turns[0][2]).split(" ; ")]
    written, accepted = "", []
    for k, (_, action, words) in enumerate(turns[1:], start=1):
        if action in ("write", "fix"):
            written = " ".join(words).split("return ", 1)[1]
            if not _same(written, asked[len(accepted)]):
                yield k
        elif action == "test":
            good = sum(_value(written, x) == _value(asked[len(accepted)], x) for x in range(-3, 21, 2))
            if words[1:4] != [str(good), "of", "12"]:
                yield k
            if words[1] == words[3]:
                accepted, written = [*accepted, written], ""
        elif action == "smoke":
            if not _same(written, asked[len(accepted)]):
                yield k
            accepted, written = [*accepted, written], ""
        elif action == "pass":
            program = [*accepted, *filter(None, [written])]
            if len(program) != len(asked) or not all(map(_same, program, asked)):
                yield k


def _same(code: str, other: str) -> bool:
    return all(_value(code, x) == _value(other, x) for x in range(-4, 21))


BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod}


def _value(expression: str, x: int) -> Any:
    """An expression in x, by its syntax tree; None where a name is not known."""

    def of(node: ast.AST) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return {"x": x}[node.id]
        if isinstance(node, ast.Call):
            return {"max": max, "min": min}[node.func.id](*map(of, node.args))
        return BINARY[type(node.op)](of(node.left), of(node.right))

    try:
        return of(ast.parse(expression, mode="eval").body)
    except KeyError:
        return None
