"""The scoreboard files of a run directory, rewritten only when something they show has changed."""

from __future__ import annotations

import json
from pathlib import Path

from reprise.durable import atomic_write
from reprise.nb import cachekey, paths

FILES = ("scoreboard.json", "scoreboard.csv", "scoreboard.html")


def update(out: Path, preset: str) -> list[str]:
    """Bring the scoreboard of a run up to date and compare it with the committed one.

    Both depend on run.json, the records, the registry, the committed scoreboards and the code that joins them; while
    those are unchanged, neither the registry nor pydantic is loaded again.

    Returns:
        Statuses that differ from data/scoreboard.<preset>.json, one text each.
    """
    root, mark = paths.root(), out / ".scoreboard.json"
    sources = [out / "run.json", *(out / "records").rglob("*.jsonl*"), *(root / "data").glob("scoreboard.*.json")]
    sources += [path for folder in ("claims", "reported") for path in (root / "data" / folder).rglob("*")]
    digest = cachekey.files_digest([*sources, *cachekey.closure(["import reprise.nb.scoreboard"])])
    try:
        known = json.loads(mark.read_bytes())
        if known["digest"] == digest and all((out / name).is_file() for name in FILES):
            return known["differences"]
    except (OSError, ValueError, KeyError):
        pass
    from reprise.nb import scoreboard

    rows = scoreboard.rows(out)
    scoreboard.write(rows, out)
    differences = scoreboard.differences(rows, scoreboard.rows(None, preset=preset))
    atomic_write(mark, json.dumps({"digest": digest, "differences": differences}).encode())
    return differences
