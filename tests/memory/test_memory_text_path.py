"""The loop over text: prompts, replies in JSON, repairs, cache, replay, and a folder of databases."""

import json
import sqlite3

import pytest

from reprise.chat_client import ChatClient, scripted
from reprise.chat_replay import ReplayCache
from reprise.errors import RepriseError
from reprise.labs.sqlworld import SqlWorld
from reprise.labs.text_model import FAULTS, TextModel
from reprise.memory.chat_policy import ChatPolicy, asked, sql_in
from reprise.memory.embedders import HashedNgrams
from reprise.memory.errors import MemoryFault
from reprise.memory.items import Item
from reprise.memory.loop import MistakeNotebook
from reprise.memory.settings import Config
from reprise.memory.spider import SpiderFolder
from reprise.memory.store import NoteStore
from reprise.memory.tuner import ChatTuner

CONFIG = Config(batch=16, threshold=0.0, merge_threshold=0.5)


def run(path, cache=None, faults=(None,), batches=2, send=None):
    """Two batches; returns (reports, tuner, client, bytes of the store)."""
    world, embedder = SqlWorld(), HashedNgrams()
    client = ChatClient(send or scripted(TextModel(faults)), "text", cache=cache)
    tuner = ChatTuner(asked(client))
    with NoteStore(path, embedder.space) as store:
        policy = ChatPolicy(client, extract=sql_in)
        book = MistakeNotebook(policy, tuner, world.judge, store, embedder, CONFIG)
        reports = book.fit(world.draw(60)[0][: 16 * batches])
    return reports, tuner, client, path.read_bytes()


def test_a_model_of_text_alone_learns(tmp_path):
    reports, tuner, client, _ = run(tmp_path / "s")
    assert [report.outcome for report in reports] == ["accepted", "accepted"]
    assert reports[0].comparisons[0].wins >= 5 and not +tuner.repairs
    assert client.calls > 30


def test_a_run_repeated_from_its_cache_is_the_same_to_the_byte_with_the_network_off(tmp_path):
    with ReplayCache(tmp_path / "cache") as cache:
        first = run(tmp_path / "one", cache)

    def off(request):
        raise AssertionError("the network was used")

    with ReplayCache(tmp_path / "cache", "replay") as cache:
        again = run(tmp_path / "two", cache, send=scripted(off))
    assert again[3] == first[3] and again[0] == first[0] and again[2].calls == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_replies_that_go_wrong_now_and_then_lose_no_batch(tmp_path, fault):
    reports, tuner, _, _ = run(tmp_path / "s", faults=(fault, None, None))
    assert len(reports) == 2 and sum(reports[0].clusters.values()) > 0
    assert fault == "fenced" or sum(tuner.repairs.values()) > 0


def test_a_kept_reply_is_not_given_again_to_a_second_attempt(tmp_path):
    with ReplayCache(tmp_path / "cache") as cache:
        _, tuner, _, _ = run(tmp_path / "s", cache, faults=("essay", None))
    assert tuner.repairs["subjects asked again"] > 0 == tuner.repairs["subjects given up"]


@pytest.mark.parametrize("fault", ["essay", "nothing", "one too few"])
def test_a_tuner_that_is_always_wrong_changes_nothing_and_is_counted(tmp_path, fault):
    reports, tuner, _, _ = run(tmp_path / "s", faults=(fault,), batches=1)
    (report,) = reports
    assert list(report.clusters) == ["unclassified/general"]
    assert tuner.repairs["subjects given up"] == 1
    if fault != "one too few":
        assert report.outcome == "nothing to add" and report.invalid == 1


def test_requests_that_fail_leave_their_items_without_an_answer(tmp_path):
    model, count = TextModel(), iter(range(10**6))

    def flaky(request):
        return ConnectionError("reset") if next(count) % 5 == 0 else model(request)

    reports, _, _, _ = run(tmp_path / "s", send=scripted(flaky), batches=1)
    assert reports[0].unknown > 0


@pytest.mark.parametrize(
    "reply, sql",
    [
        ("```sql\nSELECT 1;\n```", "SELECT 1"),
        ("I would say select a from b;", "select a from b"),
        ("first ```sql\nSELECT 1\n``` then ```\nSELECT 2\n```", "SELECT 2"),
        ("WITH t AS (SELECT 1) SELECT * FROM t", "WITH t AS (SELECT 1) SELECT * FROM t"),
        ("no idea", None),
        ("", None),
    ],
)
def test_sql_is_found_in_a_reply(reply, sql):
    assert sql_in(reply) == sql


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "databases" / "shop").mkdir(parents=True)
    with sqlite3.connect(tmp_path / "databases" / "shop" / "shop.sqlite") as database:
        database.execute("create table sale (item text, price real)")
        database.executemany("insert into sale values (?, ?)", [("a", 1.5), ("b", 2.5), ("c", 0.1)])
    entries = [
        {"db_id": "shop", "question": "all items", "query": "SELECT item FROM sale"},
        {"db_id": "shop", "question": "sorted", "query": "SELECT item FROM sale ORDER BY price"},
    ]
    (tmp_path / "questions.json").write_text(json.dumps(entries))
    return tmp_path


def test_a_folder_of_databases_judges_by_execution(folder):
    mine = SpiderFolder(folder)
    one, two = mine.items
    assert "create table sale" in mine.schema(one).lower()
    assert mine.judge(one, "SELECT item FROM sale ORDER BY item DESC") == 1
    assert mine.judge(two, "SELECT item FROM sale ORDER BY price DESC") == 0
    assert mine.judge(two, two.reference) == 1
    for bad in ("SELECT nothing", "DROP TABLE sale", "SELECT item FROM sale; SELECT 1", "x\0y"):
        assert mine.judge(one, bad) == 0
    with pytest.raises(MemoryFault, match="reference does not run"):
        mine.judge(Item("1", "q", "SELECT x", {"domain": "shop"}), "SELECT 1")


@pytest.mark.parametrize(
    "entries, name",
    [
        ([{"db_id": "shop", "question": "q"}], r"questions\[0\].query"),
        ([{"db_id": "none", "question": "q", "query": "SELECT 1"}], "db_id='none'"),
        ([{"db_id": "../shop", "question": "q", "query": "SELECT 1"}], "db_id='../shop'"),
        ({"a": 1}, "expected a list"),
    ],
)
def test_a_bad_folder_is_named(folder, entries, name):
    (folder / "questions.json").write_text(json.dumps(entries))
    with pytest.raises(RepriseError, match=name):
        SpiderFolder(folder)


def test_a_missing_or_broken_file_is_named(folder):
    with pytest.raises(MemoryFault, match="no such file"):
        SpiderFolder(folder, "other.json")
    (folder / "questions.json").write_text("{")
    with pytest.raises(MemoryFault, match="expected JSON"):
        SpiderFolder(folder)
