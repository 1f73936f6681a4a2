"""The suite is what the paper counts, the same every time, and each case is passed and failed for the right reason."""

import hashlib
import json
from collections import Counter, defaultdict

import pytest

from reprise.evidence.cases import parse_case
from reprise.evidence.evaluate import evaluate
from reprise.evidence.model import Protocol
from reprise.labs.evidence_suite import generate_suite, reference, validate_case


@pytest.fixture(scope="module")
def suite():
    return generate_suite(0)


def test_counts_of_the_paper(suite):
    assert Counter(case.view.protocol.value for case in suite) == {
        "legacy": 86,
        "v0": 175,
        "v1": 131,
        "v2": 132,
        "v3": 132,
    }
    assert sorted(Counter(case.view.domain for case in suite).values()) == [108, 109, 109, 109, 110, 111]
    assert len({case.view.id for case in suite}) == 656


def test_the_suite_is_a_function_of_its_seed(suite):
    def digest(cases):
        return hashlib.sha256(json.dumps([c.model_dump(mode="json") for c in cases]).encode()).hexdigest()

    assert digest(generate_suite(0)) == digest(suite) != digest(generate_suite(1))


def test_reads_lie_in_the_reported_range(suite):
    reads = defaultdict(list)
    for case in suite:
        reads[case.view.protocol].append(evaluate(case, reference(case)).reads)
    for protocol in (Protocol.V0, Protocol.V1, Protocol.V2, Protocol.V3):
        assert 5.6 <= sum(reads[protocol]) / len(reads[protocol]) <= 7.1
        assert max(reads[protocol]) <= 17


def test_workflows_have_the_promised_shape(suite):
    for case in suite:
        if case.view.protocol is Protocol.V3:
            after = [set(action.after) for action in case.hidden.actions]
            followers = Counter(p for each in after for p in each)
            assert max(len(each) for each in after) >= 2 and max(followers.values()) >= 2
            assert 3 <= len(after) <= 5
        if case.view.protocol is Protocol.V2:
            assert 2 <= len(case.hidden.actions) <= 4


def test_nothing_hidden_is_shown(suite):
    for case in suite:
        shown = json.dumps([case.view.prompt, *(tool.schema_() for tool in case.view.tools)])
        assert not [r.id for r in case.hidden.requirements if r.id in shown]
        assert "requires" not in case.view.model_dump_json()


def test_a_case_survives_json(suite):
    for case in suite[::40]:
        again = parse_case(json.loads(case.model_dump_json()))
        assert evaluate(again, reference(again)).ecs


def test_every_tenth_case_is_admitted(suite):
    for case in suite[::10]:
        admission = validate_case(case)
        assert admission.admitted, admission


@pytest.mark.slow
def test_every_case_is_admitted(suite):
    admissions = [validate_case(case) for case in suite]
    assert all(each.admitted for each in admissions)
    killed = Counter(kind for each in admissions for kind in each.killed)
    assert killed["stale"] == killed["premature"] == 395 and killed["propagation"] == killed["wrong_order"] == 264
