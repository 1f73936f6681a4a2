import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.audit.boundary_pairs import Side, boundary_prompts, bppo_loss, implicit_margin, preference_pair
from reprise.audit.errors import AuditError
from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import SAFE, alarm, invalid
from reprise.traces import Turn

TURNS = tuple(Turn(role, "say", str(k)) for k, role in enumerate(["user", "A", "B (-> A)", "A"]))


def run(step, agent="B (-> A)"):
    return Trajectory("run", TURNS, decisive_step=step, decisive_agent=agent)


def loss_of(*rows, **options):
    """BPPO of rows (chosen, rejected, ref chosen, ref rejected, at error)."""
    *logps, at_error = np.array(rows, dtype=np.float64).T
    return bppo_loss(*logps, at_error.astype(bool), **options)


def test_a_failure_gives_the_prompts_on_both_sides_of_its_error():
    before, at_error = boundary_prompts(run(2))
    assert (before.side, before.last, before.optimum) == (Side.BEFORE, 1, SAFE)
    assert (at_error.side, at_error.last, at_error.optimum) == (Side.AT_ERROR, 2, alarm(2, "B"))
    assert [p.side for p in boundary_prompts(run(0, "user"))] == ["BE"]


def test_a_safe_run_has_no_boundary():
    with pytest.raises(AuditError, match="'run': decisive_step=None"):
        boundary_prompts(run(None, None))


@pytest.mark.parametrize(
    "verdict, before, at_error",
    [
        (SAFE, True, False),
        (alarm(2, "B"), False, True),
        (alarm(2, "B (-> user)", "because"), False, True),
        (alarm(2, "A"), False, False),
        (alarm(1, "B"), False, False),
        (alarm(2), False, False),
        (invalid("cut"), False, False),
    ],
)
def test_what_is_right_on_each_side(verdict, before, at_error):
    assert [prompt.accepts(verdict) for prompt in boundary_prompts(run(2))] == [before, at_error]


def test_a_pair_needs_a_right_and_a_wrong_response():
    before, at_error = boundary_prompts(run(2))
    responses = [invalid("cut"), SAFE, alarm(2, "B"), SAFE]
    assert preference_pair(before, responses) == (1, 0)
    assert preference_pair(at_error, responses) == (2, 0)
    assert preference_pair(before, [SAFE, SAFE]) is None
    assert preference_pair(at_error, [SAFE, SAFE]) is None


def test_the_margin_and_the_loss_of_worked_pairs():
    bs, be = (-2, -3, -2.5, -2, False), (-4, -1, -6, -1.5, True)
    assert implicit_margin(*(np.array([x]) for x in bs[:4]))[0] == pytest.approx(1.5)
    assert loss_of(bs, allow_single_side=True) == pytest.approx(0.6209570478, abs=1e-10)
    assert loss_of(bs, be) == pytest.approx(1.2419140956, abs=1e-10)


def test_a_policy_that_is_the_reference_has_two_ln_two():
    rows = [(-2, -3, -2, -3, False), (-4, -1, -4, -1, True), (-9, -1, -9, -1, True)]
    assert loss_of(*rows) == pytest.approx(1.3862943611, abs=1e-10) == 2 * math.log(2)


def test_each_side_weighs_the_same_whatever_its_number_of_pairs():
    rows = [(delta, 0, 0, 0, side) for delta, side in ((0, False), (2, False), (4, False), (-1, True))]
    assert loss_of(*rows) == pytest.approx(1.3458304276, abs=1e-10)
    pooled = 2 * np.mean([loss_of(row, allow_single_side=True) for row in rows])
    assert pooled == pytest.approx(1.2743489812, abs=1e-10)


@given(st.lists(st.tuples(*[st.floats(-30, 0)] * 4, st.booleans()), min_size=1, max_size=6), st.permutations(range(6)))
def test_the_order_of_pairs_is_nothing(rows, order):
    rows = [*rows, (-1, -2, -1, -1, False), (-1, -2, -1, -1, True)]
    shuffled = [rows[k] for k in order if k < len(rows)] + rows[6:]
    assert loss_of(*shuffled) == pytest.approx(loss_of(*rows))


def test_gradients_are_the_closed_form_and_agree_with_finite_differences():
    torch = pytest.importorskip("torch")
    bs, be = (-2.0, -3.0, -2.5, -2.0), (-4.0, -1.0, -6.0, -1.5)
    chosen, rejected, *ref = (torch.tensor(column, dtype=torch.float64) for column in zip(bs, be, strict=True))
    chosen.requires_grad_(), rejected.requires_grad_()
    at_error = torch.tensor([False, True])
    bppo_loss(chosen, rejected, *ref, at_error).backward()
    assert chosen.grad.tolist() == pytest.approx([-0.0462570155] * 2, abs=1e-10)
    assert rejected.grad.tolist() == pytest.approx([0.0462570155] * 2, abs=1e-10)
    assert torch.autograd.gradcheck(lambda c, r: bppo_loss(c, r, *ref, at_error, anchor=0.25), (chosen, rejected))


@pytest.mark.parametrize("delta, expected", [(1e4, 0.0), (-1e4, 1000.0)])
def test_a_large_margin_stays_finite(delta, expected):
    torch = pytest.importorskip("torch")
    chosen = torch.tensor([delta, delta], requires_grad=True)
    zero = torch.zeros(2)
    loss = bppo_loss(chosen, zero, zero, zero, torch.tensor([False, True]))
    loss.backward()
    assert loss.item() == pytest.approx(2 * expected)
    assert chosen.grad.isfinite().all()


def test_the_anchor_holds_up_the_right_response():
    row = (-2.0, -3.0, -2.5, -2.0)
    plain = loss_of((*row, False), (*row, True))
    assert loss_of((*row, False), (*row, True), anchor=0.25) == pytest.approx(plain + 0.25 * 2.0)


@pytest.mark.parametrize("side", [False, True])
def test_one_side_alone_has_to_be_asked_for(side):
    row = (-2, -3, -2.5, -2, side)
    with pytest.raises(AuditError, match="^at_error: . BS and . BE pairs"):
        loss_of(row)
    assert loss_of(row, allow_single_side=True) > 0


def test_bad_arguments_are_named():
    row = [(-2, -3, -2.5, -2, False), (-2, -3, -2.5, -2, True)]
    for options, name in [({"beta": 0}, "beta=0"), ({"anchor": -1}, "anchor=-1")]:
        with pytest.raises(AuditError, match=f"^{name}"):
            loss_of(*row, **options)
    two, three = np.zeros(2), np.zeros(3)
    with pytest.raises(AuditError, match=r"^ref_chosen=\(3,\)"):
        bppo_loss(two, two, three, two, np.array([True, False]))
    with pytest.raises(AuditError, match="^chosen.dtype=float16"):
        implicit_margin(two.astype(np.float16), two, two, two)
