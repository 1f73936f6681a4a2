"""pyproject.toml, environment.yml, requirements.lock and requirements.hashes say the same; git sees the package."""

import copy
import re
import subprocess
from importlib import metadata

import pytest
import yaml
from environment_file import ROOT, differences, expected, project, requirements, text
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

LOCK = ROOT / "requirements.lock"
HASHES = ROOT / "requirements.hashes"


def locked() -> dict[str, Version]:
    if not LOCK.exists():
        pytest.skip("requirements.lock is not there: make lock writes it")
    pairs = [line.split("==") for line in LOCK.read_text().splitlines()]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


@pytest.fixture
def environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text())


# -- environment.yml ---------------------------------------------------------------------------------------------------


def test_environment_yml_is_in_step_with_pyproject(environment):
    problems = differences(project(), environment)
    assert not problems, "\n".join([*problems, "python tests/environment_file.py rewrites it"])


def test_environment_yml_is_as_it_would_be_written():
    assert (ROOT / "environment.yml").read_text() == text(project())


def test_conda_has_other_names_for_some_packages():
    wanted = expected(project())
    assert wanted["pytorch"].startswith("==")
    assert {"matplotlib-base", "python-xxhash"} <= wanted.keys()
    assert not {"torch", "matplotlib", "xxhash", "reprise"} & wanted.keys()
    assert wanted["python"] == project()["requires-python"]


def test_a_removed_line_is_named(environment):
    environment["dependencies"] = [e for e in environment["dependencies"] if not str(e).startswith("pandas")]
    assert differences(project(), environment) == ["environment.yml: pandas>=2.3 is missing"]


def test_a_changed_bound_is_named(environment):
    environment["dependencies"] = [
        e.replace("pandas>=2.3", "pandas>=2.2") if isinstance(e, str) else e for e in environment["dependencies"]
    ]
    assert differences(project(), environment) == ["environment.yml: pandas>=2.2: expected pandas>=2.3"]


def test_an_added_package_is_named(environment):
    environment["dependencies"].append("shapely>=1.14")
    assert differences(project(), environment) == [
        "environment.yml: shapely>=1.14 is not among the dependencies in pyproject.toml"
    ]


def test_the_same_three_changes_of_pyproject_are_named(environment):
    changed = copy.deepcopy(project())
    nb = changed["optional-dependencies"]["nb"]
    nb[nb.index("pandas>=2.3")] = "pandas>=3"
    nb.remove("psutil>=6")
    changed["dependencies"].append("shapely")
    assert differences(changed, environment) == [
        "environment.yml: pandas>=2.3: expected pandas>=3",
        "environment.yml: psutil>=6 is not among the dependencies in pyproject.toml",
        "environment.yml: shapely is missing",
    ]


def test_another_channel_or_a_second_pip_entry_is_named(environment):
    environment["channels"] = ["defaults"]
    environment["dependencies"].append({"pip": ["numba"]})
    channel, entry = sorted(differences(project(), environment), key=len)
    assert "channels=['defaults']" in channel
    assert "numba" in entry


# -- requirements.lock, requirements.hashes ----------------------------------------------------------------------------


def test_the_lock_holds_plain_pins_in_order():
    locked()
    lines = LOCK.read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line)] == []
    names = [canonicalize_name(line.split("==")[0]) for line in lines]
    assert len(names) == len(set(names))
    assert lines == sorted(lines, key=str.upper)  # as `LC_ALL=C sort -f` has it


def test_the_lock_meets_every_bound_of_all_cpu():
    versions = locked()
    for requirement in requirements(project()):
        name = canonicalize_name(requirement.name)
        assert name in versions, f"{name} is not locked"
        assert versions[name] in requirement.specifier, f"{name}=={versions[name]}: expected {requirement}"


def test_the_lock_holds_what_its_packages_depend_on():
    """Along the metadata of what is installed, so that `--no-deps -r requirements.lock` leaves nothing out."""
    versions, missing = locked(), []
    pending, seen = [(str(r), "reprise") for r in requirements(project())], set()
    while pending:
        wanted, by = pending.pop()
        requirement = Requirement(wanted)
        name = canonicalize_name(requirement.name)
        if name not in versions:
            missing.append(f"{name}, needed by {by}")
            continue
        if (name, *requirement.extras) in seen:
            continue
        seen.add((name, *requirement.extras))
        for each in map(Requirement, metadata.requires(name) or []):
            if each.marker is None or any(each.marker.evaluate({"extra": e}) for e in ("", *requirement.extras)):
                pending.append((str(each), name))
    # where torch is the CUDA build, its metadata ask for libraries that the lock leaves to pip
    missing = [each for each in missing if not each.startswith(("nvidia-", "cuda-", "triton,"))]
    assert not missing, "\n".join(missing)


def test_every_locked_package_but_torch_has_its_hashes():
    versions = locked()
    if not HASHES.exists():
        pytest.skip("requirements.hashes is not there: make lock writes it")
    entries = re.findall(r"^(\S+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", HASHES.read_text(), re.M)
    hashed = {canonicalize_name(name): Version(version) for name, version, _ in entries}
    assert hashed == {name: version for name, version in versions.items() if name != "torch"}
    assert sum(len(lines.splitlines()) + 1 for *_, lines in entries) == len(HASHES.read_text().splitlines())


# -- git ---------------------------------------------------------------------------------------------------------------


def test_git_does_not_ignore_the_package():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    result = subprocess.run(["git", "check-ignore", "lib/reprise/__init__.py"], cwd=ROOT, capture_output=True)
    assert result.returncode == 1, "a pattern in .gitignore hides lib/"
