"""The whole suite, deterministic in its seed; adding a case never changes another.

Counts by protocol are the paper's; the split over domains is even, with the remainder to the first ones (the paper does
not publish it).
"""

from __future__ import annotations

import zlib

import numpy as np

from reprise.evidence.cases import check_case
from reprise.evidence.model import Case, Protocol
from reprise.labs.evidence_suite import judgements, tasks
from reprise.labs.evidence_suite.domains import DOMAINS, Domain

COUNTS = {Protocol.LEGACY: 86, Protocol.V0: 175, Protocol.V1: 131, Protocol.V2: 132, Protocol.V3: 132}


def generate_suite(seed: int = 0) -> list[Case]:
    """656 checked cases, ordered by protocol, domain and index."""
    return [
        make_case(seed, domain, protocol, index)
        for protocol, count in COUNTS.items()
        for place, domain in enumerate(DOMAINS)
        for index in range(share(count, place))
    ]


def share(count: int, place: int) -> int:
    """How many of a protocol's cases the domain at `place` gets."""
    return count // len(DOMAINS) + (place < count % len(DOMAINS))


def make_case(seed: int, domain: Domain, protocol: Protocol, index: int) -> Case:
    """One case, a function of these four alone."""
    name = f"{protocol}-{domain.name}-{index:03d}"
    key = zlib.crc32(name.encode())
    rng = np.random.default_rng([seed, key])
    if protocol is Protocol.LEGACY:
        case = judgements.static(name, domain, rng, key)
    elif protocol is Protocol.V0:
        case = judgements.no_action(name, domain, rng, key)
    elif protocol is Protocol.V1:
        case = tasks.one_action(name, domain, rng, key)
    else:
        case = tasks.several_actions(name, domain, rng, key, protocol)
    check_case(case)
    return case
