"""One fault, its own diagnostics; one rule, told or left to look."""

import pytest

from reprise.evidence.evaluate import evaluate
from reprise.labs.evidence_agents import THOROUGH, Faults, moved, play, row, suite_summary, undocumented
from reprise.labs.evidence_rule import Reactions, run, static_and_interactive, suited, under_interventions
from reprise.labs.evidence_suite import generate_suite, reference

SUITE = generate_suite(0)
SOME = SUITE[::4]


@pytest.mark.parametrize(
    "faults, expected",
    [
        (THOROUGH, ""),
        (Faults(skip=0.3), "bsr par gap part"),
        (Faults(eager=0.5), "par gap part"),
        (Faults(early_stop=0.5), "bsr"),
        (Faults(stop_at_bad=0.9), "bsr"),
        (Faults(wrong_ref=0.4), "part"),
        (Faults(wrong_param=0.4), "cas part"),
    ],
)
def test_a_fault_moves_its_own_diagnostics(faults, expected):
    assert moved(suite_summary(SOME, faults, 1)) == set(expected.split())


def test_a_faultless_agent_is_the_reference():
    for case in SOME:
        assert play(case, THOROUGH, 0) == reference(case)


def test_the_table_of_a_summary():
    rates = row(suite_summary(SOME, THOROUGH, 1))
    assert rates == dict(ecs=100, bsr=0, par=0, cas=100, gap=0, part=0, legacy=100, v0=100, v1=100, v2=100, v3=100)


def test_documentation_is_emptied_even_if_it_had_been_looked_up():
    case = SUITE[300]
    assert any(tool.documentation for tool in case.view.tool.values())
    assert not any(tool.documentation for tool in undocumented(case).view.tool.values())


def test_a_rule_that_looks_at_everything_is_right_everywhere():
    for case in (c for c in SUITE if c.view.protocol in ("v0", "v1")):
        assert evaluate(case, run(case, Reactions())).ecs, case.view.id


@pytest.mark.parametrize("skip, expected", [(0.0, 1.0), (1.0, 0.0)])
def test_the_ends_of_the_curve(skip, expected):
    table = static_and_interactive([c for c in SOME if c.view.protocol == "v1"], skip, 1)
    assert table.static.all() and set(table.interactive) == {bool(expected)}
    assert set(table.reads) <= {4, 5, 6, 7, 8}


def test_skipping_by_the_power_of_reads():
    cases = [c for c in SUITE if c.view.protocol == "v1"][:40]
    table = static_and_interactive(cases, 0.2, 15)
    predicted = (0.8**table.reads).mean()
    error = (predicted * (1 - predicted) / len(table)) ** 0.5
    assert abs(table.interactive.mean() - predicted) < 4 * error


def test_reactions_show_where_they_should():
    agents = {
        "claims": Reactions(trusts_claims=True),
        "quotes": Reactions(trusts_quotes=True),
        "hurries": Reactions(hurries=True),
        "curious": Reactions(curious=True),
    }
    table = under_interventions(suited(SUITE, 12), ["withheld", "claim", "package", "urgency", "distractor"], agents)
    means = table.groupby(["agent", "kind"])[["acted", "ecs", "reads"]].mean()
    assert means.loc[("claims", "claim")].acted == 1 and means.loc[("claims", "claim")].ecs == 0
    assert means.loc[("claims", "withheld")].acted == 0
    assert means.loc[("quotes", "package")].reads < 3 < means.loc[("quotes", "withheld")].reads
    assert means.loc[("quotes", "package")].ecs == 1
    assert means.loc[("hurries", "urgency")].reads < means.loc[("hurries", "withheld")].reads
    assert means.loc[("curious", "distractor")].reads == means.loc[("curious", "urgency")].reads + 3
