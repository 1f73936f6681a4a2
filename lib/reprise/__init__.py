"""Exact algorithms and reproducible notebooks for agentic-RL systems.

Each system is a package of its own (`reprise.refit`, ...); importing one imports no other.
"""

__version__ = "0.1.0"
