"""What the old exponent saves on real updates and does not save on the placebo."""

import numpy as np
import pytest

from reprise.labs import location_experiments as lab
from reprise.refit import as_bits


@pytest.fixture(scope="module")
def step():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    ((_, pair),) = lab.updates(0, 1e-6, "grid", (2,)).items()
    return pair


@pytest.mark.slow
def test_the_old_exponent_tells_most_of_the_places_of_a_real_step(step):
    row = lab.costs(*step)
    assert row["places_known"] < 0.5 * row["places"]
    assert row["steps_known"] < row["steps"]
    bound = row["places_known"] + row["steps_known"]
    assert bound < row["coder"] < bound + 0.4  # headers, counts and what the Rice code loses
    assert row["coder"] < 0.6 * row["one_class"] and row["coder"] < 0.6 * row["add"]


def test_it_tells_nothing_of_the_placebo():
    (row,) = lab.stress_costs(0, 1 << 18, shares=(0.03,))
    assert row["changed"] == pytest.approx(0.03, rel=1e-4)
    assert row["places_known"] == pytest.approx(row["places"], rel=0.005)
    assert row["coder"] == pytest.approx(row["one_class"], rel=0.02)


def test_contexts_and_exponents(step):
    rows = lab.context_costs(*step)
    assert rows[0]["contexts"] == 1
    assert all(row["places"] <= rows[0]["places"] for row in rows)
    shares = lab.change_by_exponent(*step)
    changed = np.mean(as_bits(step[0]).words != as_bits(step[1]).words)
    assert sum(row["share"] for row in shares) == pytest.approx(1)
    assert sum(row["share"] * row["changed"] for row in shares) == pytest.approx(changed)
    small, large = (next(row["changed"] for row in shares if row["exponent"] == k) for k in (-15, -6))
    assert small > 0.5 > 0.01 > large


def test_bf16_tensors_of_two_checkpoints(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    old = {"a": torch.ones(3, 2), "b": torch.zeros(4).bfloat16(), "c": torch.ones(2).bfloat16()}
    new = {"a": torch.zeros(3, 2), "b": torch.ones(4).bfloat16(), "c": torch.ones(3).bfloat16()}
    for name, state in (("old", old), ("new", new)):
        save_file(state, tmp_path / f"{name}.safetensors")
    before, after = lab.checkpoint_pair(*(str(tmp_path / f"{name}.safetensors") for name in ("old", "new")))
    assert before.words.tolist() == [0] * 4 and after.words.tolist() == [0x3F80] * 4
