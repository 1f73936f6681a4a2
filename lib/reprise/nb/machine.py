"""The machine and the environment a number was computed in."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")

# packages whose version can change a number
NUMERIC_PACKAGES = ("numpy", "scipy", "torch", "transformers", "pandas", "matplotlib", "ipykernel", "papermill")

# instruction-set names of the vector units that change the last bits of a result
_VECTOR_FLAGS = ("avx", "sse4", "fma", "f16c", "amx", "asimd", "sve", "bf16")


def environment() -> dict:
    """What a number may depend on: interpreter, platform, CPU and its vector units, BLAS, threads, packages, GPU.

    Cheap: torch is described in full only where it is already imported. Holds no host name, user or path.
    """
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "blas": f"{blas.get('name')} {blas.get('version')}",
        "threads": {name: os.environ[name] for name in (*THREAD_VARIABLES, "REPRISE_THREADS") if name in os.environ},
        "packages": {name: version for name in NUMERIC_PACKAGES if (version := _version(name))},
        "torch": _torch(),
        "gpu": _gpus(),
    }


def cores() -> int:
    """CPU cores this process may use (its affinity mask, where the system has one)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> dict:
    """Model and vector flags, from /proc/cpuinfo where there is one."""
    fields = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                fields.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    flags = fields.get("flags", fields.get("Features", "")).split()
    vector = sorted(flag for flag in flags if any(part in flag for part in _VECTOR_FLAGS))
    return {"model": fields.get("model name", platform.processor() or platform.machine()), "vector_flags": vector}


def _torch() -> dict | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    return {
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cuda": torch.version.cuda,
    }


def _gpus() -> list[str]:
    """Name and memory of each NVIDIA device, as its own tool prints them; empty without that tool."""
    if not (tool := shutil.which("nvidia-smi")):
        return []
    query = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return answer.stdout.strip().splitlines() if answer.returncode == 0 else []
