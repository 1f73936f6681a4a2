"""The corpus: the same to the byte, counted in full, and made by faults that are what they are called."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from reprise.audit.environment import roll
from reprise.labs.agent_runs import (
    CodeEnv,
    Corpus,
    CorpusError,
    MathEnv,
    SearchEnv,
    build_corpus,
    coding_env,
    faults,
    math_env,
    search_env,
)
from reprise.labs.agent_runs.chances import ChanceError
from reprise.labs.agent_runs.code_runner import HIDDEN, UNIT, CodeRunner
from reprise.labs.agent_runs.rollout import Discard, inject_fault, repaired
from reprise.traces import Turn

PROGRAM = (
    "import hashlib; from reprise.labs.agent_runs import build_corpus; c = build_corpus(6, seed=5);"
    "print(hashlib.sha256(c.to_jsonl().encode()).hexdigest(), sorted(c.discards.items()))"
)


def test_two_processes_build_the_same_bytes():
    """Whatever the hash seed: no order of a set or a dictionary of strings enters."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "12345")
    }
    corpus = build_corpus(6, seed=5)
    here = f"{hashlib.sha256(corpus.to_jsonl().encode()).hexdigest()} {sorted(corpus.discards.items())}\n"
    assert outputs == {here}


def test_a_part_is_a_prefix_of_the_whole():
    """Every draw is named, so that neither more tasks nor other domains change a run."""
    small, large = build_corpus(4, domains=("math",)), build_corpus(9, domains=("search", "math"))
    names = {run.id: run for run in large}
    assert all(names[run.id] == run for run in small)


def test_another_seed_is_another_corpus():
    assert (
        build_corpus(3, seed=0, domains=("math",)).to_jsonl() != build_corpus(3, seed=1, domains=("math",)).to_jsonl()
    )


@pytest.fixture(scope="module")
def corpus():
    return build_corpus(40, seed=2)


def test_every_injection_is_kept_or_counted(corpus):
    for domain in ("math", "coding"):
        safe = sum(run.domain == domain for run in corpus.safe)
        kept = sum(run.domain == domain for run in corpus.unsafe)
        dropped = sum(corpus.discards[domain, str(reason)] for reason in Discard)
        assert kept + dropped == 2 * safe == 80
    assert len(corpus.tasks) == 120


def test_families_hold_one_safe_run_and_its_variants(corpus):
    for run in corpus.unsafe:
        safe = [other for other in corpus.safe if other.family == run.family]
        assert len(safe) == 1 and safe[0].meta["task"] == run.meta["task"]
        if run.meta["origin"] == "injected":
            k = run.decisive_step
            assert run.turns[:k] == safe[0].turns[:k] and run.turns[k] != safe[0].turns[k]
            assert 1 <= k <= len(safe[0]) - 2


def test_all_categories_occur(corpus):
    seen = {(run.domain, run.meta["category"]) for run in corpus.unsafe}
    assert seen == {(d, c) for d, names in faults.CATEGORIES.items() for c in names} | {("search", None)}


def test_jsonl_round_trip(corpus):
    again = Corpus.from_jsonl(corpus.to_jsonl())
    assert again.safe == corpus.safe and again.unsafe == corpus.unsafe
    assert again.to_jsonl() == corpus.to_jsonl()
    assert [run.meta for run in again] == [run.meta for run in corpus]


@pytest.mark.parametrize(
    "line", ["{", "{}", "[]", '{"turns": [], "meta": {}}', '{"turns": [["a","b","c"]], "meta": {"task": 1}}']
)
def test_a_line_that_is_no_run_is_named(line):
    with pytest.raises(CorpusError, match="^line 2: "):
        Corpus.from_jsonl(f"\n{line}\n")


@pytest.mark.parametrize(
    "kwargs, message",
    [
        (dict(tasks_per_domain=0), "^tasks_per_domain=0"),
        (dict(tasks_per_domain=1, variants=-1), "variants=-1"),
        (dict(tasks_per_domain=1, domains=("chess",)), "^domains=\\['chess'\\]"),
    ],
)
def test_bad_arguments_are_named(kwargs, message):
    with pytest.raises(CorpusError, match=message):
        build_corpus(**kwargs)
    with pytest.raises(ChanceError, match="^p_slip=2"):
        build_corpus(1, p_slip=2)


# -- injection ---------------------------------------------------------------------------------------------------------

MATH = {"domain": "math", "start": 14, "operations": [5, -3]}
CODE = {"domain": "coding", "functions": [{"name": "f0", "operation": "most", "a": 4}]}


def clean(environment, task):
    return roll(replace(environment, p_slip=0.0, p_tool_error=0.0), task, (), np.random.default_rng(0)).turns


def test_faulty_turns_are_what_they_are_called():
    rng = np.random.default_rng(0)
    turns = clean(MathEnv(), MATH)
    content = {name: faults.faulty_turn(name, MATH, turns[:1], rng).content for name in faults.CATEGORIES["math"][:2]}
    assert content["premature_finalization"] == "answer 14"
    assert content["computation_slip"].startswith("14 + 5 = ") and content["computation_slip"] != "14 + 5 = 19"
    assert faults.faulty_turn("verdict_misread", MATH, turns[:2], rng).content == "14 + 5 = 19 mismatch"
    assert faults.faulty_turn("verification_shortcut", MATH, turns[:2], rng).content == "ANSWER_VERIFIED"
    turns = clean(CodeEnv(), CODE)
    assert turns[1].content == "def f0(x): return max(x, 4)"
    assert faults.faulty_turn("verdict_misread", CODE, turns[:2], rng).content != "f0 12 of 12 passed"
    assert faults.faulty_turn("verification_skip", CODE, turns[:2], rng).content == "FINAL_VERIFIED_TESTS_PASSED"


class Scripted:
    """Stands for a generator: hands out what it was given."""

    def __init__(self, *values):
        self.values = list(values)

    def integers(self, *_, **__):
        return self.values.pop(0)


def test_reasons_of_discards():
    task, turns = MATH, clean(MathEnv(), MATH)
    assert inject_fault(MathEnv(), task, turns[:2], Scripted()).discard == Discard.TOO_SHORT
    assert inject_fault(MathEnv(), task, turns, Scripted(len(turns) - 2)).discard == Discard.NO_CATEGORY  # the answer
    # the premature answer stands, or is stopped before the verifier's last word
    assert inject_fault(MathEnv(), task, turns, Scripted(1, 1)).discard is None
    assert inject_fault(MathEnv(), task, turns, Scripted(1, 1), budget=2).discard == Discard.BUDGET
    # skipping the check of the last function is harmless where the code is right
    assert inject_fault(CodeEnv(), CODE, clean(CodeEnv(), CODE), Scripted(2, 0)).discard == Discard.RECOVERED
    same = Turn("MathSolver", "compute", "14 + 5 = 19")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(faults.FAULTS["math"], "computation_slip", lambda *_: same)
        assert inject_fault(MathEnv(), task, turns, Scripted(1, 0)).discard == Discard.UNCHANGED


def test_a_fault_that_was_repaired_is_not_why_a_run_failed():
    """Slip at 1, objection at 2, repair at 3, and a second slip at 5 that nobody sees."""
    lines = [
        ("MathSolver", "compute", "14 + 5 = 18"),
        ("Verifier", "check", "14 + 5 = 18 mismatch"),
        ("MathSolver", "revise", "14 + 5 = 19"),
        ("Verifier", "accept", "19 ok"),
        ("MathSolver", "compute", "19 - 3 = 15"),
        ("Verifier", "accept", "15 ok"),
        ("MathSolver", "final", "answer 15"),
        ("Verifier", "pass", "ANSWER_VERIFIED"),
    ]
    turns = (math_env.ask(MATH), *(Turn(*line) for line in lines))
    assert [MathEnv().on_track(MATH, turns[: k + 1]) for k in range(9)] == [k in (0, 3, 4) for k in range(9)]
    assert repaired(MathEnv(), MATH, turns, 1) and not repaired(MathEnv(), MATH, turns, 5)


def test_budget_stopped_runs_are_never_in_the_corpus():
    corpus = build_corpus(12, seed=3, domains=("math", "search"), budget=9)
    assert sum(count for (_, reason), count in corpus.discards.items() if "budget" in reason) > 0
    assert all(len(run) <= 9 and run.turns[-1].action in ("pass", "final") for run in corpus)


# -- the three systems -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("environment", [MathEnv(), CodeEnv(), SearchEnv()])
def test_a_run_is_a_function_of_task_transcript_and_generator(environment):
    rng = np.random.default_rng(4)
    for _ in range(10):
        task = environment.draw_task(rng)
        run = roll(environment, task, (), np.random.default_rng(8))
        assert roll(environment, task, (), np.random.default_rng(8)) == run
        assert environment.next_turn(task, run.turns, rng) is None


def test_tasks_stay_in_range():
    rng = np.random.default_rng(0)
    for _ in range(300):
        task = MathEnv().draw_task(rng)
        partial = np.cumsum([task["start"], *task["operations"]])
        assert (
            1 <= task["start"] <= 20
            and 2 <= len(task["operations"]) <= 5
            and (0 <= partial).all()
            and (partial <= 30).all()
        )
    assert {len(CodeEnv().draw_task(rng)["functions"]) for _ in range(100)} == {1, 2, 3, 4}
    assert {len(SearchEnv().draw_task(rng)["hops"]) for _ in range(100)} == {2, 3, 4}


@pytest.mark.parametrize("relation", search_env.RELATIONS)
def test_relations_are_one_to_one_and_never_to_oneself(relation):
    image = [search_env.follow(name, relation) for name in search_env.ENTITIES]
    assert sorted(image) == sorted(search_env.ENTITIES)
    assert all(a != b for a, b in zip(image, search_env.ENTITIES, strict=True))


@pytest.mark.parametrize(
    "answer, right",
    [("16", True), ("32/2", True), ("16.0", False), ("17", False), ("", False), ("1/0", False), ("9" * 99, False)],
)
def test_answers_are_compared_as_numbers(answer, right):
    assert math_env.equal(answer, 16) is right


def test_code_is_run_once_a_text_and_a_bad_program_fails_every_test():
    runner, spec = CodeRunner(), {"name": "f0", "operation": "multiply", "a": 3}
    assert (len(HIDDEN), len(UNIT)) == (25, 12) and set(UNIT) < set(HIDDEN)
    assert (
        runner.correct("def f0(x): return 3 * x", [spec]) and runner.unit_passed("def f0(x): return 3 * x", spec) == 12
    )
    assert runner.jobs == 1
    assert runner.unit_passed("def f0(x): return 9", spec) == 1  # right at x = 3 alone
    for text in (
        "def f0(x): return True",
        "import os\nos._exit(0)",
        "import socket",
        "def f0(",
        "1 / 0",
        "def f0(x): return x * 3.0",
    ):
        assert not any(runner.passed(text, [spec])["f0"]), text


def test_the_writer_breaks_right_code_that_it_is_told_fails():
    turns = (
        coding_env.ask(CODE),
        Turn("CodeWriter", "write", "def f0(x): return max(x, 4)"),
        Turn("CodeTester", "test", "f0 3 of 12 passed"),
    )
    fixes = Counter(
        CodeEnv(p_stand=0.5).next_turn(CODE, turns, np.random.default_rng(s)).content == turns[1].content
        for s in range(60)
    )
    assert fixes[True] > 10 and fixes[False] > 10
    assert CodeEnv(p_stand=1.0).next_turn(CODE, turns, np.random.default_rng(0)).content == turns[1].content


@pytest.mark.slow
def test_seven_hundred_and_fifty_tasks():
    corpus = build_corpus(250)
    assert len(corpus.safe) == 750 and len(corpus.unsafe) > 800
