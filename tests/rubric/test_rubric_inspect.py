"""The inspect_ai scorer in a real evaluation, with inspect's mock model."""

import math
from importlib.util import find_spec

import pytest

from reprise.rubric import Criterion, Edge, RubricGraph, aggregate

# inspect_ai is imported by the tests: every worker collects this file, and the import takes three seconds
pytestmark = pytest.mark.skipif(not find_spec("inspect_ai"), reason="could not import 'inspect_ai'")

GRAPH = RubricGraph(
    [Criterion("grounded", 4), Criterion("evidence", 6), Criterion("rude", -3)],
    [Edge("grounded", "evidence", "strong")],
)


async def from_text(prompt, response, graph):
    assert prompt == "Why?"
    return [math.nan if word == "?" else float(word) for word in response.split()]


def run(tmp_path, answers, metadata, **options):
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.solver import generate

    from reprise.rubric.inspect_scorer import rubric_scorer

    outputs = [ModelOutput.from_content("mockllm/model", answer) for answer in answers]
    for output in outputs:
        output.usage = ModelUsage()  # without one the mock model counts tokens with an encoding it downloads
    samples = [Sample(input="Why?", target="", metadata=each) for each in metadata]
    (log,) = eval(
        Task(dataset=samples, solver=generate(), scorer=rubric_scorer(from_text, **options)),
        model=get_model("mockllm/model", custom_outputs=outputs),
        log_dir=str(tmp_path),
        display="none",
        max_samples=1,
    )
    assert log.status == "success", log.error
    return log


def test_an_evaluation_with_a_rubric(tmp_path):
    record = {"reward_model": GRAPH.to_reward_model()}
    log = run(tmp_path, ["0.2 0.9 0", "1 1 0", "? 1 1", "1"], [record, record, record, {}])
    scores = [sample.scores["gear"] for sample in log.samples]
    expected = aggregate(GRAPH, [0.2, 0.9, 0.0])
    assert scores[0].value == pytest.approx(expected.reward) and scores[1].value == pytest.approx(1)
    found = scores[0].metadata
    assert found["q"] == pytest.approx(dict(zip(GRAPH.ids, expected.q.tolist(), strict=True)))
    assert found["p"] == {"grounded": 0.2, "evidence": 0.9, "rude": 0}
    assert found["fingerprint"] == GRAPH.fingerprint()
    # without a score, or without a rubric: kept, and left out of the metrics
    assert [math.isnan(each.value) for each in scores] == [False, False, True, True]
    assert [each.reason for each in scores] == [None, None, "grader_failed", "scoring_failed"]
    assert scores[2].metadata["missing"] == 1
    (results,) = log.results.scores
    assert results.name == "gear" and results.metrics["mean"].value == pytest.approx((expected.reward + 1) / 2)


def test_options_reach_the_aggregation(tmp_path):
    record = {"rubric": GRAPH.to_reward_model()}
    log = run(tmp_path, ["0.2 0.9 ?"], [record], method="flat", on_missing="zero", column="rubric", name="flat")
    assert log.samples[0].scores["flat"].value == pytest.approx(aggregate(GRAPH, [0.2, 0.9, 0], "flat").reward)
