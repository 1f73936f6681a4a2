import json

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch

from reprise.labs import tiny_moe
from reprise.labs.mixed_precision import MasterWeights, TrainingError, parameter_group, warmed_up, whole_model
from reprise.labs.tiny_moe import save_checkpoint, train

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_model_is_a_qwen3_moe_of_two_million_parameters():
    model = tiny_moe.build(np.random.default_rng(0))
    assert type(model).__name__ == "Qwen3MoeForCausalLM"
    sizes = {}
    for name, parameter in model.named_parameters():
        group = parameter_group(name)
        sizes[group] = sizes.get(group, 0) + parameter.numel()
    # 4 layers: 16 experts of 3 x 64 x 128; attention 2 x 128 x 128 + 2 x 64 x 128; router 16 x 128
    assert sizes["experts"] == 4 * 16 * 3 * 64 * 128 == 1_572_864
    assert sizes["attention"] == 4 * (2 * 128 * 128 + 2 * 64 * 128)
    assert sizes["router"] == 4 * 16 * 128
    assert sizes["embedding"] == sizes["head"] == 1024 * 128
    assert sum(sizes.values()) == 2_041_216
    assert model.lm_head.weight.std().item() == pytest.approx(0.02, rel=0.01)


def test_runs_repeat_bit_for_bit():
    settings = {"lr": 1e-6, "start": "fp32", "steps": 2}
    first, second = (list(train(7, **settings)) for _ in range(2))
    other = next(train(8, **settings))
    for a, b in zip(first, second, strict=True):
        for x, y in zip(a.changes, b.changes, strict=True):
            assert x.name == y.name
            assert torch.equal(x.after.view(torch.int16), y.after.view(torch.int16))
            assert torch.equal(x.update, y.update)
    assert not torch.equal(first[0].changes[0].before, other.changes[0].before)


def test_the_start_decides_where_masters_lie_not_what_is_stored():
    grid, fp32 = (next(train(0, lr=1e-6, start=start, steps=1)) for start in ("grid", "fp32"))
    off_grid = 0
    for a, b in zip(grid.changes, fp32.changes, strict=True):
        assert a.before.dtype == torch.bfloat16
        assert torch.equal(a.before, b.before)
        assert torch.equal(a.master, a.before.float())
        assert torch.equal(b.master.bfloat16(), b.before)
        off_grid += int((b.master != b.before.float()).sum())
    assert off_grid > 1_900_000


def test_a_step_is_adamw_on_the_masters():
    step = next(train(0, lr=1e-6, steps=1))
    for change in step.changes:
        # subtracting the neighbouring FP32 values is exact, so this is what AdamW added
        assert torch.equal((change.master + change.update).bfloat16(), change.after)
    update = torch.cat([c.update.flatten() for c in step.changes]).abs()
    # first step: |u| = lr |g| / (|g| + eps), plus a decay below 1e-3 lr; FP32 masters round u to about 1e-9
    assert update.max() < 1.02e-6
    assert 0.9e-6 < update.mean() < 1e-6


def test_storage_is_a_switch():
    bf16, fp32 = (next(train(0, lr=1e-6, steps=1, storage=storage)) for storage in ("bf16", "fp32"))
    before, after = whole_model(fp32.changes)
    assert before.dtype == after.dtype == torch.float32
    assert (before != after).float().mean() > 0.9
    before, after = whole_model(bf16.changes)
    assert 0 < (before.view(torch.int16) != after.view(torch.int16)).float().mean() < 0.03


def test_masters_take_the_gradient_of_the_stored_weights():
    model = torch.nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.001, -0.5, 2.0]]))
    masters = MasterWeights(model, "fp32")
    assert model.weight.tolist() == [[1.0, -0.5, 2.0]]
    model(torch.tensor([[1.0, -2.0, 0.0]])).sum().backward()
    (change,) = masters.step(0.25)
    # AdamW by hand: w (1 - lr wd) - lr sign(g); a zero gradient leaves the decay alone
    assert (change.master + change.update).tolist()[0] == pytest.approx(
        [1.001 * 0.9975 - 0.25, -0.5 * 0.9975 + 0.25, 1.995]
    )
    assert model.weight.tolist()[0] == [0.75, -0.2490234375, 1.9921875]
    assert model.weight.grad is None


def test_warm_up_is_linear_and_then_flat():
    assert [warmed_up(1.0, step, 4) for step in (1, 2, 4, 5)] == [0.25, 0.5, 1.0, 1.0]
    assert warmed_up(1.0, 1, 0) == 1.0


@pytest.mark.parametrize(
    "kwargs, message",
    [
        ({"lr": 0.0}, "lr=0.0"),
        ({"lr": 1e-6, "steps": 0}, "steps=0"),
        ({"lr": 1e-6, "warmup": -1}, "warmup=-1"),
        ({"lr": 1e-6, "start": "bf16"}, "start='bf16'"),
        ({"lr": 1e-6, "storage": "fp16"}, "storage='fp16'"),
    ],
)
def test_bad_settings_are_named(kwargs, message):
    with pytest.raises(TrainingError, match=f"^{message}: expected"):
        next(train(0, **kwargs))


def test_a_saved_checkpoint_loads_as_it_was_stored(tmp_path):
    from transformers import Qwen3MoeForCausalLM

    step = next(train(0, lr=1e-6, steps=1))
    state = {change.name: change.after for change in step.changes}
    folder = save_checkpoint(state, tmp_path / "model", shards=2)
    shards = [folder / f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    total = sum(tensor.nbytes for tensor in state.values())
    assert json.loads((folder / "model.safetensors.index.json").read_text())["metadata"]["total_size"] == total
    assert all(0.4 * total < shard.stat().st_size < 0.6 * total for shard in shards)

    loaded = Qwen3MoeForCausalLM.from_pretrained(folder).state_dict()
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
    with pytest.raises(TrainingError, match="^shards=0"):
        save_checkpoint(state, tmp_path, shards=0)
