"""The forward pass of the rollout engine against transformers' own Qwen3-MoE."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch

from reprise.labs.loaders import TensorParallelModel
from reprise.labs.moe_forward import EXPERTS_PER_TOKEN, fused, logits, sample, widened
from reprise.labs.qwen3_moe import shapes
from reprise.labs.residue_task import TINY

SMALLER = replace(TINY, hidden_size=32, moe_intermediate_size=16)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    """BF16 values, large enough that every part of the network matters."""
    rng = np.random.default_rng(0)
    found = {name: torch.from_numpy(rng.normal(0, 0.2, shape)) for name, shape in shapes(SMALLER).items()}
    return {name: (1 + tensor if tensor.ndim == 1 else tensor).bfloat16() for name, tensor in found.items()}


@pytest.fixture(scope="module")
def ids() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(SMALLER.vocab_size, size=(5, 9)))


@pytest.fixture(scope="module")
def reference(weights, ids) -> torch.Tensor:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        **vars(SMALLER), num_experts_per_tok=EXPERTS_PER_TOKEN, norm_topk_prob=True, tie_word_embeddings=False
    )
    model = Qwen3MoeForCausalLM(config).float()
    model.set_experts_implementation("eager")
    wide = {name: tensor.float() for name, tensor in weights.items()}
    stacked = fused(wide, SMALLER).weights
    for layer in range(SMALLER.num_hidden_layers):
        at = f"model.layers.{layer}.mlp.experts"
        wide = {name: tensor for name, tensor in wide.items() if not name.startswith(at)}
        wide |= {f"{at}.gate_up_proj": stacked[f"layers.{layer}.mlp.w13"]}
        wide |= {f"{at}.down_proj": stacked[f"layers.{layer}.mlp.w2"]}
    model.load_state_dict(wide)
    with torch.no_grad():
        return model(ids).logits


def ranks(weights, tp: int, ep: int):
    models = [TensorParallelModel(SMALLER, tp, ep, rank) for rank in range(tp)]
    for model in models:
        model.load_weights(weights.items())
    return [widened(model) for model in models]


@pytest.mark.parametrize("tp, ep", [(1, 1), (2, 1), (2, 2), (4, 2)])
def test_every_sharding_computes_what_transformers_does(weights, ids, reference, tp, ep):
    assert reference.abs().max() > 1
    torch.testing.assert_close(logits(ranks(weights, tp, ep), ids), reference, rtol=0, atol=2e-5)


def test_the_trainers_road_gives_the_same_bits_as_one_rank_and_reaches_every_parameter(weights, ids):
    leaves = {name: tensor.float().requires_grad_() for name, tensor in weights.items()}
    found = logits([fused(leaves, SMALLER)], ids)
    assert torch.equal(found, logits(ranks(weights, 1, 1), ids))
    found.logsumexp(-1).sum().backward()
    assert all(tensor.grad is not None for tensor in leaves.values())


def test_sampling_inverts_the_cumulative_distribution(weights):
    shards, prompt = ranks(weights, 2, 2), np.array([[1, 7]])
    p = logits(shards, torch.from_numpy(prompt))[0, -1].double().softmax(-1).numpy()
    grid = (np.arange(4000) + 0.5) / 4000
    tokens, logp = sample(shards, prompt.repeat(4000, 0), grid[:, None])
    assert np.abs(np.bincount(tokens[:, 0], minlength=len(p)) / 4000 - p).max() < 1 / 2000
    assert np.abs(np.exp(logp[:, 0]) - p[tokens[:, 0]]).max() < 1e-6
    again = sample(shards, prompt.repeat(2, 0), np.array([[0.1, 0.9], [0.1, 0.9]]))[0]
    assert (again[0] == again[1]).all()
