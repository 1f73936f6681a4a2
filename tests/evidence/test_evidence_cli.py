"""`reprise evidence check` as a shell sees it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from reprise.evidence.cli import cli
from reprise.evidence.errors import TrajectoryError

EXAMPLES = Path(__file__).parents[2] / "data" / "examples" / "evidence"


def check(log, *more):
    return CliRunner().invoke(cli, ["check", str(log), "--cases", str(EXAMPLES / "cases"), *more])


def test_supported_runs_exit_with_nothing_to_say():
    result = check(EXAMPLES / "right.jsonl")
    assert result.exit_code == 0 and "NOT SUPPORTED" not in result.output
    assert "C1.amount: '$49.99' (call 1, read_charge)" in result.output


@pytest.mark.parametrize("name", ["premature", "wrong_entity", "same_message", "mcp_session"])
def test_unsupported_runs_exit_with_one(name):
    result = check(EXAMPLES / f"{name}.jsonl")
    assert result.exit_code == 1 and "broke: MISSING:a1:" in result.output


def test_json():
    result = check(EXAMPLES / "wrong_entity.jsonl", "--json")
    (run,) = json.loads(result.output)["runs"]
    assert not run["supported"] and run["codes"] == ["MISSING:a1:charge is a settled duplicate"]
    assert run["calls"][0]["needs"][0]["facts"][0]["elsewhere"] == ["C2"]


def test_a_refused_log_names_run_step_and_field(tmp_path):
    path = tmp_path / "spoiled.jsonl"
    path.write_text((EXAMPLES / "wrong_entity.jsonl").read_text().replace("settled", "open\\\\u001b[2J"))
    result = check(path)
    assert isinstance(result.exception, TrajectoryError)
    assert "spoiled: step 1 (read_charge): state=" in str(result.exception)
    assert "\x1b" not in str(result.exception)


def test_control_characters_of_a_log_do_not_reach_the_terminal(tmp_path):
    path = tmp_path / "log.jsonl"
    row = json.loads((EXAMPLES / "premature.jsonl").read_text())
    text = json.dumps(row).replace('\\"amount\\": \\"49.99\\"', '\\"amount\\": \\"49.99\\\\u001b[2J\\"')
    path.write_text(text)
    result = CliRunner().invoke(cli, ["check", str(path), "--cases", str(EXAMPLES / "cases")])
    assert "\x1b" not in result.output


@pytest.mark.slow
def test_the_command_itself():
    command = [sys.executable, "-m", "reprise.cli", "evidence", "check", str(EXAMPLES / "premature.jsonl")]
    done = subprocess.run([*command, "--cases", str(EXAMPLES / "cases")], capture_output=True, text=True)
    assert done.returncode == 1 and "NOT SUPPORTED" in done.stdout
