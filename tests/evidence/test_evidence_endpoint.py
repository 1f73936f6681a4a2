"""A scripted chat model plays cases; its transcript is resumed, read back and judged."""

import json
from pathlib import Path

import pytest

from reprise.chat_client import ChatClient, scripted
from reprise.evidence.cases import load_cases
from reprise.evidence.endpoint_agent import play_all
from reprise.evidence.errors import TrajectoryError
from reprise.evidence.evaluate import evaluate
from reprise.evidence.logs import load_runs

CASES = [c for c in load_cases(Path(__file__).parents[2] / "data/examples/evidence/cases") if c.view.id != "refund"]
CALLS = {
    "dose": [("read_labs", {"patient_id": "P4"}), ("read_interactions", {"patient_id": "P4"})],
    "restart": [("restart", {"service_id": "api-7"})],
}


def model(asked, spoil=None):
    def answer(request):
        asked.append(request)
        messages = request["messages"]
        name = "dose" if "dose" in messages[1]["content"] else "restart"
        turn = sum(message["role"] == "assistant" for message in messages)
        if spoil:
            return spoil
        if turn == len(CALLS[name]):
            return '{"finish": "done"}'
        tool, arguments = CALLS[name][turn]
        return "```json\n" + json.dumps({"tool": tool, "arguments": arguments}) + "\n```"

    return ChatClient(scripted(answer), "scripted")


def test_a_transcript_is_resumed_and_judged(tmp_path):
    path, asked = tmp_path / "transcript.jsonl", []
    assert play_all(CASES, model(asked), path, repeats=2) == 4
    whole, calls = path.read_bytes(), len(asked)
    assert play_all(CASES, model(asked), path, repeats=2) == 0 and len(asked) == calls
    # cut short inside the last episode: that one alone is played again
    path.write_bytes(whole[:-40])
    assert play_all(CASES, model(asked), path, repeats=2) == 1 and path.read_bytes() == whole
    runs = load_runs(path, CASES)
    assert [run.name for run in runs] == ["dose/0", "dose/1", "restart/0", "restart/1"]
    assert [evaluate(run.case, run.trajectory).ecs for run in runs] == [True, True, False, False]
    # nothing hidden reaches the model
    assert not any("no open incident" in json.dumps(request) for request in asked)


def test_a_model_that_never_calls_is_a_timeout(tmp_path):
    path = tmp_path / "transcript.jsonl"
    play_all(CASES, model([], spoil="I will look."), path, repeats=1)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [len(row["messages"]) for row in rows] == [2, 2]
    codes = [[code for _, code in evaluate(run.case, run.trajectory).codes] for run in load_runs(path, CASES)]
    assert all("TIMEOUT" in each for each in codes)


def test_a_file_that_is_no_transcript(tmp_path):
    path = tmp_path / "transcript.jsonl"
    path.write_text('{"case_id": "dose"}\n')
    with pytest.raises(TrajectoryError, match="line 1: expected an episode with case_id and repeat"):
        play_all(CASES, model([]), path)
    assert path.read_text() == '{"case_id": "dose"}\n'
