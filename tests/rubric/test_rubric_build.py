import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.labs import rubric_graphs as lab
from reprise.rubric.build import BATCH, abuild_graph, build_graph, candidate_count, candidate_pairs
from reprise.rubric.errors import GraphError
from reprise.rubric.graph import Criterion, EdgeType, Role, RubricGraph
from reprise.rubric.judges import JudgeFailed, Label, RuleJudge
from reprise.rubric.rubric_file import RubricFileError, read_rubrics

EXAMPLES = Path(__file__).parents[2] / "data" / "examples" / "rubric" / "rubrics.jsonl"
F, B, N, T = Role.FOUNDATION, Role.BONUS, Role.PENALTY, Role.TRIGGER


class Table:
    """A judge that answers from tables and keeps what it was asked."""

    def __init__(self, labels=None, roles=None, broken=(), longest=BATCH):
        self.table, self.given, self.broken, self.longest = labels or {}, roles, set(broken), longest
        self.batches, self.prompts = [], []

    def roles(self, prompt, criteria):
        self.prompts.append(prompt)
        if self.given is None:
            raise JudgeFailed("roles: no answer")
        return [self.given.get(each.id) for each in criteria]

    def labels(self, prompt, criteria, pairs):
        ends = [(criteria[pair.parent].id, criteria[pair.child].id) for pair in pairs]
        self.batches.append(ends)
        if len(pairs) > self.longest or self.broken & set(ends):
            raise JudgeFailed("labels: no answer")
        return [label if isinstance(label := self.table.get(end, "no_edge"), Label) else Label(label) for end in ends]

    async def aroles(self, *arguments):
        return self.roles(*arguments)

    async def alabels(self, *arguments):
        return self.labels(*arguments)


def rubric(*ids, weight=1.0, role=F):
    return [Criterion(id, weight, role) for id in ids]


def edges(graph):
    return {(edge.parent, edge.child): str(edge.type) for edge in graph.edges}


# -- roles and candidates ----------------------------------------------------------------------------------------------


def test_roles_come_from_the_rubric_then_the_judge_then_the_sign():
    criteria = [Criterion("own", 1, T), Criterion("judged", 1), Criterion("odd", -1), Criterion("silent", 1)]
    judge = Table(roles={"judged": "bonus", "odd": "villain", "silent": None})
    graph, stats = build_graph(criteria, "query", judge)
    assert [each.role for each in graph.criteria] == [T, B, N, F]
    assert stats.role_fallbacks == 2 and judge.prompts == ["query"]
    assert stats.roles == {"foundation": 1, "bonus": 1, "penalty": 1, "trigger": 1}


def test_roles_of_a_judge_that_fails_follow_the_sign():
    graph, stats = build_graph([Criterion("a", 2), Criterion("b", -2)], "", Table())
    assert [each.role for each in graph.criteria] == [F, N]
    assert stats.role_fallbacks == 2 and stats.calls == 2  # the roles, and one batch


def test_candidates_are_the_pairs_the_roles_allow():
    pairs = candidate_pairs([F, B, N, T])
    allowed = {(pair.parent, pair.child): set(pair.allowed) for pair in pairs}
    prerequisite = {EdgeType.WEAK, EdgeType.STRONG}
    assert allowed == {
        (0, 1): prerequisite,
        (0, 2): prerequisite,
        (3, 1): {EdgeType.ACTIVATION},
        (3, 2): {EdgeType.ACTIVATION},
    }


@given(st.lists(st.sampled_from(list(Role)), max_size=9))
def test_candidates_are_counted_by_the_formula(roles):
    f, t = roles.count(F), roles.count(T)
    assert len(candidate_pairs(roles)) == candidate_count(f, len(roles) - f - t, t)


@pytest.mark.parametrize("foundations, expected", [(4, 12), (5, 20)])
def test_a_rubric_of_foundations_has_every_ordered_pair(foundations, expected):
    assert candidate_count(foundations, 0, 0) == expected


# -- batches -----------------------------------------------------------------------------------------------------------


def test_pairs_are_asked_in_batches_of_eight_in_order():
    judge = Table()
    build_graph(rubric(*"abcde"), "", judge)  # 20 candidates
    assert [len(batch) for batch in judge.batches] == [8, 8, 4]
    asked = [pair for batch in judge.batches for pair in batch]
    assert asked == [(a, b) for a in "abcde" for b in "abcde" if a != b]


def test_a_batch_that_fails_is_halved_down_to_the_pair_at_fault():
    judge = Table({("a", "c"): "weak", ("c", "b"): "strong"}, broken=[("a", "b")])
    graph, stats = build_graph(rubric(*"abc"), "", judge)  # 6 candidates
    assert [len(batch) for batch in judge.batches] == [6, 3, 1, 2, 3]
    assert stats.failed == (("a", "b", "labels: no answer"),) and stats.calls == 5
    assert edges(graph) == {("a", "c"): "weak", ("c", "b"): "strong"}
    assert stats.labels == {"no_edge": 3, "weak": 1, "strong": 1, "activation": 0}


def test_a_judge_that_manages_only_two_pairs_still_answers_all():
    judge = Table({("a", "b"): "weak"}, longest=2)
    graph, stats = build_graph(rubric(*"abcd"), "", judge)
    assert edges(graph) == {("a", "b"): "weak"} and stats.failed == ()


def test_too_few_answers_are_a_failure_not_a_shift():
    class Short(Table):
        def labels(self, *arguments):
            return super().labels(*arguments)[:-1]

    graph, stats = build_graph(rubric("a", "b"), "", Short({("a", "b"): "strong"}))
    assert edges(graph) == {} and [end[:2] for end in stats.failed] == [("a", "b"), ("b", "a")]
    assert "0 answers: expected 1" in stats.failed[0][2]


def test_other_errors_of_a_judge_are_not_swallowed():
    class Down(Table):
        def labels(self, *arguments):
            raise ConnectionError("down")

    with pytest.raises(ConnectionError):
        build_graph(rubric("a", "b"), "", Down())


# -- labels and projection ---------------------------------------------------------------------------------------------


def test_labels_that_the_roles_do_not_allow_are_kept_as_invalid():
    criteria = [Criterion("t", 0, T), Criterion("f", 1, F), Criterion("b", 1, B)]
    judge = Table({("t", "b"): "strong", ("f", "b"): "requires"})
    graph, stats = build_graph(criteria, "", judge)
    assert stats.invalid == (("t", "b", "strong"), ("f", "b", "requires"))
    assert graph.edges == () and stats.labels["strong"] == 0


def test_the_public_names_of_edge_types_are_understood():
    graph, _ = build_graph(rubric("a", "b"), "", Table({("a", "b"): "strong_prerequisite"}))
    assert edges(graph) == {("a", "b"): "strong"}


def test_cycles_are_broken_by_type_then_confidence_then_position():
    table = {
        ("a", "b"): "weak",
        ("b", "a"): "strong",
        ("b", "c"): Label("strong", 0.6),
        ("c", "b"): Label("strong", 0.9),
    }
    graph, stats = build_graph(rubric(*"abc"), "", Table(table))
    assert edges(graph) == {("b", "a"): "strong", ("c", "b"): "strong"}
    assert {(each.edge.parent, each.edge.child) for each in stats.dropped_cycles} == {("a", "b"), ("b", "c")}
    same = {("a", "b"): "weak", ("b", "a"): "weak"}
    assert edges(build_graph(rubric("a", "b"), "", Table(same))[0]) == {("a", "b"): "weak"}


@given(st.data())
def test_any_labels_give_an_acyclic_graph_and_every_candidate_is_accounted_for(data):
    roles = data.draw(st.lists(st.sampled_from(list(Role)), min_size=1, max_size=6))
    criteria = [Criterion(f"c{k}", 1, role) for k, role in enumerate(roles)]
    words = st.sampled_from(["no_edge", "weak", "strong", "activation", "nonsense"])
    table = {
        (f"c{pair.parent}", f"c{pair.child}"): Label(data.draw(words), data.draw(st.floats(0, 1)))
        for pair in candidate_pairs(roles)
    }
    broken = data.draw(st.sets(st.sampled_from(sorted(table)), max_size=3)) if table else ()
    graph, stats = build_graph(criteria, "", Table(table, broken=broken))
    assert RubricGraph(graph.criteria, graph.edges).validate().dropped == ()
    assert stats.candidates == sum(stats.labels.values()) + len(stats.invalid) + len(stats.failed)
    assert sum(stats.edges.values()) == len(graph.edges)
    assert len(graph.edges) + len(stats.dropped_cycles) == sum(stats.labels.values()) - stats.labels["no_edge"]


@pytest.mark.parametrize(
    "criteria, words",
    [([], "empty"), (rubric("a", "a"), "more than once"), (rubric("a", weight=float("nan")), "weight")],
)
def test_a_bad_rubric_is_refused_before_the_judge_is_asked(criteria, words):
    judge = Table()
    with pytest.raises(GraphError, match=words):
        build_graph(criteria, "", judge)
    assert judge.batches == judge.prompts == []


def test_the_awaited_form_builds_the_same_graph():
    judge = Table({("a", "b"): "weak"}, roles={"a": "foundation", "b": "bonus"}, broken=[("a", "c")])
    criteria = rubric(*"abc", role=None)
    assert asyncio.run(abuild_graph(criteria, "", judge)) == build_graph(criteria, "", judge)


# -- the rule judge ----------------------------------------------------------------------------------------------------


def test_the_rule_judge_reads_english_and_chinese():
    for first, then, condition in [
        ("Identifies signs of dehydration.", "Recommends urgent care if signs of dehydration appear.", "strong"),
        ("指出诉讼时效为三年。", "在指出诉讼时效的前提下，计算时效从何时起算。", "strong"),
    ]:
        criteria = [Criterion("first", 5, None, first), Criterion("then", 5, None, then)]
        graph, _ = build_graph(criteria, "", RuleJudge())
        assert edges(graph) == {("first", "then"): condition}


@pytest.mark.parametrize(
    "weight, text, role",
    [
        (5, "States the boiling point.", F),
        (5, "Keeps a polite tone.", B),
        (5, "引用相关条文。", B),
        (5, "Whether the answer recommends a medicine.", T),
        (5, "是否涉及未成年人。", T),
        (0, "States the boiling point.", T),
        (-5, "Keeps a polite tone.", N),
    ],
)
def test_roles_by_rule(weight, text, role):
    assert RuleJudge().roles("", [Criterion("c", weight, None, text)]) == [role]


def test_a_trigger_activates_what_it_names():
    criteria = [
        Criterion("drug", 0, None, "Whether the answer recommends a fever medicine."),
        Criterion("dose", -5, None, "Recommends a fever medicine without its dose."),
        Criterion("tone", -5, None, "Sounds rude."),
    ]
    assert edges(build_graph(criteria, "", RuleJudge())[0]) == {("drug", "dose"): "activation"}


@given(st.permutations(range(7)))
def test_the_rule_judge_does_not_depend_on_the_order_of_criteria(order):
    source = next(read_rubrics(EXAMPLES)).graph.criteria[:7]
    bare = [replace(each, role=None) for each in source]
    graph, _ = build_graph([bare[k] for k in order], "", RuleJudge())
    assert edges(graph) == edges(build_graph(bare, "", RuleJudge())[0])


# -- files and statistics ----------------------------------------------------------------------------------------------


def test_the_examples_hold_and_speak_two_languages():
    found = list(read_rubrics(EXAMPLES))
    assert len(found) >= 12 and len({each.id for each in found}) == len(found)
    assert sum(each.id.startswith("zh-") for each in found) >= 6
    for each in found:
        each.graph.validate()
        assert all(criterion.role is not None and criterion.text for criterion in each.graph.criteria)
        allowed = {
            (pair.parent, pair.child): pair.allowed for pair in candidate_pairs([c.role for c in each.graph.criteria])
        }
        for edge in each.graph.edges:
            assert edge.type in allowed[each.graph.index[edge.parent], each.graph.index[edge.child]], (each.id, edge)


@pytest.mark.parametrize(
    "record",
    [
        {
            "prompt": [{"role": "user", "content": "Hi"}],
            "rubrics": [{"criterion": "x", "points": 5, "tags": ["axis:accuracy"]}],
        },
        {"prompt": "Hi", "reward_model": {"rubrics": [{"id": 7, "criterion": "x", "points": 5}]}},
        {"extra_info": {"prompt": "Hi", "reward_model": {"rubrics": [{"criterion": "x", "points": 5}]}}},
        {"prompt": "Hi", "reward_model": json.dumps({"rubrics": [{"criterion": "x", "points": 5}]})},
        {"prompt": "Hi", "extra_info": [1], "rubrics": [{"criterion": "x", "points": 5}]},
    ],
)
def test_layouts_of_rubric_files(tmp_path, record):
    path = tmp_path / "r.jsonl"
    path.write_text("\n" + json.dumps(record) + "\n", encoding="utf-8")
    (found,) = read_rubrics(path)
    assert found.prompt == "Hi" and found.id == "2"
    assert [(each.weight, each.text) for each in found.graph.criteria] == [(5, "x")]


@pytest.mark.parametrize(
    "line, words",
    [
        ("[]", "list: expected an object"),
        ("{}", "rubrics: expected"),
        ("{", "line 1"),
        ("[" * 100_000, "line 1"),
        (b"\xff\xfe\n", "line 1"),
        ('{"rubrics": [{"points": 1}], "prompt": [1]}', "line 1: prompt: list: expected a text"),
        ('{"rubrics": [{"points": 1}], "prompt": 5}', "line 1: prompt: int: expected a text"),
        ('{"rubrics": [{"points": 1}], "prompt": [{"content": 5}]}', "line 1: content: int: expected a text"),
        ('{"rubrics": [{"points": 1, "id": ["a"]}]}', r"line 1: criterion id=\['a'\]"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, words):
    path = tmp_path / "r.jsonl"
    path.write_bytes(line if isinstance(line, bytes) else line.encode())
    with pytest.raises(RubricFileError, match=words):
        list(read_rubrics(path))


def test_a_byte_order_mark_and_an_id_of_zero_are_read(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": 0, "rubrics": [{"points": 1}]}\r\n')
    (found,) = read_rubrics(path)
    assert found.id == "0" and found.graph.ids == ("r1",)


def test_statistics_and_agreement_of_a_small_set(tmp_path):
    path = tmp_path / "r.jsonl"
    rubrics = [{"id": id, "points": 1, "criterion": id} for id in "abc"]
    nodes = [{"id": id, "node_type": "foundation"} for id in "abc"]
    drawn = [{"parent": "a", "child": "b", "type": "weak"}, {"parent": "b", "child": "c", "type": "weak"}]
    path.write_text(json.dumps({"rubrics": rubrics, "graph": {"nodes": nodes, "edges": drawn}}))
    judge = Table({("a", "b"): "strong", ("a", "c"): "weak"}, roles=dict.fromkeys("abc", "foundation"))
    built = lab.build_all(read_rubrics(path), judge)
    found = lab.statistics(built)
    assert (found["criteria"], found["candidates"], found["edges"], found["update size"]) == (3, 6, 2, 5)
    agreed = lab.agreement(built)
    assert (agreed.built, agreed.drawn, agreed.both, agreed.same_type) == (2, 2, 1, 0)
    # of six pairs a projection onto acyclic graphs keeps one direction each
    assert len(lab.every_candidate(built)[0].graph.edges) == 3


def test_most_foundations_is_the_largest_mean():
    # brute force: mixtures of two whole numbers of foundations reach the hull
    for candidates in (0.0, 1.0, 2.0, 3.82, 5.74, 21.36):
        best = max(
            (1 - share) * low + share * high
            for low in range(8)
            for high in range(low, 8)
            for share in [k / 2000 for k in range(2001)]
            if (1 - share) * low * (low - 1) + share * high * (high - 1) <= candidates + 1e-12
        )
        assert lab.most_foundations(candidates) == pytest.approx(best, abs=2e-3)


def test_compositions_of_four_criteria():
    counts = {}
    for each in lab.compositions(4):
        counts.setdefault(each["foundations"], set()).add(each["candidates"])
    assert {f: sorted(found) for f, found in counts.items()} == {
        0: [0, 3, 4],
        1: [0, 3, 4],
        2: [2, 5, 6],
        3: [6, 9],
        4: [12],
    }


def test_texts_are_exchanged_between_rubrics_and_signs_stay():
    rubrics = list(read_rubrics(EXAMPLES))
    made = lab.scattered(rubrics, np.random.default_rng(0))
    before, after = ([c for each in found for c in each.graph.criteria] for found in (rubrics, made))
    assert [(c.id, c.weight) for c in before] == [(c.id, c.weight) for c in after]
    for negative in (False, True):
        texts = [sorted(c.text for c in found if (c.weight < 0) == negative) for found in (before, after)]
        assert texts[0] == texts[1]
    assert sum(a.text == b.text for a, b in zip(before, after, strict=True)) < 10


@pytest.mark.parametrize(
    "faults, key, count",
    [
        ({"broken": ["index"]}, "failed", 2),
        ({"contrary": True}, "dropped_cycles", 3),
        ({"outlandish": True}, "invalid", 0),
    ],
)
def test_a_faulty_judge_leaves_its_traces(faults, key, count):
    (source,) = (each for each in read_rubrics(EXAMPLES) if each.id == "sql-slow")
    (built,) = lab.build_all([source], lab.FaultyJudge(RuleJudge(), **faults))
    # scan, index and order are its foundations, and nothing in it is a trigger
    assert len(getattr(built.stats, key)) == count
    built.graph.validate()
