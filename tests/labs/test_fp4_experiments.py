import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers")

from reprise.labs import fp4_experiments as lab
from reprise.labs import fp4_tables as judge
from reprise.labs import fp4_variants as variants
from reprise.labs.fp4_world import CHECKPOINT
from reprise.nb import paths

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def shipped():
    return paths.root() / CHECKPOINT


def frames(tables):
    return {name: pd.DataFrame(rows) for name, rows in tables.items()}


@pytest.fixture(scope="module")
def run(shipped):
    names = ["unquantised", "RTN", "QaRL-like", "TRACE", "TRACE, permuted"]
    chosen = [variants.METHODS[name] for name in names] + [variants.BITS["1 bit, last half"]]
    options = dict(shipped=shipped, steps_apart=(0, 2), sequences=6, sites_of=[*names, "1 bit, last half"])
    return frames(lab.measure(0, chosen, **options))


def test_every_table_has_every_variant_and_step(run):
    gaps = run["gaps"]
    assert len(gaps) == 6 * 2 and gaps.gap.ge(0).all()
    assert gaps[gaps.k == 0].own_gap.isna().all() and gaps[gaps.k == 2].own_gap.gt(0).all()
    # four layers with four sites each; the unquantised rollout has no codes to correct or recover
    assert len(run["sites"]) == 6 * 2 * 16 and len(run["corrections"]) == 5 * 2 * 16
    assert len(run["recovery"]) == 5 * 2 * 16 * 4
    assert set(run["sites"].site) == set("xhkv")


def test_the_order_of_the_methods(run):
    at = run["gaps"].pivot(index="k", columns="variant", values="gap")
    assert at["QaRL-like"][0] < at["TRACE"][0] * 2 < at["RTN"][0] / 10
    assert at["TRACE"][2] < at["1 bit, last half"][2] < at["RTN"][2] < at["TRACE, permuted"][2]


def test_guidance_hides_the_policys_change(run):
    share = run["gaps"].query("k == 2").set_index("variant").transmission
    assert share["TRACE"] < 0.3 < 0.8 < share["unquantised"] < 1.2


def test_runs_repeat(shipped):
    settings = dict(shipped=shipped, steps_apart=(1,), sequences=3)
    chosen = [variants.METHODS["TRACE, permuted"]]
    first, second, other = (lab.measure(seed, chosen, **settings)["gaps"] for seed in (1, 1, 2))
    assert first == second != other


def test_methods_with_one_rollout_share_their_trajectories(shipped):
    old, rng = lab.policy(0, shipped)
    asked = np.array([[10, 1, 2, 3, 4, 5, 6, 11]])
    rolls = lab.Rollouts(old, asked, rng.random((1, 6)))
    made = {name: rolls.of(variants.METHODS[name].method) for name in ("RTN", "TRACE", "QUADS-like", "unquantised")}
    assert made["RTN"] is made["TRACE"] and made["QUADS-like"] is not made["RTN"] is not made["unquantised"]


def test_guided_layers_are_the_last_ones():
    shares = {name: list(lab.guided_layers(variant, 8)) for name, variant in variants.DEPTHS.items()}
    assert shares["all"] == [*range(8)] and shares["last 1/8"] == [7] and shares["last 1/4, permuted"] == [6, 7]


def test_every_guided_variant_but_the_unguided_control_has_its_placebo():
    for family in (variants.METHODS, variants.ABLATIONS, variants.DEPTHS):
        for name, variant in family.items():
            assert name == variant.name
            assert variant.permuted == name.endswith(variants.PERMUTED)
            if variant.permuted:
                partner = family[name.removesuffix(variants.PERMUTED)]
                assert (partner.method, partner.bits, partner.last) == (variant.method, variant.bits, variant.last)


def test_guidance_of_the_second_policy_hides_less_of_the_firsts_change(shipped):
    chosen = [variants.METHODS[name] for name in ("unquantised", "TRACE")]
    rows = lab.mixed_versions(0, chosen, shipped=shipped, sequences=12)
    first = pd.DataFrame(rows).query("part == 'first'").pivot(index="cache", columns="variant", values="transmission")
    assert first["TRACE"]["kept"] < 0.3 < first["TRACE"]["recomputed"]
    assert first["unquantised"].between(0.8, 1.2).all()


# ---- what claims are judged by ---------------------------------------------------------------------------------------


def test_ratios_are_one_a_seed_in_order():
    rows = [(s, 3, v, g) for s, pair in ((2, (1.0, 4.0)), (1, (3.0, 6.0))) for v, g in zip("ab", pair, strict=True)]
    gaps = pd.DataFrame(rows, columns=["seed", "k", "variant", "gap"])
    assert judge.gap_ratios(gaps, "a", "b", 3) == [0.5, 0.25]
    assert judge.order_of_gaps(gaps, ["b", "a"], 3) == ["a", "b"]
    assert judge.farthest_from_one([0.8, 1.2, 1.1]) == 0.8


def test_the_worst_site_is_the_largest_ratio():
    rows = [
        (0, 1, layer, "x", name, d)
        for layer, pair in enumerate([(1, 4), (3, 4)])
        for name, d in zip("ab", pair, strict=True)
    ]
    sites = pd.DataFrame(rows, columns=["seed", "k", "layer", "site", "variant", "relD"])
    assert judge.worst_site(sites, "a", "b") == 0.75


def test_the_least_adjacent_share_is_a_percentage_of_the_worst_step():
    rows = [(0, k, "a", 100, 0.5, near) for k, near in ((1, 0.9), (2, 0.98))]
    frame = pd.DataFrame(rows, columns=["seed", "k", "variant", "values", "mismatch", "adjacent"])
    assert judge.least_adjacent(frame, "a") == pytest.approx(90)


def test_deep_over_shallow_compares_halves():
    rows = [(0, 3, "a", layer, 100, low, 0.1) for layer, low in enumerate([0.1, 0.1, 0.2, 0.2])]
    frame = pd.DataFrame(rows, columns=["seed", "k", "variant", "layer", "values", "lower", "higher"])
    assert judge.deep_over_shallow(frame, "a", 3) == pytest.approx([2])
    shuffled = {round(judge.deep_over_shallow(frame, "a", 3, np.random.default_rng(s))[0], 6) for s in range(20)}
    assert {0.5, 1, 2} == shuffled
