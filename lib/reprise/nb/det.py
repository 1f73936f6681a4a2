"""Numbers that survive another machine: seeds, threads, warnings, and a second CPU profile to try them under."""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Sequence
from importlib import util
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

import numpy as np

from reprise.errors import RepriseError
from reprise.nb.machine import THREAD_VARIABLES, environment

if TYPE_CHECKING:
    import torch

__all__ = ["environment", "normal", "second_profile", "setup"]

# RuntimeWarnings that say nothing about a notebook's numbers
HARMLESS_WARNINGS = (
    r"numpy\.\w+ size changed",  # a wheel built against another NumPy minor; NumPy itself calls it safe
)


def setup(seed: int = 0, *, threads: int | None = None) -> np.random.Generator:
    """Make this process repeatable and return the generator every random draw of a notebook comes from.

    RuntimeWarning becomes an error, because a division by zero must stop a notebook, not decorate it. Torch is
    configured if it is loaded and otherwise at its first import, so a notebook that never needs it does not pay
    for it: deterministic algorithms, the seed, the thread count. The global generators of `random` and NumPy are
    seeded for the sake of libraries that use them.

    Args:
        seed: 0 <= seed < 2**32.
        threads: threads of torch and of child processes; by default REPRISE_THREADS, which the runner sets, else
            the libraries' own choice. NumPy's BLAS fixed its count when NumPy was imported.

    Raises:
        RepriseError: seed or threads out of range.
    """
    if not 0 <= seed < 2**32:
        raise RepriseError(f"seed={seed!r}: expected 0 <= seed < 2**32")
    count = threads if threads is not None else int(os.environ.get("REPRISE_THREADS", 0)) or None
    if count is not None:
        if count < 1:
            raise RepriseError(f"threads={count!r}: expected at least 1")
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(count)))
    warnings.simplefilter("error", RuntimeWarning)
    for message in HARMLESS_WARNINGS:
        warnings.filterwarnings("ignore", message, RuntimeWarning)
    # cuBLAS reads this when it makes its first handle; without it deterministic matmul raises
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if "torch" in sys.modules:
        _configure_torch(seed, count)
    else:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _AtTorchImport)]
        sys.meta_path.insert(0, _AtTorchImport(seed, count))
    return np.random.Generator(np.random.PCG64(seed))


def normal(
    rng: np.random.Generator,
    shape: Sequence[int] | int,
    std: float = 1.0,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Normal draws with mean 0, made by NumPy on the host in float64, then moved.

    `torch.randn` in float32 depends on the vector unit, and on CUDA on the number of multiprocessors; these draws
    depend on the seed alone.

    Args:
        rng: the generator returned by `setup`.
        shape: shape of the tensor.
        std: standard deviation, at least 0.
        device: where the tensor ends up.
        dtype: torch dtype it is rounded to; float64 by default.
    """
    import torch

    if std < 0:
        raise RepriseError(f"std={std!r}: expected at least 0")
    draws = torch.from_numpy(np.asarray(std * rng.standard_normal(shape)))
    return draws.to(device=device, dtype=dtype or torch.float64)


def second_profile() -> dict[str, str]:
    """Environment of a second CPU profile: one thread and the oldest vector code each library still carries.

    NumPy is told only the names that it knows and this CPU has: any other name is a warning that changes nothing.
    """
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    profile = {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Nehalem",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "REPRISE_THREADS": "1",
        **dict.fromkeys(THREAD_VARIABLES, "1"),
    }
    if disabled := [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]:
        profile["NPY_DISABLE_CPU_FEATURES"] = " ".join(disabled)
    return profile


class _AtTorchImport:
    """A finder that lets torch import as usual and configures it right after.

    It stays in place when it is only asked for the spec: `importlib.util.find_spec("torch")` is how other
    libraries ask whether torch is installed.
    """

    def __init__(self, seed: int, threads: int | None):
        self.seed, self.threads, self.searching = seed, threads, False

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        if name != "torch" or self.searching:
            return None
        self.searching = True
        try:
            spec = util.find_spec(name)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_then_configure(module):
                execute(module)
                _configure_torch(self.seed, self.threads)
                sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]

            spec.loader.exec_module = execute_then_configure
        return spec


def _configure_torch(seed: int, threads: int | None) -> None:
    torch = sys.modules["torch"]
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = False
    if threads is not None:
        torch.set_num_threads(threads)
