"""The adapters, called as verl 0.9.1 (reward loop, batch reward manager) and TRL 1.16 call a reward function."""

import asyncio
import functools
import inspect
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.rubric import Criterion, Edge, GraphError, RubricError, RubricGraph, ScoreError, aggregate
from reprise.rubric.adapters import make_trl_reward, make_verl_reward
from reprise.rubric.reward_rows import graph_of

GRAPH = RubricGraph(
    [Criterion("a", 4, text="A"), Criterion("b", 6, text="B"), Criterion("d", -3, text="D")],
    [Edge("a", "b", "strong"), Edge("a", "d", "activation")],
)
OTHER = RubricGraph([Criterion("x", 1), Criterion("y", 1)], [Edge("x", "y", "weak")])
RECORD, OTHER_RECORD = GRAPH.to_reward_model(), OTHER.to_reward_model()
NAN = float("nan")


def from_text(prompt, response, graph):
    """A scorer whose judgement is the response itself: "0.2 0.9"."""
    return [NAN if word == "?" else float(word) for word in response.split()]


async def afrom_text(prompt, response, graph):
    await asyncio.sleep(0)
    return from_text(prompt, response, graph)


class AsyncObject:
    async def __call__(self, prompt, response, graph):
        return from_text(prompt, response, graph)


def reward_of(graph, text, **options):
    return aggregate(graph, from_text("", text, graph), **options).reward


# -- verl --------------------------------------------------------------------------------------------------------------


async def reward_loop(compute_score, response, extra_info, **router):
    """How verl 0.9.1's naive manager calls a score function for one response."""
    arguments = dict(data_source="s", solution_str=response, ground_truth="", extra_info=extra_info, **router)
    if inspect.iscoroutinefunction(compute_score):
        result = await compute_score(**arguments)
    else:
        result = await asyncio.get_running_loop().run_in_executor(None, lambda: compute_score(**arguments))
    return result["score"], dict(result)


def batch_manager(compute_score, responses, extra_infos):
    """How verl 0.9.1's batch manager calls it: object arrays, keyword arguments, no awaiting."""
    extras = np.array(extra_infos, dtype=object)
    for extra in extras:
        extra["rollout_reward_scores"] = {}
    return compute_score(
        data_sources=np.array(["s"] * len(responses), dtype=object),
        solution_strs=responses,
        ground_truths=[None] * len(responses),
        extra_infos=extras,
    )


@pytest.mark.parametrize("scorer", [from_text, afrom_text, AsyncObject()])
@pytest.mark.parametrize("router", [{}, {"reward_router_address": "h:1", "reward_model_tokenizer": object()}])
def test_verl_reward_loop(scorer, router):
    compute_score = make_verl_reward(scorer)
    assert inspect.iscoroutinefunction(compute_score) == (scorer is not from_text)
    score, info = asyncio.run(reward_loop(compute_score, "0.2 0.9 0.6", {"reward_model": RECORD}, **router))
    assert score == pytest.approx(reward_of(GRAPH, "0.2 0.9 0.6"))
    assert info["flat"] == pytest.approx(reward_of(GRAPH, "0.2 0.9 0.6", method="flat"))
    assert (info["missing"], info["scored"], info["rubric"]) == (0, 1, GRAPH.fingerprint())


def test_verl_wraps_it_with_reward_kwargs():
    # verl binds reward_kwargs with functools.partial around a wrapper and asks iscoroutinefunction of the raw function
    async def wrapper(raw, extra, *args, **kwargs):
        return await raw(*args, **{**kwargs, **extra})

    wrapped = functools.partial(wrapper, make_verl_reward(afrom_text), {"judge": "unused"})
    assert inspect.iscoroutinefunction(wrapped)
    score, _ = asyncio.run(reward_loop(wrapped, "1 1 0", {"reward_model": RECORD}))
    assert score == pytest.approx(1)


@pytest.mark.parametrize("scorer", [from_text, afrom_text])
@pytest.mark.parametrize("inside_a_loop", [False, True])
def test_verl_batch_manager(scorer, inside_a_loop):
    compute_score = make_verl_reward(scorer, shape="batch", inference="exact")
    responses = ["0.2 0.9 0.6", "0.5 0.5", "1 1 0"]
    extras = [{"reward_model": record} for record in (RECORD, OTHER_RECORD, RECORD)]

    async def inside():
        return batch_manager(compute_score, responses, extras)

    found = asyncio.run(inside()) if inside_a_loop else batch_manager(compute_score, responses, extras)
    expected = [reward_of(g, text, inference="exact") for g, text in zip((GRAPH, OTHER, GRAPH), responses, strict=True)]
    assert [each["score"] for each in found] == pytest.approx(expected)


def test_verl_gets_the_same_keys_for_every_response_and_numbers_it_can_average():
    compute_score = make_verl_reward(from_text, shape="batch")
    extras = [{"reward_model": RECORD}, {"reward_model": RECORD}, {"reward_model": RECORD}, {}]
    found = batch_manager(compute_score, ["1 1 0", "? 1 0", "? ? ?", "1"], extras)
    assert len({tuple(each) for each in found}) == 1
    for name in ("score", "flat", "missing", "scored"):
        column = np.array([each[name] for each in found])
        assert column.dtype == np.float64 and np.isfinite(column).all()
    assert [each["missing"] for each in found] == [0, 1, 3, 0]
    assert [each["scored"] for each in found] == [1, 1, 0, 0]
    assert found[1]["score"] == pytest.approx(1) and found[3]["rubric"] == ""


def test_verl_skips_to_nothing_where_no_positive_criterion_is_left():
    found = make_verl_reward(from_text)(solution_str="? ? 0.5", extra_info={"reward_model": RECORD})
    assert (found["score"], found["scored"], found["missing"]) == (0, 0, 2)


def test_verl_log_columns_are_texts_the_audit_can_read():
    found = make_verl_reward(from_text, log=True)(solution_str="0.2 0.9 ?", extra_info={"reward_model": RECORD})
    assert json.loads(found["rubric_ids"]) == ["a", "b", "d"] and json.loads(found["p_list"]) == [0.2, 0.9, None]
    assert json.loads(found["graph_edges"])[0] == {"parent": "a", "child": "b", "type": "strong"}
    assert json.loads(found["q_list"])[1] == pytest.approx(0.9 * (0.2 + 0.8 * 0.2))
    empty = make_verl_reward(from_text, log=True)(solution_str="1", extra_info=None)
    assert empty.keys() == found.keys()


@pytest.mark.parametrize(
    "form", [json.dumps, lambda extra: json.dumps({"reward_model": json.dumps(extra["reward_model"])}), np.array]
)
def test_verl_extra_info_may_be_text_or_an_array_around_it(form):
    extra = form({"reward_model": RECORD})
    assert make_verl_reward(from_text)("s", "1 1 0", "", extra)["score"] == pytest.approx(1)
    (found,) = make_verl_reward(from_text, shape="batch")(None, ["1 1 0"], None, np.array([extra], dtype=object))
    assert found["score"] == pytest.approx(1)


@pytest.mark.parametrize("extra", ["{", "[]", 5, [RECORD], NAN])
def test_verl_extra_info_that_is_no_object_is_named(extra):
    with pytest.raises(RubricError, match="^extra_info: .*expected an object"):
        make_verl_reward(from_text)("s", "1 1 0", "", extra)


def test_columns_of_different_lengths_are_told_with_both_numbers():
    with pytest.raises(RubricError, match="^extra_infos: 1: expected 2"):
        make_verl_reward(from_text, shape="batch")(None, ["1", "1"], None, [{}])
    with pytest.raises(RubricError, match="1 rubrics: expected 2, one a completion"):
        make_trl_reward(from_text)(["q", "q"], ["1", "1"], [[1], [1]], reward_model=[None])


@pytest.mark.parametrize("completion", [{"role": "assistant", "content": "1 1"}, ["1 1"]])
def test_a_completion_that_is_no_conversation_is_named(completion):
    with pytest.raises(RubricError, match="^completion: .*: expected a text, or a list of messages"):
        trl_call(make_trl_reward(from_text), [completion], [OTHER_RECORD])


def test_no_completion_is_an_empty_text():
    seen = []
    trl_call(make_trl_reward(lambda prompt, text, graph: seen.append(text) or [1, 1]), [None], [OTHER_RECORD])
    assert seen == [""]


def test_an_empty_rubric_has_no_reward_where_that_is_allowed():
    assert trl_call(make_trl_reward(from_text), ["1", "1 1"], [{"rubrics": []}, OTHER_RECORD]) == [None, 1.0]
    with pytest.raises(GraphError, match="^criteria: the rubric is empty"):
        make_verl_reward(from_text)("s", "1", "", {"reward_model": {"rubrics": []}})


def test_a_plain_function_that_returns_a_coroutine_is_told_so():
    with pytest.raises(ScoreError, match="coroutine .* expected an `async def` scorer"):
        make_verl_reward(lambda *given: afrom_text(*given))("s", "1 1 0", "", {"reward_model": RECORD})


def test_violations_alone_are_scored_where_the_denominator_counts_them():
    reward = make_verl_reward(from_text, denominator="abs")
    found = reward("s", "? ? 0.5", "", {"reward_model": RECORD})
    assert (found["score"], found["scored"], found["missing"]) == (pytest.approx(-0.5), 1, 2)


def test_scores_may_be_tensors_with_gradients():
    torch = pytest.importorskip("torch")
    p = torch.tensor([0.2, 0.9, 0.6], dtype=torch.float64, requires_grad=True)
    found = make_verl_reward(lambda *given: p)("s", "", "", {"reward_model": RECORD})
    assert found["score"] == pytest.approx(reward_of(GRAPH, "0.2 0.9 0.6"))


def test_verl_finds_the_prompt_where_it_is_told():
    seen = []

    def scorer(prompt, response, graph):
        seen.append((prompt, response))
        return [1, 1, 1]

    compute_score = make_verl_reward(scorer, prompt_column="question")
    messages = np.array([{"role": "user", "content": "Why?"}], dtype=object)
    compute_score(solution_str="r", extra_info={"reward_model": RECORD, "question": messages})
    compute_score(solution_str="r", extra_info={"reward_model": RECORD})
    assert seen == [("Why?", "r"), ("", "r")]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"shape": "pair"}, "^shape='pair'"),
        ({"on_missing": "none"}, "^on_missing='none': verl"),
        ({"on_missing": "guess"}, "on_missing='guess'"),
        ({"method": "dag"}, "^method='dag'"),
        ({"inference": "approx"}, "^inference='approx'"),
        ({"gamma": -1.0}, "gamma"),
    ],
)
def test_options_are_refused_when_the_function_is_made(options, words):
    with pytest.raises(RubricError, match=words):
        make_verl_reward(from_text, **options)
    with pytest.raises(TypeError, match="lambda_by_edge_type"):
        make_trl_reward(from_text, lambda_by_edge_type={})


def test_a_scorer_of_another_length_or_range_is_an_error_not_a_reward():
    compute_score = make_verl_reward(from_text)
    with pytest.raises(ScoreError, match="expected 3 scores"):
        compute_score(solution_str="1 1", extra_info={"reward_model": RECORD})
    with pytest.raises(ScoreError, match="criterion b"):
        compute_score(solution_str="1 2 1", extra_info={"reward_model": RECORD})


# -- records as trainers pass them -------------------------------------------------------------------------------------


def as_parquet(record):
    """What pyarrow gives back: lists are arrays of objects, and every field of any row is there, or None."""
    rubrics = np.array([row | {"note": None} for row in record["rubrics"]], dtype=object)
    graph = {name: np.array(rows, dtype=object) for name, rows in record["graph"].items()}
    return {"rubrics": rubrics, "graph": graph, "style": None}


@pytest.mark.parametrize("form", [dict, json.dumps, as_parquet, lambda record: np.array(record, dtype=object).item()])
def test_records_come_as_objects_text_or_arrays(form):
    assert graph_of(form(RECORD)).fingerprint() == GRAPH.fingerprint()


def test_records_survive_a_parquet_file(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(
        pa.Table.from_pylist([{"reward_model": RECORD}, {"reward_model": OTHER_RECORD}]), tmp_path / "f"
    )
    rows = parquet.read_table(tmp_path / "f").to_pylist()
    found = [graph_of(row["reward_model"]).fingerprint() for row in rows]
    assert found == [GRAPH.fingerprint(), OTHER.fingerprint()]


@pytest.mark.parametrize("record", [None, NAN, {}, {"rubrics": None}, "null", "{}"])
def test_rows_without_a_rubric(record):
    assert graph_of(record) is None


def test_bad_records_are_named():
    for record in (b"{}", {"rubrics": {1}}):
        with pytest.raises(GraphError, match="^reward_model: .*expected what JSON can hold"):
            graph_of(record)
    with pytest.raises(GraphError, match="^reward_model: a text that is no JSON"):
        graph_of("[" * 100_000)
    with pytest.raises(GraphError, match="no JSON"):
        graph_of("{")
    with pytest.raises(GraphError, match=r"rubrics\[0\].points"):
        graph_of({"rubrics": [{"criterion": "x"}]})
    with pytest.raises(GraphError, match="unknown"):
        graph_of(
            {"rubrics": [{"id": "a", "points": 1}], "graph": {"edges": [{"parent": "a", "child": "z", "type": "weak"}]}}
        )


# -- TRL's signature; the real trainer is in test_rubric_trl -----------------------------------------------------------


def trl_call(reward, completions, records, **more):
    """TRL 1.16: everything by keyword, columns as lists, None for a row left out."""
    prompts = ["q"] * len(completions)
    ids = [[1]] * len(completions)
    result = reward(
        prompts=prompts, completions=completions, completion_ids=ids, reward_model=records, trainer_state=None, **more
    )
    return asyncio.run(result) if inspect.isawaitable(result) else result


@pytest.mark.parametrize("scorer", [from_text, afrom_text])
def test_trl_rewards_logs_and_leaves_out(scorer):
    reward = make_trl_reward(scorer, name="gear")
    assert reward.__name__ == "gear" and inspect.iscoroutinefunction(reward) == (scorer is afrom_text)
    columns, metrics = {}, {}
    found = trl_call(
        reward,
        ["0.2 0.9 0.6", "? 1 1", [{"role": "assistant", "content": "0.5 0.5"}], "1"],
        [RECORD, json.dumps(RECORD), OTHER_RECORD, None],
        log_extra=lambda name, values: columns.setdefault(name, []).extend(values),
        log_metric=lambda name, value: metrics.setdefault(name, []).append(value),
    )
    gear = reward_of(GRAPH, "0.2 0.9 0.6"), reward_of(OTHER, "0.5 0.5")
    flat = reward_of(GRAPH, "0.2 0.9 0.6", method="flat"), reward_of(OTHER, "0.5 0.5", method="flat")
    assert found == [pytest.approx(gear[0]), None, pytest.approx(gear[1]), None]
    assert columns["gear/flat"] == [pytest.approx(flat[0]), None, pytest.approx(flat[1]), None]
    assert columns["gear/rubric"] == [GRAPH.fingerprint()] * 2 + [OTHER.fingerprint(), ""]
    assert metrics["gear/suppressed"] == [pytest.approx((sum(flat) - sum(gear)) / 2)]
    assert metrics["gear/missing"] == [0.25]


def test_trl_reads_either_column_and_says_when_there_is_none():
    reward = make_trl_reward(from_text)
    assert reward(prompts=["q"], completions=["1 1"], completion_ids=[[1]], rubric_graph=[OTHER_RECORD]) == [1.0]
    with pytest.raises(RubricError, match="^column 'reward_model'"):
        reward(prompts=["q"], completions=["1 1"], completion_ids=[[1]])


def test_trl_hears_the_assistant_alone():
    seen = []
    reward = make_trl_reward(lambda prompt, response, graph: seen.append((prompt, response)) or [1, 1])
    turns = [
        {"role": "assistant", "content": "one"},
        {"role": "tool", "content": "7"},
        {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
    ]
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    reward(prompts=[prompt], completions=[turns], completion_ids=[[1]], reward_model=[OTHER_RECORD])
    assert seen == [("system: s\nuser: u", "one\ntwo")]


@given(st.lists(st.tuples(st.booleans(), st.lists(st.floats(0, 1), min_size=3, max_size=3)), max_size=8), st.randoms())
def test_a_response_s_reward_does_not_depend_on_its_batch(rows, random):
    reward = make_trl_reward(lambda prompt, response, graph: json.loads(response)[: len(graph)])
    batch = [(json.dumps(p), RECORD if first else OTHER_RECORD) for first, p in rows]
    shuffled = random.sample(range(len(batch)), len(batch))
    whole = trl_call(reward, [batch[k][0] for k in shuffled], [batch[k][1] for k in shuffled])
    alone = [trl_call(reward, [text], [record])[0] for text, record in batch]
    assert [whole[shuffled.index(k)] for k in range(len(batch))] == pytest.approx(alone, abs=1e-12)
