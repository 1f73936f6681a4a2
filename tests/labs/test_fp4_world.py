import hashlib

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch

from reprise.labs import fp4_world as world
from reprise.nb import paths

# of data/checkpoints/fp4/sort_digits.safetensors, `python -m reprise.labs.fp4_world`
SHA256 = "e7b470f4ac4fd21ef0589477fbc5fea69fc756be252165aea1f45f664bd77238"

pytestmark = pytest.mark.usefixtures("one_thread")


def test_prompts_answers_and_rewards():
    asked = world.prompts(np.random.default_rng(0), 5)
    assert asked.shape == (5, world.PROMPT_TOKENS)
    assert (asked[:, 0] == world.START).all() and (asked[:, -1] == world.SEPARATOR).all()
    right = world.answers(asked)
    assert sorted(asked[2, 1:-1]) == right[2].tolist()
    wrong = right.copy()
    wrong[1, 3] += 1
    assert world.rewards(asked, wrong).tolist() == [1, 0, 1, 1, 1]


def test_the_checkpoint_is_the_one_that_was_made():
    path = paths.root() / world.CHECKPOINT
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SHA256
    model = world.load_checkpoint(path)
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_039_456
    assert all(torch.equal(p, p.bfloat16().float()) for p in model.parameters())


def test_the_checkpoint_half_knows_the_task():
    rng = np.random.default_rng(1)
    asked = world.prompts(rng, 200)
    model = world.load_checkpoint(paths.root() / world.CHECKPOINT)
    tokens, logps = world.sample(model, asked, rng.random((200, world.ANSWER_TOKENS)))
    assert 0.2 < world.rewards(asked, tokens).mean() < 0.5
    with torch.no_grad():
        again = world.answer_logprobs(model, torch.from_numpy(np.hstack([asked, tokens])))
    assert np.allclose(again.numpy(), logps, atol=1e-4)


@pytest.mark.slow
def test_the_checkpoint_can_be_made_again(tmp_path):
    made = world.train_sft(0).state_dict()
    stored = world.load_checkpoint(paths.root() / world.CHECKPOINT).state_dict()
    for name, tensor in stored.items():
        # another CPU adds in another order, and 64 steps carry that on
        assert (made[name] - tensor).abs().max() < 0.02, name
    world.save_checkpoint(world.load_checkpoint(paths.root() / world.CHECKPOINT), tmp_path / "copy.safetensors")
    assert hashlib.sha256((tmp_path / "copy.safetensors").read_bytes()).hexdigest() == SHA256


def test_decoding_can_be_continued():
    model = world.build(np.random.default_rng(0), num_hidden_layers=1)
    rng = np.random.default_rng(2)
    asked, uniforms = world.prompts(rng, 3), rng.random((3, 6))
    whole, logps = world.sample(model, asked, uniforms)
    first, one, cache = world.decode(model, asked, uniforms[:, :2])
    rest, other, _ = world.decode(model, first[:, -1:], uniforms[:, 2:], cache)
    assert np.array_equal(np.hstack([first, rest]), whole)
    assert np.allclose(np.hstack([one, other]), logps, atol=1e-5)


def test_a_newer_version_leaves_the_old_one_alone():
    old = world.build(np.random.default_rng(0), num_hidden_layers=1)
    before = {name: tensor.clone() for name, tensor in old.state_dict().items()}
    new = world.newer(old, 2, 1e-3, np.random.default_rng(1)).state_dict()
    assert all(torch.equal(tensor, before[name]) for name, tensor in old.state_dict().items())
    # two AdamW steps of at most the learning rate each
    moved = max(float((new[name] - tensor).abs().max()) for name, tensor in before.items())
    assert 1e-3 < moved < 2.1e-3


@pytest.mark.parametrize("options, name", [(dict(steps=1, lr=0.0), "lr"), (dict(steps=-1, lr=1.0), "steps")])
def test_bad_settings_are_named(options, name):
    with pytest.raises(world.WorldError, match=f"^{name}="):
        world.sft(torch.nn.Linear(1, 1), np.random.default_rng(0), **options)
