"""An audited run as JSON values, so that an auditor can go on after its process has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reprise.audit.errors import AuditError
from reprise.audit.verdict import Verdict
from reprise.traces import Turn

VERSION = 1


@dataclass(frozen=True)
class Observed:
    """A turn and the verdict on the prefix that ends with it; None where the judge was not asked."""

    turn: Turn
    verdict: Verdict | None


def write_state(observed: Sequence[Observed], rewinds: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Turns without their source records, verdicts, and (turns observed, turns kept) of every rewind."""
    return {
        "version": VERSION,
        "turns": [[each.turn.role, each.turn.action, each.turn.content] for each in observed],
        "verdicts": [each.verdict and asdict(each.verdict) for each in observed],
        "rewinds": [list(pair) for pair in rewinds],
    }


def read_state(state: Mapping[str, Any]) -> tuple[list[Observed], list[tuple[int, int]]]:
    """What `write_state` was given. Raises AuditError that names the field which is not as written."""
    if not isinstance(state, Mapping) or state.get("version") != VERSION:
        version = state.get("version") if isinstance(state, Mapping) else state
        raise AuditError(f"version={version!r}: expected {VERSION}")
    turns, verdicts = (_items(state, name) for name in ("turns", "verdicts"))
    if len(turns) != len(verdicts):
        raise AuditError(f"verdicts: {len(verdicts)}: expected {len(turns)}, one a turn")
    pairs = enumerate(zip(turns, verdicts, strict=True))
    observed = [Observed(_read_turn(turn, k), _read_verdict(verdict, k)) for k, (turn, verdict) in pairs]
    return observed, [_read_rewind(pair, k) for k, pair in enumerate(_items(state, "rewinds"))]


def _items(state: Mapping[str, Any], name: str) -> list:
    items = state.get(name)
    if not isinstance(items, list):
        raise AuditError(f"{name}: {type(items).__name__}: expected a list")
    return items


def _read_turn(fields: Any, k: int) -> Turn:
    if not isinstance(fields, list) or len(fields) != 3 or not all(isinstance(field, str) for field in fields):
        raise AuditError(f"turns[{k}]: expected [role, action, content], three texts")
    return Turn(*fields)


def _read_verdict(fields: Any, k: int) -> Verdict | None:
    if fields is None:
        return None
    try:
        verdict = Verdict(**fields)
    except (TypeError, AuditError) as error:
        raise AuditError(f"verdicts[{k}]: {error}") from None
    if verdict.is_alarm and verdict.step > k:
        raise AuditError(f"verdicts[{k}]: step={verdict.step}: expected a turn in 0..{k}")
    return verdict


def _read_rewind(pair: Any, k: int) -> tuple[int, int]:
    if not isinstance(pair, list) or [type(x) for x in pair] != [int, int] or not 0 <= pair[1] <= pair[0]:
        raise AuditError(f"rewinds[{k}]={pair!r}: expected [turns observed, turns kept]")
    return pair[0], pair[1]
