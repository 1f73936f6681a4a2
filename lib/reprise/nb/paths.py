"""Where the checkout, its notebooks and the latest run are."""

from __future__ import annotations

import os
import re
from pathlib import Path

from reprise.nb.errors import CheckoutNotFound

NOTEBOOK_NAME = re.compile(r"\d\d_[a-z0-9_]+\.ipynb")


def root() -> Path:
    """The checkout: the first folder holding data/claims.

    REPRISE_ROOT decides if it is set; else the folders from the current one upwards, then from this file upwards.

    Raises:
        CheckoutNotFound: nothing found; the message names the places searched.
    """
    if named := os.environ.get("REPRISE_ROOT"):
        if not _is_checkout(Path(named)):
            raise CheckoutNotFound(f"REPRISE_ROOT={named}: expected a folder holding data/claims")
        return Path(named).resolve()
    starts = [Path.cwd(), Path(__file__).resolve().parent]
    for start in starts:
        for folder in (start, *start.parents):
            if _is_checkout(folder):
                return folder
    raise CheckoutNotFound(
        f"no folder holding data/claims in or above {starts[0]}, nor above {starts[1]}: "
        "run inside a checkout of Reprise, or set REPRISE_ROOT to one"
    )


def notebooks(base: Path | None = None) -> dict[str, Path]:
    """Notebook files by stem, `<system>/<NN_topic>` or a top-level `<NN_topic>`, sorted by stem.

    Files with other names (a scratch notebook, a checkpoint) are not part of the collection and are left out.
    """
    folder = (base or root()) / "notebooks"
    found = [*folder.glob("*.ipynb"), *folder.glob("*/*.ipynb")]
    kept = [path for path in found if NOTEBOOK_NAME.fullmatch(path.name) and not path.parent.name.startswith(".")]
    return {stem: path for stem, path in sorted((_stem(path, folder), path) for path in kept)}


def latest_run(base: Path | None = None) -> Path | None:
    """The run directory that runs/latest points to, or None before the first run."""
    link = (base or root()) / "runs" / "latest"
    return link.resolve() if link.is_dir() else None


def _stem(path: Path, folder: Path) -> str:
    return path.relative_to(folder).with_suffix("").as_posix()


def _is_checkout(folder: Path) -> bool:
    return (folder / "data" / "claims").is_dir()
