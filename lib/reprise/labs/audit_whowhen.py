"""Who&When read once: what every log tells without its text, and what a small language model makes of every turn.

    REPRISE_WHOWHEN=<folder> python -m reprise.labs.audit_whowhen OUT      about 12 minutes on one core

writes `whowhen_logs.csv` (184 rows, `reprise.audit.whowhen.Facts`), `whowhen_turns.csv` (surprise and p_yes of
SmolLM2-135M for every turn of the logs that are scored) and `whowhen_run.json`. A run that was cut short goes on where
it was. No text of a log is written. The logs are public and are not part of this repository:
github.com/ag2ai/Agents_Failure_Attribution (MIT), folder "Who&When".

Rules, each fixed before its run: every algorithm-generated log; then, as fresh logs for what the first ones suggested,
every hand-crafted log of at most 64 turns. Of each turn the first and last 32 tokens. Longer logs are left out for
time: the 19 of them have as many turns as all others together.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from reprise.audit.turn_scores import QUESTION, turn_scores
from reprise.audit.whowhen import facts, load_whowhen
from reprise.durable import atomic_write
from reprise.local_models import PACKAGED, available

VARIABLE = "REPRISE_WHOWHEN"
MODEL = "smollm2-135m"
TURN_TOKENS = 64
LONGEST = {"AG": 10, "HC": 64}  # turns of a log that is scored, by domain; no generated log is longer
COLUMNS = ("id", "turn", "tokens", "surprise", "p_yes")
SOURCE = "github.com/ag2ai/Agents_Failure_Attribution, MIT, Copyright of its authors"


def folder() -> Path | None:
    """The user's copy of the logs, named by REPRISE_WHOWHEN."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named and Path(named).is_dir() else None


def missing() -> str | None:
    """Why the logs cannot be read here, None where they can."""
    if folder() is not None:
        return None
    state = "is not set" if not os.environ.get(VARIABLE) else "is no folder"
    return f"{VARIABLE} {state}: expected a copy of Who&When ({SOURCE})"


def read_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV, none where there is no file."""
    if not path.is_file():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, columns: Iterable[str], rows: Iterable[Mapping]) -> None:
    """A CSV, replaced as a whole."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    atomic_write(path, text.getvalue().encode())


def score_logs(trajectories, local, out: Path, tell=lambda id: None) -> list[dict]:
    """Rows of `whowhen_turns.csv`; logs that it holds already are not scored again."""
    path = out / "whowhen_turns.csv"
    rows = read_rows(path)
    done = {row["id"] for row in rows}
    for each in trajectories:
        if len(each) > LONGEST[each.domain] or each.id in done:
            continue
        found = turn_scores(local, each.turns, TURN_TOKENS)
        columns = zip(found.tokens.tolist(), found.surprise, found.p_yes, strict=True)
        rows += [
            dict(zip(COLUMNS, (each.id, k, n, f"{s:.5f}", f"{p:.5f}"), strict=True))
            for k, (n, s, p) in enumerate(columns)
        ]
        write_rows(path, COLUMNS, rows)
        tell(each.id)
    return rows


def main() -> None:
    """Write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    if reason := missing() or available(MODEL):
        raise SystemExit(reason)
    from reprise.chat import LocalModel

    out.mkdir(parents=True, exist_ok=True)
    trajectories = load_whowhen(folder())
    logs = [asdict(each) for each in facts(trajectories)]
    write_rows(out / "whowhen_logs.csv", logs[0], logs)
    score_logs(trajectories, LocalModel(MODEL, dtype="float32", device="cpu", threads=1), out, print)
    run = {
        "source": SOURCE,
        "model": MODEL,
        "sha256": PACKAGED[MODEL].sha256,
        "settings": {"dtype": "float32", "device": "cpu", "threads": 1, "turn_tokens": TURN_TOKENS, "longest": LONGEST},
        "question": QUESTION,
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
    }
    atomic_write(out / "whowhen_run.json", (json.dumps(run, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
