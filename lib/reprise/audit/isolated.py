"""An auditor in a process of its own: what it has not been sent, it cannot find, however it looks.

Code that runs beside a replay can reach the whole run: through the frames that called it, or through the garbage
collector. Here it runs in a new interpreter that is told one turn at a time over a pipe, as JSON. What is left is what
any program of the same user can do; `reprise.sandbox` takes that away too. A process remembers the runs it has seen: a
second replay of the same ones needs a new auditor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from typing import Any

from reprise.audit.errors import AuditError, shown
from reprise.audit.verdict import Verdict
from reprise.traces import Turn

FIELDS = ("kind", "step", "agent", "reason", "valid", "error")


class IsolatedAuditor:
    """Call it like the auditor itself, and close it, or use it in a `with` block.

    Each call sends the turns that the child has not seen; a prefix that does not continue the last one starts anew.

    Args:
        target: "package.module:name" of an auditor, a callable from turns 0..k to a Verdict, importable by a new
            interpreter with this one's path.

    Raises:
        AuditError: `target` has another form; on a call, the auditor raised, returned something else than a Verdict,
            or its process ended. The message holds what it said.
    """

    def __init__(self, target: str):
        module, colon, name = target.partition(":")
        if not (module and colon and name):
            raise AuditError(f"target={target!r}: expected 'package.module:name'")
        self.target = target
        self._sent: list[Turn] = []
        command = [sys.executable, "-c", "from reprise.audit.isolated import serve; serve()", target]
        path = os.pathsep.join(filter(None, sys.path))
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
        )

    def __call__(self, turns: tuple[Turn, ...]) -> Verdict:
        keep = next((k for k, pair in enumerate(zip(self._sent, turns, strict=False)) if pair[0] != pair[1]), None)
        keep = min(len(self._sent), len(turns)) if keep is None else keep
        new = [[turn.role, turn.action, turn.content] for turn in turns[keep:]]
        self._sent = list(turns)
        try:
            self._child.stdin.write(json.dumps([keep, new]).encode() + b"\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except OSError:
            line = b""
        if not line:
            raise AuditError(f"target={self.target!r}: its process ended: expected a verdict")
        reply: Any = json.loads(line)
        if "raised" in reply:
            raise AuditError(f"target={self.target!r}: {reply['raised']}")
        return Verdict(**reply)

    def close(self) -> None:
        """End the process."""
        self._child.stdin.close()
        self._child.kill()
        self._child.wait()
        self._child.stdout.close()

    def __enter__(self) -> IsolatedAuditor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve() -> None:
    """The child: read turns, answer with verdicts, until the pipe closes."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the auditor prints is no reply
    module, _, name = sys.argv[1].partition(":")
    turns: list[Turn] = []
    auditor = None
    for line in sys.stdin.buffer:
        keep, new = json.loads(line)
        turns = turns[:keep] + [Turn(*fields) for fields in new]
        try:
            auditor = auditor or getattr(import_module(module), name)
            verdict = auditor(tuple(turns))
            if not isinstance(verdict, Verdict):
                raise AuditError(f"auditor returned {type(verdict).__name__}: expected a Verdict")
            reply = {name: getattr(verdict, name) for name in FIELDS}
        except Exception as error:
            reply = {"raised": f"{type(error).__name__}: {shown(str(error), 300)}"}
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()
