"""Untrusted programs under limits: as nobody, in namespaces of their own, with bounded time, memory, files and output.

A `Sandbox` keeps one small worker and forks a process for each job: `evaluate` runs a Python program and calls its
functions, `run` runs any command. What the kernel or the container refuses is left out, and `protections` says so.
"""

from reprise.sandbox.limits import Answers, Ending, Finished, Limits, Protections, SandboxError
from reprise.sandbox.process import MODULES, PROTECTIONS, Sandbox

__all__ = [
    "MODULES",
    "PROTECTIONS",
    "Answers",
    "Ending",
    "Finished",
    "Limits",
    "Protections",
    "Sandbox",
    "SandboxError",
]
