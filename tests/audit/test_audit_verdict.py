"""The verdict's format: what is read, what is refused, and that no text at all makes the parser raise."""

import doctest
import json
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reprise.audit import prompt, verdict
from reprise.audit.errors import AuditError
from reprise.audit.prompt import build_messages, question, render_verdict, transcript
from reprise.audit.verdict import SAFE, Verdict, alarm, invalid, parse_verdict
from reprise.traces import Turn

ROLES = {"Solver", "Verifier (-> Solver)"}
SAFE_TEXT = '{"answer": "SAFE", "agent": null, "reason": null}'
ALARM_TEXT = '{"answer": 1, "agent": "Verifier", "reason": "it accepted 19"}'
ALARM = alarm(1, "Verifier", "it accepted 19")


def answer(body, think="<think>let me see</think>"):
    return f"{think}<answer>{body}</answer>"


def read(body, k=2, **options):
    return parse_verdict(answer(body), k, ROLES, **options)


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(verdict).failed == doctest.testmod(prompt).failed == 0


# -- what is read ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, expected",
    [
        (answer(SAFE_TEXT), SAFE),
        (answer(ALARM_TEXT), ALARM),
        (answer(f"\n ```json\n{ALARM_TEXT}\n``` \n"), ALARM),
        (answer(f"```{ALARM_TEXT}```"), ALARM),
        (answer(ALARM_TEXT) + "\nthat is all", ALARM),
        # the last answer after the last thought counts, whatever was quoted before
        (answer(ALARM_TEXT, think=f"<think>maybe <answer>{SAFE_TEXT}</answer>?</think>"), ALARM),
        (answer(SAFE_TEXT, think=f"<think><answer>{ALARM_TEXT}</answer></think> <think>no</think>"), SAFE),
        (answer(SAFE_TEXT) + f"<answer>{ALARM_TEXT}</answer>", ALARM),
        # a recipient is not part of a name
        (answer('{"answer": 0, "agent": "Verifier (-> X)", "reason": "r"}'), alarm(0, "Verifier", "r")),
        (answer('{"reason": "r", "agent": "Solver", "answer": 2}'), alarm(2, "Solver", "r")),
    ],
)
def test_valid_answers(text, expected):
    assert parse_verdict(text, 2, ROLES) == expected
    assert parse_verdict(text, 2, ROLES, lenient=True) == expected


@pytest.mark.parametrize(
    "body, message",
    [
        ("true", "exactly the keys"),
        ("[]", "exactly the keys"),
        ("{}", "exactly the keys"),
        ("", "not strict JSON"),
        ("{'answer': 1}", "not strict JSON"),
        (f"{SAFE_TEXT} {SAFE_TEXT}", "not strict JSON"),
        (f"```json\n{SAFE_TEXT}\n```\n```json\n{SAFE_TEXT}\n```", "not strict JSON"),
        ('{"answer": "SAFE", "agent": null, "reason": null, "why": 1}', "exactly the keys"),
        ('{"answer": "SAFE", "agent": null}', "exactly the keys"),
        ('{"answer": "SAFE", "answer": 1, "agent": null, "reason": null}', "key twice"),
        ('{"answer": "SAFE", "agent": "Solver", "reason": null}', "null with SAFE"),
        ('{"answer": "SAFE", "agent": null, "reason": ""}', "null with SAFE"),
        ('{"answer": "safe", "agent": null, "reason": null}', "answer="),
        ('{"answer": NaN, "agent": "Solver", "reason": "r"}', "NaN"),
        ('{"answer": -Infinity, "agent": "Solver", "reason": "r"}', "Infinity"),
        ('{"answer": 1e999, "agent": "Solver", "reason": "r"}', "answer=inf"),
        *(
            (f'{{"answer": {step}, "agent": "Solver", "reason": "r"}}', "answer=")
            for step in ("true", "false", "null", "3", "-1", "-5", "1.0", "0.9", '"1"', '"--3"', '"²"', "[1]", "{}")
        ),
        (f'{{"answer": {"9" * 4000}, "agent": "Solver", "reason": "r"}}', "an int of 13288 bits"),
        (f'{{"answer": {"9" * 5000}, "agent": "Solver", "reason": "r"}}', "not strict JSON"),
        ('{"answer": 1, "agent": "Planner", "reason": "r"}', "agent='Planner'"),
        ('{"answer": 1, "agent": "", "reason": "r"}', "agent="),
        ('{"answer": 1, "agent": " (x)", "reason": "r"}', "agent="),
        ('{"answer": 1, "agent": null, "reason": "r"}', "agent="),
        ('{"answer": 1, "agent": ["Solver"], "reason": "r"}', "agent="),
        ('{"answer": 1, "agent": "Solver", "reason": " "}', "reason="),
        ('{"answer": 1, "agent": "Solver", "reason": null}', "reason="),
        ("[" * 15_000, "not strict JSON: RecursionError"),
        ('{"answer":' * 2_000, "RecursionError"),
        ("```" + "\n" * 19_900 + "```", "not strict JSON"),
        (" " * 20_001, "20001 characters"),
    ],
)
def test_invalid_answers_say_why(body, message):
    found = read(body)
    assert found.kind == "safe" and not found.valid and not found.is_alarm
    assert message in found.error and found.error.isascii() and len(found.error) < 200


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "no think block"),
        (f"<answer>{SAFE_TEXT}</answer>", "no think block"),
        (f"</think><answer>{SAFE_TEXT}</answer>", "no think block"),
        (f"<think>so <answer>{SAFE_TEXT}</answer>", "no think block"),
        (f"<think>so <answer>{SAFE_TEXT}</answer></think>", "no <answer> after"),
        (f"<think></think>{SAFE_TEXT}", "no <answer> after"),
        (f"<think></think><answer>{SAFE_TEXT}", "not closed"),
        (f"<think></think><answer>{SAFE_TEXT}</answer><answer>{ALARM_TEXT}", "not closed"),
        (None, "NoneType"),
        (b"<answer>", "bytes"),
        (3, "int"),
    ],
)
def test_responses_without_an_answer_say_why(text, message):
    assert message in parse_verdict(text, 2, ROLES).error


def test_lenient_takes_digits_and_no_thought_but_keeps_the_ranges():
    bare = "<answer>" + ALARM_TEXT.replace("1,", '"1",') + "</answer>"
    assert not parse_verdict(bare, 2, ROLES).valid
    assert parse_verdict(bare, 2, ROLES, lenient=True) == ALARM
    for step in ('"3"', '"-1"', '"--3"', '"²"', '"1.0"', '" 1"', '"99999999999999999999"', "true", "3.9", "NaN"):
        assert not read(f'{{"answer": {step}, "agent": "Solver", "reason": "r"}}', lenient=True).valid


def test_a_step_beyond_the_prefix_and_a_speaker_still_to_come_are_refused():
    later = answer('{"answer": 1, "agent": "Verifier", "reason": "r"}')
    assert not parse_verdict(later, 0, {"Solver", "Verifier"}).valid
    assert not parse_verdict(later, 1, {"Solver"}).valid
    assert parse_verdict(later, 1, {"Solver", "Verifier"}).valid


# -- nothing makes it raise --------------------------------------------------------------------------------------------

PIECES = [
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "```",
    "{",
    "}",
    "[",
    '"answer"',
    ":",
    ",",
    "NaN",
    "1",
    "-",
    "²",
]
PIECES += [
    '"SAFE"',
    '"agent"',
    '"reason"',
    "null",
    "true",
    '"Solver"',
    "\n",
    "\\u",
    "\ud800",
    "1e999",
    SAFE_TEXT,
    ALARM_TEXT,
]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join), st.none(), st.binary()), st.booleans())
@example("<think></think><answer>" + '{"answer":[' * 900, False)
def test_no_text_makes_it_raise(text, lenient):
    assert isinstance(parse_verdict(text, 2, ROLES, lenient), Verdict)


JSON = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()), st.lists, max_leaves=5)


@given(st.fixed_dictionaries({"answer": JSON, "agent": JSON, "reason": JSON}), st.booleans())
def test_any_json_is_a_verdict_within_the_prefix_or_invalid(fields, lenient):
    found = read(json.dumps(fields), lenient=lenient)
    if found.is_alarm:
        assert 0 <= found.step <= 2 and found.agent in ("Solver", "Verifier") and found.reason.strip()
    assert found.valid == (found.error is None)


def test_mutated_answers_are_verdicts_within_the_prefix_or_invalid():
    rng = random.Random(0)
    seeds = [answer(ALARM_TEXT), answer(SAFE_TEXT), answer(f"```json\n{ALARM_TEXT}\n```")]
    kept = 0
    for _ in range(20_000):
        data = bytearray(rng.choice(seeds).encode())
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            data[at : at + rng.choice([0, 0, 1, 1, 5])] = rng.choice([bytes([rng.randrange(256)]), b"", b"<answer>"])
        found = parse_verdict(data.decode("utf-8", "surrogateescape"), 2, ROLES)
        assert found.valid or found.error.isascii()
        assert not found.is_alarm or 0 <= found.step <= 2
        kept += found.valid
    assert 1_000 < kept < 19_000  # both outcomes were met


# -- the value and its text --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        dict(kind="stop"),
        dict(kind="alarm"),
        dict(kind="alarm", step=True),
        dict(kind="alarm", step=-1),
        dict(kind="alarm", step=1.0),
        dict(step=1),
        dict(agent="Solver"),
        dict(valid=False),
        dict(error="e"),
        dict(kind="alarm", step=1, valid=False, error="e"),
    ],
)
def test_contradictions_are_no_verdict(fields):
    with pytest.raises(AuditError, match="expected"):
        Verdict(**fields)


@given(st.integers(0, 9), st.text(min_size=1).filter(str.strip), st.text())
def test_a_rendered_verdict_is_read_back(step, reason, thought):
    said = alarm(step, "Solver", reason)
    assert parse_verdict(render_verdict(said, thought), 9, ROLES) == said
    assert parse_verdict(render_verdict(SAFE, thought), 9, ROLES) == SAFE


@pytest.mark.parametrize("said", [invalid("e"), alarm(1, None, "r"), alarm(1, "Solver")])
def test_what_the_format_cannot_say_is_not_rendered(said):
    with pytest.raises(AuditError, match="expected"):
        render_verdict(said)


# -- the prompt --------------------------------------------------------------------------------------------------------

TURNS = [
    Turn("user", "ask", "12 + 7?"),
    Turn("Solver", "compute", 'x\n{"turn": 7}'),
    Turn("Verifier", "accept", "19 ok"),
]


def test_the_append_layout_only_ever_appends():
    shown = [transcript(TURNS[: k + 1]) for k in range(3)]
    assert shown[1].startswith(shown[0]) and shown[2].startswith(shown[1])
    assert shown[0] + transcript(TURNS[1:], start=1) == shown[2]
    asked = [build_messages(TURNS[: k + 1])[1]["content"] for k in range(3)]
    assert asked == [shown[k] + question(k) for k in range(3)]
    assert build_messages(TURNS[:1])[0] == build_messages(TURNS)[0]


def test_the_paper_layout_tells_the_number_of_turns_first():
    asked = build_messages(TURNS, layout="paper")[1]["content"]
    assert asked == question(2) + "\n" + transcript(TURNS)


def test_a_turn_cannot_pass_for_two():
    lines = transcript(TURNS).splitlines()
    assert [json.loads(line)["turn"] for line in lines] == [0, 1, 2]
    assert json.loads(lines[1])["content"] == TURNS[1].content


def test_tools_reference_and_cut_turns():
    system, user = build_messages(TURNS, tools=["search", {"name": "run"}], reference="19", turn_chars=4)
    assert '"search"\n{"name": "run"}' in system["content"] and 'answer to the task: "19"' in system["content"]
    assert "12 + [3 characters left out]" in user["content"]
    assert "right answer" not in build_messages(TURNS)[0]["content"]


@pytest.mark.parametrize(
    "arguments, name",
    [
        (dict(prefix=[]), "prefix"),
        (dict(prefix=TURNS, layout="x"), "layout"),
        (dict(prefix=TURNS, turn_chars=0), "turn_chars"),
    ],
)
def test_the_prompt_names_the_bad_argument(arguments, name):
    with pytest.raises(AuditError, match=f"^{name}="):
        build_messages(**arguments)
