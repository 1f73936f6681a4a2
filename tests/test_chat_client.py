import asyncio
import json
import sqlite3
import subprocess
import sys

import pytest

from reprise.chat_client import Budget, BudgetExceeded, ChatClient, scripted
from reprise.chat_replay import CacheMiss, Completion, Prices, ReplayCache, Usage, chat_request, request_key
from reprise.errors import RepriseError

HELLO = [{"role": "user", "content": "hello"}]


def ask(text):
    return [{"role": "user", "content": text}]


def echo(request):
    return request["messages"][-1]["content"].upper()


def test_the_key_is_that_of_the_canonical_request():
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "é"}]
    request = chat_request("m", messages, temperature=0.0, top_p=1.0, max_tokens=16, seed=7)
    assert request_key(request) == "2783437f3672a148ea4539ddf310417eb6f0a1e91be1241c94f6cc7918f7dcfd"


@pytest.mark.parametrize(
    "changed",
    [{"temperature": 0.1}, {"seed": 1}, {"sample": 1}, {"max_tokens": 2}, {"extra": {"a": 1}}, {"top_p": 0.9}],
)
def test_everything_that_decides_the_answer_is_in_the_key(changed):
    assert request_key(chat_request("m", HELLO)) != request_key(chat_request("m", HELLO, **changed))


def test_the_cost_of_a_call():
    assert Prices(0.28, 0.028, 0.42).cost(Usage(1200, 800, 350)) == pytest.approx(0.0005054, abs=1e-12)


def test_a_kept_answer_is_not_asked_for_again(tmp_path):
    with ReplayCache(tmp_path / "c.sqlite") as cache:
        client = ChatClient(scripted(echo), "m", cache=cache)
        first, second = client.complete(HELLO), client.complete(HELLO)
    assert (first.text, second.text, first.cached, second.cached) == ("HELLO", "HELLO", False, True)
    assert (client.calls, client.kept) == (1, 1) and second.usage == first.usage
    with ReplayCache(tmp_path / "c.sqlite", "replay") as cache:
        offline = ChatClient(scripted(lambda request: RuntimeError("asked")), "m", cache=cache)
        assert offline.complete(HELLO).text == "HELLO"
        with pytest.raises(CacheMiss, match="key=[0-9a-f]{64}.*something else"):
            offline.complete(ask("something else"))
    assert offline.calls == 0


def test_equal_requests_are_asked_once_and_answers_keep_their_order():
    client = ChatClient(scripted(echo), "m")
    answers = client.complete_many([ask("a"), ask("b"), ask("a"), ask("c"), ask("a")])
    assert [answer.text for answer in answers] == list("ABACA") and client.calls == 3


def test_it_works_inside_a_running_loop_too():
    async def cell():
        return ChatClient(scripted(echo), "m").complete(HELLO).text

    assert asyncio.run(cell()) == "HELLO"


def test_a_failure_is_the_failed_one_s_alone():
    def sometimes(request):
        return RuntimeError("no") if "b" in request["messages"][-1]["content"] else echo(request)

    answers = ChatClient(scripted(sometimes), "m").complete_many([ask("a"), ask("b"), ask("c")])
    assert [getattr(answer, "text", str(answer)) for answer in answers] == ["A", "no", "C"]


def test_no_more_calls_are_under_way_than_allowed():
    under_way, most = 0, 0

    async def send(request):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return Completion("x", Usage(1, 0, 1))

    ChatClient(send, "m", concurrency=3).complete_many([ask(str(k)) for k in range(20)])
    assert most == 3


@pytest.mark.parametrize(
    "budget, name", [(Budget(calls=2), "calls=2"), (Budget(tokens=20), "tokens=20"), (Budget(dollars=2e-5), "dollars")]
)
def test_a_budget_stops_before_it_is_passed_and_keeps_what_came(tmp_path, budget, name):
    async def send(request):
        return Completion("x", Usage(8, 0, 2))

    with ReplayCache(tmp_path / "c") as cache:
        client = ChatClient(send, "m", cache=cache, budget=budget, prices=Prices(1, 1, 1), concurrency=1)
        with pytest.raises(BudgetExceeded, match=name):
            client.complete_many([ask(str(k)) for k in range(5)])
        assert client.calls == len(cache) == 2


@pytest.mark.parametrize("said", [Usage(), Usage(-3, 0, 1)])
def test_usage_that_is_missing_or_absurd_is_estimated_and_flagged(said):
    async def send(request):
        return Completion("four letters", said)

    answer = ChatClient(send, "m", count_tokens=lambda text: len(text.split())).complete(ask("one two three"))
    assert answer.usage == Usage(3, 0, 2, estimated=True)


def test_processes_share_one_file(tmp_path):
    program = (
        "import sys; from reprise.chat_client import *; from reprise.chat_replay import *\n"
        "with ReplayCache(sys.argv[1]) as c:\n"
        "    client = ChatClient(scripted(lambda r: 'x'), 'm', cache=c)\n"
        "    client.complete_many([[{'role': 'user', 'content': str(k)}] for k in range(50)])\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "c")]) for _ in range(3)]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    with ReplayCache(tmp_path / "c", "replay") as cache:
        assert len(cache) == 50


def test_neither_an_address_nor_a_key_is_in_the_file(tmp_path):
    with ReplayCache(tmp_path / "c") as cache:
        ChatClient(scripted(echo), "m", cache=cache).complete(HELLO)
    (row,) = sqlite3.connect(tmp_path / "c").execute("select * from replies").fetchall()
    assert json.loads(row[1]).keys() == {"text", "usage", "finish"}


def test_bad_input_is_named(tmp_path):
    with pytest.raises(RepriseError, match="mode='write'"):
        ReplayCache(tmp_path / "c", "write")
    with pytest.raises(RepriseError, match="expected a file"):
        ReplayCache(tmp_path / "none", "replay")
    (tmp_path / "text").write_text("no database at all, but long enough to be read as one" * 50)
    with pytest.raises(RepriseError, match="expected a SQLite file"):
        ReplayCache(tmp_path / "text")
    with pytest.raises(RepriseError, match="messages"):
        chat_request("m", [])
    with pytest.raises(RepriseError, match="what JSON can hold"):
        chat_request("m", HELLO, extra={"x": {1}})
    with pytest.raises(RepriseError, match="concurrency=0"):
        ChatClient(scripted(echo), "m", concurrency=0)
