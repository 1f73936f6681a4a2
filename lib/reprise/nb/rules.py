"""Rules a committed notebook keeps so that its saved outputs can be compared with computed ones anywhere.

Everything is read from the file, no kernel runs. `reprise.nb.rules_source` reads the code; here are the form of the
document, what its outputs may hold, and the whole check of a checkout.
"""

from __future__ import annotations

import ast
import configparser
import json
import re
import socket
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reprise.nb import claims, paths, presets
from reprise.nb.errors import BadRegistry, NotebookRuleBroken
from reprise.nb.rules_source import MAGIC, calls, source_problems

MAX_BYTES = 400_000
MAX_SANITIZERS = 5
CELL_ID = re.compile(r"[a-z]{2}\d{2}")
OUTPUT_TYPES = {"text/plain", "text/html", "text/markdown", "text/latex", "image/png"}
VOLATILE = "nbval-ignore-output"

BANNED_TEXT = {
    "a memory address": re.compile(r"\b0x[0-9a-fA-F]{6,}"),
    "an absolute path": re.compile(
        r"(?<![\w.:/~-])/(home|root|tmp|usr|var|opt|mnt|Users|private|etc|srv|workspace|content)/\w"
        r"|\bfile://|\b[A-Za-z]:\\\w"
    ),
    "a pandas Styler": re.compile(r'id="T_\w{5}|#T_\w{5}'),
}
TIMING = re.compile(r"CPU times:|Wall time:|per loop|\d\s?it/s|\ds/it")


def check_all(root: Path | None = None) -> list[str]:
    """Everything wrong with a checkout's registry, presets, notebooks and sanitize file, [] if nothing is."""
    root = root or paths.root()
    problems: list[str] = []
    registry: dict[str, claims.Claim] | None = None
    try:
        registry = claims.load(root)
    except BadRegistry as error:
        problems += [line.strip() for line in str(error).splitlines()[1:]]
    problems += presets.problems(root)
    for stem, path in paths.notebooks(root).items():
        problems += check_notebook(stem, path, registry)
    return problems + sanitizer_problems(root)


def check_notebook(stem: str, path: Path, registry: Mapping[str, claims.Claim] | None = None) -> list[str]:
    """Everything wrong with one notebook, each text naming the cell.

    Args:
        stem: `<system>/<NN_topic>` or `<NN_topic>`.
        path: the file.
        registry: the claims it may name; None leaves that check out.
    """
    try:
        cells = presets.read_cells(path)
        if invalid := _invalid(json.loads(path.read_bytes())):
            return [f"{stem}: not valid nbformat: {invalid}"]
        problems = [*_file(path), *_cells(cells), *_order(stem, cells, path), *_code(cells)]
        for number, cell in enumerate(cells):
            problems += [f"{_named(number, cell)}: {text}" for text in _outputs(cell)]
        problems += _claims(stem, cells, registry) if registry is not None else []
    except NotebookRuleBroken as error:
        return [f"{stem}: not a notebook: {error}"]
    return [f"{stem}: {problem}" for problem in problems]


def sanitizer_problems(root: Path) -> list[str]:
    """What is wrong with notebooks/sanitize.cfg: it is a safety net, so none of its rules may ever apply."""
    path = root / "notebooks" / "sanitize.cfg"
    if not path.is_file():
        return []
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except configparser.Error as error:
        return [f"sanitize.cfg: {error}"]
    problems = []
    if len(parser.sections()) > MAX_SANITIZERS:
        problems.append(f"sanitize.cfg: {len(parser.sections())} rules: expected at most {MAX_SANITIZERS}")
    for name in parser.sections():
        rule = parser[name]
        if not rule.get("regex") or not rule.get("replace"):  # nbval drops a rule with an empty replacement silently
            problems.append(f"sanitize.cfg: [{name}]: expected regex and a replacement that is not empty")
            continue
        for stem, notebook in paths.notebooks(root).items():
            for number, cell in enumerate(presets.read_cells(notebook)):
                if any(re.search(rule["regex"], text) for text in _texts(cell)):
                    problems.append(
                        f"{stem}: {_named(number, cell)}: rule [{name}] of sanitize.cfg applies to its output"
                    )
    return problems


def _invalid(document: dict) -> str:
    """The first line of what nbformat objects to, or ""."""
    import nbformat

    try:
        with warnings.catch_warnings(action="ignore"):  # a repeated cell id is reported with the cell
            nbformat.validate(document)
    except nbformat.ValidationError as error:
        return str(error).splitlines()[0]
    return ""


def _file(path: Path) -> Iterator[str]:
    size = path.stat().st_size
    if size > MAX_BYTES:
        yield f"{size} bytes: expected at most {MAX_BYTES}"
    metadata = json.loads(path.read_bytes())["metadata"]
    if extra := sorted(metadata.keys() - {"kernelspec", "language_info"}):
        yield f"notebook metadata {', '.join(extra)}: expected only kernelspec and language_info"
    if metadata.get("kernelspec", {}).get("name") != "python3" or metadata.get("language_info") != {"name": "python"}:
        yield "notebook metadata: expected kernelspec python3 and the language name python, nothing else"


def _cells(cells: list[dict]) -> Iterator[str]:
    count, seen = 0, set()
    for number, cell in enumerate(cells):
        where, id = _named(number, cell), cell.get("id", "")
        if not CELL_ID.fullmatch(id) or id in seen:
            yield f"{where}: id {id!r}: expected two letters and two digits, once in the notebook"
        seen.add(id)
        metadata = cell.get("metadata", {})
        if extra := sorted(metadata.keys() - {"tags"}):
            yield f"{where}: metadata {', '.join(extra)}: expected only tags"
        if "injected-parameters" in metadata.get("tags", ()):
            yield f"{where}: parameters injected by a run: expected a notebook that was never run as a batch"
        if cell["cell_type"] == "code":
            count += 1
            if not cell["source"].strip():
                yield f"{where}: empty code cell"
            if cell.get("execution_count") != count:  # a cell without a count is not compared
                yield f"{where}: execution count {cell.get('execution_count')}: expected {count}"


def _order(stem: str, cells: list[dict], path: Path) -> Iterator[str]:
    """Title, parameters, setup, sections, close."""
    kinds = [cell["cell_type"] for cell in cells]
    if kinds[:1] != ["markdown"] or not cells[0]["source"].startswith("# "):
        yield "first cell: expected Markdown that starts with a title, # ..."
    if kinds[1:2] != ["code"] or "parameters" not in cells[1].get("metadata", {}).get("tags", ()):
        yield "second cell: expected the parameters cell"
    try:
        presets.read_parameters(path)
    except NotebookRuleBroken as error:
        yield str(error).removeprefix(f"{path}: ")
    code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    setup, close = (_tree(code[1]) if len(code) > 1 else None), (_tree(code[-1]) if code else None)
    if setup is None or not any(_names(call) == ["SEED"] for call in calls(setup, "setup")):
        yield "setup cell, after the parameters: expected det.setup(SEED)"
    if setup is None or not any(_opens(call, stem) for call in calls(setup, "Recorder")):
        yield f'setup cell, after the parameters: expected rec = Recorder("{stem}", OUT, ...)'
    if close is None or not close.body or ast.unparse(close.body[-1]) != "rec.close()":
        yield "last code cell: expected rec.close() as its last line"


def _code(cells: list[dict]) -> Iterator[str]:
    code = [(number, cell) for number, cell in enumerate(cells) if cell["cell_type"] == "code"]
    volatile = [VOLATILE in cell.get("metadata", {}).get("tags", ()) for _, cell in code]
    for index, problem in source_problems([cell["source"] for _, cell in code], volatile):
        yield f"{_named(*code[index])}: {problem}"


def _outputs(cell: dict) -> Iterator[str]:
    pictures = False
    for output in cell.get("outputs", ()):
        kind = output["output_type"]
        if kind == "error":
            yield f"saved error {output.get('ename')}: expected a cell that runs"
        elif kind == "stream" and output.get("name") != "stdout":
            yield "output on stderr: warnings, logs and progress bars differ between runs"
        elif unknown := sorted(output.get("data", {}).keys() - OUTPUT_TYPES):
            yield f"output {', '.join(unknown)}: expected only {', '.join(sorted(OUTPUT_TYPES))}"
        if output.get("metadata"):
            yield f"output metadata {', '.join(sorted(output['metadata']))}: expected none"
        pictures |= "image/png" in output.get("data", {})
    tree = _tree(cell["source"]) if pictures else None
    if tree is not None and not any(True for name in ("show", "explore") for _ in calls(tree, name)):
        yield "shows a picture: expected plt.show(), which is not compared; the numbers go to a table"
    for text in _texts(cell):
        yield from (f"{what} in its output" for what, pattern in BANNED_TEXT.items() if pattern.search(text))
        if (host := _host()) and re.search(rf"\b{re.escape(host)}\b", text):
            yield "the host's name in its output"
        if TIMING.search(text) and VOLATILE not in cell.get("metadata", {}).get("tags", ()):
            yield "a timing in its output: expected rec.value, which keeps it off the page"


def _claims(stem: str, cells: list[dict], registry: Mapping[str, claims.Claim]) -> Iterator[str]:
    for number, cell in enumerate(cells):
        tree = _tree(cell["source"]) if cell["cell_type"] == "code" else None
        for call in [*calls(tree, "claim"), *calls(tree, "skip")] if tree else []:
            if not call.args or not isinstance(call.args[0], ast.Constant) or not isinstance(call.args[0].value, str):
                continue  # an id made in a loop is checked when it runs
            claim = registry.get(call.args[0].value)
            if claim is None or claim.notebook != stem:
                owner = "the registry has no such claim" if claim is None else f"it belongs to {claim.notebook}"
                yield f"{_named(number, cell)}: claim {call.args[0].value!r}: {owner}"


def _texts(cell: dict) -> Iterator[str]:
    """Every text of a cell's outputs."""
    for output in cell.get("outputs", ()):
        parts: list[Any] = [
            output.get("text"),
            *(v for k, v in output.get("data", {}).items() if k.startswith("text/")),
        ]
        yield from (part if isinstance(part, str) else "".join(part) for part in parts if part)


def _opens(call: ast.Call, stem: str) -> bool:
    named = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == stem
    return named and ("OUT" in _names(call) or any(k.arg == "out" and _is(k.value, "OUT") for k in call.keywords))


def _names(call: ast.Call) -> list[str]:
    return [argument.id for argument in call.args if isinstance(argument, ast.Name)]


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _tree(source: str) -> ast.Module | None:
    try:
        return None if MAGIC.search(source) else ast.parse(source)
    except SyntaxError:
        return None


def _host() -> str:
    """The host's name if it is distinctive; a plain word would be found in any prose."""
    name = socket.gethostname()
    return name if len(name) > 4 and re.search(r"\d|-", name) else ""


def _named(number: int, cell: dict) -> str:
    return f"cell {number + 1} ({cell.get('id', 'no id')})"
