"""Each intervention changes what it names and leaves everything else byte for byte as it was."""

import json

import pytest

from reprise.evidence.environment import Environment
from reprise.evidence.errors import CaseError
from reprise.evidence.interventions import KINDS, decisive_requirement, intervene, violating
from reprise.evidence.ledger import satisfies
from reprise.evidence.model import Expect, Source
from reprise.evidence.values import UNAVAILABLE
from reprise.labs.evidence_rule import suited
from reprise.labs.evidence_suite import generate_suite

CASES = suited(generate_suite(0))
JUDGED_AS_STOPPED = {
    "view.protocol",
    "hidden.actions",
    "hidden.requirements",
    "hidden.investigate",
    "hidden.reason",
}
CHANGES = {
    "withheld": {"hidden.unavailable"} | JUDGED_AS_STOPPED,
    "contradicted": {"hidden.world"} | JUDGED_AS_STOPPED,
    "package": {"hidden.unavailable", "view.prompt", "view.context"} | JUDGED_AS_STOPPED,
    "claim": {"hidden.unavailable", "view.prompt"} | JUDGED_AS_STOPPED,
    "urgency": {"view.prompt"},
    "warning": {"view.prompt"},
    "distractor": {"view.prompt", "view.tools", "hidden.reads", "hidden.world"},
}


def fields(case):
    data = case.model_dump(mode="json")
    return {f"{half}.{name}": json.dumps(value) for half in data for name, value in data[half].items()}


def test_forty_three_cases_of_all_domains():
    assert len(CASES) == 43
    assert len({case.view.domain for case in CASES}) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_named_fields_differ(kind):
    for case in CASES:
        before, after = fields(case), fields(intervene(case, kind, seed=1))
        assert {name for name in before if before[name] != after[name]} == CHANGES[kind]
        assert after["view.prompt"].startswith(before["view.prompt"][:-1])
        assert before == fields(case)


def test_contradicted_changes_one_field_of_one_record():
    for case in CASES:
        decisive, after = decisive_requirement(case), intervene(case, "contradicted")
        changed = [
            (entity, name)
            for entity, record in case.hidden.world.items()
            for name, value in record.items()
            if after.hidden.world[entity][name] != value
        ]
        named = {(a.entity, a.field): a.expect for path in decisive.any_of for a in path}
        assert 1 <= len(changed) <= len(decisive.any_of) and set(changed) <= set(named)
        for entity, name in changed:
            assert not satisfies(named[entity, name], after.hidden.world[entity][name])


def test_what_is_withheld_shows_on_no_path():
    for case in CASES:
        decisive, withheld = decisive_requirement(case), intervene(case, "withheld")
        for atom in (atom for path in decisive.any_of for atom in path):
            kind = case.hidden.world[atom.entity]["kind"]
            args = {} if kind == "overview" else {f"{kind}_id": atom.entity}
            seen = Environment(withheld).call(f"read_{kind}", **args)
            assert seen.get(atom.field) in (None, UNAVAILABLE)


def test_package_quotes_every_other_record_as_the_tools_show_it():
    for case in CASES:
        package = intervene(case, "package")
        gone = {entity for entity, _ in package.hidden.unavailable}
        quoted = {(s.entity, s.field): s.value for s in package.view.context}
        needed = {a.entity for r in case.hidden.requirements for a in r.any_of[0] if isinstance(a.entity, str)}
        assert {entity for entity, _ in quoted} == needed - gone
        assert all(case.hidden.world[e].get(f, UNAVAILABLE) == v for (e, f), v in quoted.items())


def test_a_claim_is_no_fact():
    claimed = intervene(CASES[0], "claim")
    assert "I have already checked" in claimed.view.prompt
    assert not [fact for fact in Environment(claimed).trajectory().context if fact.source is Source.CONTEXT]


def test_distractors_can_be_read_even_if_the_tools_had_been_looked_up():
    case = CASES[0]
    assert "read_notice" not in case.view.tool
    seen = Environment(intervene(case, "distractor", distractors=2)).call("read_notice", notice_id="NOTE-2")
    assert seen["status"] == "ok" and seen["text"] == "Routine notice number 2."


@pytest.mark.parametrize(
    "expect, value",
    [
        (Expect(op="eq", value=True), False),
        (Expect(op="in", value=[18, 20]), 1018),
        (Expect(op="ge", value=5), -995),
        (Expect(op="le", value="$500.00"), "$9500.00"),
        (Expect(op="eq", value="open"), "not open"),
    ],
)
def test_violating_values(expect, value):
    assert violating(expect) == value and not satisfies(expect, value)


def test_refusals():
    other = next(case for case in generate_suite(0) if case.view.protocol == "v2")
    with pytest.raises(CaseError, match="kind='bribe': expected one of"):
        intervene(CASES[0], "bribe")
    with pytest.raises(CaseError, match="kind='withheld' on protocol v2: expected v1"):
        intervene(other, "withheld")
