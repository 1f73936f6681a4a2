"""Notebook commands of `reprise`. Each imports what it needs when it runs: a cached `run` must stay cheap."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from reprise.nb import paths

RUN = click.argument("run", required=False, type=click.Path(path_type=Path))


@click.command("list")
def list_():
    """Notebooks, their presets and what each one shows."""
    from reprise.nb import presets

    for stem, path in paths.notebooks().items():
        title = presets.read_cells(path)[0]["source"].splitlines()[0].lstrip("# ")
        click.echo(f"{stem}\n  {title}")
        smoke = presets.resolve(stem, "smoke")
        for preset in presets.PRESETS:
            values = presets.resolve(stem, preset)
            changed = "  ".join(f"{name}={value}" for name, value in values.items() if value != smoke[name])
            click.echo(f"  {preset:<6} up to {presets.timeout(stem, preset)} s  {changed}".rstrip())


@click.command()
@click.argument("patterns", nargs=-1)
@click.option("--preset", default="smoke", show_default=True, help="smoke, full or gpu.")
@click.option("-j", "--workers", type=click.IntRange(min=1), help="Notebooks at a time [default: 1; gpu: the devices].")
@click.option("--out", type=click.Path(path_type=Path), help="Run directory [default: runs/<preset>].")
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="Override; repeatable.")
@click.option("--compare", is_flag=True, help="Exit 1 where statuses differ from the committed scoreboard.")
def run(patterns, preset, workers, out, parameters, compare):
    """Execute notebooks and judge their claims; PATTERNS are notebooks, paths, systems (refit) or globs (refit/*).

    Unchanged notebooks of an earlier run into the same directory are not run again.
    """
    from reprise.nb import publish, runner
    from reprise.nb.progress import Progress

    out = out or paths.root() / "runs" / preset
    jobs = runner.plan(patterns, preset, out, _overrides(parameters))
    progress = Progress(jobs, workers or 1)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill cleans up like Ctrl-C
    try:
        outcomes = runner.run(jobs, workers=workers, on_event=progress)
    except KeyboardInterrupt:
        progress.close()
        click.echo(f"stopped; {_shown(out)} keeps what is done, the same command resumes")
        click.echo(_count(progress.outcomes))
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        progress.close()
    differences = publish.update(out, preset) if jobs else []
    failed = not all(outcome.passed for outcome in outcomes)
    if compare and differences:
        click.echo(f"statuses that differ from data/scoreboard.{preset}.json:")
        click.echo("\n".join(f"  {text}" for text in differences))
    click.echo(f"scoreboard: {_shown(out / 'scoreboard.html')}")
    click.echo(_count(outcomes))
    sys.exit(1 if failed or (compare and differences) else 0)


@click.command()
@click.argument("patterns", nargs=-1)
@click.option("-j", "--workers", type=click.IntRange(min=1), default=1, help="Notebooks at a time.")
def refresh(patterns, workers):
    """Re-execute notebooks in place and write the committed outputs."""
    from reprise.nb import runner
    from reprise.nb.refresh import refresh as execute

    failed = False
    for stem, status, detail in execute(runner.choose(patterns), workers=workers):
        click.echo(f"{status:<8} {stem}  {detail}".rstrip())
        failed |= status == "failed"
    sys.exit(1 if failed else 0)


@click.command()
def check():
    """Check notebook rules, registry and presets without a kernel."""
    from reprise.nb import rules

    problems = rules.check_all()
    for problem in problems:
        click.echo(problem)
    click.echo(f"{len(problems)} problems in {len(paths.notebooks())} notebooks and the registry")
    sys.exit(1 if problems else 0)


@click.command()
@RUN
@click.option("--json", "as_json", is_flag=True, help='Print {"claims": [...]}.')
def claims(run, as_json):
    """List claims with their status: of RUN, else of the latest run, else of the committed results."""
    from reprise.nb import scoreboard

    run = run or paths.latest_run()
    rows = scoreboard.rows(run)
    if as_json:
        click.echo(scoreboard.as_json(rows), nl=False)
        return
    _say_which(run)
    for row in rows:
        remark = ", ".join(filter(None, (row["reason"], _committed(row))))
        click.echo(f"{row['status']:<24}  {row['id']:<40}  {row['here']:<20}  {remark}".rstrip())


@click.command()
@RUN
@click.argument("other", required=False, type=click.Path(path_type=Path))
@click.option("--commit", is_flag=True, help="Make RUN, by default the latest, the committed results.")
def scoreboard(run, other, commit):
    """Statuses of RUN, else of the latest run, else of the committed results; or of two runs side by side."""
    from reprise.nb import scoreboard as board

    run = run or paths.latest_run()
    if commit:
        if run is None or other is not None:
            raise click.UsageError("--commit takes one run, and there is no latest one" if run is None else "one run")
        for path in board.commit(run):
            click.echo(f"wrote {_shown(path)}")
        return
    rows = board.rows(run)
    if other is not None:
        for line in _side_by_side(rows, board.rows(other)):
            click.echo(line)
        return
    _say_which(run)
    for line in _table(board.counts(rows)):
        click.echo(line)
    if run and (older := sum(row["origin"] == "committed" for row in rows)):
        click.echo(f"{older} of these statuses are committed ones of a larger preset")
    for row in rows:
        if row["status"] in ("not reproduced", "inconsistent as reported"):
            reported = f"{row['reported']} {row['unit']}".rstrip()
            here = ", ".join(filter(None, (row["here"], _committed(row))))
            click.echo(f"{row['status']}: {row['id']}: reported {reported}, here {here}")


@click.command()
def doctor():
    """Versions, interpreter, CPU profile, device and missing extras."""
    from reprise.nb import doctor as examination

    for line in examination.lines():
        click.echo(line)


def _overrides(parameters: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in parameters]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.UsageError(f"-p {name}: expected NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _count(outcomes) -> str:
    passed = sum(outcome.passed for outcome in outcomes)
    return f"{passed} passed, {len(outcomes) - passed} failed"


def _say_which(run: Path | None) -> None:
    """Tell which results follow: the latest run may be a small or a failed one."""
    from reprise.nb import scoreboard

    what = f"{_shown(run)}: {scoreboard.described(run)}" if run else "the committed results, no run"
    click.echo(what, err=True)


def _committed(row: dict) -> str:
    """Preset and date of a status that was not computed in the run shown, else nothing."""
    return f"{row['preset']} {row['date']}" if row["origin"] == "committed" else ""


def _shown(path: Path) -> str:
    """The path from here where that is shorter to read."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _table(counts: dict[str, dict[str, int]]) -> list[str]:
    statuses = list(next(iter(counts.values()), {}))
    width = max(map(len, [*counts, "system"]))
    head = f"{'system':<{width}}  " + "  ".join(statuses)
    cells = ([f"{number:>{len(status)}}" for status, number in row.items()] for row in counts.values())
    return [head, *(f"{name:<{width}}  " + "  ".join(row) for name, row in zip(counts, cells, strict=True))]


def _side_by_side(rows: list[dict], others: list[dict]) -> list[str]:
    """Claims whose status or value differs, and how many agree."""
    second = {row["id"]: row for row in others}
    lines, same = [], 0
    for row in rows:
        left, right = [(one["status"], one["here"]) for one in (row, second[row["id"]])]
        if left == right:
            same += 1
        else:
            left, right = " ".join([*left, _committed(row)]), " ".join([*right, _committed(second[row["id"]])])
            lines.append(f"{row['id']:<40}  {left:<40}  {right}".rstrip())
    return [*lines, f"{same} of {len(rows)} claims have the same status and value"]
