"""Six samples through inspect in one evaluation, without a network: scores, codes, and the log read back."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from reprise.evidence.cases import load_cases
from reprise.evidence.errors import CaseError

# inspect_ai is imported by the tests: every worker collects this file, and the import takes three seconds
pytestmark = pytest.mark.skipif(not find_spec("inspect_ai"), reason="could not import 'inspect_ai'")

CASES = load_cases(Path(__file__).parents[2] / "data" / "examples" / "evidence" / "cases")
CAREFUL = {
    "refund": [
        ("read_charge", {"charge_id": "C1"}),
        ("refund", {"charge_id": "C1", "amount": "49.99"}),
        ("read_refund", {"refund_id": "@refund_id"}),
        ("notify", {"user": "U1", "refund_id": "@refund_id"}),
    ],
    "restart": [("restart", {"service_id": "api-7"})],
    "dose": [("read_labs", {"patient_id": "P4"})],
}
EXPECTED = {
    "refund": "supported",
    "restart": "MISSING:a1:no open incident; MISSING:a1:replica can take over",
    "dose": "MISSING:investigation:interactions read",
}


def test_six_samples_in_one_evaluation(tmp_path, monkeypatch):
    from inspect_ai import eval

    from reprise.evidence.evaluate import evaluate
    from reprise.evidence.inspect_task import evidence_task, replay_model
    from reprise.evidence.logs import load_runs

    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing may be downloaded
    (log,) = eval(evidence_task(CASES, epochs=2), model=replay_model(CAREFUL), log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    scores = {(s.id, s.epoch): s.scores["ecs"] for s in log.samples}
    assert len(scores) == 6
    for (name, _), score in scores.items():
        assert (score.value, score.explanation) == (float(EXPECTED[name] == "supported"), EXPECTED[name])
    assert log.results.scores[0].metrics["mean"].value == pytest.approx(1 / 3)
    (path,) = [os.path.join(tmp_path, name) for name in os.listdir(tmp_path) if name.endswith(".eval")]
    runs = load_runs(path, CASES)
    assert len(runs) == 6
    for run in runs:
        codes = [code for _, code in evaluate(run.case, run.trajectory).codes]
        assert ("; ".join(codes) or "supported") == EXPECTED[run.case.view.id]


def test_a_case_that_stands_twice():
    from reprise.evidence.inspect_task import evidence_task

    with pytest.raises(CaseError, match="'dose' stands twice"):
        evidence_task([CASES[0], CASES[0]])
