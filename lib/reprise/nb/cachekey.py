"""What a notebook's results depend on, hashed: the same key means the same results, so the run can be skipped."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import reprise
from reprise.nb import rundir

SCOREBOARD = "99_scoreboard"  # the notebook that shows what the others left in the run directory
PACKAGE = Path(reprise.__file__).parent
SYSTEM_DATA = ("reported", "measured", "examples", "checkpoints")  # folders of data/ with one folder a system
MODULE_NAME = re.compile(r"reprise(\.\w+)+")

# lines only IPython understands
MAGIC = re.compile(r"^\s*[%!].*$", re.MULTILINE)


def parts(root: Path, stem: str, cells: list[str], preset: str, parameters: Mapping[str, Any], out: Path) -> dict:
    """Digest of each thing the results of one notebook run depend on, by name.

    Outputs, Markdown cells and the run directory's own path are no part of it.

    Args:
        root: the checkout.
        stem: the notebook, `<system>/<NN_topic>` or `<NN_topic>`.
        cells: sources of its code cells.
        preset: name of the preset, which decides what claims are checked.
        parameters: resolved parameters.
        out: the run directory, whose records and failures the scoreboard notebook shows.
    """
    data, kept = root / "data", {name: value for name, value in parameters.items() if name != "OUT"}
    shown: list[Any] = []
    if "/" in stem:
        system = stem.split("/")[0]
        registry = [data / "claims" / f"{system}.yaml"]
        tables = [path for kind in SYSTEM_DATA for path in (data / kind / system).rglob("*")]
        tables += (root / "figures" / system).glob("*.csv")
    else:  # the overview and the scoreboard show the whole collection
        registry = (data / "claims").glob("*.yaml")
        tables = [*data.glob("scoreboard.*.json"), root / "notebooks" / "presets.yaml"]
        if stem == SCOREBOARD:
            tables += (path for path in (out / "records").rglob("*.jsonl") if path.stem != stem)
            ran = rundir.read_header(out).get("notebooks", {})
            shown = sorted([name, entry["status"]] for name, entry in ran.items() if name != stem)
        else:
            shown = [_shown(path) for path in sorted((root / "notebooks").glob("*/*.ipynb"))]
    return {
        "notebook": _digest(json.dumps([cells, *shown]).encode()),
        "parameters": _digest(json.dumps([preset, kept], sort_keys=True).encode()),
        "library": files_digest(closure(cells)),
        "registry": files_digest(registry),
        "tables": files_digest(tables),
        "lock": files_digest([root / "requirements.lock"]),
    }


def key(digests: Mapping[str, str]) -> str:
    """One digest of all parts."""
    return _digest(json.dumps(digests, sort_keys=True).encode())


def closure(cells: Iterable[str]) -> set[Path]:
    """Files of `reprise` that these code cells import, directly or through each other, functions included.

    A package that loads its members on demand (a module-level `__getattr__`) counts with all its modules, and a
    package's data files count with it.
    """
    waiting = {name for cell in cells for name in _imported(MAGIC.sub("", cell), "__main__")}
    found: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        if name in found or not (path := _file(name)):
            continue
        found[name] = path
        waiting |= _imports_of(path, name, path.stat().st_mtime_ns)
    packages = {path.parent for path in found.values() if path.name == "__init__.py"}
    return set(found.values()) | {path for package in packages for path in package.iterdir() if _is_data(path)}


def files_digest(paths: Iterable[Path]) -> str:
    """Digest of names and contents; a missing file counts as missing, a folder is left out."""
    total = hashlib.sha256()
    for path in sorted(set(paths)):
        if not path.is_dir():
            content = _digest(path.read_bytes()) if path.exists() else "missing"
            total.update(f"{path.parent.name}/{path.name} {content}\n".encode())
    return total.hexdigest()


@cache
def _imports_of(path: Path, name: str, changed: int) -> set[str]:
    """Names imported by one library file; `changed` is its modification time, for a process that lives long."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    source = path.read_text(encoding="utf-8")
    names = set(_imported(source, package))
    if path.name == "__init__.py" and re.search(r"^def __getattr__\(", source, re.MULTILINE):
        names |= {f"{name}.{member.relative_to(path.parent).with_suffix('').as_posix().replace('/', '.')}"
                  for member in path.parent.rglob("*.py") if member != path}  # fmt: skip
    return names


def _imported(source: str, package: str) -> Iterator[str]:
    """Dotted names below `reprise` that a source may import, and every package above them."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return  # a cell that cannot run imports nothing; its text is in the key
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*base, *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE_NAME.fullmatch(node.value):
            names = [node.value]  # importlib.import_module("reprise.refit.cli")
        else:
            continue
        for name in names:
            if name.split(".")[0] == "reprise":
                pieces = name.split(".")
                yield from (".".join(pieces[:depth]) for depth in range(1, len(pieces) + 1))


def _file(name: str) -> Path | None:
    """The file of a module of this package, or None where the name is a function or class inside one."""
    base = PACKAGE.joinpath(*name.split(".")[1:])
    candidates = (base / "__init__.py", base.with_suffix(".py"))
    return next((path for path in candidates if path.is_file()), None)


def _shown(notebook: Path) -> list[str]:
    """What an overview shows of another notebook: its name, title and parameters."""
    cells = json.loads(notebook.read_bytes())["cells"]
    parameters = [cell["source"] for cell in cells if "parameters" in cell["metadata"].get("tags", ())]
    title = "".join(cells[0]["source"]).partition("\n")[0] if cells else ""
    return [f"{notebook.parent.name}/{notebook.stem}", title, *("".join(source) for source in parameters)]


def _is_data(path: Path) -> bool:
    return path.is_file() and path.suffix not in (".py", ".pyc")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
