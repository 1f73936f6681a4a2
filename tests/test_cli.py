"""The entry point lists commands without importing what they need."""

import subprocess
import sys

from click.testing import CliRunner

from reprise import __version__
from reprise.cli import NOTEBOOK_COMMANDS, cli


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "reprise.cli", *arguments], capture_output=True, text=True)


def test_help_names_every_notebook_command():
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    for name in NOTEBOOK_COMMANDS:
        assert f"  {name}" in result.output


def test_version_is_the_package_version():
    assert run("--version").stdout.strip() == f"reprise, version {__version__}"


def test_unknown_command_is_a_usage_error_that_names_it():
    result = run("rnu")
    assert result.returncode == 2
    assert "'rnu'" in result.stderr


def test_help_imports_no_heavy_module():
    code = (
        "import sys; from reprise.cli import cli; cli(['--help'], standalone_mode=False);"
        "heavy = {'torch', 'pandas', 'matplotlib', 'numpy', 'pydantic'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
