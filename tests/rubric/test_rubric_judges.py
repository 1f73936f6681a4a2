import asyncio
import json
import math
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from chat_server import completion, serving

pytest.importorskip("httpx")

from reprise.chat_endpoint import EndpointError, EndpointRefused
from reprise.chat_replay import CacheMiss, ReplayCache
from reprise.errors import RepriseError
from reprise.labs import judge_noise
from reprise.rubric.build import abuild_graph, build_graph
from reprise.rubric.errors import RubricError, ScoreError
from reprise.rubric.graph import Criterion, Role, RubricGraph
from reprise.rubric.judges import JudgeFailed, Label, LocalJudge, OpenAIJudge
from reprise.rubric.judging import Pair

MEASURED = Path(__file__).parents[2] / "data" / "measured" / "rubric" / "local_judge.csv"
RUBRIC = [Criterion("fact", 5, None, "States the fact."), Criterion("cite", 2, None, "引用出处。")]
GRAPH = RubricGraph(RUBRIC)


def questions(body):
    """What a request asks: the name of the list wanted, and how many answers."""
    given = json.loads(body["messages"][1]["content"])
    system = body["messages"][0]["content"]
    for name, kind in (("labels", "pairs"), ("verdicts", "criteria"), ("roles", "criteria")):
        if f'"{name}"' in system:
            return name, given, len(given[kind])
    raise AssertionError(system)


ANSWERS = {
    "roles": {"role": "foundation"},
    "labels": {"label": "weak", "confidence": 0.5},
    "verdicts": {"met": True, "probability": 0.75},
}


def model(body):
    name, _, count = questions(body)
    rows = [{"index": k, **ANSWERS[name]} for k in range(count)]
    return 200, {}, completion(json.dumps({name: rows[::-1]}))


@pytest.fixture
def judge_of(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ExitStack() as stack:

        def make(*script, **options):
            server = stack.enter_context(serving(*script))
            return OpenAIJudge(server.url, "tiny", **{"backoff": 0.001, "retries": 1, **options}), server

        yield make


# -- an endpoint -------------------------------------------------------------------------------------------------------


def test_a_graph_is_built_in_step_and_awaited(judge_of):
    judge, server = judge_of(model)
    graph, stats = build_graph(RUBRIC, "问题", judge)
    assert [each.role for each in graph.criteria] == [Role.FOUNDATION] * 2
    # both directions are weak with equal confidence: the earlier parent wins
    assert [str(edge) for edge in graph.edges] == ["fact->cite (weak)"] and len(stats.dropped_cycles) == 1
    assert asyncio.run(abuild_graph(RUBRIC, "问题", judge)) == (graph, stats)
    body = server.seen[1][2]
    assert body["temperature"] == 0 and body["response_format"]["type"] == "json_schema"
    given = json.loads(body["messages"][1]["content"])
    assert given["query"] == "问题" and given["criteria"][1] == {
        "index": 1,
        "points": 2,
        "text": "引用出处。",
        "role": "foundation",
    }
    assert given["pairs"][0] == {"index": 0, "parent": 0, "child": 1, "allowed": ["no_edge", "strong", "weak"]}


def test_an_endpoint_without_schemas_is_asked_for_plain_json_from_then_on(judge_of):
    def old(body):
        return model(body) if body["response_format"]["type"] == "json_object" else (400, {}, {"error": "json_schema"})

    judge, server = judge_of(old)
    graph, _ = build_graph(RUBRIC, "", judge)
    assert len(graph.edges) == 1
    kinds = [body["response_format"]["type"] for _, _, body in server.seen]
    assert kinds == ["json_schema", "json_object", "json_object"]


def test_a_question_refused_in_both_formats_fails_alone_and_schemas_stay(judge_of):
    def too_long(body):
        name, given, _ = questions(body)
        return model(body) if name == "roles" or len(given["pairs"]) == 1 else (400, {}, {"error": "context length"})

    for build in (build_graph, lambda *given: asyncio.run(abuild_graph(*given))):
        judge, server = judge_of(too_long)
        graph, stats = build(RUBRIC, "q", judge)
        assert len(graph.edges) == 1 and not stats.failed and stats.labels["weak"] == 2
        kinds = [body["response_format"]["type"] for _, _, body in server.seen]
        # the pair of pairs is asked for in both, what fits by its schema
        assert kinds == ["json_schema", "json_schema", "json_object", "json_schema", "json_schema"]


def test_answers_are_kept_and_not_asked_again(judge_of, tmp_path):
    judge, server = judge_of(model, cache=ReplayCache(tmp_path / "cache"))
    first = build_graph(RUBRIC, "", judge)
    assert len(server.seen) == 2
    again = OpenAIJudge(server.url, "tiny", cache=ReplayCache(tmp_path / "cache", "replay"))
    assert build_graph(RUBRIC, "", again) == first and len(server.seen) == 2
    with pytest.raises(CacheMiss):
        build_graph(RUBRIC, "another query", again)
    build_graph(RUBRIC, "another query", judge)
    assert len(server.seen) == 4


def test_an_answer_that_does_not_fit_is_not_kept(judge_of, tmp_path):
    judge, server = judge_of((200, {}, completion("no JSON")), model, cache=ReplayCache(tmp_path / "cache"))
    with pytest.raises(JudgeFailed, match="roles: no JSON of the form asked for"):
        judge.roles("", RUBRIC)
    assert judge.roles("", RUBRIC) == ["foundation"] * 2


@pytest.mark.parametrize(
    "text, words",
    [
        ("{}", "KeyError"),
        ('{"labels": [{"index": 0, "label": "weak"}]}', "answers for \\[0\\]: expected one for each of 0 to 1"),
        ('{"labels": [{"index": 0, "label": "weak"}, {"index": 0, "label": "weak"}]}', "answers for"),
        ('{"labels": [{"index": 0, "label": "weak"}, {"index": 5, "label": "weak"}]}', "answers for"),
        ('{"labels": [{"index": 0, "label": "weak", "confidence": 7}, {"index": 1, "label": "weak"}]}', "confidence=7"),
        ('{"labels": [{"index": 0, "label": "weak", "confidence": NaN}, {"index": 1, "label": "weak"}]}', "NaN"),
        ('{"labels": [1, 2]}', "TypeError"),
        ('{"labels": null}', "TypeError"),
        ("[" * 100_000, "RecursionError|JSONDecodeError"),
    ],
)
def test_replies_that_are_refused(judge_of, text, words):
    judge, _ = judge_of((200, {}, completion(text)))
    pairs = [Pair(0, 1, frozenset()), Pair(1, 0, frozenset())]
    with pytest.raises(JudgeFailed, match=words):
        judge.labels("", RUBRIC, pairs)


def test_a_fenced_reply_is_read_and_a_cut_one_is_not(judge_of):
    rows = '{"labels": [{"index": 0, "label": "strong_prerequisite"}]}'
    judge, _ = judge_of(
        (200, {}, completion(f"```json\n{rows}\n```")), (200, {}, completion(rows, finish_reason="length"))
    )
    pair = [Pair(0, 1, frozenset())]
    assert judge.labels("", RUBRIC, pair) == [Label("strong_prerequisite", 1.0)]
    with pytest.raises(JudgeFailed, match="cut off"):
        judge.labels("", RUBRIC, pair)


def test_a_batch_the_endpoint_refuses_is_halved_but_a_wrong_key_ends_the_building(judge_of):
    criteria = [Criterion(id, 1, Role.FOUNDATION, id) for id in "abc"]  # 6 candidates

    def small(body):
        return model(body) if questions(body)[2] <= 3 else (413, {}, {"error": "too long"})

    judge, server = judge_of(small)
    graph, stats = build_graph(criteria, "", judge)
    assert stats.calls == 3 and len(graph.edges) == 3
    judge, server = judge_of((401, {}, {"error": "key"}))
    with pytest.raises(EndpointRefused, match="status 401"):
        build_graph(criteria, "", judge)
    assert len(server.seen) == 1


def test_an_endpoint_that_stays_busy_ends_the_building_and_leaves_scores_missing(judge_of):
    judge, server = judge_of((503, {}, {}))
    with pytest.raises(EndpointError, match="after 2 attempts"):
        build_graph(RUBRIC, "", judge)
    assert all(map(math.isnan, judge("q", "r", GRAPH)))
    assert all(map(math.isnan, asyncio.run(judge.ascore("q", "r", GRAPH))))


def test_scores_and_verdicts_that_contradict_their_probability(judge_of):
    rows = [{"index": 0, "met": False, "probability": 0.9}, {"index": 1, "met": True}]
    reply = (200, {}, completion(json.dumps({"verdicts": rows})))
    judge, server = judge_of(reply)
    assert judge("q", "r", GRAPH) == pytest.approx([0.1, 1.0]) and judge.contradictions == 1
    assert json.loads(server.seen[0][2]["messages"][1]["content"])["response"] == "r"
    keep, _ = judge_of(reply, policy="keep")
    assert asyncio.run(keep.ascore("q", "r", GRAPH)) == [0.9, 1.0] and keep.contradictions == 1
    with pytest.raises(ScoreError, match="policy='guess'"):
        judge_of(reply, policy="guess")


@pytest.mark.parametrize("row", [{"met": 1}, {"met": True, "probability": 2}, {"met": None}])
def test_verdicts_that_are_none_leave_the_response_unscored(judge_of, row):
    rows = [{"index": k, **row} for k in range(2)]
    judge, _ = judge_of((200, {}, completion(json.dumps({"verdicts": rows}))))
    assert all(map(math.isnan, judge("q", "r", GRAPH)))


# -- a local model -----------------------------------------------------------------------------------------------------


class Counted:
    """Stands in for a LocalModel: says yes as often as the criterion's word occurs in the text, and leans to no."""

    def __init__(self):
        self.asked = []

    def yes_no(self, messages):
        text = messages[0]["content"]
        self.asked.append(text)
        return 0.6 if "sorry" in text.split("Statement")[0] and "apology" in text else 0.2


@pytest.fixture
def local():
    return LocalJudge(Counted(), ask="yes_no")


def test_a_lean_is_divided_out(local):
    odds = (0.6 / 0.4) / (0.2 / 0.8)
    assert local.scores("I am sorry.", ["an apology", "a price"]) == pytest.approx([odds / (1 + odds), 0.5])
    asked = len(local.model.asked)
    local.scores("Fine.", ["an apology"])
    assert len(local.model.asked) == asked + 1  # the lean is known
    raw = LocalJudge(Counted(), ask="yes_no", calibrate=False)
    assert raw("prompt", "I am sorry.", RubricGraph([Criterion("c", 1, None, "an apology")])) == pytest.approx([0.6])


# -- what its noise is measured on -------------------------------------------------------------------------------------


def test_every_sentence_makes_its_own_criterion_true_and_no_other():
    sentences = [sentence for each in judge_noise.SIMPLE for sentence in each.sentences]
    assert len(set(sentences)) == len(sentences)
    for each in judge_noise.SIMPLE:
        for sentence in [*sentences, *judge_noise.NEUTRAL]:
            assert judge_noise.holds(each, sentence) == (sentence in each.sentences)


def test_made_responses_have_the_truth_they_are_given():
    for response in judge_noise.make_responses(np.random.default_rng(0), 20):
        assert tuple(judge_noise.holds(each, response.text) for each in judge_noise.SIMPLE) == response.truth


@pytest.mark.skipif(not MEASURED.is_file(), reason="needs a checkout")
def test_the_committed_measurement_is_of_the_responses_it_says():
    responses = judge_noise.make_responses(np.random.Generator(np.random.PCG64(100)), 32)
    truth = [
        (k, each.id, holds)
        for k, made in enumerate(responses)
        for each, holds in zip(judge_noise.SIMPLE, made.truth, strict=True)
    ]
    rows = judge_noise.read_csv(MEASURED)
    for ask in ("likelihood", "yes_no"):
        assert [(row.response, row.criterion, row.truth) for row in rows if row.ask == ask] == truth
    kept = json.loads(MEASURED.with_suffix(".json").read_text())
    found = judge_noise.scores_by_truth(rows, "likelihood")
    assert kept.keys() == found.keys()
    assert all(kept[name] == pytest.approx(found[name], abs=2e-4) for name in kept)


def test_noise_of_a_judge_that_is_known(tmp_path):
    rows = [
        judge_noise.Judged("yes_no", k, each.id, k % 2 == 0, 0.0, 3.0 + (k == 0) if k % 2 == 0 else -1.0)
        for k in range(4)
        for each in judge_noise.SIMPLE
    ]
    one = judge_noise.noise(rows, "yes_no")[0]
    assert (one.auc, one.hit, one.alarm) == (1, 1, 0)
    assert (one.separation, one.bias, one.spread) == pytest.approx((4.5, 1.25, np.sqrt(0.125)))
    blind = judge_noise.noise([row._replace(calibrated=0.0) for row in rows], "yes_no")[-1]
    assert (blind.criterion, blind.auc, blind.separation) == ("all", 0.5, 0)
    with pytest.raises(RepriseError, match="0 true and 0 false"):
        judge_noise.noise(rows, "likelihood")
    judge_noise.write_csv(tmp_path / "n.csv", rows)
    assert judge_noise.read_csv(tmp_path / "n.csv") == rows
    scores = judge_noise.scores_by_truth(rows, "yes_no")
    assert set(scores["unmet"]) == {0.2689} and set(scores["met"]) == {0.9526, 0.982}


def test_measure_asks_every_criterion_of_every_response():
    responses = judge_noise.make_responses(np.random.default_rng(0), 3)
    rows = judge_noise.measure(LocalJudge(Counted(), ask="yes_no"), responses)
    assert len(rows) == 3 * len(judge_noise.SIMPLE)
    hits = [row for row in rows if row.calibrated > 0]
    assert all(row.truth and row.criterion == "apology" for row in hits)


class Letters:
    """Stands in for a LocalModel whose tokens are letters; what follows a colon is half as likely."""

    def tokenizer(self, text, add_special_tokens=True):
        return SimpleNamespace(input_ids=list(text))

    def logprobs(self, text):
        return np.array([-2.0 if ":" in text[:k] else -1.0 for k in range(1, len(text))])


def test_the_likelihood_of_a_statement_is_that_of_its_words_behind_the_response():
    judge = LocalJudge(Letters(), ask="likelihood")
    assert judge.logit("abc", "The text says x.") == -len(" says x.")
    assert judge.logit("abc", "The response says x.") == -len(" says x.")
    # no statement about the text: it follows a colon, and so does its lean
    assert judge.logit("abc", "It rains.") == -2 * len(" It rains.")
    assert judge.scores("a:c", ["The text says x.", "It rains."]) == pytest.approx([1 / (1 + np.exp(8)), 0.5])
    with pytest.raises(RubricError, match="^ask='guess'"):
        LocalJudge(Letters(), ask="guess")
