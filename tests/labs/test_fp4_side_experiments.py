"""The experiment behind the side-information figure, on two sequences."""

import pytest

from reprise.errors import RepriseError
from reprise.labs import fp4_side_experiments as side
from reprise.labs import fp4_world as world
from reprise.nb import paths


@pytest.fixture(scope="module")
def costs():
    model = world.load_checkpoint(paths.root() / world.CHECKPOINT)
    return list(side.side_costs(model, [0, 2], 1e-5, 2, seed=0))


def test_one_row_for_each_way_and_lag_and_a_permuted_one(costs):
    assert [(c.lag, c.guided, c.permuted) for c in costs] == [
        (lag, way, permuted)
        for lag in (0, 2)
        for way, permuted in (("all layers", False), ("all layers", True), ("last half", False), ("none", False))
    ]
    # two layers of x 96, h 2 x 96, k and v 64 each, 13 tokens of two sequences
    assert all((c.tokens, c.values) == (26, 26 * 2 * 416) for c in costs)
    # a bit, half a bit, and five global scales of 32 bits over 416 values
    assert all(c.cache == pytest.approx(1.5 + 32 * 5 / 416) for c in costs)


def test_guidance_below_makes_the_cache_guessable_and_a_permutation_does_not(costs):
    by = {(c.lag, c.guided, c.permuted): c for c in costs}
    for lag in (0, 2):
        all_layers, permuted, half, none = (
            by[lag, way, p] for way, p in [("all layers", 0), ("all layers", 1), ("last half", 0), ("none", 0)]
        )
        assert all_layers.low_bit < half.low_bit < none.low_bit < 0.7 < 0.95 < permuted.low_bit
        for cost in (all_layers, half, none, permuted):
            assert cost.low_bit + cost.scale_byte + cost.global_scale < cost.coded + 1e-3
            assert cost.coded < cost.cache


@pytest.mark.parametrize("lags", [[3, 1], [0, 0], [-1]])
def test_lags_that_would_be_mislabelled_are_refused(lags):
    with pytest.raises(RepriseError, match=r"lags=\["):
        next(side.side_costs(None, lags, 1e-5, 2, seed=0))
