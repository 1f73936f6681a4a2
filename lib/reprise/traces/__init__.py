"""Readers for agent logs: many formats in, a list of turns out, nothing dropped silently."""

from reprise.traces.turns import Turn

__all__ = ["Turn"]
