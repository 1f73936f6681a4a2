"""The scoreboard as one HTML page without outside files: counts, then a table a system with a text filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from reprise.nb.claims import STATUSES

# colour-blind-safe (Okabe and Ito); the status is always written beside it
COLOURS = {
    "reproduced": "#009e73",
    "direction holds": "#56b4e9",
    "not reproduced": "#d55e00",
    "inconsistent as reported": "#cc79a7",
    "recorded only": "#999999",
    "measured": "#e69f00",
    "not run": "#cccccc",
}
COLUMNS = ("status", "claim", "reported", "here", "rule", "notebook", "remark")

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 85rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 2rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #8884; }
td.number { text-align: right; }
small { opacity: .75; display: block; }
input { font: inherit; padding: .3rem .6rem; width: 22rem; max-width: 100%; }
.dot { display: inline-block; width: .75em; height: .75em; border-radius: 50%; margin-right: .4em; }
"""

# a row stays when every word typed occurs in it
SCRIPT = """
document.querySelector("input").addEventListener("input", event => {
  const words = event.target.value.toLowerCase().split(/\\s+/);
  document.querySelectorAll("tbody.claims tr").forEach(row => {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  });
});
"""


def html(rows: Sequence[Mapping[str, Any]], counts: Mapping[str, Mapping[str, int]]) -> str:
    """The page.

    Args:
        rows: of `reprise.nb.scoreboard.rows`.
        counts: claims by system and status.
    """
    systems = {system: [row for row in rows if row["system"] == system] for system in counts}
    tables = "".join(f"<h2 id={escape(name)!r}>{escape(name)}</h2>{_claims(own)}" for name, own in systems.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Scoreboard</title>'
        f"<style>{STYLE}</style></head><body><h1>Scoreboard</h1>"
        "<p>Every number, table and figure the papers report, and what came out here.</p>"
        f"{_summary(counts)}<input placeholder='filter, e.g. payload not reproduced' aria-label='filter claims'>"
        f"{tables}<script>{SCRIPT}</script></body></html>\n"
    )


def _summary(counts: Mapping[str, Mapping[str, int]]) -> str:
    head = _head(["system", *(_dotted(status) for status in STATUSES)])
    body = "".join(
        f"<tr><td><a href='#{escape(name)}'>{escape(name)}</a></td>"
        + "".join(f"<td class=number>{own[status] or ''}</td>" for status in STATUSES)
        + "</tr>"
        for name, own in counts.items()
    )
    return f"<table>{head}<tbody>{body}</tbody></table>"


def _claims(rows: Iterable[Mapping[str, Any]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in _cells(row)) + "</tr>" for row in rows)
    return f"<table>{_head(COLUMNS)}<tbody class=claims>{body}</tbody></table>"


def _cells(row: Mapping[str, Any]) -> list[str]:
    reported = ", ".join(map(str, row["reported"])) if isinstance(row["reported"], list) else str(row["reported"])
    when = " ".join(filter(None, (row["preset"], row["date"])))
    remarks = [row["reason"], row["explain"]]
    return [
        _dotted(row["status"]) + (f"<small>{escape(when)}</small>" if when else ""),
        f"{escape(row['what'])}<small>{escape(row['id'])}, {escape(row['source'])}</small>",
        escape(f"{reported} {row['unit']}".rstrip()),
        escape(row["here"]),
        escape(row["predicate"]),
        escape(row["notebook"]),
        escape(". ".join(text.strip().rstrip(".") for text in remarks if text)),
    ]


def _dotted(status: str) -> str:
    return f"<span class=dot style='background:{COLOURS[status]}'></span>{escape(status)}"


def _head(names: Iterable[str]) -> str:
    return "<thead><tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr></thead>"
