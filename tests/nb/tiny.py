"""A checkout of a few one-cell notebooks, for tests of what runs, checks and refreshes notebooks."""

import json
from pathlib import Path

REGISTRY = """
system: {system}
title: A paper
claims:"""

CLAIM = """
  - id: {system}.sum.two
    what: one and one
    source: "section 1"
    kind: exact
    reported: 2
    predicate: equals
    notebook: {notebook}
"""

PARAMETERS = 'SEED: int = 0\nOUT: str = ""\n'

# opens and closes a recorder around one claim
RECORDED = """
from reprise.nb.records import Recorder
rec = Recorder("{notebook}", OUT)
rec.claim("{system}.sum.two", {got})
rec.close()
"""


def notebook(*cells: str, parameters: str = PARAMETERS, title: str = "# Tiny") -> dict:
    """A notebook document: a title, a parameters cell and code cells, without outputs."""

    def code(number: int, source: str, tags: list[str]) -> dict:
        return {
            "cell_type": "code",
            "id": f"tn{number:02d}",
            "metadata": {"tags": tags} if tags else {},
            "execution_count": None,
            "outputs": [],
            "source": source.strip(),
        }

    return {
        "cells": [
            {"cell_type": "markdown", "id": "tn00", "metadata": {}, "source": title},
            code(1, parameters, ["parameters"]),
            *(code(number, source, []) for number, source in enumerate(cells, 2)),
        ],
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


class Collection:
    """A small checkout below `root`; `add` writes a notebook and, where asked, the one claim of its system."""

    def __init__(self, root: Path):
        self.root = root
        for folder in ("data/claims", "notebooks", "runs"):
            (root / folder).mkdir(parents=True)
        (root / "requirements.lock").write_text("numpy==2.4.6\n")

    def add(self, stem: str, *cells: str, claim: bool = False, **document) -> Path:
        path = self.root / "notebooks" / f"{stem}.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(notebook(*cells, **document)))
        if "/" in stem:
            system = stem.split("/")[0]
            registry = self.root / "data" / "claims" / f"{system}.yaml"
            if claim:
                registry.write_text(REGISTRY.format(system=system) + CLAIM.format(system=system, notebook=stem))
            elif not registry.exists():
                registry.write_text(REGISTRY.format(system=system).rstrip() + " []\n")
        return path

    def edit(self, stem: str, old: str, new: str) -> None:
        path = self.root / "notebooks" / f"{stem}.ipynb"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
