"""Reading data/claims/*.yaml: the models of an entry and of a file, and everything that can be wrong with them.

The fields are shown with an example in `reprise.nb.claims`. All problems of all files are listed at once.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from reprise.nb import paths
from reprise.nb.errors import BadRegistry
from reprise.nb.predicates import MIN_SEEDS
from reprise.nb.registry_checks import claim_problems, row_problems

STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Claim(BaseModel):
    """One entry of the registry. Unknown keys are refused."""

    model_config = STRICT

    id: str
    what: str
    source: str
    kind: Literal["exact", "analytic", "reduced", "recorded", "measured"]
    reported: bool | int | str | list[bool | int | str]
    predicate: Literal[
        "equals", "rounds_to", "close", "less", "greater", "between", "order", "sign", "interval", "none"
    ]
    notebook: str
    unit: str = ""
    row: str | list[str] = ""
    paper: str = ""
    preset: Literal["smoke", "full", "gpu"] = "smoke"
    expect: Literal["holds", "fails"] = "holds"
    explain: str = ""
    placebo: str = ""
    planned: bool = False
    digits: Literal[0, 2, 4] = 4
    rtol: float | None = None
    atol: float | None = None
    bound: float | list[float] | None = None
    side: Literal["less", "greater"] | None = None
    seeds: int = MIN_SEEDS

    @field_validator("reported", mode="before")
    @classmethod
    def _digits_are_kept(cls, value):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, float):
                raise ValueError(f"{item}: expected quotes around it, its digits carry the precision")
        return value

    @property
    def system(self) -> str:
        """The package the claim belongs to, the first part of its id."""
        return self.id.split(".", 1)[0]

    @property
    def rows(self) -> list[str]:
        """Rows of the paper's list of claims this entry covers."""
        return list(self.row) if isinstance(self.row, list) else [self.row] * bool(self.row)

    @property
    def rule(self) -> str:
        """The predicate with its numbers, as printed."""
        if self.predicate == "interval":
            return f"interval {self.side} {self.bound:g} over {self.seeds}+ seeds"
        bounds = [self.bound] if isinstance(self.bound, float) else self.bound or []
        tolerances = [
            f"{name} {value:g}" for name, value in (("rtol", self.rtol), ("atol", self.atol)) if value is not None
        ]
        return " ".join([self.predicate, *(f"{bound:g}" for bound in bounds), *tolerances])


class Paper(BaseModel):
    """Citation of one paper."""

    model_config = STRICT

    title: str
    year: int | None = None
    url: str = ""


class Cells(BaseModel):
    """Claims generated from the cells of data/reported/<system>/<table>, one for each filled cell.

    `{row}` and `{col}` in any text field stand for the cell's first column and its column's name; in the id they are
    lower case with underscores. `columns` names the columns used (default: all but the first and `source`). The
    cell's text becomes `reported`, and the row's `source` column, if there is one, the claim's source. All other
    keys are a claim's own.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    table: str
    id: str
    columns: list[str] = []


class File(BaseModel):
    """One registry file, before its entries are looked at."""

    model_config = STRICT

    system: str
    title: str
    year: int | None = None
    url: str = ""
    papers: dict[str, Paper] = {}
    rows: list[str] = []
    claims: list[dict[str, Any]] = []
    claims_from: list[Cells] = Field(default=[])

    @field_validator("claims_from", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, value):
        return [value] if isinstance(value, dict) else value


def load(root: Path | None = None, systems: Iterable[str] | None = None) -> dict[str, Claim]:
    """The registry below `root` (default: the checkout), by id, files in order of their names.

    Args:
        root: a folder holding data/claims.
        systems: read only these files; default all.

    Raises:
        BadRegistry: the message lists every problem of the files read.
    """
    root = root or paths.root()
    files = sorted((root / "data" / "claims").glob("*.yaml"))
    wanted = None if systems is None else set(systems)
    docs, problems = {}, []
    for path in files:
        if wanted is None or path.stem in wanted:
            try:
                docs[path.stem] = yaml.load(path.read_bytes(), Loader=_UniqueKeys)
            except yaml.MarkedYAMLError as error:
                line = error.problem_mark.line + 1 if error.problem_mark else "?"
                problems.append(f"{path.name}: line {line}: {error.problem}")
            except yaml.YAMLError as error:
                problems.append(f"{path.name}: not YAML: {error}")
    claims, more = _parse(docs, root)
    if problems := problems + more:
        raise BadRegistry(f"{len(problems)} problems in data/claims:\n  " + "\n  ".join(problems))
    return claims


def validate(docs: Mapping[str, Any], root: Path | None = None) -> list[str]:
    """All problems of registry documents by file stem, [] if there is none.

    Without `root` the checks that need files (that a notebook exists, the tables of `claims_from`) are left out.
    """
    return _parse(docs, root)[1]


class _UniqueKeys(yaml.CSafeLoader):
    """YAML keeps the last of two equal keys without a word; a registry must not."""

    def construct_mapping(self, node, deep=False):
        names = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key, count in names.items():
            if count > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} stands {count} times", node.start_mark
                )
        return super().construct_mapping(node, deep)


def _parse(docs: Mapping[str, Any], root: Path | None) -> tuple[dict[str, Claim], list[str]]:
    built = None if root is None else paths.notebooks(root).keys()
    claims: dict[str, Claim] = {}
    problems: list[str] = []
    for stem, doc in docs.items():
        file, found = _build(File, doc, f"{stem}.yaml")
        problems += found
        if file is None:
            continue
        if file.system != stem:
            problems.append(f"{stem}.yaml: system={file.system!r}: expected the file's stem {stem!r}")
        own: dict[str, Claim] = {}
        whole = True
        for entry in _entries(file, root, problems):
            name = entry.get("id") if isinstance(entry.get("id"), str) else "an entry without id"
            claim, found = _build(Claim, entry, f"{stem}.yaml: {name}")
            problems += found
            if claim is None:
                whole = False
                continue
            if claim.id in claims or claim.id in own:
                problems.append(f"{stem}.yaml: {claim.id}: id is used twice")
            own[claim.id] = claim
            problems += [f"{stem}.yaml: {claim.id}: {text}" for text in claim_problems(claim, file, built)]
        if whole:  # rows of an entry that cannot be read would count as missing
            problems += [f"{stem}.yaml: {text}" for text in row_problems(file, own.values())]
        claims |= own
    return claims, problems


def _build(model: type[BaseModel], data: Any, where: str) -> tuple[Any, list[str]]:
    if not isinstance(data, dict):
        return None, [f"{where}: {type(data).__name__}: expected a mapping"]
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        first: dict[str, str] = {}  # a union reports one problem a branch, the first says enough
        for item in error.errors(include_url=False, include_context=False):
            field = str(item["loc"][0]) if item["loc"] else "entry"
            given = "" if item["type"] in ("missing", "value_error", "extra_forbidden") else f"={item['input']!r}"
            first.setdefault(field, f"{where}: {field}{given}: {item['msg'].removeprefix('Value error, ')}")
        return None, list(first.values())


def _entries(file: File, root: Path | None, problems: list[str]) -> Iterator[dict[str, Any]]:
    yield from file.claims
    for cells in file.claims_from if root is not None else []:
        path = root / "data" / "reported" / file.system / cells.table
        if not path.is_file():
            problems.append(f"{file.system}.yaml: claims_from: table={cells.table!r}: no such file in {path.parent}")
            continue
        with path.open(newline="", encoding="utf-8") as stream:
            yield from _from_cells(cells, csv.DictReader(stream))


def _from_cells(cells: Cells, table: csv.DictReader) -> Iterator[dict[str, Any]]:
    key, *others = table.fieldnames or [""]
    columns = cells.columns or [name for name in others if name != "source"]
    for line in table:
        for column in columns:
            if not (cell := (line.get(column) or "").strip()):
                continue
            entry = {name: _filled(value, line[key], column) for name, value in (cells.model_extra or {}).items()}
            if line.get("source"):
                entry["source"] = line["source"]
            yield {**entry, "id": _filled(cells.id, _slug(line[key]), _slug(column)), "reported": cell}


def _filled(value: Any, row: str, column: str) -> Any:
    return value.replace("{row}", row).replace("{col}", column) if isinstance(value, str) else value


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
