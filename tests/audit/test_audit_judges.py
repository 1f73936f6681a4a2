"""Judges over an endpoint, kept answers and a local model; scores of turns against separate forward passes."""

import numpy as np
import pytest
import tiny_causal_lm
from chat_server import completion, serving

from reprise.audit.errors import AuditError
from reprise.audit.judges import LocalJudge, OpenAIJudge
from reprise.audit.turn_scores import first_crossing, lay_out, turn_scores
from reprise.chat import LocalModel
from reprise.chat_client import Budget, BudgetExceeded
from reprise.chat_replay import CacheMiss, ReplayCache
from reprise.traces import Turn

ASK = [{"role": "user", "content": "w1"}]
TURNS = (
    Turn("user", "say", "w1 w2 w3"),
    Turn("assistant", "say", "w4 " * 12),
    Turn("user", "say", ""),
    Turn("assistant", "say", "w5"),
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return LocalModel(tiny_causal_lm.save(tmp_path_factory.mktemp("tiny")), dtype="float64", device="cpu")


def test_an_endpoint_is_asked_greedily_for_at_most_1500_tokens(monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    with serving((200, {}, completion("safe"))) as server:
        assert OpenAIJudge(server.url, "m", "MY_KEY")(ASK) == "safe"
    _, headers, body = server.seen[0]
    assert headers["Authorization"] == "Bearer secret"
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 1500)


def test_kept_answers_are_played_again_without_an_endpoint(tmp_path):
    with serving((200, {}, completion("safe"))) as server, ReplayCache(tmp_path / "kept.sqlite") as cache:
        judge = OpenAIJudge(server.url, "m", cache=cache)
        assert [judge(ASK), judge(ASK)] == ["safe", "safe"]
        assert len(server.seen) == 1 and judge.client.kept == 1
    with ReplayCache(tmp_path / "kept.sqlite", "replay") as cache:
        judge = OpenAIJudge(None, "m", cache=cache)
        assert judge(ASK) == "safe"
        with pytest.raises(CacheMiss):
            judge([{"role": "user", "content": "new"}])


def test_without_an_address_and_a_kept_answer_nothing_is_asked():
    with pytest.raises(AuditError, match="base_url=None: expected an address, or a cache"):
        OpenAIJudge(None, "m")
    with pytest.raises(AuditError, match="no kept answer, and nowhere to ask"):
        OpenAIJudge(None, "m", cache=ReplayCache(":memory:"))(ASK)


def test_a_budget_holds():
    with serving((200, {}, completion("safe"))) as server:
        judge = OpenAIJudge(server.url, "m", budget=Budget(calls=1))
        judge(ASK)
        with pytest.raises(BudgetExceeded, match="calls=1"):
            judge(ASK)


def test_a_local_judge_writes(tiny):
    text = LocalJudge(tiny, max_tokens=3)(ASK)
    assert isinstance(text, str) and len(text.split()) <= 3


def test_scores_equal_those_of_one_forward_a_prefix(tiny):
    import torch

    from reprise.chat import NO, YES

    found = turn_scores(tiny, TURNS, turn_tokens=6)
    layout = lay_out(tiny, TURNS, 6)
    with torch.inference_mode():
        for k, end in enumerate(layout.ends):
            ids = torch.tensor([layout.ids[:end] + layout.branch])
            logits = tiny.model(ids).logits[0].double()
            yes, no = (torch.logsumexp(logits[-1][tiny._single_tokens(words)], 0) for words in (YES, NO))
            assert found.p_yes[k] == pytest.approx(float(torch.sigmoid(yes - no)), abs=1e-6)
            own = [place for place, owner in zip(layout.scored, layout.owner, strict=True) if owner == k]
            picked = [float(logits[place - 1].log_softmax(-1)[layout.ids[place]]) for place in own]
            # this tokenizer has no token for an empty turn's line end
            assert found.surprise[k] == pytest.approx(-np.mean(picked or [0.0]), abs=1e-6)
            assert found.tokens[k] == len(own)


def test_a_later_turn_changes_no_earlier_score(tiny):
    longer = turn_scores(tiny, TURNS)
    for k in range(1, len(TURNS)):
        shorter = turn_scores(tiny, TURNS[:k])
        assert shorter.surprise == pytest.approx(longer.surprise[:k], abs=1e-6)
        assert shorter.p_yes == pytest.approx(longer.p_yes[:k], abs=1e-6)


def test_a_long_turn_keeps_its_two_ends(tiny):
    turns = [Turn("user", "say", " ".join(f"w{k}" for k in range(20)))]
    layout = lay_out(tiny, turns, 5)
    words = [tiny.tokenizer.decode([layout.ids[place]]) for place in layout.scored]
    assert words == ["w0", "w1", "w2", "w18", "w19"]


@pytest.mark.parametrize(
    "turns, tokens, error",
    [((), 8, r"turns=\(\)"), (TURNS, 1, "turn_tokens=1"), (TURNS * 60, 8, "tokens: expected at most 512")],
)
def test_what_cannot_be_scored_is_refused(tiny, turns, tokens, error):
    with pytest.raises(AuditError, match=error):
        turn_scores(tiny, turns, tokens)


def test_first_crossing():
    assert first_crossing([0.1, 0.5, 0.9], 0.5) == 1
    assert first_crossing([0.1], 0.5) is None
