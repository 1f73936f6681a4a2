"""Peers in tests: present in the version a test was written for, or skipped with the reason."""

import pytest

from reprise.labs import peers


def need(name: str, pinned: str):
    """The module `name` of a peer in version `pinned`; the test is skipped, visibly, without it."""
    if reason := peers.available(name):
        pytest.skip(reason)
    found = peers.version(name)
    if found != pinned:
        pytest.skip(f"{name} {found} is installed; this test speaks of {pinned}")
    return peers.load(name)
