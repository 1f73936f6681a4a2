"""What the claims about two paths are judged by, from the tables of `fp4_experiments`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from reprise.fp4.discrepancy import adjacent_share


def gap_ratios(gaps: pd.DataFrame, over: str, under: str, k: int) -> list[float]:
    """gap(over) / gap(under) after k steps, one number a seed, in the order of the seeds."""
    at = gaps[gaps.k == k].pivot(index="seed", columns="variant", values="gap").sort_index()
    return (at[over] / at[under]).tolist()


def farthest_from_one(ratios: list[float]) -> float:
    """The ratio whose logarithm is largest in size: the one that decides whether all lie in a band around 1."""
    return max(ratios, key=lambda ratio: abs(np.log(ratio)))


def worst_site(sites: pd.DataFrame, over: str, under: str) -> float:
    """Largest relD(over) / relD(under) of any site, k and seed; below 1 where `over` is closer everywhere."""
    keys = ["seed", "k", "layer", "site"]
    parts = [sites[sites.variant == name].set_index(keys)["relD"] for name in (over, under)]
    return float((parts[0] / parts[1]).max())


def least_adjacent(corrections: pd.DataFrame, variant: str) -> float:
    """Smallest percentage of mismatching values that are one code apart, over seeds and k."""
    own = corrections[corrections.variant == variant]
    return 100 * min(adjacent_share(part) for _, part in own.groupby(["seed", "k"]))


def deep_over_shallow(corrections: pd.DataFrame, variant: str, k: int, rng: np.random.Generator | None = None) -> list:
    """Ratio of lower to higher corrections in the deep half of the layers over that in the shallow half, one a seed.

    Args:
        rng: permutes the numbers of the layers first, which is the placebo.
    """
    found = []
    for _, part in corrections[(corrections.variant == variant) & (corrections.k == k)].groupby("seed"):
        layers = np.arange(part.layer.max() + 1)
        place = layers if rng is None else rng.permutation(layers)
        deep = place[part.layer] >= len(layers) / 2
        counts = part[["lower", "higher"]].mul(part["values"], axis=0)
        (below, above), (low, high) = (counts[half].sum() for half in (deep, ~deep))
        found.append(float((below / above) / (low / high)))
    return found


def order_of_gaps(gaps: pd.DataFrame, names: list[str], k: int) -> list[str]:
    """The variants by their mean gap after k steps, smallest first."""
    means = gaps[(gaps.k == k) & gaps.variant.isin(names)].groupby("variant")["gap"].mean()
    return means.sort_values().index.tolist()
