import json

import numpy as np
import pytest

from reprise.labs import pipelines, sqlworld
from reprise.labs.memory_experiments import RandomVectors, instances, learn
from reprise.labs.pipelines import PipelineWorld
from reprise.labs.rule_learner import Hint, RuleTuner, induce, ngrams
from reprise.labs.sqlworld import SqlWorld, execute
from reprise.memory.items import Failure, Item

WORLDS = [SqlWorld(), PipelineWorld()]


@pytest.mark.parametrize("world", WORLDS)
def test_questions_are_as_many_as_in_kaggledbqa_and_disjoint(world):
    train, test = world.draw(5)
    assert (len(train), len(test)) == (87, 185)
    assert len({item.query for item in train + test}) == 87 + 185
    assert world.draw(5)[0] == train != world.draw(6)[0]


@pytest.mark.parametrize("world", WORLDS)
def test_the_right_parts_are_judged_right_and_no_parts_mostly_wrong(world):
    train, _ = world.draw(5)
    for item in train:
        answer = world.compose(item, world.needed(item))
        assert answer == item.reference and world.judge(item, answer) == 1
        assert world.parts(item, answer) == world.needed(item)
    assert np.mean([world.judge(item, world.compose(item, frozenset())) for item in train]) < 0.3


def test_every_condition_is_valid_sql_and_keeps_some_rows_and_drops_some():
    for domain, (table, _, _, conditions) in sqlworld.DOMAINS.items():
        ((everything,),) = execute(domain, f"SELECT COUNT(*) FROM {table}")
        for condition in conditions:
            ((kept,),) = execute(domain, f"SELECT COUNT(*) FROM {table} WHERE {condition}")
            assert 0 < kept < everything, condition


def test_sql_that_is_wrong_or_writes_is_no_answer():
    assert execute("rail", "SELECT nothing FROM trip") is None
    assert execute("rail", "DELETE FROM trip") is None
    assert execute("rail", "SELECT COUNT(*) FROM trip") == ((800,),)


def test_a_pipeline_runs_its_steps_in_a_fixed_order():
    rows = (" b x ", "a y", "", "a y")
    assert pipelines.run(rows, json.dumps(["sort", "drop empty", "strip", "unique"])) == ["a y", "b x"]
    assert pipelines.run(rows, json.dumps(["explode"])) is None


def test_a_trigger_covers_the_positives_and_no_negative():
    positives = ["how many pupils rent a home", "average age of those who rent a home", "tenants of the town"]
    negatives = ["how many pupils own a home", "average age of all"]
    found = induce(positives, negatives, frozenset("how many of average a".split()))
    assert found[0] == ("who", "rent", "a", "home") or "rent" in found[0]
    for text in positives:
        assert any(trigger in ngrams(text) for trigger in found)
    for text in negatives:
        assert not any(trigger in ngrams(text) for trigger in found)


def test_a_trigger_of_one_example_is_a_phrase_of_it():
    (trigger,) = induce(["trips by night trains"], [], frozenset(["trips", "by"]))
    assert trigger in ngrams("trips by night trains") and trigger[0] not in ("trips", "by")


def test_a_positive_more_never_lowers_the_best_score():
    rng = np.random.default_rng(0)
    words = list("abcdefgh")

    def best(positives, negatives):
        grams = {gram for text in positives for gram in ngrams(text)}
        return max(sum(g in ngrams(t) for t in positives) - 2 * sum(g in ngrams(t) for t in negatives) for g in grams)

    for _ in range(30):
        texts = [" ".join(rng.choice(words, 5)) for _ in range(8)]
        assert best(texts[:5], texts[5:]) >= best(texts[:4], texts[5:])


def test_a_merged_note_is_induced_from_the_evidence_of_both():
    world = SqlWorld()
    tuner = RuleTuner(world)

    def draft(number, text):
        item = Item(number, text, meta={"domain": "rail", "needed": ("xb = 1",), "head": "COUNT(*)"})
        (label,) = tuner.subjects([Failure(item, "SELECT COUNT(*) FROM trip")])
        return tuner.extract(label, [Failure(item, None)], [])

    from reprise.memory.notes import Note

    one, two = draft("1", "how many trips across the border"), draft("2", "what is the highest fare across the border")
    merged = Hint.from_payload(tuner.merge([Note(one.subject, one.guidance, payload=one.payload)], two).payload)
    assert merged.positives == ("1", "2") and merged.part == "xb = 1"
    assert merged.applies("rail", "how many late trips across the border") and not merged.applies(
        "school", "across the border"
    )


def test_a_run_learns_and_its_scrambled_notes_do_not_help():
    (row,) = learn(40)
    assert row["test"] - row["vanilla"] > 0.15 > abs(row["scrambled"] - row["vanilla"])
    assert learn(40) == [row]


def test_raw_mistakes_are_kept_one_each():
    found = instances([40], [1, 4], checked=False)
    assert found.notes.nunique() == 1 and found.test[0] > found.test[1]


def test_random_vectors_mean_nothing_and_stay_the_same():
    one = RandomVectors().encode(["a", "b", "a"])
    assert np.array_equal(one[0], one[2]) and not np.allclose(one[0], one[1])
