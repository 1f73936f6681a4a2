"""Logs become trajectories only by replay; what did not happen is refused with step and field."""

import json
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
from refund_case import play, refund_data

from reprise.evidence.cases import load_cases, parse_case
from reprise.evidence.errors import CaseError, TrajectoryError
from reprise.evidence.evaluate import evaluate
from reprise.evidence.logs import case_of, from_log, load_runs
from reprise.labs.evidence_logs import as_mcp, as_messages, round_trips
from reprise.labs.evidence_suite import generate_suite
from reprise.traces import Log, TraceError, Turn, mcp, openai_messages, read_log

CASE = parse_case(refund_data())
EXAMPLES = Path(__file__).parents[2] / "data" / "examples" / "evidence"
CASES = load_cases(EXAMPLES / "cases")


@cache
def suite():
    return generate_suite(0)


def codes(case, trajectory):
    return [code for _, code in evaluate(case, trajectory).codes]


@pytest.mark.parametrize("link", [{}, {"read": "C2"}, {"confirm": False}, {"refund_id": "R42"}, {"extra": 2}])
@pytest.mark.parametrize("write, read", [(as_messages, openai_messages.read), (as_mcp, mcp.read)])
def test_an_episode_read_back_is_the_episode(write, read, link):
    (log,) = read(json.loads(json.dumps(write(CASE, play(**link)))))
    again = from_log(CASE, log)
    assert again.finished and codes(CASE, again) == codes(CASE, play(**link))
    assert [(s.tool, s.outcome, s.facts) for s in again.steps] == [
        (s.tool, s.outcome, s.facts) for s in play(**link).steps
    ]


def test_every_fault_of_the_suite_keeps_its_verdict_in_both_formats():
    table = round_trips(suite()[::60])
    assert (table.same_verdict == table.episodes).all() and table.kind.nunique() == 11


@pytest.mark.parametrize(
    "name, expected",
    [
        ("right", [[], [], []]),
        ("premature", [["MISSING:a1:charge is a settled duplicate"]]),
        ("wrong_entity", [["MISSING:a1:charge is a settled duplicate"]]),
        ("same_message", [["MISSING:a1:replica can take over"]]),
        ("mcp_session", [["MISSING:a1:replica can take over"]]),
    ],
)
def test_the_example_logs(name, expected):
    runs = load_runs(EXAMPLES / f"{name}.jsonl", CASES)
    assert [codes(run.case, run.trajectory) for run in runs] == expected


def messages(**link):
    return as_messages(CASE, play(**link))


def read(document):
    (log,) = openai_messages.read(document)
    return from_log(CASE, log)


def answer(document, step, **changed):
    message = document["messages"][2 * step]
    message["content"] = json.dumps({**json.loads(message["content"]), **changed})
    return document


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda d: answer(d, 1, amount="$49.98"), r"step 1 \(read_charge\): amount='\$49.98': expected '\$49.99' on"),
        (lambda d: answer(d, 1, record="C2"), "step 1 .*record='C2': expected 'C1'"),
        (lambda d: answer(d, 1, version=1), "step 1 .*version=1: expected 0"),
        (lambda d: answer(d, 2, refund_id="R42"), "step 2 .*refund_id='R42': expected 'R"),
        (lambda d: answer(d, 3, note="x"), "step 3 .*note='x': expected no such field"),
        (lambda d: answer(d, 1, amount=float("inf")), "step 1 .*result=.*expected a JSON object"),
        (lambda d: d["messages"][2].update(content="ok") or d, "step 1 .*result='ok': expected a JSON object"),
        (lambda d: d["messages"][2].update(content="{}") or d, "step 1 .*status: missing: expected 'settled'"),
        # a gap: a call without its answer, an answer without its call, an answer given twice
        (lambda d: d["messages"].pop(4) and d, r"step 2 \(refund\): result: missing"),
        (lambda d: d["messages"].pop(3) and d, "turn 3: answer to id 'call_2': expected a call that waits"),
        (lambda d: d["messages"].insert(3, d["messages"][2]) or d, "turn 3: answer to id 'call_1'"),
        # a call left out whole: the ids that later calls return depend on their place
        (lambda d: d["messages"].__delitem__(slice(1, 3)) or d, "step 1 .*refund_id='R"),
        # an entity that does not exist, said to have been found
        (
            lambda d: d["messages"][1]["tool_calls"][0]["function"].update(arguments='{"charge_id": "C9"}') or d,
            "step 1 .*status='settled': expected 'unavailable'",
        ),
        (
            lambda d: d["messages"][1]["tool_calls"][0]["function"].update(arguments="C1") or d,
            "step 1 .*arguments='C1': expected a JSON object",
        ),
        (
            lambda d: d["messages"][1]["tool_calls"][0]["function"].update(arguments='{"charge_id": 1e999}') or d,
            "step 1 .*arguments=.*expected a JSON object",
        ),
    ],
)
def test_what_did_not_happen_is_refused(spoil, message):
    with pytest.raises(TrajectoryError, match=message):
        read(spoil(deepcopy(messages())))


def test_an_equal_value_in_another_notation_is_no_difference():
    assert codes(CASE, read(answer(messages(), 1, amount="49.990 USD"))) == []


def test_an_answer_in_the_message_of_the_action_was_not_seen():
    document = messages()
    first, second = document["messages"][1], document["messages"].pop(3)
    first["tool_calls"] += second["tool_calls"]
    trajectory = read(document)
    assert codes(CASE, trajectory) == ["MISSING:a1:duplicate"]
    # open requests of a session overlap in the same way
    rows = as_mcp(CASE, play())
    rows[2], rows[3] = rows[3], rows[2]
    (log,) = mcp.read(rows)
    assert codes(CASE, from_log(CASE, log)) == ["MISSING:a1:duplicate"]


@pytest.mark.parametrize(
    "last, finished",
    [
        (None, False),
        ({"role": "assistant", "content": "Done."}, True),
        ({"role": "user", "content": "And?"}, False),
        (
            {"role": "assistant", "content": None, "tool_calls": [{"id": "z", "function": {"name": "finish"}}]},
            True,
        ),
    ],
)
def test_who_ends_an_episode(last, finished):
    document = messages()
    document["messages"][-1:] = [last] if last else []
    trajectory = read(document)
    assert trajectory.finished is finished and ("TIMEOUT" in codes(CASE, trajectory)) is not finished


@pytest.mark.parametrize("budget, calls, finished", [(2, 2, False), (4, 4, False), (5, 4, True)])
def test_calls_beyond_the_budget_are_a_timeout(budget, calls, finished):
    data = refund_data()
    data["view"]["step_budget"] = budget
    (log,) = openai_messages.read(messages())
    trajectory = from_log(parse_case(data), log)
    assert (len(trajectory.steps), trajectory.finished) == (calls, finished)


def test_a_static_judgement_is_its_last_text():
    case = next(case for case in suite() if case.view.protocol == "legacy")
    right = case.hidden.decision.value
    for text, ok in ((right.upper(), True), (json.dumps({"decision": right}), True), ("perhaps", False)):
        log = Log((Turn("user", "say", "?"), Turn("assistant", "say", text)), (), "openai_messages")
        assert evaluate(case, from_log(case, log)).ecs is ok


def test_which_case_a_log_belongs_to():
    known = {case.view.id: case for case in CASES}
    turns = (Turn("assistant", "say", "Done."),)
    assert case_of(Log(turns, (), "x", "dose/2"), known).view.id == "dose"
    assert case_of(Log(turns, (), "x", "dose", {"metadata": {"case_id": "refund"}}), known).view.id == "refund"
    assert case_of(Log(turns, (), "x", "", {"case_id": "refund"}), known, "dose").view.id == "dose"
    for log in (Log(turns, (), "x", "no"), Log(turns, (), "x", "dose", {"case_id": ["dose"]})):
        with pytest.raises(TrajectoryError, match="case_id=.*: expected one of dose, refund, restart"):
            case_of(log, known)


def test_mcp_sessions_that_are_none(tmp_path):
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {}}}
    for rows, message in (
        ([call, call], r"\[1\].id='1': expected an id that no open request has"),
        ([{**call, "id": None}], r"\[0\].id: missing"),
        ([{**call, "params": {}}], r"\[0\].params.name: missing"),
        ([call, {"jsonrpc": "2.0", "id": 1}], r"\[1\].result: missing"),
        ([{"jsonrpc": "2.0", "method": "ping"}], "0 turns: expected 1"),
    ):
        path = tmp_path / "log.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        with pytest.raises(TraceError, match=message):
            read_log(path)


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]\n" for k in range(1, 60))


@pytest.mark.parametrize(
    "text, message",
    [
        (BOMB, "case.yaml: line 2: alias .a0: not allowed here"),
        ("- !!python/object/apply:os.system [ls]", "case.yaml: could not determine a constructor"),
        ("[" * 3000, "case.yaml: "),
        ("view: 1", "case.yaml: case 1: view='1'"),
        ("\x00", "case.yaml: "),
    ],
)
def test_hostile_cases_are_refused(tmp_path, text, message):
    (tmp_path / "case.yaml").write_text(text)
    with pytest.raises(CaseError, match=message):
        load_cases(tmp_path)


def test_dates_of_a_case_stay_text(tmp_path):
    data = refund_data()
    text = json.dumps(data).replace('"settled"', "2026-01-05")
    (tmp_path / "case.yaml").write_text(text)
    assert load_cases(tmp_path)[0].hidden.world["C1"]["status"] == "2026-01-05"


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda h: h["actions"][0].update(after=["a1"]), "a1.* is a cycle"),
        (lambda h: h["requirements"][0].update(any_of=[]), "'duplicate': any_of=.*: expected at least one atom"),
        (lambda h: h["requirements"][0].update(any_of=[[]]), "'duplicate': any_of="),
        (lambda h: h["actions"][0].update(requires=[]), "'a1': requires=.*: expected at least one"),
    ],
)
def test_cases_nobody_could_judge(spoil, message):
    data = refund_data()
    data["view"]["protocol"] = "v3"
    spoil(data["hidden"])
    with pytest.raises(CaseError, match=message):
        parse_case(data)
