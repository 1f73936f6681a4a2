"""Readers for agent logs: many formats in, a list of turns out, nothing dropped silently."""

from reprise.traces.errors import TraceError
from reprise.traces.log import Dropped, Log
from reprise.traces.read import FORMATS, read_log, read_logs
from reprise.traces.turns import ToolCall, ToolResult, Turn

__all__ = ["FORMATS", "Dropped", "Log", "ToolCall", "ToolResult", "TraceError", "Turn", "read_log", "read_logs"]
