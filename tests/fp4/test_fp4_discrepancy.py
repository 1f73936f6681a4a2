import math

import pytest
import torch

from reprise.fp4.capture import Capture, SiteCapture
from reprise.fp4.discrepancy import adjacent_share, bit_recovery, corrections, path_discrepancy
from reprise.fp4.guidance_errors import GuidanceShapeMismatch, MissingSite

ONE = 0x38  # E4M3 byte of 1.0


def site(codes=None, values=None, inputs=None):
    """One trajectory, one token, one block of sixteen with scale 1; what is not given is 0."""

    def row(given, dtype):
        return torch.tensor([given + [0] * (16 - len(given))], dtype=dtype)[None]

    scales = torch.full((1, 1, 1), ONE, dtype=torch.uint8), torch.ones(1, 1, 1)
    codes = None if codes is None else row(codes, torch.uint8)
    return SiteCapture(row(values or [], torch.float32), codes, *scales, inputs=row(inputs or [], torch.float32))


def one(seen, where=(0, "x")):
    return Capture({where: seen})


def test_the_papers_distances():
    # figure 4: 72 and 48 after rounding with scale 24
    frame = path_discrepancy(one(site(values=[72.0])), one(site(values=[48.0])))
    assert frame.D.tolist() == [24.0] and frame.relD.tolist() == [0.5]
    assert frame[["layer", "site"]].values.tolist() == [[0, "x"]]
    assert math.isnan(frame.mismatch[0])


def test_levels_not_codes_are_compared():
    #        equal  zeros  one   two  sign  sign, adjacent zeros
    left = [3, 0, 4, 4, 1, 9]
    right = [3, 8, 5, 6, 9, 0]
    row = path_discrepancy(one(site(left)), one(site(right))).iloc[0]
    assert row.mismatch == 4 / 16
    assert row.adjacent == 2 / 4  # 2 and 3; -0.5 and 0
    assert row.sign_flips == 1 / 4  # 0.5 and -0.5, two levels apart


def test_equal_paths_have_no_distance_anywhere():
    seen = site([1, 2, 11], values=[0.5, 1.0, -1.5], inputs=[0.6, 1.0, -1.5])
    frame = path_discrepancy(one(seen), one(seen))
    assert frame[["D", "relD", "mismatch"]].values.tolist() == [[0, 0, 0]]
    assert math.isnan(frame.adjacent[0]) and math.isnan(adjacent_share(frame))


def test_a_distance_from_nothing_counts_as_all():
    assert path_discrepancy(one(site(values=[1.0])), one(site(values=[0.0]))).relD.tolist() == [1.0]


def test_corrections_compare_the_trainers_nearest_code_with_the_rollouts():
    # nearest of 2.6, -2.6, 0.3, 5.5 are 3, -3, 0.5, 6 (codes 5, 13, 1, 7)
    train = one(site(inputs=[2.6, -2.6, 0.3, 5.5]))
    roll = one(site([4, 13, 2, 5]))  # 2, -3, 1, 3
    row = corrections(train, roll).iloc[0]
    assert (row.mismatch, row.adjacent) == (3 / 16, 2 / 3)
    assert (row.lower, row.higher) == (2 / 16, 1 / 16)


def test_one_bit_recovers_a_neighbour_and_two_bits_more():
    # z = 2.4 rounds to 2 (code 4); the rollout had 3 (code 5), one bit tells. z = 4.3 with the rollout at 6 needs two
    frame = bit_recovery(one(site(inputs=[2.4, 4.3])), one(site([5, 7])))
    assert [16 * share for share in frame.recovered] == [14, 15, 16, 16]
    assert frame.b.tolist() == [0, 1, 2, 3]
    bracket = bit_recovery(one(site(inputs=[2.4, 4.3])), one(site([5, 7])), rule="bracket")
    assert 16 * bracket.recovered[1] == 16


def test_shares_are_pooled_by_their_numbers():
    train = Capture({(0, "x"): site([1] * 16), (1, "x"): site([4] + [0] * 15)})
    roll = Capture({(0, "x"): site([2] * 16), (1, "x"): site([6] + [0] * 15)})
    assert adjacent_share(path_discrepancy(train, roll)) == 16 / 17


def test_captures_of_other_things_are_refused():
    with pytest.raises(MissingSite, match=r"\(0, 'x'\): not in the rollout"):
        path_discrepancy(one(site()), Capture())
    for compare in (path_discrepancy, corrections, bit_recovery):
        with pytest.raises(MissingSite, match=r"\(0, 'x'\): not in the trainer's"):
            compare(Capture(), one(site([1])))
        with pytest.raises(MissingSite, match=r"\(0, 'x'\): no values, expected captures of quant_path"):
            compare(one(site([1])), one(site([1])._replace(values=None)))
    for roll in (site(), site([1])._replace(bits=1)):
        for compare in (corrections, bit_recovery):
            with pytest.raises(MissingSite, match=r"\(0, 'x'\): no whole codes in the rollout's"):
                compare(one(site()), one(roll))
    wide = SiteCapture(torch.zeros(1, 1, 32))
    with pytest.raises(GuidanceShapeMismatch, match=r"\(1, 1, 32\) on the rollout, expected \(1, 1, 16\)"):
        path_discrepancy(one(site()), one(wide))
