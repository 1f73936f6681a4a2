"""Who&When: its statistics to the printed digit where the logs are, and what can be checked without them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reprise.audit.attribution import PROTOCOLS, Attribution, attribute, most_calls
from reprise.audit.attribution_scores import step_accuracy, step_hit, uniform_step_accuracy
from reprise.audit.errors import AuditError
from reprise.audit.logs import load_trajectories, trajectory
from reprise.audit.trajectory import Trajectory
from reprise.audit.whowhen import Facts, facts, load_whowhen, most_frequent_speaker
from reprise.labs import audit_whowhen as real
from reprise.labs import audit_whowhen_tables as tables
from reprise.traces import Log, Turn

DATA = Path(__file__).parents[2] / "data"
EXAMPLES = DATA / "examples" / "audit"


@pytest.fixture(scope="module")
def logs():
    if reason := real.missing():
        pytest.skip(reason)
    return load_whowhen(real.folder())


@pytest.fixture(scope="module")
def kept():
    return tables.kept(DATA / "measured" / "audit")


def run(turns, step=None, id="x"):
    return Trajectory(id, tuple(Turn(role, "say", text) for role, text in turns), decisive_step=step)


# -- the logs themselves, where a copy is --


def test_the_logs_give_what_was_kept(logs, kept):
    assert pd.DataFrame(facts(logs)).to_dict("list") == kept[0].to_dict("list")


def test_their_turns_are_all_there(logs):
    assert sum(map(len, logs)) == 1099 + 2993
    assert [each.id for each in logs][:3] == ["AG/1", "AG/2", "AG/3"] and logs[-1].id == "HC/58"
    assert all(each.outcome is False for each in logs)


# -- what was kept of them --


def test_statistics(kept):
    table = kept[0]
    ag, hc = (table[table.domain == name] for name in ("AG", "HC"))
    assert (len(ag), len(hc), table.question.nunique()) == (126, 58, 139)
    assert [round(part.turns.mean(), 3) for part in (ag, hc)] == [8.722, 51.603]
    assert [(part.turns.min(), part.turns.max()) for part in (ag, hc)] == [(5, 10), (5, 130)]
    assert [round((part.step / part.turns).mean(), 4) for part in (ag, hc)] == [0.3275, 0.4332]
    assert list(table[~table.label_speaks].id) == ["AG/14", "AG/15", "AG/59", "HC/20", "HC/22", "HC/49"]
    assert [(~part.raw_label_spoke).sum() for part in (ag, hc)] == [0, 18] and table.label_spoke.all()


def test_what_replay_reads(kept):
    table = kept[0]
    parts = [table[table.domain == "AG"], table[table.domain == "HC"], table]
    assert [round(part.replayed.sum() / part.characters.sum(), 1) for part in parts] == [5.6, 43.5, 32.8]
    calls = [[np.mean([most_calls(n, each) for n in part.turns]) for each in PROTOCOLS] for part in parts[:2]]
    assert np.round(calls, 2).tolist() == [[1, 8.72, 3.64], [1, 51.6, 5.69]]


@pytest.mark.parametrize(
    "subset, rule, column, percent",
    [
        ("AG", "uniform guess", "agent", 29.10),
        ("HC", "uniform guess", "agent", 19.06),
        ("AG", "uniform guess", "step", 12.00),
        ("HC", "uniform guess", "step", 4.16),
        ("HC", "uniform guess", "substring", 8.89),
        ("AG", "step 1", "step", 26.98),
        ("AG", "step 10", "step", 0.0),
        ("AG", "step 10", "substring", 42.86),
        ("AG", "step 1234567890", "substring", 100.0),
        ("HC", "last turn", "step", 12.07),
        ("HC", "last turn", "substring", 20.69),
        ("AG", "most frequent", "agent", 53.97),
        ("AG", "most frequent any", "agent", 42.86),
        ("HC", "last agent", "agent", 60.34),
    ],
)
def test_baselines(kept, subset, rule, column, percent):
    table = tables.baselines(kept[0])
    assert round(table[(table.subset == subset) & (table.rule == rule)][column].item(), 2) == percent


def test_every_turn_of_the_scored_logs_has_its_scores(kept):
    table, turns = kept
    scored = table[table.turns <= table.domain.map(real.LONGEST)]
    assert turns.groupby("id").size().to_dict() == scored.set_index("id").turns.to_dict()
    assert turns.p_yes.between(0, 1).all() and (turns.surprise >= 0).all()
    assert turns.tokens.between(1, real.TURN_TOKENS).all()


def test_shuffled_scores_stay_in_their_log(kept):
    turns = kept[1]
    mixed = tables.shuffled(turns, 0)
    assert not mixed.p_yes.equals(turns.p_yes)
    pairs = [
        each[["id", "surprise", "p_yes"]].sort_values(["id", "surprise", "p_yes"]).values.tolist()
        for each in (turns, mixed)
    ]
    assert pairs[0] == pairs[1]


# -- loading --


def test_a_folder_without_the_logs_is_named(tmp_path):
    with pytest.raises(AuditError, match="Algorithm-Generated: no log: expected the folder of Who&When"):
        load_whowhen(tmp_path)


def test_labels_become_trajectories():
    (log,) = load_trajectories(EXAMPLES / "who_and_when.json")
    assert (log.id, log.decisive_step, log.decisive_agent, log.outcome) == ("bergen", 3, "WebSurfer", False)
    unsafe, safe = load_trajectories(EXAMPLES / "aftraj.parquet")
    assert (unsafe.decisive_step, unsafe.decisive_agent, unsafe.domain) == (4, "search_agent", "agentic")
    assert (safe.decisive_step, safe.decisive_agent, safe.outcome) == (None, None, True)
    (plain,) = load_trajectories(EXAMPLES / "autogen.json")
    assert (plain.id, plain.decisive_step, plain.outcome) == ("autogen", None, None)


@pytest.mark.parametrize("step", ["three", "-2", "1.0", True, ""])
def test_a_label_that_is_no_step_is_refused(step):
    log = Log((Turn("A", "say", ""),), (), "who_and_when", "r", {"mistake_step": step, "mistake_agent": "A"})
    with pytest.raises(AuditError, match="trajectory 'r': mistake_step="):
        trajectory(log)


@pytest.mark.parametrize("step, read", [("0", 0), (0, 0), (0.0, 0), (-1, None), (None, None), (float("nan"), None)])
def test_labels_are_read_however_they_are_stored(step, read):
    log = Log((Turn("A", "say", ""),), (), "aftraj", "r", {"mistake_step": step, "mistake_agent": "A"})
    assert trajectory(log).decisive_step == read


def test_a_label_outside_the_run_is_refused():
    log = Log((Turn("A", "say", ""),), (), "who_and_when", "r", {"mistake_step": "1", "mistake_agent": "A"})
    with pytest.raises(AuditError, match="decisive_step=1: expected an int in 0..0"):
        trajectory(log)


def test_the_speaker_with_most_turns_is_the_first_of_equals():
    turns = [Turn(role, "say", "") for role in ("B", "A", "Computer_terminal", "Computer_terminal", "A", "B")]
    assert most_frequent_speaker(turns) == "B"
    assert most_frequent_speaker(turns[2:4]) is None


def test_facts_of_a_small_log():
    (log,) = load_trajectories(EXAMPLES / "who_and_when.json")
    found = facts([log])[0]
    assert isinstance(found, Facts)
    lengths = [len(turn.content) for turn in log.turns]
    assert found.replayed == sum(sum(lengths[: k + 1]) for k in range(len(lengths)))
    assert (found.speakers, found.raw_speakers, found.label_speaks, found.raw_label_spoke) == (4, 7, True, True)
    with pytest.raises(AuditError, match="decisive_step=None: expected a labelled log"):
        facts([run([("A", "")])])


# -- scoring --


@pytest.mark.parametrize(
    "predicted, actual, exact, substring",
    [(1, 1, True, True), (10, 1, False, True), (1, 10, False, False), ("12", 2, False, True), (None, 0, False, False)],
)
def test_steps_are_integers_and_not_digits(predicted, actual, exact, substring):
    assert (step_hit(predicted, actual), step_hit(predicted, actual, "substring")) == (exact, substring)


def test_accuracies():
    assert step_accuracy([1, None, 10], [1, 0, 1]) == pytest.approx(1 / 3)
    assert uniform_step_accuracy([2, 4], [0, 3]) == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert uniform_step_accuracy([11], [1], "substring") == pytest.approx(2 / 11)
    with pytest.raises(AuditError, match="compat='loose'"):
        step_hit(1, 1, "loose")
    with pytest.raises(AuditError, match="predicted: 1 for 2 labels"):
        step_accuracy([1], [1, 2])


# -- the three protocols --


def answers(*texts):
    """A judge that gives these answers in order, and the questions it was asked."""
    asked, left = [], list(texts)

    def judge(messages):
        asked.append(messages[-1]["content"])
        return left.pop(0)

    return judge, asked


NINE = run([(f"agent{k}", f"words{k}") for k in range(9)], step=5)


def test_all_at_once_reads_agent_and_step():
    judge, asked = answers("**Agent Name:** agent5 (-> x)\nStep Number: 5\nReason: ...")
    assert attribute(NINE, "all_at_once", judge) == Attribution(5, "agent5", 1, 0)
    assert all(f"words{k}" in asked[0] for k in range(9))


@pytest.mark.parametrize("text, agent", [("I cannot say", None), ("Agent Name: a\nStep Number: 9", "a")])
def test_an_answer_that_names_no_turn_is_counted(text, agent):
    judge, _ = answers(text)
    assert attribute(NINE, "all_at_once", judge) == Attribution(None, agent, 1, 1)


def test_step_by_step_shows_prefixes_and_ends_at_the_first_yes():
    judge, asked = answers("No", "hm", "1. Yes. It is wrong", "No")
    assert attribute(NINE, "step_by_step", judge) == Attribution(2, "agent2", 3, 1)
    assert ["words3" in question for question in asked] == [False] * 3
    judge, _ = answers(*["No"] * 9)
    assert attribute(NINE, "step_by_step", judge) == Attribution(None, None, 9, 0)


@pytest.mark.parametrize("turns", [1, 2, 5, 8, 9, 130])
def test_binary_search_finds_every_step_in_the_calls_it_is_allowed(turns):
    log = run([("A", f"w{k}") for k in range(turns)])
    for step in range(turns):

        def judge(messages, step=step):
            middle = int(messages[-1]["content"].rpartition("first half (turns ")[2].split(" to ")[1].split(")")[0])
            return "first half" if step <= middle else "Second half."

        found = attribute(log, "binary_search", judge)
        assert found.step == step and found.calls <= most_calls(turns, "binary_search")
    assert most_calls(turns, "binary_search") == int(np.ceil(np.log2(turns)))


def test_binary_search_shows_the_half_it_asks_about():
    judge, asked = answers("second half", "neither")
    assert attribute(NINE, "binary_search", judge) == Attribution(None, None, 2, 1)
    assert "words4" not in asked[1] and '{"turn": 5' in asked[1]


def test_the_label_is_not_shown_and_the_reference_is_where_it_is_asked_for():
    (log,) = load_trajectories(EXAMPLES / "who_and_when.json")
    for protocol in PROTOCOLS:
        judge, asked = answers(*["No"] * 9)
        attribute(log, protocol, judge)
        assert not any("78766" in each or "digits" in each for each in asked)
    judge, asked = answers("")
    attribute(log, "all_at_once", judge, reference="78766")
    assert "The right answer to the task is: 78766" in asked[0]
    with pytest.raises(AuditError, match="protocol='guess'"):
        attribute(log, "guess", judge)


def test_the_stub_answers_every_protocol():
    for protocol in PROTOCOLS:
        first, again = (attribute(NINE, protocol, tables.stub_judge(3)) for _ in range(2))
        assert first == again and first.unread == 0


# -- ranks --


def test_ranks_of_turns():
    scores = np.array([1.0, 3.0, 2.0, 2.0])
    assert [tables.rank_of(scores, k) for k in range(4)] == pytest.approx([0, 1, 0.5, 0.5])
    assert np.mean([tables.rank_of(np.random.default_rng(0).normal(size=7), k) for k in range(7)]) == pytest.approx(0.5)


def test_a_score_that_knows_only_the_position_gains_nothing_over_the_control():
    steps = [1, 2, 1, 0, 2, 1]
    logs = pd.DataFrame({"id": [f"AG/{k}" for k in range(6)], "question": range(6), "step": steps, "turns": 5})
    logs["domain"] = "AG"
    turns = pd.DataFrame({"id": np.repeat(logs.id, 5), "turn": list(range(5)) * 6})
    turns["surprise"], turns["p_yes"] = -turns.turn.astype(float), (turns.turn == np.repeat(steps, 5)) * 1.0
    found = tables.ranks(logs, turns).groupby("score")[["own", "others"]].mean()
    assert found.own.surprise > 0.5 and found.own.surprise == pytest.approx(found.others.surprise)
    assert found.own.p_yes == 1.0 and found.others.p_yes < 0.8


def test_sizes_of_printed_shares():
    assert tables.sizes(["33.33"], least=3)[:3] == [3, 6, 9]
    assert [n for n in tables.sizes(["19.59"], (0.01, 0.01)) if n != 51] == [97, 143, 148, 194, 199]
