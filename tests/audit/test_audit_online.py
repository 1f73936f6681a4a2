"""One turn in, one verdict out: what a loop may rely on, whatever the judge does."""

import asyncio
import json
import re
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.audit.errors import AuditError
from reprise.audit.online import DecisiveErrorAlarm, JudgeFailed, OnlineAuditor
from reprise.audit.prompt import build_messages, render_verdict
from reprise.audit.replay import replay
from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import SAFE, Verdict, alarm
from reprise.traces import Turn

TURNS = tuple(Turn(role, "say", f"text {k}", {"secret": k}) for k, role in enumerate(["user", "A", "B", "A", "B"]))


class Scripted:
    """Alarms after the given turns, and keeps what it was asked."""

    def __init__(self, *alarms):
        self.alarms, self.asked = alarms, []

    def __call__(self, prefix):
        self.asked.append(prefix)
        last = len(prefix) - 1
        return alarm(last, prefix[last].role, "wrong") if last in self.alarms else SAFE


def audited(judge, on_alarm="record", turns=TURNS, **settings):
    auditor = OnlineAuditor(judge, on_alarm, ask=None, **settings)
    return auditor, [auditor.observe(turn) for turn in turns]


def test_one_call_a_turn_on_the_prefix_alone():
    judge = Scripted()
    auditor, verdicts = audited(judge)
    assert verdicts == [SAFE] * 5 and [len(prefix) for prefix in judge.asked] == [1, 2, 3, 4, 5]
    assert all(turn.raw is None for prefix in judge.asked for turn in prefix)
    assert auditor.observed[3].turn.raw == {"secret": 3}


def test_after_the_first_alarm_turns_are_recorded_and_nobody_is_asked():
    judge = Scripted(2, 4)
    auditor, verdicts = audited(judge)
    first = alarm(2, "B", "wrong")
    assert verdicts == [SAFE, SAFE, first, first, first] and len(judge.asked) == 3
    assert [each.verdict for each in auditor.observed] == [SAFE, SAFE, first, None, None]
    assert auditor.alarm == (2, first)


def test_continue_after_alarm_goes_on_asking():
    judge = Scripted(2, 4)
    auditor, verdicts = audited(judge, continue_after_alarm=True)
    assert [verdict.step for verdict in verdicts] == [None, None, 2, None, 4] and len(judge.asked) == 5
    assert auditor.alarm[0] == 2


def test_raise_carries_verdict_and_prefix_and_leaves_the_turn_recorded():
    auditor = OnlineAuditor(Scripted(1), "raise", ask=None)
    auditor.observe(TURNS[0])
    with pytest.raises(DecisiveErrorAlarm, match=r"turn 1 \(A\): wrong") as caught:
        auditor.observe(TURNS[1])
    assert caught.value.prefix == TURNS[:2] and caught.value.verdict.step == 1
    assert len(auditor.observed) == 2
    assert auditor.observe(TURNS[2]) == caught.value.verdict  # the loop went on all the same: once is enough


def test_a_callback_may_use_the_auditor_and_what_it_raises_reaches_the_loop():
    calls = []

    def repair(verdict, prefix):
        calls.append((verdict.step, len(prefix)))
        auditor.rewind(verdict.step)
        if len(calls) == 2:
            raise KeyError("gave up")

    auditor = OnlineAuditor(Scripted(2), repair, ask=None)
    for turn in TURNS[:3]:
        auditor.observe(turn)
    with pytest.raises(KeyError, match="gave up"):
        auditor.observe(TURNS[2])
    assert calls == [(2, 3), (2, 3)] and auditor.rewinds == ((3, 2), (3, 2)) and auditor.alarm is None


def test_rewind_forgets_the_alarm_and_the_judge_is_asked_again():
    judge = Scripted(2)
    auditor, _ = audited(judge)
    auditor.rewind(2)
    assert [each.turn for each in auditor.observed] == list(TURNS[:2])
    judge.alarms = ()
    assert auditor.observe(Turn("B", "say", "better")) == SAFE
    assert judge.asked[-1][-1].content == "better" and len(judge.asked) == 4
    with pytest.raises(AuditError, match=r"^turns=4: expected an int in 0\.\.3"):
        auditor.rewind(4)


@pytest.mark.parametrize(
    "judge, error",
    [
        (lambda prefix: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda prefix: "I think it is fine", "no think block"),
        (lambda prefix: None, "judge returned NoneType"),
        (lambda prefix: alarm(len(prefix)), r"step=1: expected a turn in 0\.\.0"),
        (lambda prefix: time.sleep(5), "TimeoutError: no answer within 0.05 s"),
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_judge_that_fails_costs_a_verdict_and_not_the_loop(judge, error, asynchronous):
    if asynchronous and "Timeout" in error:
        judge = hang
    auditor = OnlineAuditor(judge, "raise", ask=None, timeout=0.05 if "Timeout" in error else None)
    verdict = asyncio.run(auditor.aobserve(TURNS[0])) if asynchronous else auditor.observe(TURNS[0])
    assert not verdict.valid and verdict.kind == "safe"
    assert re.search(error, verdict.error)
    assert auditor.observed[0].verdict == verdict and auditor.result().invalid == 1


async def hang(prefix):
    await asyncio.sleep(30)


def test_strict_raises_with_the_cause_once_the_turn_is_recorded():
    auditor = OnlineAuditor(lambda prefix: 1 / 0, ask=None, strict=True)
    with pytest.raises(JudgeFailed, match="ZeroDivisionError") as caught:
        auditor.observe(TURNS[0])
    assert isinstance(caught.value.__cause__, ZeroDivisionError) and len(auditor.observed) == 1


def test_the_default_question_is_the_chat_prompt_and_the_answer_is_parsed():
    seen = []

    def judge(messages):
        seen.append(messages)
        return render_verdict(alarm(1, "A", "slip"), "hm")

    auditor = OnlineAuditor(judge)
    auditor.observe(TURNS[0])
    assert seen == [build_messages(TURNS[:1])]
    assert not auditor.observed[0].verdict.valid  # turn 1 is not there yet
    assert auditor.observe(TURNS[1]) == alarm(1, "A", "slip")


def test_result_is_what_replay_gives():
    for alarms in [(), (0,), (3,), (1, 2)]:
        auditor, _ = audited(Scripted(*alarms))
        assert auditor.result("x") == replay(Scripted(*alarms), Trajectory("x", TURNS))


def test_asynchronous_judges_callbacks_and_refusals():
    heard = []

    async def judge(prefix):
        await asyncio.sleep(0)
        return alarm(0, "user", "no") if len(prefix) == 2 else SAFE

    async def on_alarm(verdict, prefix):
        heard.append(len(prefix))

    auditor = OnlineAuditor(judge, on_alarm, ask=None)

    async def loop():
        return [await auditor.aobserve(turn) for turn in TURNS[:3]]

    assert [v.step for v in asyncio.run(loop())] == [None, 0, 0] and heard == [2]
    with pytest.raises(AuditError, match="expected `await aobserve"):
        auditor.observe(TURNS[3])
    assert len(auditor.observed) == 3


def test_a_cancelled_task_leaves_its_turn_unjudged_and_the_auditor_usable():
    async def judge(prefix):
        await asyncio.sleep(30 if len(prefix) == 1 else 0)
        return SAFE

    auditor = OnlineAuditor(judge, ask=None)

    async def loop():
        task = asyncio.create_task(auditor.aobserve(TURNS[0]))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await auditor.aobserve(TURNS[1])

    asyncio.run(loop())
    assert [each.verdict for each in auditor.observed] == [None, SAFE]


def test_threads_are_served_one_after_another():
    inside, most, judged = [], [], []

    def judge(prefix):
        inside.append(1)
        most.append(len(inside))
        judged.append(prefix)
        time.sleep(0.0005)
        inside.pop()
        return SAFE

    auditor = OnlineAuditor(judge, ask=None)

    def work(name):
        for k in range(10):
            auditor.observe(Turn(name, "say", str(k)))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert max(most) == 1 and [len(prefix) for prefix in judged] == list(range(1, 41))
    for name in "abcd":
        own = [each.turn.content for each in auditor.observed if each.turn.role == name]
        assert own == [str(k) for k in range(10)]


def test_tasks_and_threads_share_one_auditor():
    auditor = OnlineAuditor(Scripted(), ask=None)

    async def loop():
        await asyncio.gather(*(auditor.aobserve(turn) for turn in TURNS), asyncio.to_thread(auditor.observe, TURNS[0]))

    asyncio.run(loop())
    assert len(auditor.observed) == 6 and all(each.verdict == SAFE for each in auditor.observed)


def test_a_judge_cannot_observe_from_inside():
    def judge(prefix):
        auditor.observe(TURNS[0])

    auditor = OnlineAuditor(judge, ask=None)
    verdict = auditor.observe(TURNS[0])
    assert "called while the judge is being asked" in verdict.error and len(auditor.observed) == 1


texts = st.text(max_size=5)


@given(
    turns=st.lists(st.builds(Turn, texts, texts, texts), max_size=6),
    alarms=st.sets(st.integers(0, 5)),
    cut=st.integers(0, 6),
)
def test_resuming_anywhere_gives_the_same_run(turns, alarms, cut):
    def run(auditor, turns):
        return [auditor.observe(turn) for turn in turns]

    whole = OnlineAuditor(Scripted(*alarms), ask=None)
    verdicts = run(whole, turns)
    first = OnlineAuditor(Scripted(*alarms), ask=None)
    begun = run(first, turns[:cut])
    second = OnlineAuditor.resume(json.loads(json.dumps(first.state())), Scripted(*alarms), ask=None)
    assert begun + run(second, turns[cut:]) == verdicts and second.state() == whole.state()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"version": 2}, "^version=2: expected 1"),
        ({"turns": "abc"}, "^turns: str: expected a list"),
        ({"turns": [["a", "b"]]}, r"^turns\[0\]: expected \[role, action, content\]"),
        ({"verdicts": []}, "^verdicts: 0: expected 1"),
        ({"verdicts": [{"kind": "perhaps"}]}, r"^verdicts\[0\]: kind='perhaps'"),
        ({"verdicts": [{"mood": "good"}]}, r"^verdicts\[0\]: .*mood"),
        ({"verdicts": [["safe"]]}, r"^verdicts\[0\]: "),
        ({"verdicts": [{"kind": "alarm", "step": 1}]}, r"^verdicts\[0\]: step=1"),
        ({"rewinds": [[1, 2]]}, r"^rewinds\[0\]=\[1, 2\]"),
    ],
)
def test_a_state_that_is_none_is_refused_by_field(change, message):
    auditor, _ = audited(Scripted(), turns=TURNS[:1])
    with pytest.raises(AuditError, match=message):
        OnlineAuditor.resume({**auditor.state(), **change}, Scripted(), ask=None)


@pytest.mark.parametrize(
    "settings, message", [({"on_alarm": "shout"}, "^on_alarm='shout'"), ({"timeout": 0}, "^timeout=0")]
)
def test_settings_are_checked(settings, message):
    with pytest.raises(AuditError, match=message):
        OnlineAuditor(Scripted(), **settings)
    with pytest.raises(AuditError, match="^turn of type str"):
        OnlineAuditor(Scripted(), ask=None).observe("hello")


def test_a_verdict_is_recorded_for_every_query_only():
    auditor, _ = audited(Scripted(1))
    assert auditor.result().verdicts == (SAFE, Verdict("alarm", 1, "A", "wrong"))
