"""The recovery experiments of the notebook, a few runs each; the sweeps are in tests/refit."""

import numpy as np
import pytest

from reprise.labs import kill_experiments as lab


def test_every_kill_leaves_mixed_bits_that_xor_cannot_mend_and_the_two_others_do():
    rows = lab.kills(seed=3, count=4)
    assert [row["kill"] for row in rows] == [0, 1, 2, 3] and rows[0]["chunks"] == 128
    for row in rows:
        assert row["mixed"] and row["old"] + row["new"] + row["torn"] == 128 and row["torn"] <= 1
        assert (row["exact_xor"], row["exact_overwrite"], row["exact_resume"]) == (False, True, True)
        assert row["rewritten"] == row["torn"]
    assert rows == lab.kills(seed=3, count=4)


def test_a_power_cut_tears_more_and_is_mended_as_well():
    none, all_, *rest = lab.power_cuts(seed=3, count=8)
    assert (none["old"], all_["new"]) == (none["chunks"], all_["chunks"]) == (66, 66)
    assert none["exact_xor"] and not all_["exact_xor"]  # an update that never reached the disk, and one that did
    for row in rest:
        assert (
            row["mixed"] and row["torn"] > 1 and row["exact_resume"] and row["exact_overwrite"] and not row["exact_xor"]
        )


def test_the_bytes_that_an_update_changes_are_those_of_the_changing_chunks():
    w = lab.world(0, (("a", 1024), ("b", 256)), 256)
    w.new["a"].words[:256] = w.old["a"].words[:256]
    w = w._replace(delta=lab.diff_bits(w.old, w.new, 256, **lab.FIRST.transfer))
    changed, size = lab.changed_bytes(w)
    difference = np.concatenate([w.old[n].words.view("u1") != w.new[n].words.view("u1") for n in ("a", "b")])[512:]
    assert size == difference.size == 2048 and (np.flatnonzero(difference) == changed).all()


def test_a_receiver_that_survives_is_an_error(tmp_path):
    w = lab.world(0, (("a", 256),), 64)
    with lab.ResidentStore.create(tmp_path / "s", w.old) as store:
        store.begin(lab.FIRST)
    with pytest.raises(lab.RepriseError, match="expected SIGKILL"):
        lab.die(tmp_path / "s", w, 10**6)


def test_one_process_wins_each_race():
    assert lab.races(processes=4, rounds=3) == [
        {"round": k, "winners": 1, "losers": 3, "version": k + 1} for k in range(3)
    ]
