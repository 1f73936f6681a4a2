import pytest
from hypothesis import given
from hypothesis import strategies as st
from notebooks import guidance, note

from reprise.memory.errors import InvalidGuidance, MemoryFault
from reprise.memory.notes import TITLES, Evidence, Guidance, Note

WORDS = st.text("abc de", min_size=1).filter(str.strip)
GUIDANCES = st.builds(Guidance, st.lists(WORDS, min_size=1, max_size=3).map(tuple), *[WORDS] * 4)


def test_the_id_is_a_hash_of_the_content():
    assert note().id == note().id == "f08a2602b83f2524"
    others = [note("other"), note(kind="heuristic"), note(payload='{"slot": 1}'), note(supersedes=("a",))]
    assert len({note().id, *(each.id for each in others)}) == 5


@given(GUIDANCES)
def test_json_gives_back_the_same_note(parts):
    one = Note("s", parts, ("x",), Evidence(("1",), ("2",)))
    assert Note.from_json(one.to_json()) == one


@pytest.mark.parametrize("name", TITLES)
@pytest.mark.parametrize("value", ["", "  ", None, 3, []])
def test_an_empty_part_is_named(name, value):
    with pytest.raises(InvalidGuidance, match=name):
        Guidance.from_json({**guidance().to_json(), name: value})
    with pytest.raises(InvalidGuidance, match=name):
        Guidance.from_json({k: v for k, v in guidance().to_json().items() if k != name})


@pytest.mark.parametrize("value", ["text", None, [1]])
def test_guidance_that_is_no_object_is_refused(value):
    with pytest.raises(InvalidGuidance, match="expected an object"):
        Guidance.from_json(value)


def test_one_example_may_be_a_string_and_a_fourth_is_left_out():
    assert Guidance.from_json({**guidance().to_json(), "corrected_examples": "one"}).corrected_examples == ("one",)
    assert len(Guidance.from_json({**guidance().to_json(), "corrected_examples": list("abcd")}).corrected_examples) == 3


def test_a_short_note_is_rendered_whole():
    assert guidance().render() == (
        "Corrected examples:\n- q: men / a: M\nCorrect approach: use the code M\nWhat went wrong: the word was used\n"
        "Strategy: look for codes\nAvoid: do not guess"
    )


def test_examples_go_first_and_the_anti_patterns_last():
    long = Guidance(("example " * 30,) * 3, *["word " * 60 + name for name in ("one", "two", "three", "four")])
    text = long.render(900)
    assert "example example" not in text and text.endswith("four") and "…" in text
    text = long.render(1300)
    assert "one" not in text and "two" in text and "three" in text and "four" in text


@given(GUIDANCES, st.integers(200, 400))
def test_a_rendered_note_keeps_every_title_within_the_limit(parts, limit):
    text = parts.render(limit)
    assert len(text) <= limit
    assert all(f"{title}:" in text for title in TITLES.values())


def test_a_limit_without_room_for_five_parts_is_refused():
    with pytest.raises(MemoryFault, match="limit=50"):
        guidance("long " * 20).render(50)


def test_evidence_keeps_the_last_twelve_each_once():
    one, two = Evidence(tuple("abcdefgh"), ("x",)), Evidence(tuple("ghijklmn"), ("y",))
    assert one.merged(two) == Evidence(tuple("cdefghijklmn"), ("x", "y"))


@pytest.mark.parametrize("fields", [{"subject": " "}, {"kind": "rule"}])
def test_a_bad_field_is_named(fields):
    with pytest.raises(MemoryFault, match=next(iter(fields))):
        Note(**{"subject": "s", "guidance": guidance(), **fields})
