"""The experiments behind notebook 01: exhaustive counts, failing intervals, and where peers differ."""

import numpy as np
import pytest
import torch
from peers import need
from safetensors.torch import save_file

from reprise.errors import RepriseError
from reprise.fp4 import RULES, e2m1_encode, quantize
from reprise.labs import fp4_guarantee
from reprise.labs.fp4_conformance import beside_peers, definition, element_inputs, matrix
from reprise.labs.fp4_known_differences import AGREEMENTS, DIFFERENCES, counted
from reprise.labs.fp4_peers import PEERS, Peer


def ours(x, fmt):
    q = quantize(x, fmt)
    return q.codes(), q.block_scale


OURS = Peer("ours", "torch", "", ours, ("nvfp4", "mxfp4"), most_rows=2)


def test_the_definition_picks_the_even_of_two_nearest():
    z = torch.tensor([0.25, 0.75, 2.5, 2.4999998, -5.0, -0.0, 9.0])
    assert definition(z).tolist() == [0, 2, 4, 4, 14, 8, 7]


def test_every_element_input_is_rounded_by_the_definition():
    for inputs in element_inputs(1 << 14, np.random.default_rng(3)).values():
        assert torch.equal(e2m1_encode(inputs), definition(inputs))


def test_guided_rounding_is_never_farther_over_every_bf16_and_code():
    counts = fp4_guarantee.distances()
    assert (counts["pairs"], counts["farther"], counts["missed"]) == (65_280 * 16, 0, 0)
    assert counts["nearer"] > 200_000


@pytest.mark.parametrize(
    "rule, intervals", [("nearest", [[2, 2.25], [4, 4.5]]), ("bracket", []), ("cell", [[2, 2.125], [4, 4.25]])]
)
def test_where_one_bit_leaves_the_bracket(rule, intervals):
    assert fp4_guarantee.outside(1, rule) == intervals
    assert (fp4_guarantee.distances(1, rule)["missed"] > 0) == bool(intervals)
    assert fp4_guarantee.outside(2, rule) == []


def test_prices_are_half_a_gap_and_a_whole_one():
    nearest, guided = fp4_guarantee.prices(torch.tensor([2.0, 2.5, 2.75, 4.5, 6.0]))
    assert nearest.tolist() == [0, 0.5, 0.25, 0.5, 0]
    assert guided.tolist() == [0, 0.5, 0.75, 1.5, 0]


def test_reconstructed_rows_cover_rules_bits_and_values():
    rows = fp4_guarantee.reconstructed(torch.tensor([4.3, 0.5]), 1, RULES)
    values = {(row["rule"], row["c"], round(row["z"], 1)): row["value"] for row in rows}
    assert len(rows) == 12
    assert values["nearest", 1, 4.3] == 3 and values["bracket", 1, 4.3] == 6 and values["cell", 0, 4.3] == 4
    assert (rows[0]["low"], rows[0]["high"]) == (4, 6)


def test_matrix_of_ours_is_empty_of_differences():
    rows = matrix([OURS], 0, 2)
    assert {row["fmt"] for row in rows} == {"nvfp4", "mxfp4 floor"}
    assert not any(row["codes"] or row["bytes"] for row in rows)


def test_counted_says_none_for_a_peer_that_is_not_there():
    need("gfloat", "0.5.2")
    counts = counted(matrix([peer for peer in PEERS if peer.name in ("ml_dtypes", "gfloat")], 1000, 1))
    assert set(counts) == {*DIFFERENCES, *AGREEMENTS} and set(counts.values()) == {None}


@pytest.mark.slow
def test_every_known_difference_is_found_in_the_pinned_versions():
    for peer in PEERS:
        need(peer.module, peer.version)
    counts = counted(matrix(PEERS, 1 << 14, 64))
    assert {name: counts[name] for name in AGREEMENTS} == dict.fromkeys(AGREEMENTS, 0)
    assert all(counts[name] > 0 for name in DIFFERENCES)


def test_a_tensor_of_ones_own_beside_the_peers(tmp_path):
    save_file({"ids": torch.arange(3), "w": torch.randn(5, 40)}, tmp_path / "m.safetensors")
    rows = beside_peers(str(tmp_path / "m.safetensors"), "", [OURS])
    assert [(row["fmt"], row["inputs"], row["values"], row["codes"]) for row in rows] == [
        ("nvfp4", "w", 2 * 64, 0),
        ("mxfp4 floor", "w", 2 * 64, 0),
    ]
    with pytest.raises(RepriseError, match="^tensor 'ids': expected one of two dimensions"):
        beside_peers(str(tmp_path / "m.safetensors"), "ids", [OURS])
