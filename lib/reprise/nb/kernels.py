"""The kernel manager for notebooks run without a reader: private sockets, and an exit code that is not lost."""

from __future__ import annotations

import os
from uuid import uuid4

from jupyter_client import AsyncKernelManager
from jupyter_core.paths import jupyter_runtime_dir

LONGEST_SOCKET = 100  # bytes of a Unix socket's path, a little below the limit of every system


class WatchedKernel(AsyncKernelManager):
    """Remembers the exit code of a kernel that died, which nbclient reports only as dead."""

    exit_code: int | None = None

    def __init__(self, **traits):
        # TCP ports are picked before they are bound, so that two kernels may pick the same
        sockets = os.path.join(jupyter_runtime_dir(), f"kernel-{uuid4().hex}")
        if len(sockets) < LONGEST_SOCKET:
            traits = {"transport": "ipc", "ip": sockets, **traits}
        super().__init__(**traits)

    async def is_alive(self):
        code = await self.provisioner.poll() if self.provisioner and self.provisioner.has_process else None
        if code is not None:
            type(self).exit_code = code
        return await self._async_is_alive()
