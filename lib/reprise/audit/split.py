"""Train and test sets that never share a family: a safe run and the variants made from it stay together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from reprise.audit.errors import AuditError
from reprise.audit.trajectory import Trajectory

TEST_SHARE = 0.15  # AgentForesight, training details


class Split(NamedTuple):
    """Trajectories of the two sides, each in the order they were given."""

    train: tuple[Trajectory, ...]
    test: tuple[Trajectory, ...]


def family_split(trajectories: Iterable[Trajectory], test_share: float = TEST_SHARE, seed: int = 0) -> Split:
    """Split whole families, stratified by domain and number of unsafe variants.

    Of the n families of a stratum floor(test_share * n + 1/2), drawn without replacement, go to the test side.

    Args:
        trajectories: labelled runs; `family` groups them.
        test_share: in (0, 1).
        seed: of the draw.

    Raises:
        AuditError: a run without a family, a family in two domains, or a share outside (0, 1).

    Source: AgentForesight, corpus statistics (grouped split, 15 %).
    """
    trajectories = tuple(trajectories)
    if not 0 < test_share < 1:
        raise AuditError(f"test_share={test_share}: expected 0 < test_share < 1")
    families: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        if not trajectory.family:
            raise AuditError(f"trajectory {trajectory.id!r}: family='': expected the safe run it belongs to")
        families[trajectory.family].append(trajectory)
    strata: dict[tuple[str, int], list[str]] = defaultdict(list)
    for family, members in families.items():
        strata[_stratum(family, members)].append(family)
    rng = np.random.default_rng(seed)
    test: set[str] = set()
    for key in sorted(strata):
        names = sorted(strata[key])
        picked = rng.permutation(len(names))[: math.floor(test_share * len(names) + 0.5)]
        test.update(names[i] for i in picked)
    return Split(
        tuple(t for t in trajectories if t.family not in test), tuple(t for t in trajectories if t.family in test)
    )


def _stratum(family: str, members: Sequence[Trajectory]) -> tuple[str, int]:
    domains = {member.domain for member in members}
    if len(domains) > 1:
        raise AuditError(f"family {family!r}: domains {sorted(domains)}: expected one")
    return domains.pop(), sum(member.decisive_step is not None for member in members)
