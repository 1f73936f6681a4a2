"""Entry point `reprise`: finds commands by name and imports only the one that runs.

`reprise.nb.cli` holds the notebook commands at top level (`reprise run ...`); a system that has commands keeps
them in `reprise/<system>/cli.py` as a Click group named `cli` (`reprise refit diff ...`).
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from reprise import __version__
from reprise.errors import RepriseError

# name -> one-line help, so that `reprise --help` imports neither
NOTEBOOK_COMMANDS = {
    "list": "Notebooks, their presets and what each one shows.",
    "run": "Execute notebooks as a batch and judge their claims.",
    "refresh": "Re-execute notebooks in place and write the committed outputs.",
    "check": "Check notebook rules, registry and presets without a kernel.",
    "claims": "List claims with their status.",
    "scoreboard": "Statuses of a run, of the committed results, or of two runs side by side.",
    "doctor": "Versions, interpreter, CPU profile, device and missing extras.",
}


def systems_with_commands() -> list[str]:
    """Names of the system packages that have a `cli.py`."""
    here = Path(__file__).parent
    return sorted(path.parent.name for path in here.glob("*/cli.py") if path.parent.name != "nb")


class LazyGroup(click.Group):
    """A group whose members are imported when they are invoked, not when they are listed."""

    def list_commands(self, ctx):
        return [*NOTEBOOK_COMMANDS, *systems_with_commands()]

    def get_command(self, ctx, name):
        if name in NOTEBOOK_COMMANDS:
            return _load("reprise.nb.cli", name)
        if name in systems_with_commands():
            return _load(f"reprise.{name}.cli", "cli")
        return None

    def format_commands(self, ctx, formatter):
        with formatter.section("Notebooks"):
            formatter.write_dl(list(NOTEBOOK_COMMANDS.items()))
        systems = [(name, f"Commands of reprise.{name}.") for name in systems_with_commands()]
        if systems:
            with formatter.section("Systems"):
                formatter.write_dl(systems)


def _load(module: str, attribute: str) -> click.Command:
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("reprise"):
            raise
        extra = module.split(".")[1]
        raise click.ClickException(f"{error.name} is not installed: pip install 'reprise[{extra}]'") from None
    return getattr(loaded, "list_" if attribute == "list" else attribute)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="reprise")
def cli():
    """Reproduce agentic-RL papers: run notebooks, judge claims, use the algorithms on your own data."""


def main() -> None:
    """Run `reprise`; a RepriseError becomes one line on stderr and exit code 1 (2 where it names a usage error)."""
    try:
        cli.main(prog_name="reprise", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):  # Click turns an interrupt into Abort, but only once it runs
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except RepriseError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(getattr(error, "exit_code", 1))


if __name__ == "__main__":
    main()
