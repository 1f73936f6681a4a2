"""The wrapper reads what is documented, refuses what it forbids, and sees nothing hidden."""

import pytest

from reprise.evidence.environment import Environment
from reprise.evidence.evaluate import evaluate
from reprise.evidence.gather import EvidenceGate, _permits
from reprise.evidence.interventions import intervene
from reprise.evidence.values import UNAVAILABLE
from reprise.labs.evidence_agents import Faults, play, undocumented
from reprise.labs.evidence_rule import suited
from reprise.labs.evidence_suite import generate_suite

SUITE = generate_suite(0)
CASES = suited(SUITE)


def gate_on(case, **options):
    environment = Environment(case)
    return environment, EvidenceGate(case.view, environment.call, **options)


def premature(case, gate):
    action = case.hidden.actions[0] if case.hidden.actions else None
    tool = next(tool for tool in case.view.tools if tool.kind == "consequential")
    parameter = next(iter(tool.params))
    target = next(e for e, r in case.hidden.world.items() if r["kind"] == parameter.removesuffix("_id"))
    value = str(case.hidden.world[target][action.args["value"].field]) if action else "1"
    return gate.call(tool.name, **{parameter: target, "value": value})


def test_documented_reads_come_before_the_call():
    for case in CASES:
        environment, gate = gate_on(case)
        premature(case, gate)
        steps = environment.trajectory().steps
        assert steps[0].outcome == "read" and len(steps) <= 1 + gate.max_reads
        assert [entry[0] for entry in gate.log].count("read") == sum(s.outcome == "read" for s in steps)


def test_select_reads_nothing_and_refuses():
    environment, gate = gate_on(CASES[0], auto_read=False)
    assert premature(CASES[0], gate)["status"] == "gate_denied"
    assert environment.trajectory().steps == ()
    assert gate.log[0][0] == "denied"


def test_a_documented_record_that_is_withheld_stops_the_call():
    refused = 0
    for case in CASES:
        withheld = intervene(case, "withheld")
        environment, gate = gate_on(withheld)
        response = premature(withheld, gate)
        attempted = any(step.outcome in ("executed", "blocked") for step in environment.trajectory().steps)
        assert attempted == (response["status"] != "gate_denied")
        refused += not attempted
    assert refused >= 5


def test_without_documentation_it_is_no_gate():
    for case in SUITE[86::20]:
        faults = Faults(skip=0.3, eager=0.3)
        alone, wrapped = play(case, faults, 3), play(undocumented(case), faults, 3, gather=True)
        assert alone == wrapped


def test_gathered_evidence_is_on_the_ledger_before_the_action():
    faults = Faults(eager=1.0)
    workflows = [case for case in SUITE if case.view.protocol in ("v2", "v3")]
    alone = sum(evaluate(case, play(case, faults, 0)).gap for case in workflows)
    wrapped = sum(evaluate(case, play(case, faults, 0, gather=True)).gap for case in workflows)
    assert alone == len(workflows) and wrapped < 0.8 * alone


@pytest.mark.parametrize(
    "rule, value, fine",
    [
        ("any", "x", True),
        ("True", True, True),
        ("False", True, False),
        ("18 | 20 | 21", 20, True),
        ("18 | 20 | 21", 45, False),
        ("at most $500.00", "$499.99", True),
        ("at most $500.00", "$500.01", False),
        ("any", UNAVAILABLE, False),
    ],
)
def test_documented_values(rule, value, fine):
    assert _permits(rule, value) == fine
