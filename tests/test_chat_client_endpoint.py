"""The client over a real HTTP server: storms of 429, broken replies, wrong usage, and what is never written down."""

import sqlite3

import pytest
from chat_server import completion, serving

pytest.importorskip("httpx")

from reprise.chat_client import ChatClient, over_endpoint
from reprise.chat_endpoint import EndpointError
from reprise.chat_replay import ReplayCache, Usage

KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("TEST_KEY", KEY)


def client(server, cache=None, **options):
    send = over_endpoint(
        server.url, "tiny", **{"key_variable": "TEST_KEY", "backoff": 0.001, "timeout": 5.0, **options}
    )
    return ChatClient(send, "tiny", cache=cache, concurrency=4)


def ask(text):
    return [{"role": "user", "content": text}]


def echo(body):
    return 200, {}, completion(body["messages"][-1]["content"].upper())


def test_a_storm_of_busy_answers_is_waited_out_and_order_is_kept():
    storm = [(429, {"Retry-After": "0"}, {})] * 20
    with serving(*storm, echo) as server:
        answers = client(server, retries=25).complete_many([ask(word) for word in "abcdefgh"])
        assert [answer.text for answer in answers] == list("ABCDEFGH")
        assert len(server.seen) == 28 and server.most <= 4


def test_what_decides_the_answer_is_sent():
    with serving(echo) as server:
        client(server).complete(ask("a"), temperature=0.7, seed=5, top_p=0.9, max_tokens=3, extra={"stop": ["x"]})
        sent = server.seen[0][2]
    assert {name: sent[name] for name in ("temperature", "seed", "top_p", "max_tokens", "stop")} == {
        "temperature": 0.7,
        "seed": 5,
        "top_p": 0.9,
        "max_tokens": 3,
        "stop": ["x"],
    }


def test_a_broken_reply_is_its_own_item_s_error():
    def some(body):
        return (200, {}, b"{not json") if body["messages"][-1]["content"] == "b" else echo(body)

    with serving(some) as server:
        one, two, three = client(server).complete_many([ask("a"), ask("b"), ask("c")])
    assert (one.text, three.text) == ("A", "C") and isinstance(two, EndpointError)


@pytest.mark.parametrize(
    "said, usage",
    [
        ({"prompt_tokens": 10, "completion_tokens": 3}, Usage(10, 0, 3)),
        ({"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}, Usage(2, 8, 3)),
        ({}, Usage(1, 0, 1, estimated=True)),
        ({"prompt_tokens": 1, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}, None),
    ],
)
def test_usage_is_the_server_s_where_it_makes_sense(said, usage):
    with serving((200, {}, {**completion("A"), "usage": said})) as server:
        found = client(server).complete(ask("a")).usage
    assert found == usage if usage else found.estimated


def test_a_server_that_stays_busy_fails_its_items_and_nothing_is_kept(tmp_path):
    with serving((503, {}, {})) as server, ReplayCache(tmp_path / "c") as cache:
        found = client(server, cache, retries=1).complete_many([ask("a"), ask("b")])
        assert all(isinstance(each, EndpointError) for each in found) and len(cache) == 0


def test_the_key_is_neither_in_the_file_nor_in_an_error(tmp_path):
    def says_the_key(body):
        return (401, {}, {"error": f"bad key {KEY}"}) if body["messages"][-1]["content"] == "b" else echo(body)

    with serving(says_the_key) as server, ReplayCache(tmp_path / "c") as cache:
        _, error = client(server, cache).complete_many([ask("a"), ask("b")])
        assert server.seen[0][1]["Authorization"] == f"Bearer {KEY}"
    assert isinstance(error, EndpointError) and KEY not in str(error)
    rows = sqlite3.connect(tmp_path / "c").execute("select * from replies").fetchall()
    assert len(rows) == 1 and KEY not in str(rows) and str(server.server_port) not in str(rows)
