"""Strict incremental replay: first alarm, both protocols for safe runs, and an auditor that tries to look ahead."""

import gc

import peeking_auditors
import pytest

from reprise.audit.errors import AuditError
from reprise.audit.isolated import IsolatedAuditor
from reprise.audit.replay import ReplayConfig, replay
from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import SAFE, alarm, invalid
from reprise.traces import Turn


def run(n=5, step=None, **fields):
    turns = tuple(Turn(f"agent{k % 2}", "say", f"turn {k}", raw={"mistake_step": step, "length": n}) for k in range(n))
    return Trajectory("t", turns, decisive_step=step, decisive_agent=step and f"agent{step % 2}", **fields)


def alarm_at(k, step=None):
    return lambda turns: alarm(k if step is None else step, turns[-1].role) if len(turns) == k + 1 else SAFE


@pytest.mark.parametrize(
    "auditor, expected",
    [
        (alarm_at(2), (2, "agent0", 2, 3)),
        (alarm_at(4, step=1), (1, "agent0", 4, 5)),
        (alarm_at(0), (0, "agent0", 0, 1)),
        (lambda turns: SAFE, (None, None, None, 5)),
        (lambda turns: alarm(0), (0, None, 0, 1)),
    ],
)
@pytest.mark.parametrize("step", [None, 2])
def test_the_first_alarm_ends_the_run(auditor, expected, step):
    found = replay(auditor, run(step=step))
    assert (found.pred_step, found.pred_agent, found.detection_step, len(found.verdicts)) == expected
    assert found.invalid == 0 and found.id == "t"


def test_invalid_output_continues_and_is_counted():
    found = replay(lambda turns: alarm(3) if len(turns) == 4 else invalid("no answer"), run())
    assert (found.detection_step, found.invalid, found.invalid_rate) == (3, 3, 0.75)


def test_one_look_at_a_safe_run_is_one_call_and_unsafe_runs_are_replayed():
    seen = []
    replay(lambda turns: seen.append(len(turns)) or SAFE, run(), "single_look")
    replay(lambda turns: seen.append(len(turns)) or SAFE, run(step=1), "single_look")
    assert seen == [5, 1, 2, 3, 4, 5]
    # an alarm that is taken back is one under replay and none in a single look: not the same rate
    assert replay(alarm_at(2), run()).detection_step == 2
    assert replay(alarm_at(2), run(), "single_look").detection_step is None
    assert replay(alarm_at(4), run(), "single_look").detection_step == 4


def test_the_papers_settings_are_the_defaults():
    assert ReplayConfig() == ReplayConfig(1_500, 0.0, "replay")


@pytest.mark.parametrize(
    "auditor, protocol, message",
    [
        (lambda turns: SAFE, "twice", "safe_protocol='twice'"),
        (lambda turns: None, "replay", "trajectory 't', turn 0: auditor returned NoneType"),
        (lambda turns: alarm(1), "replay", "trajectory 't', turn 0: step=1: expected a turn in 0..0"),
        (lambda turns: alarm(5), "single_look", "turn 4: step=5"),
    ],
)
def test_an_auditor_that_breaks_the_contract_is_named(auditor, protocol, message):
    with pytest.raises(AuditError, match=message):
        replay(auditor, run(), protocol)


# -- an auditor that tries to look ahead -------------------------------------------------------------------------------


def test_a_prefix_is_new_turns_without_their_sources():
    trajectory, seen = run(step=3), []
    replay(lambda turns: seen.append(turns) or SAFE, trajectory)
    assert [len(turns) for turns in seen] == [1, 2, 3, 4, 5]
    for turns in seen:
        assert type(turns) is tuple and turns == trajectory.prefix(len(turns) - 1)
        assert all(turn.raw is None for turn in turns)
        assert not {id(turn) for turn in turns} & {id(turn) for turn in trajectory.turns}
    assert len({id(turn) for turns in seen for turn in turns}) == 15  # none shared between calls either


def test_there_is_nothing_beyond_the_prefix():
    def greedy(turns):
        with pytest.raises(IndexError):
            turns[len(turns)]
        assert not [name for name in ("trajectory", "meta", "outcome", "family") if hasattr(turns[-1], name)]
        return SAFE

    replay(greedy, run(step=3, outcome=False, meta={"answer": "19"}))


def test_an_auditor_without_the_label_answers_the_same_whatever_comes_later():
    """Two runs that agree up to turn 2 get the same verdicts up to turn 2, whatever the auditor does with its input."""

    def hash_auditor(turns):
        return alarm(len(turns) - 1) if hash((turns, repr(turns), len(repr(turns)))) % 5 == 0 else SAFE

    short, long = run(3), run(40, step=30)
    first, second = replay(hash_auditor, short), replay(hash_auditor, long)
    same = min(len(first.verdicts), len(second.verdicts))
    assert first.verdicts[:same] == second.verdicts[:same]


def test_what_an_auditor_does_to_its_copy_changes_nothing():
    trajectory = run(step=1)

    def vandal(turns):
        for turn in turns:
            assert turn.content.startswith("turn")
            object.__setattr__(turn, "content", "SAFE")
        return SAFE

    before = [turn.content for turn in trajectory.turns]
    replay(vandal, trajectory)
    assert [turn.content for turn in trajectory.turns] == before


def test_the_objects_of_a_prefix_do_not_lead_to_the_run():
    """What refers to a turn of the prefix is the prefix; walking outward from it does not meet the run's own turns."""
    trajectory = run(step=3)
    whole = {id(trajectory.turns), id(trajectory), *map(id, trajectory.turns)}

    def walker(turns):
        referrers = [each for turn in turns for each in gc.get_referrers(turn)]
        assert not whole & set(map(id, referrers))
        reached = [each for each in gc.get_referents(turns, *turns) if id(each) in whole]
        assert not reached
        return SAFE

    replay(walker, trajectory)


def marked(n=5):
    """A run whose last turn, and nothing before it, carries the mark."""
    turns = [Turn(f"agent{k % 2}", "say", f"turn {k}", raw={"length": n}) for k in range(n - 1)]
    return Trajectory("m", (*turns, Turn("agent", "say", peeking_auditors.MARK)), decisive_step=n - 1)


@pytest.mark.parametrize("name", ["through_frames", "through_gc"])
def test_code_that_searches_the_interpreter_finds_the_run_but_not_from_its_own_process(name):
    """In process the cheat succeeds, which the documentation of `replay` says; isolated it sees the mark in the end."""
    assert replay(getattr(peeking_auditors, name), marked()).detection_step == 0
    with IsolatedAuditor(f"peeking_auditors:{name}") as auditor:
        found = replay(auditor, marked())
    assert found.detection_step == (4 if name == "through_gc" else None)


def test_source_records_are_not_within_reach():
    assert replay(peeking_auditors.through_raw, marked()).pred_step is None


def test_an_isolated_auditor_sees_what_it_would_see_here():
    prefixes = [run().prefix(k) for k in (0, 1, 4, 2)] + [marked().prefix(4), run(3).turns, run(3).turns]
    with IsolatedAuditor("peeking_auditors:length") as auditor:
        for prefix in prefixes:
            assert auditor(prefix) == peeking_auditors.length(prefix)


@pytest.mark.parametrize(
    "target, message",
    [
        ("peeking_auditors:raises", "KeyError"),
        ("peeking_auditors:returns_none", "returned NoneType"),
        ("peeking_auditors:ends", "its process ended"),
        ("peeking_auditors:missing", "AttributeError"),
        ("no_such_module:auditor", "ModuleNotFoundError"),
    ],
)
def test_an_isolated_auditor_that_fails_says_how(target, message):
    with IsolatedAuditor(target) as auditor, pytest.raises(AuditError) as error:
        auditor(run().turns)
    assert message in str(error.value) and str(error.value).startswith(f"target={target!r}")


def test_a_target_names_module_and_auditor():
    with pytest.raises(AuditError, match="target='length'"):
        IsolatedAuditor("length")
