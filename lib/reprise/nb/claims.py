"""The registry: every number, table and figure a paper reports, one entry each, and the verdict on what was computed.

One file a system, data/claims/<system>.yaml:

    system: fp4                      # the file's stem
    title: ...                       # citation; `year` and `url` too. A file with several papers lists them under
    papers: {mnl: {title: ...}}      #   `papers:`, and each claim names one with `paper:`
    rows: [C1-C7, C10-C42]           # rows of the paper's list of claims; each needs at least one entry
    claims:
      - id: fp4.cache.per_token      # system.topic.name, lower case, unique, never reused
        row: C31                     # or a list of rows
        what: guidance kept per generated token, later half of the layers
        source: "section 3.2"        # table, figure or section of the paper
        kind: analytic               # exact | analytic | reduced | recorded | measured
        reported: "7.5"              # a string: its digits carry the precision; or int, bool, list. Never a float
        unit: KB                     # ASCII, it is printed
        predicate: rounds_to         # reprise.nb.predicates; `none` for recorded and measured, and only for them
        notebook: fp4/03_guidance_cost
        preset: smoke                # smallest preset that checks it: smoke (default) | full | gpu
        expect: holds                # holds (default) | fails, which needs `explain`
        explain: ""                  # why it fails, or why it is only recorded
        placebo: ""                  # reduced claims: what is switched off in the control run
        digits: 4                    # significant digits printed: 4 (default), 2 (float32 or BF16), 0 (verdict alone)
        planned: false               # true while the notebook does not exist
    claims_from: {table: main.csv, id: "fp4.main.{row}.{col}", ...}   # a claim for each cell, registry.Cells

Numbers a predicate needs: `close` takes rtol and/or atol (rtol above 0.05 needs `explain`); `less` and `greater` take
`bound: 0.15`, `between` takes `bound: [low, high]`; `interval` takes `side: less` or `greater`, `bound` and `seeds`
(at least 5, the default) and is checked at `full`; `order` and `equals` use `reported` itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from reprise.nb import predicates
from reprise.nb.predicates import Malformed, plain
from reprise.nb.presets import PRESETS
from reprise.nb.registry import Claim, load, validate

__all__ = ["PRESETS", "STATUSES", "Claim", "Verdict", "judge", "load", "printed", "validate", "verdict_line"]

STATUSES = (
    "reproduced",
    "direction holds",
    "not reproduced",
    "inconsistent as reported",
    "recorded only",
    "measured",
    "not run",
)
LONGEST = 60  # characters of a list or text, bits of an integer, that the verdict line shows


@dataclass(frozen=True)
class Verdict:
    """What a computed value says about a claim.

    `holds` and `placebo_holds` are None where nothing was judged. `agrees` is False only for an exact or analytic
    claim whose verdict is not the one `expect` names: those alone make a run red. `got` and `placebo` are plain
    Python values; `here` is the printed form of `got`.
    """

    claim: Claim
    status: str
    holds: bool | None
    placebo_holds: bool | None
    agrees: bool
    reason: str
    got: Any
    placebo: Any
    here: str

    @property
    def line(self) -> str:
        """The printed verdict, ASCII in fixed columns, without anything that differs between machines."""
        return verdict_line(self.claim, self.status, self.here, self.reason)


def judge(claim: Claim, got: Any, placebo: Any = None, preset: str = "smoke") -> Verdict:
    """Judge the computed value by the claim's own rule. Never raises for a bad value: it does not hold, with a reason.

    Args:
        claim: the registry entry.
        got: number, string, boolean, or list of them; NumPy and torch values are converted.
        placebo: the same quantity with the mechanism switched off, for a reduced claim.
        preset: the preset that runs; below the claim's own nothing is judged.
    """
    got, got_problem = _converted(got)
    placebo, placebo_problem = _converted(placebo)

    def verdict(status, reason="", holds=None, placebo_holds=None, agrees=True):
        here = "" if status in ("not run", "measured") else printed(claim, got)
        return Verdict(claim, status, holds, placebo_holds, agrees, reason, got, placebo, here)

    if claim.kind == "recorded":
        return verdict("recorded only")
    if PRESETS.index(preset) < PRESETS.index(claim.preset):
        return verdict("not run", f"checked at {claim.preset}")
    if claim.kind == "measured":
        return verdict("measured")
    surprise = "holds, expected to fail" if claim.expect == "fails" else ""
    holds, problem = (False, got_problem) if got_problem else _holds(claim, got)
    if claim.kind == "reduced":
        placebo_holds, trouble = (False, placebo_problem) if placebo_problem else _holds(claim, placebo)
        reason = problem or (trouble and f"placebo: {trouble}") or ("placebo passes" if placebo_holds else "")
        if not holds or reason:
            return verdict("not reproduced", reason, holds, placebo_holds)
        return verdict("direction holds", surprise, holds, placebo_holds)
    # a value that cannot be compared confirms nothing, not even a claim that is expected to fail
    agrees = not problem and holds == (claim.expect == "holds")
    if holds:
        return verdict("reproduced", surprise, True, agrees=agrees)
    return verdict("inconsistent as reported" if agrees else "not reproduced", problem, False, agrees=agrees)


def verdict_line(claim: Claim, status: str, here: str, reason: str) -> str:
    """Status, id, reported, here, rule and reason in fixed ASCII columns; a long entry pushes the next ones right."""
    status = reason if reason.startswith("checked at ") else status
    remark = f" [{reason}]" if reason and reason != status else ""
    reported = f"{_text(claim.reported)} {claim.unit}".rstrip()
    cells = (f"{status:<24}", f"{claim.id:<36}", f"reported {reported:<20}", f"here {here or '-':<20}")
    return _ascii("  ".join((*cells, claim.rule + remark)).rstrip())


def printed(claim: Claim, got: Any) -> str:
    """The value as the verdict line shows it: at most `digits` significant digits, "-" when the claim prints none."""
    if claim.digits == 0 or got is None:
        return "-"
    return _ascii(" ".join(_text(got, claim.digits, claim.atol or 0.0).split()))


def _holds(claim: Claim, got: Any) -> tuple[bool, str]:
    try:
        return predicates.RULES[claim.predicate](claim, got), ""
    except Malformed as problem:
        return False, str(problem)


def _converted(value: Any) -> tuple[Any, str]:
    try:
        return plain(value), ""
    except Malformed as problem:
        return None, str(problem)


def _text(value: Any, digits: int = 4, zero: float = 0.0) -> str:
    if isinstance(value, list):
        return f"[{_cut(', '.join(_text(item, digits, zero) for item in value))}]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        # below the claim's own tolerance only rounding noise is left, which differs between machines
        return "0" if abs(value) <= zero else _significant(value, digits)
    if isinstance(value, str) or (isinstance(value, int) and value.bit_length() <= LONGEST):
        return _cut(str(value))
    return "-" if value is None else type(value).__name__


def _significant(value: float, digits: int) -> str:
    """1234.56 -> 1235, 123456.0 -> 123500, 1.5e-7 -> 1.5e-07."""
    short = f"{value:.{digits}g}"
    return f"{Decimal(short):f}" if 1e-4 <= abs(value) < 1e9 else short


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()
