"""Training logs: both layouts, what they fall back on, and a message for everything that can be wrong on a line."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.rubric import RubricGraph, make_verl_reward, rollout_log
from reprise.rubric.rollout_log import LogError, log_files, read_log, rubric_table

# a line as verl's dump of generations writes it with the public reward function
PUBLIC = {
    "input": "What should I take against a cold?",
    "output": "Rest.",
    "score": 0.4,
    "step": 3,
    "p_list": [0.2, 0.9],
    "q_list": [0.2, 0.612],
    "flat_q_list": [0.2, 0.9],
    "hard_q_list": [0.2, 0.0],
    "dag_q_list": [0.2, 0.612],
    "node_types": ["foundation", "bonus"],
    "graph_edges": [{"parent": "r1", "child": "r2", "type": "weak_prerequisite"}],
    "rubric_ids": ["r1", "r2"],
    "rubric_weights": [4.0, 6.0],
}
REWARD_MODEL = {
    "rubrics": [{"id": "a", "points": 4, "criterion": "is grounded"}, {"id": "b", "points": 6, "criterion": "cites"}],
    "graph": {"edges": [{"parent": "a", "child": "b", "type": "weak"}]},
}
PLAIN = {
    "prompt_id": 17,
    "step": 3,
    "reward_model": REWARD_MODEL,
    "scores": {"b": 0.9, "a": 0.2},
    "q": {"gear": [0.2, 0.612]},
    "paid": "gear",
}


def written(tmp_path, *records, name="log.jsonl"):
    path = tmp_path / name
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def only(tmp_path, record, name="log.jsonl", **options):
    (rollout,) = read_log(written(tmp_path, record, name=name), **options)
    return rollout


def test_the_public_layout(tmp_path):
    got = only(tmp_path, PUBLIC)
    assert got.graph.ids == ("r1", "r2") and got.graph.weights == (4, 6)
    assert [str(edge) for edge in got.graph.edges] == ["r1->r2 (weak)"]
    assert got.p.tolist() == [0.2, 0.9] and got.paid.tolist() == [0.2, 0.612]
    assert {name: q.tolist() for name, q in got.q.items()} == {
        "flat": [0.2, 0.9],
        "hard": [0.2, 0.0],
        "gear": [0.2, 0.612],
    }
    assert got.step == 3 and got.excerpt == PUBLIC["input"]


def test_the_plain_layout(tmp_path):
    got = only(tmp_path, PLAIN)
    assert got.graph.ids == ("a", "b") and got.graph.criteria[1].text == "cites"
    assert got.p.tolist() == [0.2, 0.9] and got.paid.tolist() == [0.2, 0.612]
    assert got.prompt == "17" and list(got.q) == ["gear"]
    as_text = only(tmp_path, PLAIN | {"reward_model": json.dumps(REWARD_MODEL)})
    assert as_text.graph == got.graph


def test_what_is_not_said_to_be_paid_is_the_flat_sum(tmp_path):
    record = {name: value for name, value in PUBLIC.items() if name != "q_list"}
    assert only(tmp_path, record).paid.tolist() == [0.2, 0.9]
    assert only(tmp_path, record | {"paid": "hard"}).paid.tolist() == [0.2, 0.0]


def test_lists_may_be_json_text_as_the_verl_adapter_writes_them(tmp_path):
    nested = ("p_list", "q_list", "rubric_ids", "rubric_weights", "graph_edges", "dag_q_list")
    as_text = only(tmp_path, PUBLIC | {name: json.dumps(PUBLIC[name]) for name in nested})
    plain = only(tmp_path, PUBLIC)
    assert as_text.graph == plain.graph and as_text.paid.tolist() == plain.paid.tolist()
    assert as_text.p.tolist() == plain.p.tolist() and as_text.q["gear"].tolist() == plain.q["gear"].tolist()
    graph = RubricGraph.from_reward_model(REWARD_MODEL)
    reward = make_verl_reward(lambda prompt, response, graph: [0.2, 0.9], log=True)
    found = only(tmp_path, {"step": 3, **reward("", "", "", {"reward_model": REWARD_MODEL})})
    assert found.graph.fingerprint() == graph.fingerprint() and found.paid.tolist() == pytest.approx([0.2, 0.612])
    # a prompt without a rubric is passed over in this form too
    empty = {"step": 3, **reward("", "", "", {})}
    assert len(list(read_log(written(tmp_path, empty, PUBLIC)))) == 1


def test_q_may_name_what_was_paid_and_null_says_nothing(tmp_path):
    record = {name: value for name, value in PLAIN.items() if name != "paid"}
    assert only(tmp_path, record | {"q": {"paid": [0.1, 0.3]}}).paid.tolist() == [0.1, 0.3]
    got = only(tmp_path, record | {"paid": None, "step": None}, name="7.jsonl")
    assert got.paid.tolist() == [0.2, 0.9] and got.step == 7


def test_a_prompt_is_recognised_by_its_id_then_its_text_then_its_rubric(tmp_path):
    without = {name: value for name, value in PUBLIC.items() if name != "input"}
    records = [
        PUBLIC,
        PUBLIC | {"uid": "x1"},
        PUBLIC | {"uid": "x2"},
        PUBLIC | {"input": "?"},
        without,
        without | {"uid": 7},
    ]
    got = [rollout.prompt for rollout in read_log(written(tmp_path, *records))]
    assert got[0] == got[1] == got[2]  # verl draws a new uid at every step
    assert len({*got[2:]}) == 4 and got[5] == "7"


def test_rubrics_of_the_data_set_fill_in_weights_and_edges(tmp_path):
    bare = {"p_list": [0.2, 0.9], "rubric_ids": ["a", "b"]}
    other = {"rubrics": [{"id": "a", "points": 1}, {"id": "b", "points": 2}]}
    table = rubric_table(written(tmp_path, {"reward_model": REWARD_MODEL}, {"reward_model": other}, name="data.jsonl"))
    got = list(read_log(written(tmp_path, bare, bare, bare, bare), table, repeats=2))
    assert [r.graph.weights for r in got] == [(4, 6), (4, 6), (1, 2), (1, 2)]
    assert [len(r.graph.edges) for r in got] == [1, 1, 0, 0]
    # a line's own weights and edges go first, as in the public script
    own = bare | {"rubric_weights": [8, 9], "graph_edges": [{"parent": "b", "child": "a", "type": "trigger"}]}
    assert only(tmp_path, own, rubrics=table).graph.weights == (8, 9)
    assert str(only(tmp_path, own, rubrics=table).graph.edges[0]) == "b->a (activation)"


def test_a_table_may_be_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "data.parquet"
    parquet.write_table(pyarrow.table({"reward_model": [REWARD_MODEL, REWARD_MODEL]}), path)
    assert [graph.weights for graph in rubric_table(path)] == [(4, 6)] * 2
    parquet.write_table(pyarrow.table({"prompt": ["x"]}), path)
    with pytest.raises(LogError, match="columns prompt: expected reward_model"):
        rubric_table(path)
    path.write_bytes(b"no table")
    with pytest.raises(LogError, match="data.parquet: not read as Parquet"):
        rubric_table(path)


def test_responses_to_a_prompt_share_their_graph(tmp_path):
    first, second = read_log(written(tmp_path, PUBLIC, PUBLIC | {"p_list": [1, 1], "step": 4}))
    assert first.graph is second.graph


def test_a_folder_is_read_in_the_order_of_its_steps(tmp_path):
    record = {name: value for name, value in PUBLIC.items() if name != "step"}
    for step in (100, 20, 3):
        written(tmp_path, record, name=f"{step}.jsonl")
    assert [rollout.step for rollout in read_log(tmp_path)] == [3, 20, 100]
    assert [file.name for file in log_files(tmp_path)] == ["3.jsonl", "20.jsonl", "100.jsonl"]


def test_a_name_that_only_looks_like_a_number_is_no_step(tmp_path):
    record = {name: value for name, value in PUBLIC.items() if name != "step"}
    assert only(tmp_path, record, name="²³.jsonl").step == 0


def test_prompts_without_a_rubric_and_blank_lines_are_passed_over(tmp_path):
    empty = PUBLIC | {"rubric_ids": [], "p_list": [], "graph_edges": []}
    assert len(list(read_log(written(tmp_path, empty, "", PUBLIC)))) == 1


def test_progress_counts_every_byte(tmp_path):
    path, seen = written(tmp_path, PUBLIC, "", PUBLIC), []
    list(read_log(path, progress=seen.append))
    assert sum(seen) == path.stat().st_size


@pytest.mark.parametrize(
    "change, message",
    [
        ("{", "not JSON"),
        ("[1]", "list: expected an object"),
        ("[" * 5000, "not JSON"),
        ({"p_list": None}, "p_list: missing"),
        ({"p_list": 0.5}, "p_list: float: expected a list of scores"),
        ({"p_list": [0.5]}, "p_list: 1 scores: expected 2"),
        ({"p_list": [0.5, None]}, "p_list: criterion r2: None: expected a score"),
        ({"p_list": [float("nan"), 0.5]}, "p_list: criterion r1: nan: expected a score"),
        ({"p_list": [0.5, 1.2]}, "p_list: criterion r2: 1.2"),
        ({"p_list": [0.5, 10**400]}, "p_list: criterion r2: 1000"),
        ({"p_list": [True, 0.5]}, "p_list: criterion r1: True"),
        ({"p_list": None, "scores": {"r1": 0.5}}, "p_list: criteria r1: expected r1, r2"),
        ({"dag_q_list": [0.1]}, "dag_q_list: 1 scores: expected 2"),
        ({"q": {"mine": [2, 0]}}, "q.mine: criterion r1: 2"),
        ({"q": 3}, "q: int: expected an object"),
        ({"q_list": None, "paid": "best"}, "paid='best': expected one of flat"),
        ({"step": "3"}, "step='3': expected a whole number"),
        ({"rubric_ids": "r1"}, "rubric_ids: a text that is not JSON: expected a list"),
        ({"rubric_ids": None}, "rubric_ids: missing"),
        ({"rubric_ids": ["r1", "r1"]}, "criterion r1: id occurs more than once"),
        ({"rubric_weights": None}, "rubric_weights: missing: .*--rubrics"),
        ({"rubric_weights": [1]}, "rubric_weights: 1 numbers: expected 2"),
        ({"rubric_weights": [1, "2"]}, "rubric_weights: criterion r2: '2'"),
        ({"rubric_weights": [1, float("inf")]}, "criterion r2: weight=inf"),
        ({"graph_edges": {}}, "graph_edges: dict: expected a list"),
        ({"graph_edges": "x"}, "graph_edges: a text that is not JSON: expected a list"),
        ({"graph_edges": "{}"}, "graph_edges: dict: expected a list"),
        ({"p_list": "[0.5, null]"}, "p_list: criterion r2: None: expected a score"),
        ({"p_list": "[" * 100_000}, "p_list: a text that is not JSON"),
        ({"rubric_ids": ["r1", None]}, "rubric_ids: None: expected texts or numbers"),
        ({"step": 10**30}, "step=10+: expected a whole number"),
        ({"q_list": None, "paid": []}, r"paid=\[\]: expected one of flat"),
        ({"graph_edges": [{"parent": "r1", "child": "r2"}]}, r"graph_edges\[0\].type=None"),
        ({"graph_edges": [{"parent": ["r1"], "child": "r2", "type": "weak"}]}, r"graph_edges\[0\].parent="),
        ({"graph_edges": [{"parent": "r1", "child": "r2", "type": "soft"}]}, "soft"),
        ({"graph_edges": [{"parent": "r1", "child": "r9", "type": "weak"}]}, "r9 unknown"),
        ({"graph_edges": [{"parent": "r1", "child": "r2", "type": "weak", "retention": 2}]}, "retention=2"),
        ({"reward_model": "{"}, "reward_model: a text that is not JSON"),
        (
            {"rubric_weights": None, "reward_model": REWARD_MODEL},
            "rubric_ids: r1, r2 not in this line's rubric of a, b",
        ),
    ],
)
def test_what_is_wrong_on_a_line_is_named_with_file_and_line(tmp_path, change, message):
    path = written(tmp_path, PUBLIC, change if isinstance(change, str) else PUBLIC | change)
    with pytest.raises(LogError, match=rf"log\.jsonl, line 2: .*{message}"):
        list(read_log(path))


def test_bad_lines_can_be_left_out_and_are_kept_count_of(tmp_path):
    bad = []
    got = list(read_log(written(tmp_path, PUBLIC, "{", PUBLIC | {"p_list": [None, 1]}, PUBLIC), bad_lines=bad))
    assert len(got) == 2
    assert ["line 2" in bad[0], "line 3: p_list: criterion r1" in bad[1]] == [True, True]


def test_a_cut_last_line_of_a_running_training_is_a_bad_line(tmp_path):
    path = written(tmp_path, PUBLIC)
    path.write_text(path.read_text() + json.dumps(PUBLIC)[:40])
    with pytest.raises(LogError, match="line 2: not JSON"):
        list(read_log(path))


def test_a_line_has_a_declared_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(rollout_log, "LONGEST_LINE", 100)
    with pytest.raises(LogError, match="line 1: longer than 100 bytes"):
        list(read_log(written(tmp_path, PUBLIC)))


def test_files_that_are_not_there_and_rows_that_run_out(tmp_path):
    with pytest.raises(LogError, match="no such file"):
        log_files(tmp_path / "absent.jsonl")
    with pytest.raises(LogError, match=r"expected files named \*.jsonl"):
        log_files(tmp_path)
    table = [only(tmp_path, PLAIN).graph]
    with pytest.raises(LogError, match="line 2: no row 1 among 1 rubrics: is repeats=1 right"):
        list(read_log(written(tmp_path, PLAIN | {"reward_model": None, "rubric_ids": ["a", "b"]}, PUBLIC), table))
    with pytest.raises(LogError, match="^repeats=0"):
        list(read_log(written(tmp_path, PUBLIC), repeats=0))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([*PUBLIC, "reward_model", "rubrics", "scores", "q", "paid", "prompt", "prompt_id"]), JSON)
def test_any_value_in_any_field_is_read_or_refused(tmp_path_factory, field, value):
    path = written(tmp_path_factory.getbasetemp(), PUBLIC | {field: value}, name="any.jsonl")
    try:
        for rollout in read_log(path):
            assert np.isfinite(rollout.p).all() and rollout.p.shape == (len(rollout.graph),)
    except LogError as error:
        assert "any.jsonl, line 1: " in str(error)
