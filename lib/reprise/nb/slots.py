"""What each worker may use: its share of the cores, or a device of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from reprise.errors import RepriseError
from reprise.nb import machine
from reprise.nb.errors import PresetUnavailable

_COUNT_DEVICES = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"


def slots(preset: str, workers: int | None = None) -> list[dict[str, str]]:
    """Environment of each parallel worker.

    Args:
        preset: under `gpu` there is one worker for each visible CUDA device, and no more than `workers`.
        workers: notebooks at a time; 1 by default, or one for each device.

    Raises:
        PresetUnavailable: no CUDA device under `gpu`; a run on the CPU instead would take days, or pass for GPU work.
    """
    if workers is not None and workers < 1:
        raise RepriseError(f"workers={workers}: expected at least 1")
    devices = _devices()[:workers] if preset == "gpu" else []
    if preset == "gpu" and not devices:
        raise PresetUnavailable(
            "preset 'gpu': torch finds no CUDA device here; the presets 'smoke' and 'full' need none"
        )
    count = len(devices) or workers or 1
    threads = str(max(1, machine.cores() // count))
    share = dict.fromkeys((*machine.THREAD_VARIABLES, "REPRISE_THREADS"), threads)
    return [{**share, "CUDA_VISIBLE_DEVICES": device} for device in devices] or [share] * count


def environment(root: Path, preset: str) -> dict[str, str]:
    """Environment every kernel of a batch gets, whatever the caller's shell says."""
    return {
        "REPRISE_ROOT": str(root),
        "REPRISE_PRESET": preset,
        "REPRISE_WIDGETS": "0",
        "PYTHONHASHSEED": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_WAIT_POLICY": "PASSIVE",  # workers that wait must not spin on a shared core
        "JUPYTER_PREFER_ENV_PATH": "1",  # this environment's kernel, not one a user installed
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
    }


def _devices() -> list[str]:
    """Names CUDA_VISIBLE_DEVICES may take, one for each device torch can use (asked in a process of its own)."""
    asked = subprocess.run([sys.executable, "-c", _COUNT_DEVICES], capture_output=True, text=True)
    count = int(asked.stdout) if asked.returncode == 0 else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return (visible.split(",") if visible else [str(index) for index in range(count)])[:count]
