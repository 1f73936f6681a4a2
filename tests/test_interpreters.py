"""Python 3.12 and 3.13: the lock resolves, and what needs no torch passes its tests on such an interpreter.

Slow: the first asks a package registry about every locked package, the second builds an environment.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from environment_file import ROOT, project
from packaging.requirements import Requirement

pytestmark = [pytest.mark.slow, pytest.mark.network]

VERSIONS = ["3.12", "3.13"]
# test files whose imports need neither torch nor a kernel
TORCH_FREE = ["test_durable.py", "test_durable_faults.py", "test_policy_gradient.py", "test_cli.py"]
TORCH_FREE += ["refit/test_*.py", "nb/test_claims.py", "nb/test_predicates.py"]
# and what they import beyond the core and the extra `refit`
ALSO = {"bsdiff4", "hypothesis", "packaging", "psutil", "pydantic", "pytest", "pyyaml"}
UNREACHABLE = ("ConnectionError", "NewConnectionError", "Temporary failure", "ConnectTimeout", "Read timed out")


def pins(*left_out: str) -> list[str]:
    if not (ROOT / "requirements.lock").exists():
        pytest.skip("requirements.lock is not there: make lock writes it")
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return [line for line in lines if line.split("==")[0] not in left_out]


def interpreter(version: str) -> str:
    """An interpreter of that minor version on PATH, from pyenv or from uv; skips when there is none."""
    candidates = [
        shutil.which(f"python{version}"),
        *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ]
    if uv := shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"):
        command = [uv, "python", "find", "--no-python-downloads", "--no-project", version]
        candidates.append(subprocess.run(command, capture_output=True, text=True).stdout.strip())
    for candidate in filter(None, candidates):
        # a pyenv shim is on PATH for versions that are not selected, too, and fails
        found = subprocess.run([candidate, "-c", "import sys; print(sys.version)"], capture_output=True, text=True)
        if found.returncode == 0 and found.stdout.startswith(f"{version}."):
            return candidate
    pytest.skip(f"no Python {version} on PATH, in ~/.pyenv/versions or known to uv")


def run(command: list, **more) -> None:
    """Run it; an unreachable registry skips the test, any other failure shows its last lines."""
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=900, **more)
    if result.returncode:
        output = "\n".join((result.stdout + result.stderr).splitlines()[-40:])
        if any(sign in output for sign in UNREACHABLE):
            pytest.skip(f"the package registry cannot be reached: {output.splitlines()[-1]}")
        pytest.fail(output, pytrace=False)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_lock_resolves(version, tmp_path):
    (tmp_path / "lock").write_text("\n".join(pins("torch")))
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps", "--only-binary=:all:"]
    run([*command, "--python-version", version, "--target", tmp_path / "target", "-r", tmp_path / "lock"])


@pytest.mark.parametrize("version", VERSIONS)
def test_what_needs_no_torch_passes_its_tests(version, tmp_path):
    python = tmp_path / "venv" / "bin" / "python"
    run([interpreter(version), "-m", "venv", tmp_path / "venv"])
    (tmp_path / "lock").write_text("\n".join(pins()))
    extras = project()["optional-dependencies"]
    names = {Requirement(line).name for line in [*project()["dependencies"], *extras["refit"]]} | ALSO
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    run([*install, "-c", tmp_path / "lock", *sorted(names)])
    files = sorted(path for pattern in TORCH_FREE for path in (ROOT / "tests").glob(pattern))
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "lib"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(tmp_path / "numba"),
    }
    run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files], cwd=ROOT, env=environment)
