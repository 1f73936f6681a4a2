"""`reprise rubric`: rewards of logged scores, and which criteria a policy farms."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

import click
from tqdm import tqdm

from reprise.errors import RepriseError
from reprise.rubric.aggregate import METHODS, aggregate
from reprise.rubric.batch import INFERENCES
from reprise.rubric.errors import RubricError
from reprise.rubric.farming import Audit, CriterionLeak, EdgeLeak, StepLeak, audit
from reprise.rubric.leakage import THRESHOLD, FCPReport
from reprise.rubric.rollout_log import Rollout, log_files, read_log, rubric_table
from reprise.stats import Interval

SILENT_FOR = 5  # seconds before a bar appears
SHOWN = 10  # criteria, edges and steps
TEXT = 48  # characters of a criterion's text


@click.group()
def cli():
    """Rewards from rubrics: what was paid without what licenses it."""


@cli.command("audit")
@click.argument("log", type=click.Path(path_type=str))
@click.option(
    "--rubrics", type=click.Path(path_type=str), help="Data set with reward_model, where the log has no weights."
)
@click.option("--repeats", type=click.IntRange(1), default=1, show_default=True, help="Responses a row of --rubrics.")
@click.option("--edge-types", default="weak,strong", show_default=True, help="Types considered, or 'all'.")
@click.option("--threshold", type=float, default=THRESHOLD, show_default=True, help="A score of at least this is met.")
@click.option("--by", type=click.Choice(["prompt", "id"]), help="A criterion is its prompt's own, or its id's in all.")
@click.option("--skip-bad-lines", is_flag=True, help="Leave out and count lines that cannot be read.")
@click.option(
    "--top", type=click.IntRange(1), default=SHOWN, show_default=True, help="Criteria, edges and steps shown."
)
@click.option("--json", "as_json", is_flag=True, help="Everything, as one JSON object.")
def audit_command(log, rubrics, repeats, edge_types, threshold, by, skip_bad_lines, top, as_json):
    """Name the criteria of LOG that were paid while what licenses them was missing.

    LOG is a JSON Lines file, or a folder of them named by training step. A line holds one response: rubric_ids, p_list,
    graph_edges and optionally rubric_weights and the q lists, as the GEAR trainer writes them, or scores, reward_model
    and q.
    """
    bad: list[str] | None = [] if skip_bad_lines else None
    types = "all" if edge_types == "all" else [name.strip() for name in edge_types.split(",")]
    with one_sentence():
        table = rubric_table(rubrics) if rubrics else None
        with bar(log) as progress:
            rollouts = read_log(log, table, repeats, bad, progress)
            found = audit(rollouts, threshold, types, None if by is None else by == "id")
    click.echo(json.dumps(as_plain(found, bad)) if as_json else "\n".join(report_lines(found, bad, top)))


@cli.command()
@click.argument("log", type=click.Path(path_type=str))
@click.option(
    "--rubrics", type=click.Path(path_type=str), help="Data set with reward_model, for a log without weights."
)
@click.option("--repeats", type=click.IntRange(1), default=1, show_default=True, help="Responses a row of --rubrics.")
@click.option("--inference", type=click.Choice(INFERENCES), default="auto", show_default=True, help="Of GEAR.")
def score(log, rubrics, repeats, inference):
    """Print the rewards of each response in LOG under every aggregation, as JSON Lines.

    LOG is as for `audit`. A line is {prompt, step, paid, flat, hard, hard_transitive, gear, inference, fingerprint}:
    what the log's own scores come to, and what the judge's scores would under each aggregation at its defaults.
    """
    with one_sentence():
        table = rubric_table(rubrics) if rubrics else None
        for each in read_log(log, table, repeats):
            click.echo(json.dumps(rewards(each, inference)))


def rewards(rollout: Rollout, inference: str) -> dict:
    """Rewards of one response, by aggregation."""
    try:
        found = {method: aggregate(rollout.graph, rollout.p, method, inference) for method in METHODS}
        paid = aggregate(rollout.graph, rollout.paid, "flat").reward
    except RubricError as error:
        raise RubricError(f"prompt {rollout.prompt}, step {rollout.step}: {error}") from error
    values = {name: each.reward for name, each in found.items()}
    gear = found["gear"]
    used = {"inference": gear.inference_used, "fingerprint": gear.fingerprint}
    return {"prompt": rollout.prompt, "step": rollout.step, "paid": paid, **values, **used}


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """What the system refuses (no such file, no permission) as a RepriseError."""
    try:
        yield
    except BrokenPipeError:  # `| head` has seen enough; Click ends quietly
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise RepriseError(f"{where}{error.strerror or error}") from error


@contextlib.contextmanager
def bar(log: str) -> Iterator[Callable[[int], None]]:
    """Progress in bytes on stderr, only if it takes a while."""
    total = sum(file.stat().st_size for file in log_files(log))
    with tqdm(total=total, desc=log, unit="B", unit_scale=True, delay=SILENT_FOR, leave=False) as progress:
        yield progress.update


def as_plain(found: Audit, bad: list[str] | None) -> dict:
    """The audit as JSON types; an interval is {estimate, low, high}."""

    def plain(value):
        if isinstance(value, Interval):
            return {name: plain(number) for name, number in value._asdict().items()}
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        return None if value != value else value  # NaN: cannot be told

    return plain({**_fields(found), "bad_lines": bad or []})


def _fields(found: Audit) -> dict:
    fields = {name: getattr(found, name) for name in ("growth", "prompts", "shared")}
    fcp = {name: getattr(found.fcp, name) for name in FCPReport.__dataclass_fields__ if name != "methods"}
    methods = {name: vars(each) for name, each in found.fcp.methods.items()}
    rows = {name: [_flat(each) for each in getattr(found, name)] for name in ("criteria", "edges", "steps")}
    return {**fields, "fcp": {**fcp, "methods": methods}, **rows}


def _flat(row: CriterionLeak | EdgeLeak | StepLeak) -> dict:
    return {name: asdict(value) if name in ("criterion", "edge") else value for name, value in vars(row).items()}


def report_lines(found: Audit, bad: list[str] | None, top: int) -> Iterator[str]:
    """What the command prints."""
    fcp = found.fcp
    steps = f"{len(found.steps)} steps" if len(found.steps) > 1 else "1 step"
    yield f"{fcp.responses} responses to {found.prompts} prompts in {steps}"
    if bad:
        yield f"{len(bad)} lines left out; the first: {_printable(bad[0])}"
    yield (
        f"{fcp.violated} cases of a met criterion with an unmet parent, {fcp.satisfied} with a met one; "
        f"edges {', '.join(fcp.edge_types)}, met from {fcp.threshold:g}"
    )
    yield ""
    head = ["aggregation", "leakage L", "95 %", "preservation P", "95 %"]
    yield from _table(head, [[name, *_pair(m.leakage), *_pair(m.preservation)] for name, m in fcp.methods.items()])
    if not found.criteria:
        yield ""
        yield "nothing leaked"
        return
    farmed = [each for each in found.criteria if each.farmed]
    yield ""
    if farmed:
        yield f"farmed: {len(farmed)} criteria whose leak grew over training (95 % for all criteria together)"
        yield from _criteria(farmed[:top])
    elif len(found.steps) > 1:
        yield "no criterion's leak grew over training (95 % for all criteria together)"
    yield ""
    yield "largest leaks, in % of a response's positive points"
    yield from _criteria(sorted(found.criteria, key=lambda each: -each.share)[:top])
    yield ""
    yield "edges through which they leaked"
    yield from _table(
        ["edge", "prompt", "met without parent", "95 %", "of cases", "L"],
        [_edge_row(each) for each in found.edges[:top]],
    )
    if len(found.steps) > 1:
        yield ""
        yield f"leak of a response by step; growth over training {_percent(found.growth)}"
        yield from _table(["step", "responses", "leak", "95 %", "L"], [_step_row(s) for s in _spread(found.steps, top)])


def _criteria(rows: Iterable[CriterionLeak]) -> Iterator[str]:
    head = ["criterion", "prompt", "weight", "leak", "95 %", "growth", "together", "of all", "text"]
    yield from _table(head, [_criterion_row(each) for each in rows])


def _criterion_row(each: CriterionLeak) -> list[str]:
    growth = each.growth
    where = " ".join(filter(None, [each.prompt, each.excerpt[: TEXT // 2]])) or "all"
    return [
        each.criterion.id,
        where,
        f"{each.criterion.weight:g}",
        f"{100 * each.leak.estimate:.2f}",
        _span(each.leak, 100),
        "-" if growth is None else f"{100 * growth.estimate:+.2f}",
        "-" if growth is None else _span(growth, 100),
        f"{100 * each.share:.1f} %",
        " ".join(each.criterion.text.split())[:TEXT],
    ]


def _edge_row(each: EdgeLeak) -> list[str]:
    share = each.violated_share
    cases = str(each.violated + each.satisfied)
    return [
        str(each.edge),
        each.prompt or "all",
        f"{100 * share.estimate:.1f} %",
        _span(share, 100),
        cases,
        _number(each.leakage),
    ]


def _step_row(each: StepLeak) -> list[str]:
    leak = f"{100 * each.leak.estimate:.2f}"
    return [str(each.step), str(each.responses), leak, _span(each.leak, 100), _number(each.leakage)]


def _spread(rows: tuple, count: int) -> list:
    """At most `count` rows, evenly spread, first and last included."""
    if len(rows) <= count:
        return list(rows)
    return [rows[round(k * (len(rows) - 1) / max(count - 1, 1))] for k in range(count)]


def _pair(value: Interval | None) -> tuple[str, str]:
    return ("-", "-") if value is None else (_number(value.estimate), _span(value))


def _percent(value: Interval | None) -> str:
    return "unknown" if value is None else f"{100 * value.estimate:+.2f} ({_span(value, 100)})"


def _span(value: Interval, scale: float = 1) -> str:
    if value.low != value.low:
        return "-"
    digits = 2 if scale == 100 else 4
    return f"{scale * value.low:.{digits}f} to {scale * value.high:.{digits}f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _printable(text: str) -> str:
    """Control characters of names do not reach the terminal."""
    return text if text.isprintable() else repr(text)[1:-1]


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Lines of a table."""
    cells = [[_printable(text) for text in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
