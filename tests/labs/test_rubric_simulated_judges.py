"""Populations of scored responses, and the training log with a farmer in it."""

import json
from collections import Counter

import numpy as np
import pytest

from reprise.labs import rubric_judges as judges
from reprise.rubric.aggregate import aggregate


def test_mixes_change_types_and_nothing_else():
    plain, strong = (judges.make_rubrics(60, judges.MIXES[mix], 3) for mix in ("mixed", "mostly strong"))
    for one, other in zip(plain, strong, strict=True):
        assert one.criteria == other.criteria
        assert [(e.parent, e.child) for e in one.edges] == [(e.parent, e.child) for e in other.edges]
    shares = Counter(str(e.type) for g in judges.make_rubrics(400, judges.MIXES["mostly strong"], 4) for e in g.edges)
    assert shares["strong"] / shares.total() == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("name", judges.POPULATIONS)
def test_scores_are_shares(name):
    scores = judges.POPULATIONS[name].scores((500, 4), np.random.default_rng(0))
    assert scores.shape == (500, 4) and ((scores >= 0) & (scores <= 1)).all() and scores.std() > 0.1


def test_a_corpus_is_scored_as_its_responses_one_by_one():
    corpus = judges.score(judges.make_rubrics(5, judges.TYPE_MIX, 0), judges.POPULATIONS["weak policy"], 3, 0)
    paid = judges.aggregations(corpus, [1.0, 2.0])
    for graph, rows in zip(corpus.graphs, corpus.program.rows, strict=True):
        p = corpus.p[rows].T
        assert paid["gear 2"][rows].T == pytest.approx(aggregate(graph, p, gamma=2.0).q)
        assert paid["hard"][rows].T == pytest.approx(aggregate(graph, p, method="hard").q)
        assert paid["hard, met at 0.7"][rows].T == pytest.approx(aggregate(graph, p, method="hard", threshold=0.7).q)
        assert paid["hard, transitive"][rows].T == pytest.approx(aggregate(graph, p, method="hard_transitive").q)


def test_the_control_pays_what_the_flat_sum_pays():
    corpus = judges.score(judges.make_rubrics(40, judges.TYPE_MIX, 0), judges.POPULATIONS["noisy judge"], 4, 0)
    control = judges.measure(corpus, suppressing=False, resamples=2).methods
    assert control["gear 4"].leakage.estimate == control["flat"].leakage.estimate
    assert control["gear 4"].preservation.estimate == pytest.approx(1)


def test_the_log_plants_what_it_says(tmp_path):
    planted = judges.write_log(tmp_path / "log.jsonl", seed=5, prompts=4, steps=6, rollouts=50)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert len(lines) == 4 * 6 * 50

    def met(prompt, criterion, step):
        own = [line for line in lines if (line["prompt_id"], line["step"]) == (prompt, step)]
        place = own[0]["rubric_ids"].index(criterion)
        return np.mean([line["p_list"][place] >= 0.5 for line in own])

    assert met(*planted.farmed, 0) < 0.35 and met(*planted.farmed, 5) > 0.75
    assert met(*planted.constant, 0) > 0.7 and met(*planted.constant, 5) > 0.7
    for prompt, criterion in planted.farmed, planted.constant:
        edges = next(line for line in lines if line["prompt_id"] == prompt)["graph_edges"]
        parents = [edge["parent"] for edge in edges if edge["child"] == criterion]
        assert parents and all(met(prompt, parent, 5) < 0.35 for parent in parents)
