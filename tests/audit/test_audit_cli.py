"""`reprise audit LOG`: timeline, verdicts of an endpoint and of a local model, and what it refuses."""

import json
from pathlib import Path

import pytest
import tiny_causal_lm
from chat_server import completion, serving
from click.testing import CliRunner

from reprise.audit.cli import cli
from reprise.audit.verdict import SAFE as SAFE_VERDICT
from reprise.audit.verdict import alarm
from reprise.traces import TraceError

EXAMPLES = Path(__file__).parents[2] / "data" / "examples" / "audit"
ALARM = '<think>x</think><answer>{"answer": 1, "agent": "Manager", "reason": "no\\u001b[31m search"}</answer>'
SAFE = '<think>x</think><answer>{"answer": "SAFE", "agent": null, "reason": null}</answer>'


def audit(*arguments, code=0):
    result = CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_a_timeline_names_speakers_labels_and_what_was_left_out():
    told = audit(EXAMPLES / "who_and_when.json")
    assert "bergen: 7 turns (who_and_when)" in told and "label in the log: turn 3, WebSurfer" in told
    assert len(told.splitlines()) == 1 + 7 + 1
    assert "1 x span without gen_ai.operation.name" in audit(EXAMPLES / "otel_attributes.json")


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_every_format_has_a_timeline(path):
    run = ("--run", "bergen_safe") if path.suffix == ".parquet" else ()
    assert "Bergen" in audit(path, *run)


def test_an_endpoint_is_asked_after_every_turn_until_it_alarms():
    script = [(200, {}, completion(text)) for text in (SAFE, "nonsense", ALARM)]
    with serving(*script) as server:
        told = audit(EXAMPLES / "openai_messages.json", "--base-url", server.url, "--model", "m")
    assert len(server.seen) == 3
    last = json.dumps(server.seen[1][2])
    assert "then subtract" in last and "283929" not in last  # turn 3 is not there yet
    assert "alarm after turn 2: turn 1, Manager: no\ufffd[31m search" in told
    assert "1 of 3 answers are no verdicts; the first: no" in told
    assert [line[0] for line in told.splitlines()[1:5]] == [".", "?", "!", " "]


def test_everything_as_json():
    with serving((200, {}, completion(ALARM))) as server:
        arguments = ("--base-url", server.url, "--model", "m", "--on-after-alarm", "--json")
        found = json.loads(audit(EXAMPLES / "autogen.json", *arguments))
    assert len(found["turns"]) == len(found["verdicts"]) == 8 and len(found["dropped"]) == 2
    assert found["verdicts"][0]["error"] and found["verdicts"][1]["step"] == 1


def test_answers_are_kept(tmp_path):
    with serving((200, {}, completion(SAFE))) as server:
        arguments = ("--base-url", server.url, "--model", "m", "--cache", tmp_path / "kept.sqlite")
        first, again = (audit(EXAMPLES / "who_and_when.json", *arguments) for _ in range(2))
    assert first == again and len(server.seen) == 7
    assert "no alarm in 7 turns" in first


def test_a_model_on_this_machine_compares_the_verdicts(tmp_path, monkeypatch):
    made = []

    class Auditor:
        """Alarms once the prompt it would read shows the report."""

        def __init__(self, local, threshold, build):
            made.append((local.folder.name, threshold))
            self.build = build

        def __call__(self, prefix):
            return (
                alarm(len(prefix) - 1, prefix[-1].role, "wrong")
                if "238929" in str(self.build(prefix))
                else SAFE_VERDICT
            )

    monkeypatch.setattr("reprise.audit.cli.StreamAuditor", Auditor)
    model = tiny_causal_lm.save(tmp_path / "tiny")
    told = audit(EXAMPLES / "autogen.json", "--model", model, "--threshold", "1.5")
    assert made == [("tiny", 1.5)]
    assert "alarm after turn 5: turn 5, Searcher: wrong" in told


def test_what_it_refuses(tmp_path):
    assert "--base-url needs --model" in audit(EXAMPLES / "autogen.json", "--base-url", "http://x", code=2)
    with pytest.raises(TraceError, match="2 runs: expected run to be one of"):
        audit(EXAMPLES / "aftraj.parquet")


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    log = tmp_path / "x.json"
    log.write_text(json.dumps([{"role": "user\x1b[2J", "content": "a\x07b\ud800\n\nc"}]))
    told = audit(log)
    assert told.splitlines()[1].split(maxsplit=3)[1:] == ["user\ufffd[2J", "say", "a\ufffdb\ufffd c"]
