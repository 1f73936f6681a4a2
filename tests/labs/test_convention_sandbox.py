import numpy as np
import pytest

from reprise.errors import RepriseError
from reprise.labs import convention_sandbox as world
from reprise.labs.convention_sandbox import (
    FAMILIES,
    SPACE,
    RandomExplorer,
    Sandbox,
    TrialAndError,
    draw_task,
    guideline,
)
from reprise.labs.practice_experiments import ShuffledFamilies, evaluated, practised, scrambled
from reprise.memory.practice import RepeatedSuccess, practice

CALLS = {
    "store": 2,
    "pay": 2,
    "note": 1,
    "find": 1,
    "store+pay": 4,
    "note+store": 3,
    "pay+find": 3,
    "store+pay+note": 5,
}
NEEDED_BY = {
    "key": "store",
    "flush": "store",
    "recipient": "pay",
    "amount": "pay",
    "session": "pay",
    "date": "note",
    "page": "find",
}


def success(family, memory, draws=150, seed=0):
    rng, solver = np.random.default_rng(seed), TrialAndError(0.0, 24, world.true_check)
    return [solver.attempt(draw_task(family, rng), memory, rng) for _ in range(draws)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_person_s_guideline_always_works_in_the_fewest_calls(family):
    found = success(family, guideline(), 50)
    assert all(each.success for each in found)
    assert {each.calls for each in found} == {CALLS[family]}


@pytest.mark.parametrize("slot, family", NEEDED_BY.items())
def test_every_convention_is_needed(slot, family):
    rate = np.mean([each.success for each in success(family, {k: h for k, h in guideline().items() if k != slot})])
    assert rate < 1
    assert (rate == 0) == (slot in ("flush", "page"))  # the two that fail without a code


def test_without_memory_a_search_never_succeeds():
    assert not any(each.success for each in success("find", {}))


def test_what_makes_no_difference_makes_none():
    for slot in ("currency", "level"):
        for value in SPACE[slot]:
            memory = guideline() | guideline({slot: value})
            assert all(each.success for each in success("store+pay+note", memory, 10))


def test_practice_never_asks_the_checker(monkeypatch):
    def forbidden(*arguments):
        raise AssertionError("the checker was asked")

    monkeypatch.setattr(world, "true_check", forbidden)
    report = practice(RandomExplorer(), TrialAndError(), RepeatedSuccess(), 40, np.random.default_rng(0))
    assert report.memory


def test_the_same_seed_gives_the_same_practice_and_another_one_another():
    assert practised(31, rounds=15) == practised(31, rounds=15) != practised(32, rounds=15)


def test_scrambled_values_are_other_ones():
    memory = practised(31, rounds=30).memory
    other = scrambled(memory, 31)
    assert memory.keys() == other.keys() and all(other[slot].value != memory[slot].value for slot in memory)
    assert evaluated(other, 31, tasks=5)["success"] < evaluated(memory, 31, tasks=5)["success"]


def test_shuffled_families_come_regardless_of_what_was_asked():
    rng = np.random.default_rng(0)
    found = [ShuffledFamilies(0.0).propose("note", rng) for _ in range(30)]
    assert len({each.task.family for each in found if each}) > 3


def test_a_busy_service_does_nothing():
    class Busy:
        def random(self):
            return 0.0

    with Sandbox(0.5, Busy()) as sandbox:
        assert sandbox.call("log", day="2026.01.01", text="x", level="info") == "E0"
        assert sandbox.database.execute("select count(*) from log").fetchone() == (0,)


def test_a_flake_outside_its_range_is_refused():
    with pytest.raises(RepriseError, match="flake=1"):
        Sandbox(1, np.random.default_rng(0))
