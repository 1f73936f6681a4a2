"""Parameters of a notebook and the values a preset gives them.

The cell tagged `parameters` holds the smoke preset as literals, one line each:

    n: int = 200_000  # help text

Its grammar is narrow because papermill reads it with a regular expression: a plain type, no `=` or `#` inside a
string, nothing computed. notebooks/presets.yaml holds what the larger presets change:

    all: {smoke: {}, full: {}, gpu: {DEVICE: cuda}}     # where the notebook has that parameter
    refit/02_payload: {full: {n: 33554432}, timeout: {smoke: 120, full: 1200}}
"""

from __future__ import annotations

import ast
import io
import json
import math
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from reprise.nb import paths
from reprise.nb.errors import BadPreset, NotebookRuleBroken, UnknownNotebook, UnknownParameter

PRESETS = ("smoke", "full", "gpu")  # from the smallest to the largest
TYPES = {"int": int, "float": float, "str": str, "bool": bool, "list": list, "dict": dict}
FIRST = (("SEED", "int", 0), ("OUT", "str", ""))
CAPITALS = ("SEED", "OUT", "DEVICE")
TIMEOUT = {"smoke": 120, "full": 1200, "gpu": 3600}  # seconds; our choice, for notebooks that name none


@dataclass(frozen=True)
class Parameter:
    """One line of the parameters cell; `type` is its name, such as "int"."""

    name: str
    type: str
    default: Any
    help: str


def read_cells(path: Path) -> list[dict]:
    """The cells of a notebook file, each `source` as one text."""
    try:
        cells = json.loads(path.read_bytes())["cells"]
        return [{**cell, "source": _joined(cell["source"])} for cell in cells]
    except (ValueError, LookupError, TypeError):
        raise NotebookRuleBroken(f"{path}: not a notebook") from None


def code_cells(path: Path) -> list[str]:
    """Sources of a notebook's code cells."""
    return [cell["source"] for cell in read_cells(path) if cell["cell_type"] == "code"]


def read_parameters(nb_path: Path) -> list[Parameter]:
    """Parameters of a notebook, in order.

    Raises:
        NotebookRuleBroken: not exactly one cell tagged `parameters`, or lines outside the grammar; all are listed.
    """
    tagged = [cell for cell in read_cells(nb_path) if "parameters" in cell.get("metadata", {}).get("tags", ())]
    if len(tagged) != 1:
        raise NotebookRuleBroken(f"{nb_path}: {len(tagged)} cells tagged `parameters`: expected exactly one")
    parameters, problems = parse_parameters(tagged[0]["source"])
    if problems:
        raise NotebookRuleBroken("\n  ".join([f"{nb_path}: parameters cell:", *problems]))
    return parameters


def parse_parameters(source: str) -> tuple[list[Parameter], list[str]]:
    """Parameters of a cell, and a text for each line that breaks the grammar."""
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        return [], [f"line {error.lineno}: {error.msg}"]
    lines, comments = source.splitlines(), _comments(source)
    parameters: list[Parameter] = []
    problems = []
    for node in body:
        if problem := _statement_problem(node, lines[node.end_lineno - 1]):
            problems.append(f"line {node.lineno}: {lines[node.lineno - 1].strip()}: {problem}")
            continue
        name, kind, value = node.target.id, node.annotation.id, ast.literal_eval(node.value)
        if any(name == other.name for other in parameters):
            problems.append(f"line {node.lineno}: {name} is declared twice")
        parameters.append(Parameter(name, kind, value, comments.get(node.lineno, "")))
    if not problems and tuple((item.name, item.type, item.default) for item in parameters[:2]) != FIRST:
        problems.append('expected `SEED: int = 0` and `OUT: str = ""` as the first two parameters')
    return parameters, problems


def resolve(notebook: str, preset: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All parameters of a notebook under a preset, by name.

    Args:
        notebook: stem, `<system>/<NN_topic>` or `<NN_topic>`.
        preset: smoke, full or gpu.
        overrides: values that win over the preset; a text is read as the parameter's type (`-p n=5`).

    Raises:
        UnknownNotebook, UnknownParameter, BadPreset: with the names that exist.
    """
    _check_preset(preset)
    parameters = {item.name: item for item in read_parameters(_path(notebook))}
    config = _read_config()
    values = {name: item.default for name, item in parameters.items()}
    shared = config.get("all", {}).get(preset, {})
    for name, value in {
        **{k: v for k, v in shared.items() if k in parameters},
        **_own(config, notebook, preset),
    }.items():
        values[name] = _checked(f"presets.yaml: {notebook}: {preset}", parameters, name, value)
    for name, value in (overrides or {}).items():
        if name not in parameters:
            raise UnknownParameter(f"{notebook} has no parameter {name!r}: expected one of {', '.join(parameters)}")
        text = isinstance(value, str) and parameters[name].type != "str"
        given = _read_text(parameters[name], value) if text else value
        values[name] = _checked(f"{notebook}", parameters, name, given)
    return values


def timeout(notebook: str, preset: str) -> int:
    """Seconds the notebook may take under the preset."""
    _check_preset(preset)
    return (_read_config().get(notebook) or {}).get("timeout", {}).get(preset, TIMEOUT[preset])


def problems(root: Path | None = None) -> list[str]:
    """Everything wrong with notebooks/presets.yaml: unknown notebooks, presets, parameters; values of another type."""
    root = root or paths.root()
    known = paths.notebooks(root)
    try:
        config = _read_config(root)
    except BadPreset as error:
        return [str(error)]
    found = [text for notebook, entry in config.items() for text in _entry_problems(notebook, entry, known)]
    return [f"presets.yaml: {text}" for text in found]


def _entry_problems(notebook: str, entry: Any, known: Mapping[str, Path]) -> Iterator[str]:
    if notebook != "all" and notebook not in known:
        yield f"{notebook}: no such notebook"
        return
    allowed = PRESETS if notebook == "all" else (*PRESETS, "timeout")
    for preset, values in entry.items():
        if preset not in allowed or not isinstance(values, dict):
            yield f"{notebook}: {preset}: expected a mapping under one of {', '.join(allowed)}"
        elif preset == "timeout":
            bad = {k: v for k, v in values.items() if k not in PRESETS or type(v) is not int or v < 1}
            yield from (
                f"{notebook}: timeout: {key}={value!r}: expected seconds of a preset" for key, value in bad.items()
            )
        elif preset == "smoke" and values:
            yield f"{notebook}: smoke: expected {{}}, the notebook's own literals are the smoke preset"
        elif notebook != "all":
            yield from _value_problems(notebook, preset, values, known[notebook])


def _value_problems(notebook: str, preset: str, values: dict, path: Path) -> Iterator[str]:
    try:
        parameters = {item.name: item for item in read_parameters(path)}
    except NotebookRuleBroken:
        return  # the notebook's own problem, reported with the notebook
    for name, value in values.items():
        try:
            _checked(f"{notebook}: {preset}", parameters, name, value)
        except BadPreset as error:
            yield str(error)


def _checked(where: str, parameters: Mapping[str, Parameter], name: str, value: Any) -> Any:
    if name not in parameters:
        raise BadPreset(f"{where}: {name}: no such parameter, expected one of {', '.join(parameters)}")
    kind = parameters[name].type
    if type(value) is not TYPES[kind]:
        hint = (
            ", YAML reads a number like 1e-6 as text, write 1.0e-6"
            if kind == "float" and isinstance(value, str)
            else ""
        )
        raise BadPreset(f"{where}: {name}={value!r}: expected {kind}{hint}")
    if kind == "float" and not math.isfinite(value):
        raise BadPreset(f"{where}: {name}={value!r}: expected a finite number")
    if name == "SEED" and value < 0:
        raise BadPreset(f"{where}: SEED={value}: expected 0 or more, as every generator does")
    return value


def _read_text(parameter: Parameter, text: str) -> Any:
    """The text of a command line as a value of the parameter's type; a text that is none is left for the type check."""
    if parameter.type == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return TYPES[parameter.type](text) if parameter.type in ("int", "float") else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _read_config(root: Path | None = None) -> dict[str, dict]:
    path = (root or paths.root()) / "notebooks" / "presets.yaml"
    return _parse_config(path.read_bytes()) if path.is_file() else {}


@lru_cache(maxsize=4)
def _parse_config(text: bytes) -> dict[str, dict]:
    import yaml

    try:
        config = yaml.load(text, Loader=yaml.CSafeLoader) or {}
    except yaml.YAMLError as error:
        raise BadPreset(f"presets.yaml: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(config, dict) or not all(isinstance(entry, dict) for entry in config.values()):
        raise BadPreset("presets.yaml: expected a mapping of notebooks to mappings of presets")
    return config


def _own(config: dict, notebook: str, preset: str) -> dict[str, Any]:
    values = config.get(notebook, {}).get(preset, {})
    if not isinstance(values, dict):
        raise BadPreset(f"presets.yaml: {notebook}: {preset}={values!r}: expected a mapping of parameters")
    return values


def _path(notebook: str) -> Path:
    known = paths.notebooks()
    if notebook not in known:
        raise UnknownNotebook(f"notebook {notebook!r}: expected one of {', '.join(known) or '(there are none)'}")
    return known[notebook]


def _check_preset(preset: str) -> None:
    if preset not in PRESETS:
        raise BadPreset(f"preset {preset!r}: expected one of {', '.join(PRESETS)}")


def _statement_problem(node: ast.stmt, line: str) -> str:
    """Why a statement is no `NAME: type = literal`, or ""."""
    if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
        return "expected `NAME: type = literal  # help`"
    if not isinstance(node.annotation, ast.Name) or node.annotation.id not in TYPES:
        return f"expected a plain type: {', '.join(TYPES)}"
    if node.lineno != node.end_lineno or not _ends(line.encode()[node.end_col_offset :].decode()):
        return "expected one statement on one line"
    name, kind = node.target.id, node.annotation.id
    try:
        value = ast.literal_eval(node.value)
    except (ValueError, TypeError):
        return "expected a literal, nothing computed"
    if type(value) is not TYPES[kind] or (kind == "float" and not math.isfinite(value)):
        return f"expected a literal of type {kind}"
    if any(mark in text for text in _texts(value) for mark in "=#"):
        return "expected no `=` or `#` inside a text"
    if name not in CAPITALS and name != name.lower():
        return f"expected a lower-case name; only {', '.join(CAPITALS)} are capitals"
    return ""


def _ends(rest: str) -> bool:
    return not rest.strip() or rest.lstrip().startswith("#")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _texts(item)


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ").rstrip() for token in tokens if token.type == tokenize.COMMENT}


def _joined(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)
