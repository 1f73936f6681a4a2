"""`reprise audit LOG`: the turns of a run as a timeline, and what a judge says after each of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from reprise.audit.judges import OpenAIJudge
from reprise.audit.kv_stream import StreamAuditor
from reprise.audit.logs import trajectory
from reprise.audit.online import OnlineAuditor
from reprise.audit.prompt import build_messages
from reprise.audit.trajectory import Trajectory
from reprise.audit.verdict import Verdict
from reprise.traces import FORMATS, Log, read_log

TEXT = 72  # characters of a turn's content in the timeline
NAME = 24  # characters of a role and of an action
REASONS = 4  # of dropped records that are shown


@click.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--format", "format", type=click.Choice(["auto", *FORMATS]), default="auto", show_default=True)
@click.option("--run", help="Name of the run, for a file with several.")
@click.option("--base-url", help="Address of an OpenAI-compatible endpoint; the key stands in OPENAI_API_KEY.")
@click.option("--model", help="Name the endpoint knows; or, without --base-url, a model on this machine.")
@click.option("--reference", help="The task's right answer, shown to the judge.")
@click.option("--turn-chars", type=click.IntRange(1), default=2000, show_default=True, help="Shown of each turn.")
@click.option("--threshold", type=float, default=0.0, show_default=True, help="Log-odds of an alarm, local model.")
@click.option("--cache", type=click.Path(path_type=Path), help="SQLite file in which answers are kept.")
@click.option("--on-after-alarm", is_flag=True, help="Keep asking after the first alarm.")
@click.option("--json", "as_json", is_flag=True, help="Turns, verdicts and dropped records as one JSON object.")
def cli(log, format, run, base_url, model, reference, turn_chars, threshold, cache, on_after_alarm, as_json):
    """Audit a LOG turn by turn, as if it were running.

    LOG is a run of Who&When, AFTraj, AutoGen, LangGraph, smolagents, OpenTelemetry (OTLP JSON), inspect or OpenAI
    messages. With --base-url and --model an endpoint is asked after every turn; with --model alone a model on this
    machine (smollm2-135m, or a Hugging Face folder) compares the possible verdicts; with neither, the timeline is
    printed. A judge never sees a later turn.
    """
    if base_url and not model:
        raise click.UsageError("--base-url needs --model")
    found = read_log(log, format, run)
    audited = trajectory(found, found.run or log.stem)
    verdicts: list[Verdict] = []
    if model:
        auditor = _auditor(base_url, model, reference, turn_chars, threshold, cache, on_after_alarm)
        for turn in audited.turns:
            verdicts.append(auditor.observe(turn))
            if verdicts[-1].is_alarm and not on_after_alarm:
                break
    report = as_plain(audited, found, verdicts) if as_json else None
    click.echo(json.dumps(report) if as_json else "\n".join(lines(audited, found, verdicts)))


def _auditor(base_url, model, reference, turn_chars, threshold, cache, on_after_alarm) -> OnlineAuditor:
    def ask(prefix):
        return build_messages(prefix, reference=reference, turn_chars=turn_chars)

    if base_url:
        from reprise.chat_replay import ReplayCache

        judge = OpenAIJudge(base_url, model, cache=ReplayCache(cache) if cache else None)
        return OnlineAuditor(judge, ask=ask, lenient=True, continue_after_alarm=on_after_alarm)
    from reprise.chat import LocalModel

    local = LocalModel(model)
    return OnlineAuditor(StreamAuditor(local, threshold, build=ask), ask=None, continue_after_alarm=on_after_alarm)


def lines(audited: Trajectory, log: Log, verdicts: list[Verdict]) -> Iterator[str]:
    """The timeline, the verdict, the log's own label, and what was left out."""
    yield f"{_printable(audited.id)}: {len(audited)} turns ({log.format})"
    roles, actions = ([_short(getattr(turn, name), NAME) for turn in audited.turns] for name in ("role", "action"))
    widths = [max(map(len, column)) for column in (roles, actions)]
    for k, turn in enumerate(audited.turns):
        mark = _mark(verdicts[k]) if k < len(verdicts) else " "
        head = f"{mark} {k:>4}  {roles[k]:<{widths[0]}}  {actions[k]:<{widths[1]}}"
        yield f"{head}  {_short(turn.content, TEXT)}".rstrip()
    yield from _summary(audited, verdicts)
    if log.dropped:
        most = ", ".join(f"{count} x {reason}" for reason, count in log.reasons.most_common(REASONS))
        yield f"{len(log.dropped)} records are no turns: {_printable(most)}"


def _mark(verdict: Verdict) -> str:
    if verdict.is_alarm:
        return "!"
    return "." if verdict.valid else "?"


def _summary(audited: Trajectory, verdicts: list[Verdict]) -> Iterator[str]:
    alarms = [(k, verdict) for k, verdict in enumerate(verdicts) if verdict.is_alarm]
    unread = [verdict.error for verdict in verdicts if not verdict.valid]
    if alarms:
        k, verdict = alarms[0]
        blamed = f"turn {verdict.step}, {_printable(verdict.agent or 'agent unknown')}"
        yield f"alarm after turn {k}: {blamed}: {_short(verdict.reason or 'no reason given', 2 * TEXT)}"
    elif verdicts:
        yield f"no alarm in {len(verdicts)} turns"
    if unread:
        yield f"{len(unread)} of {len(verdicts)} answers are no verdicts; the first: {_short(unread[0], 2 * TEXT)}"
    if audited.decisive_step is not None:
        yield f"label in the log: turn {audited.decisive_step}, {_printable(audited.decisive_agent or 'no agent')}"


def as_plain(audited: Trajectory, log: Log, verdicts: list[Verdict]) -> dict:
    """The report as JSON can hold it."""
    names = ("kind", "step", "agent", "reason", "valid", "error")
    return {
        "id": audited.id,
        "format": log.format,
        "turns": [{"role": turn.role, "action": turn.action, "content": turn.content} for turn in audited.turns],
        "verdicts": [{name: getattr(verdict, name) for name in names} for verdict in verdicts],
        "label": {"step": audited.decisive_step, "agent": audited.decisive_agent},
        "dropped": [{"place": each.place, "reason": each.reason} for each in log.dropped],
    }


def _printable(text: str) -> str:
    """Control characters of a log, and halves of surrogate pairs, do not reach the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _short(text: str, length: int) -> str:
    """One printable line of at most `length` characters."""
    line = " ".join(text[: 8 * length].split())
    return _printable(line if len(line) <= length else f"{line[: length - 3]}...")
