"""A trainer, two replicas and a kill: the same rewards and the same bits whichever way the weights travel."""

import os
import subprocess

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("zmq")
pytest.importorskip("obstore")

from reprise.errors import RepriseError
from reprise.labs import end_to_end as lab
from reprise.labs.control_channel import ask
from reprise.labs.residue_task import rewards
from reprise.refit.transport.common import TransportTimeout

# notebook refit/07 trains through kills in every fast run, and its claims are compared there
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained():
    """Two killed replicas in three steps: the first finds its half-written weights, the second none."""
    return lab.train(3, steps=3, kill_steps=[1, 2])


@pytest.fixture(scope="module")
def curves(trained):
    return lab.curves(trained)


def column(rows, run: str, name: str) -> list:
    return [row[name] for row in rows if row["run"] == run]


def test_replicas_are_killed_and_started_again(trained):
    assert [(each.name, each.restarts) for each in trained] == [
        ("dense", []),
        ("store", [1, 0]),
        ("relay", [1, 0]),
        ("naive", [1]),
    ]


@pytest.mark.parametrize("run", ["store", "relay"])
def test_a_run_with_kills_has_the_bits_and_rewards_of_the_dense_one(trained, curves, run):
    for name in ("as_loaded", "same_bits", "same_reward"):
        assert column(curves, run, name) == [True] * 8
    dense, other = (next(each for each in trained if each.name == name) for name in ("dense", run))
    kept = ("fingerprints", "rewards", "kl")
    assert [[row[k] for k in kept] for row in other.rows] == [[row[k] for k in kept] for row in dense.rows]
    assert len({tuple(row["fingerprints"]) for row in dense.rows}) == 4


def test_replicas_of_equal_bits_agree_with_the_trainer_up_to_rounding(curves):
    assert max(row["kl"] for row in curves if row["run"] != "naive") < 1e-9


def test_xor_again_leaves_the_killed_replica_wrong_and_the_run_elsewhere(curves):
    assert column(curves, "naive", "as_loaded") == [True, True] + [True, False] * 3
    assert not all(column(curves, "naive", "same_reward"))
    assert not any(column(curves, "naive", "same_bits")[-2:])
    assert max(column(curves, "naive", "kl")) > 1e-4


def test_a_refit_that_is_hit_takes_another_attempt_and_a_lost_replica_a_dense_load(trained):
    rows = [row for row in lab.refits(trained) if row["run"] in ("store", "relay")]
    for row in rows:
        assert row["attempts"] >= 1 + bool(row["killed"])  # more if the machine was too busy to answer in time
        assert row["loads"] == (row["step"] == 2) and row["killed"].endswith("weights lost") == (row["step"] == 2)
        assert 0.5 < row["changed"] <= 1 and row["payload_bytes"] > 50_000


def test_nothing_is_left_of_a_training_that_takes_too_long(monkeypatch):
    started = []

    class Noted(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            started.append(self.pid)

    monkeypatch.setattr(lab.subprocess, "Popen", Noted)
    monkeypatch.setattr(lab, "SECONDS", 0.2)
    monkeypatch.setattr(lab, "SECONDS_A_STEP", 0)
    with pytest.raises(RepriseError, match="no result within 0.4 s"):
        lab.train(0, steps=1, kill_steps=[], runs=["dense"])
    with pytest.raises(ProcessLookupError):
        os.killpg(started[0], 0)


def test_a_process_that_fails_ends_the_training_with_its_message(monkeypatch):
    monkeypatch.setattr(lab, "kills", lambda seed, steps: [{"surprise": 1}])
    with pytest.raises(RepriseError, match="(?s)training ended with 1: .*surprise"):
        lab.train(0, steps=1, kill_steps=[1], runs=["store"])


def test_settings_are_checked():
    with pytest.raises(RepriseError, match=r"^kill_steps=\[3\]: expected steps of 1 to 2"):
        lab.train(0, steps=2, kill_steps=[1, 3])
    with pytest.raises(RepriseError, match=r"^runs=\['nccl'\]"):
        lab.train(0, steps=2, kill_steps=[1], runs=["nccl"])


def test_kills_take_turns_and_every_second_victim_loses_its_weights():
    found = lab.kills(7, [2, 4, 6])
    assert [(kill["step"], kill["replica"], kill["lost"]) for kill in found] == [
        (2, 1, False),
        (4, 0, True),
        (6, 1, False),
    ]
    assert found == lab.kills(7, [2, 4, 6]) and all(2 <= kill["payload"] <= 6 for kill in found)


def test_rewards_count_residues():
    asked, answers = np.array([[1, 7], [3, 0]]), np.array([[1, 5, 2, 9], [0, 1, 2, 4]])
    assert rewards(asked, answers).tolist() == [0.75, 0.0]


def test_a_question_that_nobody_answers_has_an_end(tmp_path):
    with pytest.raises(TransportTimeout, match="status: no answer in time"):
        ask(f"ipc://{tmp_path}/nobody", {"do": "status"}, timeout=0.2)
