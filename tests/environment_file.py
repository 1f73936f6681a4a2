"""environment.yml, derived from pyproject.toml: the dependencies of `all-cpu` under conda-forge's names.

`python tests/environment_file.py` rewrites the file; tests/test_env_files.py says what differs.
"""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "all-cpu"
# where conda-forge's name is another; its `xxhash` is the C library
CONDA_NAMES = {
    "matplotlib": "matplotlib-base",
    "seaborn": "seaborn-base",
    "torch": "pytorch",
    "xxhash": "python-xxhash",
}
HEADER = """\
# The environment of requirements.lock for conda users, from conda-forge alone: conda env create
# Derived from pyproject.toml by tests/environment_file.py; a test keeps the two in step.
name: reprise
channels: [conda-forge, nodefaults]
"""
LOCAL = {"pip": ["--no-deps -e ."]}


def requirements(project: dict, extra: str = EXTRAS) -> list[Requirement]:
    """Core dependencies and those of `extra`, with extras that name the project itself resolved."""
    own = canonicalize_name(project["name"])
    found, pending = {}, [*map(Requirement, project["dependencies"]), Requirement(f"{own}[{extra}]")]
    while pending:
        requirement = pending.pop()
        if canonicalize_name(requirement.name) == own:
            for name in requirement.extras:
                pending += map(Requirement, project["optional-dependencies"][name])
        else:
            found[str(requirement)] = requirement
    return sorted(found.values(), key=lambda requirement: canonicalize_name(requirement.name))


def expected(project: dict) -> dict[str, str]:
    """Conda package -> version range, such as {"pytorch": "==2.13.0"}; the empty range for the installer."""
    ranges = {"python": _range(project["requires-python"]), "pip": ""}
    for requirement in requirements(project):
        name = canonicalize_name(requirement.name)
        ranges[CONDA_NAMES.get(name, name)] = _range(str(requirement.specifier))
    return ranges


def differences(project: dict, environment: dict) -> list[str]:
    """What keeps environment.yml from being the one derived from pyproject.toml, one sentence each."""
    wanted, found, problems = expected(project), {}, []
    for entry in environment["dependencies"]:
        if isinstance(entry, str):
            requirement = Requirement(entry)
            found[requirement.name] = _range(str(requirement.specifier))
        elif entry != LOCAL:
            problems.append(f"environment.yml: {entry}: expected {LOCAL} as the only entry of its kind")
    if LOCAL not in environment["dependencies"]:
        problems.append(f"environment.yml: {LOCAL} is missing")
    if environment["channels"] != ["conda-forge", "nodefaults"]:
        problems.append(f"environment.yml: channels={environment['channels']}: expected conda-forge and nodefaults")
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            problems.append(f"environment.yml: {name}{wanted[name]} is missing")
        elif name not in wanted:
            problems.append(f"environment.yml: {name}{found[name]} is not among the dependencies in pyproject.toml")
        elif found[name] != wanted[name]:
            problems.append(f"environment.yml: {name}{found[name]}: expected {name}{wanted[name]}")
    return problems


def text(project: dict) -> str:
    ranges = expected(project)
    names = ["python", "pip", *sorted(ranges.keys() - {"python", "pip"})]
    lines = [f"  - {name}{ranges[name]}" for name in names]
    return HEADER + "\n".join(["dependencies:", *lines, "  - pip: [--no-deps -e .]"]) + "\n"


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _range(specifier: str) -> str:
    return ",".join(sorted(filter(None, specifier.replace(" ", "").split(",")), reverse=True))


if __name__ == "__main__":
    (ROOT / "environment.yml").write_text(text(project()))
