"""The chain behind an action names the read of each fact, and what is missing where it breaks."""

from functools import cache

import networkx as nx
import pytest
from refund_case import play, refund_data

from reprise.evidence.cases import parse_case
from reprise.evidence.evaluate import END, evaluate
from reprise.evidence.ledger import Status
from reprise.evidence.model import Protocol
from reprise.evidence.provenance import explain, graph, provenance
from reprise.labs.evidence_suite import MUTATIONS, generate_suite, mutate, reference

CASE = parse_case(refund_data())


def test_a_whole_chain():
    first, second = provenance(CASE, play())
    assert first.supported and second.supported and (first.action, second.action) == ("a1", "a2")
    (link,) = first.links
    assert [(a.entity, a.field, a.fact.seq, a.tool) for a in link.atoms] == [
        ("C1", "duplicate", 1, "read_charge"),
        ("C1", "amount", 1, "read_charge"),
    ]
    assert second.links[0].atoms[0].fact.seq == 3
    assert "    C1.duplicate = True: True (call 1, read_charge)" in explain(first)


def test_a_read_of_another_record_is_named():
    first, _ = provenance(CASE, play(read="C2"))
    assert [atom.elsewhere for atom in first.links[0].atoms] == [("C2",), ("C2",)]
    assert list(explain(first))[-1] == "  broke: MISSING:a1:duplicate"
    nodes, edges = graph(play(read="C2"), provenance(CASE, play(read="C2")))
    good = {node["label"]: node["good"] for node in nodes}
    assert good["1: read_charge C2"] is False and good["4: notify U1 " + play().steps[1].outputs["refund_id"]]
    assert not any(edge["source"] == "call 1" for edge in edges)


def test_a_confirmation_seen_before_its_action_is_stale():
    data = refund_data()
    data["hidden"]["requirements"][1]["any_of"] = [
        [{"entity": "C1", "field": "status", "scope": "any_version", "expect": {"op": "any"}}]
    ]
    _, second = provenance(parse_case(data), play(confirm=False))
    assert second.links[0].status is Status.STALE and second.links[0].atoms[0].status is Status.STALE


@cache
def suite():
    return [case for case in generate_suite(0)[::25] if case.view.protocol is not Protocol.LEGACY]


@pytest.mark.parametrize("kind", ["none", *MUTATIONS])
def test_chains_agree_with_the_evaluator(kind):
    for case in suite():
        if kind != "none" and case.view.protocol not in MUTATIONS[kind].protocols:
            continue
        played, run = (case, reference(case)) if kind == "none" else mutate(case, kind)
        verdict, supports = evaluate(played, run), provenance(played, run)
        assert [(s.seq, code) for s in supports for code in s.codes] == list(verdict.codes)
        assert verdict.ecs == all(support.supported for support in supports)
        for support in supports:
            for link in support.links:
                assert link.status == min(atom.status for atom in link.atoms)
                for atom in link.atoms:
                    assert atom.fact is None or support.seq == END or atom.fact.seq < support.seq
        nodes, edges = graph(run, supports)
        drawn = nx.DiGraph((edge["source"], edge["target"]) for edge in edges)
        assert nx.is_directed_acyclic_graph(drawn) and set(drawn) <= {node["id"] for node in nodes}
