"""The wheel: what it holds, and that system commands work from it where there is no checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from environment_file import ROOT

import reprise

pytest.importorskip("setuptools", reason="setuptools builds the wheel; the extra `test` installs it")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of the checkout, built without a network from a copy (a build leaves folders beside the sources)."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "lib", source / "lib", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("data", "notebooks", "tests"):  # side by side with lib, as in the checkout
        (source / name).mkdir()
        (source / name / "__init__.py").touch()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", out, source], check=True)
    (path,) = out.iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder to put on PYTHONPATH."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", target, wheel], check=True)
    return target


@pytest.fixture
def outside(installed, tmp_path):
    """Runs Python on the installed wheel in a folder outside any checkout; an editable install does not help it."""

    def run(*arguments):
        environment = {key: value for key, value in os.environ.items() if key != "REPRISE_ROOT"}
        environment |= {"PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    return run


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    assert wheel.name == f"reprise-{reprise.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    info = f"reprise-{reprise.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"reprise", info}
    assert f"{info}/licenses/LICENSE" in names
    built = {name for name in names if name.startswith("reprise/")}
    sources = {f"reprise/{path.relative_to(ROOT / 'lib' / 'reprise')}" for path in (ROOT / "lib/reprise").rglob("*.py")}
    assert built == sources


def test_the_wheel_is_what_runs(outside, installed):
    result = outside("-c", "import reprise, reprise.durable; print(reprise.__file__)")
    assert Path(result.stdout.strip()).is_relative_to(installed), result.stderr


def test_the_version_is_the_same(outside):
    assert outside("-m", "reprise.cli", "--version").stdout.strip() == f"reprise, version {reprise.__version__}"


def test_system_commands_are_there_without_a_checkout(outside):
    if not (ROOT / "lib" / "reprise" / "refit" / "cli.py").exists():
        pytest.skip("reprise.refit has no commands")
    result = outside("-m", "reprise.cli", "refit", "--help")
    assert result.returncode == 0, result.stderr
    for command in ("diff", "apply", "inspect", "stats"):
        assert command in result.stdout


def test_notebook_commands_say_that_they_need_a_checkout(outside, tmp_path):
    if not (ROOT / "lib" / "reprise" / "nb" / "cli.py").exists():
        pytest.skip("reprise.nb has no commands")
    result = outside("-m", "reprise.cli", "list")
    assert result.returncode != 0
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: no folder holding data/claims in or above {tmp_path}, nor above ")
    assert len(result.stderr.splitlines()) == 1
