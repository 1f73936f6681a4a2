"""The losses, the reward and the packed rows of the auditor beside TRL and transformers themselves."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
dpo = pytest.importorskip("trl.trainer.dpo_trainer")
grpo = pytest.importorskip("trl.trainer.grpo_trainer")

from reprise.audit.boundary_pairs import bppo_loss  # noqa: E402
from reprise.audit.packed import branch_sums, pack_prefixes, stack, token_logprobs  # noqa: E402
from reprise.policy_gradient import grpo_loss  # noqa: E402

ALONE = SimpleNamespace(  # one process: gathering and reducing change nothing
    device="cpu", gather_for_metrics=lambda x: x, gather=lambda x: x, reduce=lambda x, reduction: x, sync_gradients=True
)


class Trainer(SimpleNamespace):
    """A trainer without a model; what is not named is switched off."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def trl_dpo_loss(chosen, rejected, ref_chosen, ref_rejected):
    """DPOTrainer's own loss on a batch [chosen, rejected]; one token carries a sequence's whole log-probability."""
    logps = torch.cat([chosen, rejected])[:, None]
    logged = dict.fromkeys(("entropy", "mean_logits"), torch.zeros_like(logps))
    outputs = SimpleNamespace(log_probs=logps, is_top1=torch.ones_like(logps, dtype=torch.bool), **logged)
    trainer = Trainer(
        model=SimpleNamespace(training=True), accelerator=ALONE,
        precompute_ref_logps=True, f_divergence_type="reverse_kl",
        loss_types=["sigmoid"], loss_weights=[1.0], beta=0.1, _tp_size=1, _total_train_tokens=0,
        _metrics={"train": defaultdict(list)},
    )  # fmt: skip
    ids = torch.zeros(len(logps), 2, dtype=torch.long)
    inputs = {"input_ids": ids, "attention_mask": ids + 1, "completion_mask": torch.tensor([[0, 1]] * len(logps))}
    inputs |= {"ref_chosen_logps": ref_chosen, "ref_rejected_logps": ref_rejected}
    return dpo.DPOTrainer._compute_loss(trainer, lambda **_: outputs, inputs, False)


def test_one_side_of_the_boundary_is_the_sigmoid_loss_of_trl():
    rng = np.random.default_rng(0)
    logps = [torch.tensor(rng.normal(-5, 2, size=7), requires_grad=True) for _ in range(4)]
    theirs = trl_dpo_loss(*logps)
    ours = bppo_loss(*logps, torch.zeros(7, dtype=torch.bool), allow_single_side=True)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-12)
    for a, b in zip(torch.autograd.grad(ours, logps[:2]), torch.autograd.grad(theirs, logps[:2]), strict=True):
        assert torch.allclose(a, b, atol=1e-12)


def test_both_sides_are_two_runs_of_that_loss():
    logps = [torch.tensor(np.random.default_rng(1).normal(-5, 2, size=5)) for _ in range(4)]
    at_error = torch.tensor([False, True, True, False, True])
    theirs = sum(trl_dpo_loss(*(each[side] for each in logps)) for side in (at_error, ~at_error))
    assert bppo_loss(*logps, at_error).item() == pytest.approx(theirs.item(), abs=1e-12)


def trl_grpo_loss(new, old, ref, advantages, mask, loss_type, beta):
    trainer = Trainer(
        model=SimpleNamespace(training=True), accelerator=ALONE, beta=beta, loss_type=loss_type,
        top_entropy_quantile=1.0, importance_sampling_level="token", epsilon_low=0.2, epsilon_high=0.2,
        current_gradient_accumulation_steps=1, args=SimpleNamespace(delta=None, use_bias_correction_kl=False),
        _metrics={"train": defaultdict(list)}, entropy_coef=0.0,
        _get_per_token_logps_and_entropies=lambda *_, **__: (new, torch.zeros_like(new), None),
    )  # fmt: skip
    ids = torch.zeros(new.shape, dtype=torch.long)
    inputs = {"prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1] + 1, "completion_ids": ids}
    inputs |= {"completion_mask": mask.long(), "advantages": advantages, "old_per_token_logps": old}
    return grpo.GRPOTrainer._compute_loss(trainer, None, inputs | {"ref_per_token_logps": ref})


@pytest.mark.parametrize("aggregate, loss_type", [("sequence", "grpo"), ("token", "bnpo")])
@pytest.mark.parametrize("beta", [0.0, 1e-3, 0.5])
def test_the_policy_loss_is_that_of_trl(aggregate, loss_type, beta):
    rng = np.random.default_rng(2)
    new, old, ref = (torch.tensor(rng.normal(-2, 0.4, size=(6, 5)), requires_grad=True) for _ in range(3))
    advantages, mask = torch.tensor(rng.normal(size=6)), torch.tensor(rng.random((6, 5)) < 0.7)
    mask[:, 0] = True
    theirs = trl_grpo_loss(new, old, ref, advantages, mask, loss_type, beta)
    ours = grpo_loss(new, old, ref, advantages, mask, kl_weight=beta, aggregate=aggregate, clamp=False)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-12)
    (a,), (b,) = torch.autograd.grad(ours, [new]), torch.autograd.grad(theirs, [new])
    assert torch.allclose(a, b, atol=1e-12)


def test_packed_is_one_forward_pass_a_branch_in_a_llama():
    shape = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=60)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**shape, num_key_value_heads=2, initializer_range=0.3, attn_implementation="sdpa")
    llama = transformers.LlamaForCausalLM(config).eval()
    rng = np.random.default_rng(3)
    transcript = rng.integers(60, size=12)
    branches = [(end, rng.integers(60, size=size)) for end, size in ((5, 3), (5, 4), (12, 1), (1, 2))]
    batch = stack([pack_prefixes(transcript, branches), pack_prefixes(transcript[:6], branches[:1])])
    with torch.no_grad():
        mask = torch.from_numpy(batch.mask)[:, None]
        packed = llama(torch.from_numpy(batch.ids), attention_mask=mask, position_ids=torch.from_numpy(batch.positions))
        values = branch_sums(token_logprobs(packed.logits, batch), batch)
        for (end, response), value in zip([*branches, branches[0]], values, strict=True):
            ids = torch.from_numpy(np.concatenate([transcript[:end], response]))[None]
            logp = llama(ids).logits[0, end - 1 : -1].log_softmax(-1).gather(-1, ids[0, end:, None])
            assert value.item() == pytest.approx(logp.sum().item(), abs=1e-5)
