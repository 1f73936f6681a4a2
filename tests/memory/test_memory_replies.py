import json

import pytest
from notebooks import guidance, note

from reprise.memory.errors import MemoryFault
from reprise.memory.items import Draft, Failure, Item, from_pairwise, from_reward_fn
from reprise.memory.prompts import with_notes
from reprise.memory.replies import BadReply, json_in
from reprise.memory.tuner import ChatTuner

GOOD = json.dumps(guidance().to_json())
FAILURES = [Failure(Item(str(k), f"question {k}", "right"), "wrong") for k in range(3)]


def tuner(*replies):
    waiting = list(replies)
    return ChatTuner(lambda prompt, temperature, attempt: waiting.pop(0) if waiting else None, domain="sql")


@pytest.mark.parametrize(
    "reply",
    [
        '["a", "b"]',
        'Sure!\n```json\n["a", "b"]\n```',
        'I think [1, is broken, but ["a", "b"] is not',
        '{"x": 1} ["a", "b"] ["c"]',
    ],
)
def test_the_list_is_found_wherever_it_stands(reply):
    assert json_in(reply, list) == ["a", "b"]


@pytest.mark.parametrize("reply", [None, "", "an essay about nothing", '{"a": 1}', "[" * 100_000, '["a", "b"'])
def test_a_reply_without_one_is_refused(reply):
    with pytest.raises(BadReply, match="expected a JSON list"):
        json_in(reply, list)


def test_subjects_come_back_one_a_failure():
    one = tuner('["dates", " dates\\n of birth", "codes"]')
    assert one.subjects(FAILURES) == ["dates", "dates of birth", "codes"]
    assert not +one.repairs


def test_the_wrong_number_of_subjects_is_asked_for_again_and_no_batch_is_lost():
    one = tuner('["only one"]', "an essay", '["a", "b", "c"]')
    assert one.subjects(FAILURES) == ["a", "b", "c"]
    assert +one.repairs == {"subjects asked again": 2}
    other = tuner("[1, 2, 3]", None, '["a", "", "c"]', '["a", "b", "c"]')
    assert other.subjects(FAILURES) == ["unclassified/sql"] * 3
    assert +other.repairs == {"subjects asked again": 2, "subjects given up": 1}


def test_guidance_without_a_part_is_asked_for_once_more_then_given_up():
    assert tuner('{"correct_approach": "x"}', GOOD).extract("s", FAILURES, []) == Draft("s", guidance())
    one = tuner("{}", "nothing")
    assert one.extract("s", FAILURES, []) is None
    assert +one.repairs == {"guidance asked again": 1, "guidance given up": 1}


def test_a_merged_note_takes_the_subject_of_the_reply_or_the_new_one():
    draft = Draft("new", guidance())
    labelled = json.dumps({**guidance().to_json(), "subject": "both"})
    assert tuner(labelled).merge([note()], draft).subject == "both"
    assert tuner(GOOD).merge([note()], draft).subject == "new"
    assert tuner().merge([note()], draft) is None


def test_a_prompt_without_notes_is_the_question_itself():
    assert with_notes("how many?", []) == "how many?"
    text = with_notes("how many?", [note()])
    assert text.endswith("Question: how many?") and "[1] Subject: coded columns" in text and "irrelevant" in text
    assert "irrelevant" not in with_notes("how many?", [note()], ask_applicability=False)


def test_a_reward_function_is_a_judge():
    def reward(prompts, completions, reference, level, **columns):
        return [float(completions[0] == reference[0]) * level[0]]

    judge = from_reward_fn(reward)
    assert judge(Item("1", "q", "a", {"level": 0.5}), "a") == 0.5


def test_a_pairwise_judge_is_asked_in_both_orders():
    def first_wins(question, a, b, reference):
        return (1, 0)

    def right_wins(question, a, b, reference):
        return (1, 0) if a == reference else (0, 1)

    item = Item("1", "q", "a")
    assert from_pairwise(first_wins, lambda item: "b")(item, "a") == 0.5
    assert from_pairwise(right_wins, lambda item: "b")(item, "a") == 1
    assert from_pairwise(right_wins, lambda item: "a")(item, "b") == 0


def test_bad_items_are_named_before_any_call():
    from reprise.memory.items import check_items

    for items, name in [
        ([Item("1", "q", "a")] * 2, "'1': expected an id"),
        ([Item("1", " ", "a")], "query"),
        ([Item("1", "q")], "reference"),
    ]:
        with pytest.raises(MemoryFault, match=name):
            check_items(items, supervised=True)
    check_items([Item("1", "q")], supervised=False)
