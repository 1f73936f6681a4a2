"""Weights in an engine's own storage: interrupted, opened again, retried."""

import os
import signal

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from reprise.labs import placed_weights
from reprise.labs.loaders import TensorParallelModel
from reprise.labs.placed_weights import NOTHING, Fuse, PlacedWeights, head, storage_fingerprint
from reprise.labs.qwen3_moe import SMALL, shapes
from reprise.refit import StaleBaseError, as_bits, diff_bits, encode
from reprise.refit.placement.copy_plan import mixed
from reprise.refit.recovery.attempt import Attempt, FencedError
from reprise.refit.recovery.parts import split

FIRST, RETRY = Attempt(1, 1, 0, 1, "xor"), Attempt(1, 2, 0, 1, "overwrite")
ROUTERS = sorted(name for name in shapes(SMALL) if name.endswith("mlp.gate.weight"))


def drawn(seed: int) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return {name: torch.from_numpy(rng.normal(0, 1, shape)).bfloat16() for name, shape in shapes(SMALL).items()}


OLD, NEW = drawn(0), drawn(1)


def payloads(attempt: Attempt, op: str) -> list[bytes]:
    delta = diff_bits(OLD, NEW, **attempt.transfer)
    return [encode(mixed(part, set(OLD) - set(ROUTERS), op), None) for part in split(delta, 1 << 15)]


def loaded(weights, tp: int, ep: int) -> str:
    ranks = [TensorParallelModel(SMALL, tp, ep, rank) for rank in range(tp)]
    for rank in ranks:
        rank.load_weights(weights.items())
    return storage_fingerprint(ranks)


def opened(folder, tp=2, ep=2, **options) -> PlacedWeights:
    return PlacedWeights(folder, SMALL, tp, ep, **options)


class Killed(BaseException):
    """Stands for SIGKILL, which test_end_to_end sends in earnest."""


@pytest.fixture
def kill(monkeypatch):
    """A function that takes the first attempt and dies by its fuse."""

    def die(pid: int, sent: int) -> None:
        assert (pid, sent) == (os.getpid(), signal.SIGKILL)
        raise Killed

    monkeypatch.setattr(placed_weights.os, "kill", die)

    def killed(folder, fuse: Fuse) -> None:
        weights = opened(folder)
        weights.fuse = fuse
        weights.begin(FIRST)
        with pytest.raises(Killed):
            for payload in payloads(FIRST, "xor"):
                weights.deliver(payload)

    return killed


@pytest.fixture
def folder(tmp_path):
    weights = opened(tmp_path / "replica")
    assert weights.status().version == NOTHING
    weights.load(OLD, 0)
    return tmp_path / "replica"


@pytest.mark.parametrize("tp, ep", [(1, 1), (2, 2)])
def test_payloads_end_in_the_bits_of_a_dense_load(tmp_path, tp, ep):
    weights = opened(tmp_path, tp, ep)
    assert weights.overwrite_only == ROUTERS  # the engine keeps routers in FP32
    weights.load(OLD, 0)
    weights.begin(FIRST)
    sent = payloads(FIRST, "xor")
    assert len(sent) > 2
    assert [weights.deliver(payload).status for payload in sent + sent[:1]] == ["applied"] * len(sent) + ["duplicate"]
    assert weights.check(FIRST, len(sent)) == loaded(NEW, tp, ep)
    weights.commit(FIRST)
    assert opened(tmp_path, tp, ep).status() == weights.status()
    assert opened(tmp_path, tp, ep).fingerprint() == loaded(NEW, tp, ep)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_kill_leaves_mixed_bits_and_overwriting_mends_them(folder, kill, share):
    kill(folder, Fuse(1, share))
    weights = opened(folder)
    assert weights.status().attempt == FIRST
    assert weights.fingerprint() not in (loaded(OLD, 2, 2), loaded(NEW, 2, 2))
    with pytest.raises(StaleBaseError, match="may have left bits, expected op='overwrite'"):
        weights.begin(Attempt(1, 2, 0, 1, "xor"))
    weights.begin(RETRY)
    with pytest.raises(FencedError, match="expected attempt 1.2"):
        weights.deliver(payloads(FIRST, "xor")[0])
    for payload in payloads(RETRY, "overwrite"):
        weights.deliver(payload)
    assert weights.fingerprint() == loaded(NEW, 2, 2)


def test_the_placebo_repeats_the_xor_and_stays_wrong(folder, kill):
    kill(folder, Fuse(1, 0.3))
    weights, again = opened(folder, forgetful=True), Attempt(1, 2, 0, 1, "xor")
    weights.begin(again)
    for payload in payloads(again, "xor"):
        weights.deliver(payload)
    assert weights.fingerprint() != loaded(NEW, 2, 2)


def test_lost_weights_come_back_by_a_dense_load(folder, kill):
    kill(folder, Fuse(1, 0.3, lost=True))
    weights = opened(folder)
    assert weights.status().version == NOTHING
    weights.load(OLD, 0)
    assert weights.fingerprint() == loaded(OLD, 2, 2)


def test_head_takes_the_first_changes_across_tensors():
    delta = diff_bits(
        {"a": as_bits(np.zeros(3, "u1")), "b": as_bits(np.zeros(3, "u1"))},
        {"a": np.ones(3, "u1")} | {"b": np.ones(3, "u1")},
    )
    for changes in range(7):
        kept = [list(record.index) for record in head(delta, changes).tensors]
        assert kept == [[0, 1, 2][:changes], [0, 1, 2][: max(0, changes - 3)]]
