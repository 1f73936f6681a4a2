"""Seeds, threads, warnings and the second CPU profile."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from reprise.errors import RepriseError
from reprise.nb import det, machine


def fresh(code: str, **environment: str) -> dict:
    """The JSON a fresh interpreter prints last: import order and thread counts cannot be tested in this one."""
    clean = {
        name: value for name, value in os.environ.items() if name not in (*machine.THREAD_VARIABLES, "REPRISE_THREADS")
    }
    done = subprocess.run(
        [sys.executable, "-W", "error::ImportWarning", "-c", code],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def restored(monkeypatch):
    """Undo what `setup` does to this process."""
    import warnings

    for name in (*machine.THREAD_VARIABLES, "REPRISE_THREADS", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, "1")
    finders = list(sys.meta_path)
    with warnings.catch_warnings():
        yield
    sys.meta_path[:] = finders


def test_setup_returns_numpys_pcg64_for_the_seed(restored):
    # first draws of PCG64(0), as NumPy's documentation prints them
    assert det.setup(0).random(3) == pytest.approx([0.6369616873214543, 0.2697867137638703, 0.04097352393619469], abs=0)


def test_setup_turns_a_division_by_zero_into_an_error(restored):
    det.setup(0)
    with pytest.raises(RuntimeWarning, match="divide by zero"):
        np.float64(1) / np.float64(0)


@pytest.mark.parametrize(
    "arguments, name",
    [(dict(seed=-1), "seed=-1"), (dict(seed=2**32), "seed=4294967296"), (dict(threads=0), "threads=0")],
)
def test_setup_names_the_bad_argument(arguments, name, restored):
    with pytest.raises(RepriseError, match=f"^{name}:"):
        det.setup(**arguments)


CONFIGURED = """
import json, sys
from importlib.util import find_spec
from reprise.nb import det
def state():
    import torch
    hooks = sum(type(finder).__name__ == "_AtTorchImport" for finder in sys.meta_path)
    return [torch.are_deterministic_algorithms_enabled(), torch.initial_seed(), torch.get_num_threads(), hooks]
det.setup(6, threads=2)
det.setup(7, threads=1)  # the last call counts
find_spec("torch")  # how transformers asks whether torch is there; must not use up the hook
assert "torch" not in sys.modules
first = state()
det.setup(8, threads=2)
print(json.dumps([first, state()]))
"""


def test_torch_is_configured_at_its_import_and_at_every_later_setup():
    pytest.importorskip("torch")
    assert fresh(CONFIGURED) == [[True, 7, 1, 0], [True, 8, 2, 0]]


def test_the_runners_thread_count_is_used():
    code = "import json, os; from reprise.nb import det; det.setup(); print(json.dumps(os.environ['OMP_NUM_THREADS']))"
    assert fresh(code, REPRISE_THREADS="1") == "1"


def test_normal_draws_are_numpys_in_any_dtype():
    torch = pytest.importorskip("torch")
    expected = 0.5 * np.random.Generator(np.random.PCG64(3)).standard_normal((4, 5))
    exact = det.normal(np.random.Generator(np.random.PCG64(3)), (4, 5), std=0.5)
    assert exact.dtype == torch.float64 and np.array_equal(exact.numpy(), expected)
    rounded = det.normal(np.random.Generator(np.random.PCG64(3)), (4, 5), std=0.5, dtype=torch.bfloat16)
    assert torch.equal(rounded, torch.from_numpy(expected).to(torch.bfloat16))
    assert det.normal(np.random.Generator(np.random.PCG64(3)), ()).shape == ()
    with pytest.raises(RepriseError, match="^std=-1"):
        det.normal(np.random.Generator(np.random.PCG64(3)), 2, std=-1)


PROFILE = """
import json
from numpy.lib.introspect import opt_func_info
chosen = [use["current"] for name in opt_func_info().values() for use in name.values()]
try:
    import torch
except ImportError:
    torch = None
print(json.dumps({
    "numpy": sorted(set(chosen)),
    "torch": torch and [torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()],
}))
"""


def test_the_second_profile_takes_effect():
    from numpy._core._multiarray_umath import __cpu_baseline__

    under = fresh(PROFILE, **det.second_profile())
    # every dispatched NumPy loop falls back to the baseline build, torch to its own
    assert under["numpy"] == [f"baseline({' '.join(__cpu_baseline__)})"]
    if under["torch"]:
        assert under["torch"] == ["DEFAULT", 1]


def test_the_second_profile_differs_from_the_native_one():
    if "NPY_DISABLE_CPU_FEATURES" not in det.second_profile():
        pytest.skip("this CPU has no vector unit beyond NumPy's baseline, or it is disabled already")
    assert len(fresh(PROFILE.replace("import torch\n", "raise ImportError\n"))["numpy"]) > 1


def test_environment_is_json_and_names_what_numbers_depend_on():
    described = json.loads(json.dumps(det.environment()))
    assert described["packages"]["numpy"] == np.__version__
    assert described["cores"] >= 1 and described["memory_bytes"] > 2**28
    assert "openblas" in described["blas"] or "mkl" in described["blas"] or described["blas"]


def test_environment_does_not_import_torch():
    code = """
import json, sys
from reprise.nb import det
det.environment()
print(json.dumps("torch" in sys.modules))
"""
    assert fresh(code) is False
