"""Practice in a toy world: a family succeeds when its slot has the right value, with some luck without."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from reprise.memory.errors import MemoryFault
from reprise.memory.practice import RepeatedSuccess, Task, Trajectory, Witness, candidate_repairs, practice

RIGHT = {"case": "upper", "dates": "dotted", "pages": 1}


@dataclass
class Explorer:
    families: tuple = tuple(RIGHT)
    spurious: bool = True

    def propose(self, family, rng):
        other = {"colour": "red"} if self.spurious else {}
        return Witness(Task(family, {}, "do it"), {family: RIGHT[family], **other}, 0.2, 7)

    def another(self, task, rng):
        return Task(task.family, {"fresh": int(rng.integers(1000))}, task.goal)


@dataclass
class Solver:
    luck: float = 0.0
    seen: list = field(default_factory=list)

    def attempt(self, task, memory, rng):
        settings = {slot: "default" for slot in [*RIGHT, "colour"]} | {h.slot: h.value for h in memory.values()}
        right = settings[task.family] == RIGHT[task.family]
        self.seen.append(dict(memory))
        return Trajectory(task, bool(right or rng.random() < self.luck), 3, settings)


def run(gate=None, rounds=60, solver=None, explorer=None, **options):
    rng = np.random.default_rng(4)
    return practice(explorer or Explorer(), solver or Solver(), gate or RepeatedSuccess(), rounds, rng, **options)


@pytest.mark.parametrize("targeting", ["uniform", "learnability", "gap"])
def test_practice_finds_what_each_family_needs_and_nothing_else(targeting):
    report = run(targeting=targeting, rounds=200)
    assert {slot: h.value for slot, h in report.memory.items()} == RIGHT
    assert report.accepted == 3 and all(h.trials == 3 and h.provenance == h.slot for h in report.memory.values())
    assert report.candidates >= report.accepted
    assert len(report.rounds) < 200  # every family mastered


CHANCE = {"mastered": 1.0, "even": 0.5, "hopeless": 0.0}  # of success, whatever is remembered


@pytest.mark.parametrize(
    "targeting, shares, most",
    [
        ("learnability", {}, "even"),  # p (1 - p) is the largest in the middle
        ("gap", {}, "hopeless"),  # 1 - p
        ("gap", {"hopeless": 0.05}, "even"),  # (1 - p) times how often a try was a witness
    ],
)
def test_targeting_goes_where_its_formula_is_largest(targeting, shares, most):
    class Scripted(Explorer):
        def propose(self, family, rng):
            return Witness(Task(family, {}, "do it"), {}, shares.get(family, 1.0), 1)

    class Chances(Solver):
        def attempt(self, task, memory, rng):
            return Trajectory(task, bool(rng.random() < CHANCE[task.family]), 1, {})

    report = run(RepeatedSuccess(math.inf), 200, Chances(), Scripted(tuple(CHANCE)), targeting=targeting)
    assert [each.family for each in report.rounds].count(most) > 100


def test_a_gate_that_admits_nothing_leaves_memory_empty_and_tries_nothing():
    report = run(RepeatedSuccess(math.inf), rounds=20)
    assert report.memory == {} and report.attempts == 20


def test_unverified_admission_takes_the_first_difference_whether_it_helps_or_not():
    report = run(RepeatedSuccess(0), rounds=1)
    assert [h.slot for h in report.memory.values()] in (["case"], ["colour"])  # the first slot by name
    assert report.attempts == 1


def test_a_solver_that_never_fails_learns_nothing():
    assert run(solver=Solver(luck=1.0), rounds=15).memory == {}


def test_the_same_seed_gives_the_same_log():
    assert run(solver=Solver(0.3)) == run(solver=Solver(0.3))


def test_an_explorer_without_a_witness_costs_a_round_and_teaches_nothing():
    class Blind(Explorer):
        def propose(self, family, rng):
            return None

    report = run(explorer=Blind(), rounds=5)
    assert [each.outcome for each in report.rounds] == ["no witness"] * 5 and report.memory == {}


def test_single_differences_come_before_all_of_them():
    witness = Witness(Task("f", {}, ""), {"b": 1, "a": 2, "same": 3}, 1, 1)
    failed = Trajectory(witness.task, False, 1, {"a": 0, "same": 3})
    assert candidate_repairs(witness, failed) == [{"a": 2}, {"b": 1}, {"a": 2, "b": 1}]
    assert candidate_repairs(witness, Trajectory(witness.task, False, 1, {"a": 0, "b": 1, "same": 3})) == [{"a": 2}]


@pytest.mark.parametrize("success, passes", [(0.5, (0.5, 0.125, 0.03125)), (0.8, (0.8, 0.512, 0.32768))])
def test_how_often_a_heuristic_passes(success, passes):
    found = [RepeatedSuccess(r).pass_probability(success) for r in (1, 3, 5)]
    assert found == pytest.approx(passes)
    rng = np.random.default_rng(0)
    tries = [RepeatedSuccess(3).admits(lambda: rng.random() < success)[0] for _ in range(4000)]
    assert np.mean(tries) == pytest.approx(passes[1], abs=4 * math.sqrt(passes[1] * (1 - passes[1]) / 4000))


def test_four_of_five_ends_as_soon_as_it_is_certain():
    gate = RepeatedSuccess(4, 5)
    outcomes = iter([False, False, True])
    assert gate.admits(lambda: next(outcomes)) == (False, 2)
    outcomes = iter([True, True, False, True, True])
    assert gate.admits(lambda: next(outcomes)) == (True, 5)
    assert gate.pass_probability(0.5) == 0.1875


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: RepeatedSuccess(-1), "needed=-1"),
        (lambda: RepeatedSuccess(3, 2), "trials=2"),
        (lambda: RepeatedSuccess(4, 5).success_bound(), "trials=5"),
        (lambda: run(rounds=-1), "rounds=-1"),
        (lambda: run(targeting="hope"), "targeting='hope'"),
        (lambda: run(explorer=Explorer(families=())), "families"),
    ],
)
def test_a_bad_argument_is_named(call, name):
    with pytest.raises(MemoryFault, match=name):
        call()
