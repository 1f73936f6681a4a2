import asyncio
import time
from contextlib import ExitStack
from email.utils import formatdate

import pytest
from chat_server import completion, serving

pytest.importorskip("httpx")

from reprise.chat import Completion, Endpoint
from reprise.chat_endpoint import EndpointError, EndpointRefused, _seconds
from reprise.chat_replay import ReplayCache, Usage, chat_request

KEY = "sk-secret-0123456789"
HELLO = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("TEST_KEY", KEY)
    with ExitStack() as stack:
        yield lambda *script: stack.enter_context(serving(*script))


def endpoint(server, **options):
    return Endpoint(server.url, "tiny", key_variable="TEST_KEY", **{"backoff": 0.001, **options})


def both(model, *arguments):
    """The same call made in step and awaited."""
    return [model.chat(*arguments), asyncio.run(model.achat(*arguments))]


def test_a_reply_and_the_request_it_answers(serve):
    server = serve((200, {}, completion("Hello")))
    model = endpoint(server, max_tokens=9)
    assert both(model, HELLO, {"type": "json_object"}) == [Completion("Hello", Usage(7, 0, 2), "stop")] * 2
    for path, headers, body in server.seen:
        assert path == "/v1/chat/completions" and headers["Authorization"] == f"Bearer {KEY}"
        assert body == {
            "model": "tiny",
            "messages": HELLO,
            "temperature": 0.0,
            "max_tokens": 9,
            "response_format": {"type": "json_object"},
        }


def test_no_key_is_sent_where_none_is_set(serve, monkeypatch):
    server = serve((200, {}, completion("Hello")))
    monkeypatch.delenv("TEST_KEY")
    endpoint(server).chat(HELLO)
    assert "Authorization" not in server.seen[0][1]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(serve, status):
    server = serve((status, {}, {}), (status, {}, {}), (200, {}, completion("at last")))
    assert endpoint(server).chat(HELLO).text == "at last"
    assert len(server.seen) == 3
    server.script = [(status, {}, {}), (200, {}, completion("at last"))]
    assert asyncio.run(endpoint(server).achat(HELLO)).text == "at last"


def test_retry_after_is_honoured(serve, monkeypatch):
    pauses = []
    monkeypatch.setattr("reprise.chat_endpoint.time.sleep", pauses.append)
    server = serve((429, {"Retry-After": "7"}, {}), (503, {}, {}), (200, {}, completion("ok")))
    endpoint(server, backoff=4.0).chat(HELLO)
    assert pauses[0] == 7
    assert 4 <= pauses[1] <= 8  # the second of its own pauses, doubled and shortened at random


@pytest.mark.parametrize(
    "text, seconds", [("7", 7), ("-1", 0), (None, None), ("soon", None), ("nan", None), ("inf", None)]
)
def test_retry_after_in_seconds(text, seconds):
    assert _seconds(text) == seconds


def test_retry_after_as_a_date():
    assert _seconds(formatdate(time.time() + 100, usegmt=True)) == pytest.approx(100, abs=5)
    assert _seconds(formatdate(time.time() - 100, usegmt=True)) == 0


def test_a_pause_that_is_too_long_is_refused_at_once(serve):
    server = serve((429, {"Retry-After": "3600"}, {}))
    with pytest.raises(EndpointError, match=r"asks for 3600 s: expected at most max_wait=60"):
        endpoint(server).chat(HELLO)
    assert len(server.seen) == 1


def test_attempts_end(serve):
    server = serve((503, {}, {"error": "busy"}))
    for call in (lambda m: m.chat(HELLO), lambda m: asyncio.run(m.achat(HELLO))):
        server.seen.clear()
        with pytest.raises(EndpointError, match=r"status 503.*\(after 3 attempts\)"):
            call(endpoint(server, retries=2))
        assert len(server.seen) == 3


@pytest.mark.parametrize("end", ["\n", "\r\n ", ""])
def test_a_line_s_end_behind_the_key_is_no_part_of_it(serve, monkeypatch, end):
    server = serve((200, {}, completion("Hello")))
    monkeypatch.setenv("TEST_KEY", KEY + end)
    both(endpoint(server), HELLO)
    assert [headers["Authorization"] for _, headers, _ in server.seen] == [f"Bearer {KEY}"] * 2


@pytest.mark.parametrize("key", ["sk-secret\n0123456789", "sk-secret\u201c"])
def test_a_key_that_is_no_header_is_refused_without_showing_it(serve, monkeypatch, key):
    # the HTTP client would say: Illegal header value b'Bearer sk-secret...'
    server = serve((200, {}, completion("Hello")))
    monkeypatch.setenv("TEST_KEY", key)
    for call in (lambda m: m.chat(HELLO), lambda m: asyncio.run(m.achat(HELLO))):
        with pytest.raises(EndpointError, match="^TEST_KEY: expected") as caught:
            call(endpoint(server))
        assert "secret" not in str(caught.value) and not server.seen


@pytest.mark.parametrize(
    "body",
    [completion({"echo": KEY}), completion("x") | {"usage": {"prompt_tokens": KEY}}, {"choices": [{KEY: 1}]}],
)
def test_a_reply_that_is_no_completion_shows_no_key(serve, body):
    with pytest.raises(EndpointError, match="expected a chat completion") as caught:
        endpoint(serve((200, {}, body))).chat(HELLO)
    assert KEY not in str(caught.value) and caught.value.__cause__ is None and len(str(caught.value)) < 500


def test_half_of_a_surrogate_pair_is_sent_and_kept(serve, tmp_path):
    cut = [{"role": "user", "content": "cut \ud83d"}]
    server = serve((200, {}, completion("ok \ud83d")))
    reply, awaited = both(endpoint(server), cut)
    assert reply.text == awaited.text == "ok \ud83d"
    assert server.seen[0][2]["messages"] == cut
    with ReplayCache(tmp_path / "cache") as cache:
        cache.put(chat_request("tiny", cut), reply)
        assert cache.get(chat_request("tiny", cut)).text == "ok \ud83d"


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refusal_is_not_repeated_and_shows_no_key(serve, status, caplog):
    server = serve((status, {}, {"error": f"bad key {KEY} given"}))
    with pytest.raises(EndpointRefused, match=r"bad key \[key\] given") as caught:
        endpoint(server).chat(HELLO)
    assert caught.value.status == status and len(server.seen) == 1
    assert KEY not in caplog.text + repr(vars(endpoint(server)))


def test_a_server_that_is_not_there(serve):
    server = serve((200, {}, {}))
    model = endpoint(server, retries=1)
    server.shutdown()
    server.server_close()  # the fixture closes it once more, which is harmless
    with pytest.raises(EndpointError, match=r"ConnectError.*\(after 2 attempts\)"):
        model.chat(HELLO)


@pytest.mark.parametrize(
    "body",
    [
        *(b"<html>", {}, {"choices": []}, completion(None), [], {"choices": [{"message": "text"}]}),
        *(b"[" * 100_000, b'{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": Infinity}}'),
    ],
)
def test_what_is_no_completion_is_refused(serve, body):
    with pytest.raises(EndpointError, match="expected a"):
        endpoint(serve((200, {}, body))).chat(HELLO)


def test_a_reply_is_bounded_and_never_unpacked(serve, monkeypatch):
    monkeypatch.setattr("reprise.chat_endpoint.MAX_REPLY", 1000)
    for call in (lambda m: m.chat(HELLO), lambda m: asyncio.run(m.achat(HELLO))):
        with pytest.raises(EndpointError, match="more than 1000 bytes"):
            call(endpoint(serve((200, {}, b" " * 5000))))
        with pytest.raises(EndpointError, match="compressed reply"):
            call(endpoint(serve((200, {"Content-Encoding": "gzip"}, b"x"))))


def test_awaited_requests_share_a_number_of_slots(serve):
    def slow(body):
        time.sleep(0.05)
        return 200, {}, completion("ok")

    server = serve(slow)
    model = endpoint(server, concurrency=3)

    async def many():
        return await asyncio.gather(*(model.achat(HELLO) for _ in range(9)))

    assert [reply.text for reply in asyncio.run(many())] == ["ok"] * 9
    assert 1 < server.most <= 3


@pytest.mark.parametrize(
    "url", ["host/v1", None, "http://", "https:///v1", "http://[bad", "http://host:abc", "http://h:0"]
)
def test_an_address_is_checked(url):
    with pytest.raises(EndpointError, match="^base_url="):
        Endpoint(url, "tiny")


@pytest.mark.parametrize(
    "url", ["https://user:hush@host/v1", "https://host/v1?key=hush", "http://x:hush@[bad", "http://h/#hush"]
)
def test_an_address_holds_no_secret(url):
    with pytest.raises(EndpointError, match="^base_url: expected an address without") as caught:
        Endpoint(url, "tiny")
    assert "hush" not in str(caught.value)


def test_an_endpoint_that_could_never_answer_is_refused():
    for options in ({"retries": -1}, {"concurrency": 0}):
        with pytest.raises(EndpointError, match=f"^{next(iter(options))}="):
            Endpoint("http://host", "tiny", **options)
