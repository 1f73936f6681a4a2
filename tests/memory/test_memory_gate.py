import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.memory.errors import MemoryFault
from reprise.memory.gate import SequentialGate, accept_probability, compare, delta_distribution, false_accept

BEFORE, AFTER = [0, 0, 1, 1, 0, 1, 0, 0], [1, 0, 1, 0, 1, 1, 1, 0]
REWARDS = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), max_size=20)


@pytest.mark.parametrize(
    "close, delta, accepted",
    [(1, 2, True), ("1/2", Fraction(1, 2), True), ("1/3", 0, False), ("0.3", Fraction(-1, 10), False)],
)
def test_three_wins_and_one_loss(close, delta, accepted):
    found = compare(BEFORE, AFTER, close)
    assert (found.wins, found.losses, found.ties) == (3, 1, 4)
    assert (found.delta, found.accepted) == (delta, accepted)


def test_a_missing_answer_loses_what_was_right_and_ties_what_was_wrong():
    found = compare([1, 0, None, 1], [None, None, 1, 1])
    assert (found.wins, found.losses, found.ties, found.coverage) == (0, 1, 3, Fraction(1, 4))


@given(REWARDS, st.fractions(0, 3, max_denominator=9), st.fractions(0, 3, max_denominator=9))
def test_metamorphic(pairs, low, high):
    before, after = [b for b, _ in pairs], [a for _, a in pairs]
    one, back, twice = compare(before, after), compare(after, before), compare(before * 2, after * 2)
    assert one.wins - one.losses == back.losses - back.wins
    assert (twice.wins, twice.losses, twice.accepted) == (2 * one.wins, 2 * one.losses, one.accepted)
    low, high = sorted((low, high))
    assert compare(before, after, low).accepted <= compare(before, after, high).accepted
    assert compare(before, after, 1000).accepted == (one.wins > 0)


NOOP = [
    (1, (0.0475, 0.0900, 0.1600)),
    (4, (0.1535, 0.2411, 0.3201)),
    (16, (0.3231, 0.3793, 0.4117)),
    (32, (0.3812, 0.4160, 0.4376)),
]


@pytest.mark.parametrize("batch, reported", NOOP)
def test_how_often_a_useless_change_passes(batch, reported):
    found = [accept_probability(batch, 0, 0, flip) for flip in (0.05, 0.1, 0.2)]
    assert found == pytest.approx(reported, abs=5e-5)


@pytest.mark.parametrize(
    "gains, close, reported",
    [
        (0, "1/2", (0.2698, 0.2446, 0.1960)),
        (1, 1, (0.6474, 0.5754, 0.5190)),
        (2, 1, (0.8673, 0.7508, 0.6246)),
        (4, 1, (0.9905, 0.9434, 0.8024)),
        (4, "1/2", (0.9048, 0.7521, 0.5000)),
    ],
)
def test_how_often_a_useful_change_passes(gains, close, reported):
    found = [accept_probability(16, gains, 0, flip, close) for flip in (0.05, 0.1, 0.2)]
    assert found == pytest.approx(reported, abs=5e-5)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2), st.integers(0, 2), st.floats(0, 0.5), st.sampled_from([0, 1, "1/2", "2/3", 2]))
def test_the_distribution_is_that_of_every_pattern_of_flips(gains, losses, flip, close):
    truth = [(0, 1)] * gains + [(1, 0)] * losses + [(1, 1)]
    expected = {}
    for flips in itertools.product([0, 1], repeat=2 * len(truth)):
        seen = [(b ^ x, a ^ y) for (b, a), x, y in zip(truth, flips[::2], flips[1::2], strict=True)]
        delta = compare([b for b, _ in seen], [a for _, a in seen], close).delta
        weight = math.prod(flip if x else 1 - flip for x in flips)
        expected[float(delta)] = expected.get(float(delta), 0) + weight
    values, probability = delta_distribution(len(truth), gains, losses, flip, close)
    found = {}
    for value, p in zip(values, probability, strict=True):
        found[value] = found.get(value, 0) + p
    for value in expected | found:
        assert found.get(value, 0) == pytest.approx(expected.get(value, 0), abs=1e-12)


def test_a_false_accept_is_rarer_the_larger_the_gain_that_was_seen():
    chances = [false_accept(16, Fraction(delta), 0.1) for delta in range(1, 8)]
    assert chances[0] == pytest.approx(accept_probability(16, 0, 0, 0.1))
    assert all(a > b for a, b in itertools.pairwise(chances)) and chances[-1] < 0.001


def evaluations(rng, gains, losses, same, flip, count):
    before = np.array([0] * gains + [1] * losses + [0, 1] * (same // 2))
    after = np.array([1] * gains + [0] * losses + [0, 1] * (same // 2))
    for _ in range(count):
        noise = rng.random((2, before.size)) < flip
        yield compare(list(before ^ noise[0]), list(after ^ noise[1]))


def accepted_share(gate, gains, losses, flip, runs=1500):
    rng, accepted = np.random.default_rng(7), 0
    for _ in range(runs):
        seen, verdict = [], None
        stream = evaluations(rng, gains, losses, 12, flip, gate.max_evaluations)
        while verdict is None:
            seen.append(next(stream))
            verdict = gate.decide(seen)
        accepted += verdict
    return accepted / runs


@pytest.mark.parametrize("gains, losses", [(0, 0), (2, 2), (0, 2)])
def test_the_sequential_gate_keeps_its_bound_where_the_plain_one_does_not(gains, losses):
    gate = SequentialGate(alpha=0.05)
    assert accepted_share(gate, gains, losses, 0.2) <= 0.05 + 0.012  # two standard errors
    if gains == losses == 0:
        assert accept_probability(12, 0, 0, 0.2) > 0.39


def test_the_sequential_gate_still_finds_a_useful_change():
    assert accepted_share(SequentialGate(alpha=0.05, max_evaluations=12), 4, 0, 0.1) > 0.9


def test_evidence_does_not_depend_on_the_order_of_evaluations():
    gate = SequentialGate()
    one, two = compare([0, 0], [1, 1]), compare([1, 0], [0, 0])
    assert gate.log_evidence([one, two]) == gate.log_evidence([two, one]) == pytest.approx(math.log(1.5**2 * 0.5))


@pytest.mark.parametrize(
    "wins, losses, verdict",
    [
        (7, 0, None),  # 1.5^7 = 17.1 < 1/0.05
        (8, 0, True),  # 25.6
        (0, 4, None),  # 0.5^4 = 0.0625 > 0.05
        (0, 5, False),  # 0.031
        (2, 5, None),  # 0.0703
    ],
)
def test_the_sequential_gate_decides_at_1_over_alpha_and_at_hopeless(wins, losses, verdict):
    before, after = [0] * wins + [1] * losses, [1] * wins + [0] * losses
    gate = SequentialGate(alpha=0.05, theta=0.75, hopeless=0.05, max_evaluations=2)
    assert gate.decide([compare(before, after)]) is verdict
    assert gate.decide([compare([0], [0]), compare(before, after)]) is bool(verdict)  # the last evaluation decides


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: compare([0], [0, 1]), "after=2"),
        (lambda: compare([0], [math.nan]), r"after\[0\]"),
        (lambda: compare([0], [1], -1), "close"),
        (lambda: compare([0], [1], "x"), "close"),
        (lambda: accept_probability(2, 2, 1, 0.1), "gains=2"),
        (lambda: accept_probability(2, 0, 0, 0.6), "flip"),
        (lambda: SequentialGate(alpha=0), "alpha"),
        (lambda: SequentialGate(theta=0.5), "theta"),
        (lambda: SequentialGate(hopeless=1), "hopeless"),
        (lambda: SequentialGate(max_evaluations=0), "max_evaluations"),
    ],
)
def test_a_bad_argument_is_named(call, name):
    with pytest.raises(MemoryFault, match=name):
        call()
