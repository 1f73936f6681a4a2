import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.policy_gradient import (
    PolicyGradientError,
    clipped_objective,
    dead_groups,
    group_advantages,
    grpo_loss,
    k3_kl,
)

EIGHT = [1, 1, -1, 0.80326533, -1, -1, 0.5, -1]


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"delta": 1e-4}, [1.100059, 1.100059, -0.923798, 0.900978, -0.923798, -0.923798, 0.594095, -0.923798]),
        ({"delta": 1e-6}, [1.100170, 1.100170, -0.923891, 0.901068, -0.923891, -0.923891, 0.594155, -0.923891]),
        ({"scale": "population"}, [1.176131, 1.176131, -0.98768, 0.963282, -0.98768, -0.98768, 0.635178, -0.98768]),
    ],
)
def test_group_advantages_match_published_conventions(options, expected):
    assert group_advantages(EIGHT, [0] * 8, **options) == pytest.approx(expected, abs=2e-6)


def test_group_advantages_by_hand():
    # two groups, interleaved: rewards 1, 3 and 0, 4; unbiased std sqrt(2) and sqrt(8)
    got = group_advantages([1, 0, 3, 4], ["a", "b", "a", "b"], delta=0)
    assert got == pytest.approx([-(0.5**0.5), -(0.5**0.5), 0.5**0.5, 0.5**0.5])
    assert group_advantages([1, 0, 3, 4], [0, 1, 0, 1], scale="none").tolist() == [-1, -2, 1, 2]


def test_equal_rewards_give_exact_zeros():
    assert group_advantages([0.1] * 3 + [0.7] * 3, [0] * 3 + [1] * 3).tolist() == [0.0] * 6


@given(st.lists(st.integers(-8, 8), min_size=2, max_size=12), st.integers(-50, 50), st.randoms())
def test_group_advantages_ignore_a_shift_and_follow_a_permutation(rewards, shift, random):
    groups = [0] * len(rewards)
    got = group_advantages(rewards, groups)
    assert group_advantages([r + shift for r in rewards], groups) == pytest.approx(got, abs=1e-9)
    order = list(range(len(rewards)))
    random.shuffle(order)
    assert group_advantages([rewards[i] for i in order], groups) == pytest.approx(got[order], abs=1e-9)


@pytest.mark.parametrize(
    "kwargs, name",
    [
        ({"rewards": [1, 2], "groups": [0, 1]}, "groups"),
        ({"rewards": [1, 2], "groups": [0]}, "groups"),
        ({"rewards": [1, float("nan")], "groups": [0, 0]}, r"rewards\[1\]"),
        ({"rewards": [1, 2], "groups": [0, 0], "scale": "max"}, "scale"),
    ],
)
def test_group_advantages_name_the_bad_argument(kwargs, name):
    with pytest.raises(PolicyGradientError, match=f"^{name}"):
        group_advantages(**kwargs)


@pytest.mark.parametrize("rho, advantage, value", [(1.3, 1, 1.2), (1.3, -1, -1.3), (0.7, 1, 0.7), (0.7, -1, -0.8)])
def test_clipped_objective_of_one_token(rho, advantage, value):
    new, old = np.array([[np.log(rho)]]), np.zeros((1, 1))
    got = clipped_objective(new, old, np.array([float(advantage)]), np.ones((1, 1), bool), clip=0.2)
    assert got == pytest.approx(value)


def test_the_two_averages_by_hand():
    # on policy, so each token is worth its advantage: lengths 1 and 3, advantages 2 and -2
    logp, mask = np.zeros((2, 3)), np.array([[1, 0, 0], [1, 1, 1]], bool)
    advantages = np.array([2.0, -2.0])
    assert clipped_objective(logp, logp, advantages, mask) == pytest.approx(0.0)
    assert clipped_objective(logp, logp, advantages, mask, aggregate="token") == pytest.approx((2 - 6) / 4)


def test_padding_does_not_leak_into_value_or_gradient():
    torch = pytest.importorskip("torch")
    new = torch.tensor([[-1.0, -np.inf], [-2.0, -3.0]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False], [True, True]])
    objective = clipped_objective(new, new.detach(), torch.tensor([1.0, -3.0], dtype=torch.float64), mask)
    objective.backward()
    assert objective.item() == pytest.approx(-1.0)
    # on policy the gradient is A / (length * sequences) where a token counts, and 0 elsewhere
    assert new.grad.tolist() == [[0.5, 0.0], [-0.75, -0.75]]


@pytest.mark.parametrize("aggregate", ["sequence", "token"])
def test_clipped_objective_passes_gradcheck(aggregate):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    old = torch.tensor(rng.normal(size=(3, 4)))
    new = (old + 0.5 * torch.tensor(rng.normal(size=(3, 4)))).requires_grad_()
    advantages, mask = torch.tensor(rng.normal(size=3)), torch.tensor(rng.random((3, 4)) < 0.8)
    mask[:, 0] = True
    assert torch.autograd.gradcheck(lambda x: clipped_objective(x, old, advantages, mask, aggregate=aggregate), new)


def test_clipped_objective_refuses_what_has_no_average():
    logp = np.zeros((2, 2))
    with pytest.raises(PolicyGradientError, match="^mask"):
        clipped_objective(logp, logp, np.ones(2), np.array([[True, True], [False, False]]))
    with pytest.raises(PolicyGradientError, match="^clip=0"):
        clipped_objective(logp, logp, np.ones(2), np.ones((2, 2), bool), clip=0)
    with pytest.raises(PolicyGradientError, match="^logp_old="):
        clipped_objective(logp, logp[:1], np.ones(2), np.ones((2, 2), bool))


def test_k3_matches_hand_values():
    x = np.array([-1, -0.5, 0, 0.5, 1, 5])
    assert k3_kl(-x, np.zeros(6)) == pytest.approx([0.3678794, 0.1065307, 0, 0.1487213, 0.7182818, 142.4131591])


def test_k3_averages_to_the_divergence():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(2, 7))
    logp, logp_ref = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    p = np.exp(logp)
    assert (p * k3_kl(logp, logp_ref)).sum() == pytest.approx((p * (logp - logp_ref)).sum(), abs=1e-12)


def test_k3_as_verl_cuts_it():
    x = np.array([-30.0, -20, -1, 0, 1, 5, 30, 800])
    assert k3_kl(-x, np.zeros(8), clamp=True) == pytest.approx([10, 10, 0.3678794, 0, 0.7182818, 10, 10, 10])


def test_dead_groups_are_those_with_one_reward():
    assert dead_groups([1, 1, 0, 1, 0.5, 0.5, 0.5, 2], [0, 0, 1, 1, 2, 2, 3, 3]) == 2
    assert dead_groups([], []) == 0


@pytest.mark.parametrize("aggregate, expected", [("token", (-2 + 6) / 4), ("sequence", (-2 + 6 / 3) / 2)])
def test_the_loss_on_policy_by_hand(aggregate, expected):
    # ratio 1 and reference equal: what is left is -A, averaged over lengths 1 and 3
    logp, mask = np.full((2, 3), -0.7), np.array([[1, 0, 0], [1, 1, 1]], bool)
    loss = grpo_loss(logp, logp, logp, np.array([2.0, -2.0]), mask, aggregate=aggregate)
    assert loss == pytest.approx(expected)


@pytest.mark.parametrize("aggregate", ["token", "sequence"])
@pytest.mark.parametrize("clamp", [False, True])
def test_the_loss_is_its_two_terms(aggregate, clamp):
    rng = np.random.default_rng(3)
    new, old, ref = rng.normal(-2, 1.5, (3, 4, 5))
    mask = rng.random((4, 5)) < 0.7
    mask[:, 0] = True
    advantages = rng.normal(size=4)
    k3 = np.where(mask, k3_kl(new, ref, clamp=clamp), 0)
    mean = k3.sum() / mask.sum() if aggregate == "token" else (k3.sum(1) / mask.sum(1)).mean()
    expected = 0.3 * mean - clipped_objective(new, old, advantages, mask, aggregate=aggregate)
    got = grpo_loss(new, old, ref, advantages, mask, kl_weight=0.3, aggregate=aggregate, clamp=clamp)
    assert got == pytest.approx(expected)


@pytest.mark.parametrize("aggregate", ["token", "sequence"])
def test_the_loss_passes_gradcheck_and_padding_stays_out(aggregate):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    old, ref = (torch.tensor(rng.normal(-2, 0.5, (3, 4))) for _ in range(2))
    new = (old + 0.3 * torch.tensor(rng.normal(size=(3, 4)))).requires_grad_()
    advantages, mask = torch.tensor(rng.normal(size=3)), torch.tensor(rng.random((3, 4)) < 0.7)
    mask[:, 0] = True

    def loss(new, old, ref):
        return grpo_loss(new, old, ref, advantages, mask, kl_weight=0.1, aggregate=aggregate)

    assert torch.autograd.gradcheck(loss, (new, old, ref), atol=1e-6)
    padded = [torch.where(mask, each.detach(), -torch.inf) for each in (new, old, ref)]
    assert loss(*padded).item() == pytest.approx(loss(new, old, ref).item())


def test_the_loss_names_the_bad_argument():
    logp, mask = np.zeros((2, 2)), np.ones((2, 2), bool)
    with pytest.raises(PolicyGradientError, match="^kl_weight=-1"):
        grpo_loss(logp, logp, logp, np.ones(2), mask, kl_weight=-1)
    with pytest.raises(PolicyGradientError, match="^logp_ref="):
        grpo_loss(logp, logp, logp[:1], np.ones(2), mask)
    with pytest.raises(PolicyGradientError, match="^aggregate='mean'"):
        grpo_loss(logp, logp, logp, np.ones(2), mask, aggregate="mean")
