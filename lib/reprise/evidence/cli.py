"""`reprise evidence check LOG --cases DIR`: the chain behind each action of a log, and where it broke."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from reprise.evidence.cases import load_cases
from reprise.evidence.evaluate import END, evaluate
from reprise.evidence.logs import Run, load_runs
from reprise.evidence.provenance import Support, explain, provenance
from reprise.traces import FORMATS

LINE = 200  # characters of a printed line


@click.group()
def cli():
    """Was every state-changing call of an agent supported by what it had observed?"""


@cli.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--cases", type=click.Path(path_type=Path), required=True, help="Folder of cases, YAML or JSON.")
@click.option("--case", "case_id", help="Case of every run, where the log does not name it.")
@click.option("--format", "format", type=click.Choice(["auto", *FORMATS]), default="auto", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Verdicts and chains as one JSON object.")
def check(log, cases, case_id, format, as_json):
    """Print what each action of a LOG rested on; exit code 1 unless every run is supported.

    LOG is OpenAI messages (JSON Lines), an inspect log (.eval or JSON) or an MCP session (JSON-RPC, one message a
    line). Its calls are made again in the case's world; a log whose answers differ is refused with step and field.
    """
    runs = load_runs(log, load_cases(cases), case_id, format)
    judged = [(run, evaluate(run.case, run.trajectory)) for run in runs]
    chains = [provenance(run.case, run.trajectory, verdict) for run, verdict in judged]
    if as_json:
        plain = [_plain(run, verdict, found) for (run, verdict), found in zip(judged, chains, strict=True)]
        click.echo(json.dumps({"runs": plain}))
    else:
        for (run, verdict), found in zip(judged, chains, strict=True):
            for line in lines(run, verdict.ecs, found):
                click.echo(line)
    if not all(verdict.ecs for _, verdict in judged):
        sys.exit(1)


def lines(run: Run, supported: bool, supports: tuple[Support, ...]) -> Iterator[str]:
    """One run as text."""
    head = f"{run.name}: case {run.case.view.id}, {len(run.trajectory.steps)} calls"
    yield _printable(f"{head}: {'supported' if supported else 'NOT SUPPORTED'}")
    for support in supports:
        yield from (_printable(f"  {line}") for line in explain(support))
    if run.failed:
        yield f"  {run.failed} calls failed before they reached a tool and are no steps"


def _plain(run: Run, verdict, supports: tuple[Support, ...]) -> dict:
    return {
        "run": run.name,
        "case": run.case.view.id,
        "supported": verdict.ecs,
        "codes": [code for _, code in verdict.codes],
        "calls": [as_plain(support) for support in supports],
    }


def as_plain(support: Support) -> dict:
    """A chain as JSON can hold it; the end of the episode has call null."""
    links = [
        {
            "requirement": link.requirement,
            "status": link.status.name,
            "facts": [
                {
                    "entity": atom.entity,
                    "field": atom.field,
                    "status": atom.status.name,
                    "value": atom.fact.value if atom.fact else None,
                    "call": atom.fact.seq if atom.fact else None,
                    "elsewhere": list(atom.elsewhere),
                }
                for atom in link.atoms
            ],
        }
        for link in support.links
    ]
    call = None if support.seq == END else support.seq
    return {"call": call, "tool": support.tool, "action": support.action, "args": support.args,
            "supported": support.supported, "codes": list(support.codes), "needs": links}  # fmt: skip


def _printable(text: str) -> str:
    """One line of printable characters: a log's control characters do not reach the terminal."""
    text = text if len(text) <= LINE else f"{text[: LINE - 3]}..."
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
