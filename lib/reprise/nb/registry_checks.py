"""What can be wrong with a registry entry that is well formed: each function yields one text a problem."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from reprise.nb.predicates import MIN_SEEDS, PRINTED_NUMBER

if TYPE_CHECKING:
    from reprise.nb.registry import Claim, File

CLAIM_ID = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")
NOTEBOOK = re.compile(r"(([a-z][a-z0-9_]*)/)?\d\d_[a-z0-9_]+")
ROW_RANGE = re.compile(r"([A-Z]+)(\d+)-([A-Z]+)?(\d+)")
LOOSE = 0.05  # relative tolerance above which a claim must say why

# numbers a predicate takes, beside `reported`
FIELDS_OF = {
    "close": {"rtol", "atol"},
    "less": {"bound"},
    "greater": {"bound"},
    "between": {"bound"},
    "interval": {"bound", "side", "seeds"},
}


def row_problems(file: File, claims: Collection[Claim]) -> Iterator[str]:
    """Rows of the paper's list without a claim, and claims naming a row the list lacks."""
    declared = expand_rows(file.rows)
    for row in sorted({row for row in declared if declared.count(row) > 1}):
        yield f"rows: {row} is listed twice"
    covered = {row for claim in claims for row in claim.rows}
    if missing := [row for row in declared if row not in covered]:
        yield f"rows: no claim for {', '.join(missing)}"
    for claim in claims:
        if unknown := [row for row in claim.rows if row not in declared]:
            yield f"{claim.id}: row={', '.join(unknown)}: not among the file's rows"


def expand_rows(items: Iterable[str]) -> list[str]:
    """["C1-C3", "C7"] -> ["C1", "C2", "C3", "C7"]; a name that is no range stands for itself."""
    rows = []
    for item in items:
        match = ROW_RANGE.fullmatch(item)
        if match and match[3] in (None, match[1]):
            rows += [f"{match[1]}{number}" for number in range(int(match[2]), int(match[4]) + 1)]
        else:
            rows.append(item)
    return rows


def claim_problems(claim: Claim, file: File, built: Collection[str] | None) -> Iterator[str]:
    """Problems of one entry; `built` are the stems of the notebooks that exist, None if that is not checked."""
    if not CLAIM_ID.fullmatch(claim.id) or claim.system != file.system:
        yield f"id: expected {file.system}.topic.name in lower case"
    if claim.paper not in file.papers and (claim.paper or file.papers):
        yield f"paper={claim.paper!r}: expected one of papers: {', '.join(file.papers) or 'none'}"
    for field in ("what", "source"):
        if not getattr(claim, field).strip():
            yield f"{field}: expected a text"
    for field in ("reported", "unit"):
        if not str(getattr(claim, field)).isascii():
            yield f"{field}={getattr(claim, field)!r}: expected ASCII, it is printed"
    yield from _notebook_problems(claim, file, built)
    yield from _kind_problems(claim)
    yield from _predicate_problems(claim)


def _notebook_problems(claim: Claim, file: File, built: Collection[str] | None) -> Iterator[str]:
    match = NOTEBOOK.fullmatch(claim.notebook)
    if not match or match[2] not in (None, file.system):
        yield f"notebook={claim.notebook!r}: expected {file.system}/<NN_topic>"
    elif built is not None and (claim.notebook in built) == claim.planned:
        state = "exists, expected no `planned`" if claim.planned else "does not exist, expected `planned: true`"
        yield f"notebook={claim.notebook!r}: {state}"


def _kind_problems(claim: Claim) -> Iterator[str]:
    unjudged = claim.kind in ("recorded", "measured")
    if unjudged != (claim.predicate == "none"):
        yield f"predicate={claim.predicate!r}: expected `none` for recorded and measured claims, and only for them"
    if claim.predicate == "interval" and (claim.kind != "reduced" or claim.preset == "smoke"):
        yield "predicate='interval': expected a reduced claim with `preset: full`"
    if claim.expect == "fails" and unjudged:
        yield f"expect='fails': expected a claim that is judged, {claim.kind} is not"
    if (claim.expect == "fails" or claim.kind == "recorded") and not claim.explain.strip():
        yield "explain: expected why it fails, or why it is only recorded"
    if (claim.kind == "reduced") != bool(claim.placebo.strip()):
        yield f"placebo={claim.placebo!r}: expected what is switched off, for reduced claims and only for them"


def _predicate_problems(claim: Claim) -> Iterator[str]:
    allowed = FIELDS_OF.get(claim.predicate, set())
    for field in ("rtol", "atol", "bound", "side", "seeds"):
        if field in claim.model_fields_set and field not in allowed:
            yield f"{field}: not used by predicate {claim.predicate!r}"
    items = claim.reported if isinstance(claim.reported, list) else [claim.reported]
    if not items or any(item == "" for item in items):
        yield f"reported={claim.reported!r}: expected a value"
    if claim.predicate == "close":
        yield from _tolerance_problems(claim)
    if claim.predicate in ("less", "greater", "interval") and not isinstance(claim.bound, float):
        yield f"bound={claim.bound!r}: expected a number"
    if claim.predicate == "between" and not (
        isinstance(claim.bound, list) and len(claim.bound) == 2 and claim.bound[0] <= claim.bound[1]
    ):
        yield f"bound={claim.bound!r}: expected [low, high]"
    if claim.predicate == "interval" and (claim.side is None or claim.seeds < MIN_SEEDS):
        yield f"side={claim.side!r}, seeds={claim.seeds}: expected less or greater, and at least {MIN_SEEDS} seeds"
    if claim.predicate == "order" and not (
        isinstance(claim.reported, list) and len(claim.reported) > 1 and all(isinstance(item, str) for item in items)
    ):
        yield f"reported={claim.reported!r}: expected a list of names, best first"
    yield from _number_problems(claim, items)


def _tolerance_problems(claim: Claim) -> Iterator[str]:
    given = [tolerance for tolerance in (claim.rtol, claim.atol) if tolerance is not None]
    if not given or min(given) < 0 or max(given) == 0:
        yield f"rtol={claim.rtol}, atol={claim.atol}: expected at least one above 0"
    if (claim.rtol or 0) > LOOSE and not claim.explain.strip():
        yield f"rtol={claim.rtol}: expected at most {LOOSE}, or `explain`"


def _number_problems(claim: Claim, items: list) -> Iterator[str]:
    """A reported value the predicate would have to read as a number, and could not."""
    if claim.predicate not in ("rounds_to", "close", "sign"):
        return
    for item in items:
        number = isinstance(item, str) and PRINTED_NUMBER.fullmatch(item) and math.isfinite(float(item))
        whole = isinstance(item, int) and not isinstance(item, bool) and claim.predicate != "rounds_to"
        if not (number or whole):
            yield f"reported={item!r}: expected a number as printed, in quotes"
    if claim.predicate == "sign" and (isinstance(claim.reported, list) or _is_zero(claim.reported)):
        yield f"reported={claim.reported!r}: expected one number with a sign"


def _is_zero(reported: Any) -> bool:
    return bool(PRINTED_NUMBER.fullmatch(str(reported))) and float(reported) == 0
