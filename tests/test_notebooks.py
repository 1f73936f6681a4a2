"""Committed notebooks give their saved outputs again, on this machine as it is and under a second CPU profile.

Strict validation (nbval) runs every notebook and compares each text output with the saved one. The second time NumPy,
BLAS, oneDNN and torch use their oldest vector code on one thread, under another locale, time zone and home folder; that
takes two to three times as long, so a run checks a third of the notebooks, another one each day, and all of them with
REPRISE_EVERY_PROFILE=1 (make test-full).
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from datetime import date
from functools import cache
from pathlib import Path

import pytest

from reprise.nb import det, paths, rules, slots

pytest.importorskip("nbval")

ROOT = Path(__file__).resolve().parent.parent
SANITIZE = ROOT / "notebooks" / "sanitize.cfg"
ONLY = os.environ.get("REPRISE_ONLY", "")  # one system
STEMS = [stem for stem in paths.notebooks(ROOT) if not ONLY or stem.startswith(f"{ONLY}/")]
LIMIT = 3600  # seconds for all notebooks together
ESCAPES = re.compile(r"(#x1B|\x1b)\[[0-9;]*m")  # colours, as a JUnit report spells them


def native(home: Path) -> dict[str, str]:
    """The environment as it is, less what the test run itself put there."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**inherited, **slots.environment(ROOT, "smoke")}
    del environment["PYTHONHASHSEED"]  # an output that follows the order of a set must fail here
    return environment


def elsewhere(home: Path) -> dict[str, str]:
    """Another CPU, locale, time zone and home folder."""
    from reprise.local_models import cache_dir

    kept = {name: value for name, value in native(home).items() if not name.startswith(("XDG_", "LC_", "JUPYTER_"))}
    names = {"HOME": str(home), "TZ": "Asia/Tokyo", "LC_ALL": other_locale(), "JUPYTER_PREFER_ENV_PATH": "1"}
    # converted models are no part of a home folder's settings, and take minutes to make again
    return {**kept, **names, "REPRISE_CACHE": str(cache_dir()), **det.second_profile()}


def other_locale() -> str:
    """One with a decimal comma if there is one; a notebook that prints by the locale is a notebook that differs."""
    known = subprocess.run(["locale", "-a"], capture_output=True, text=True).stdout.split()
    return next((name for name in known if name.startswith(("de_", "fr_", "tr_")) and "utf" in name.lower()), "C.UTF-8")


def third(stems: list[str], day: date) -> list[str]:
    """Every third notebook, starting one further each day."""
    return stems[-day.toordinal() % 3 :: 3]


EVERY = os.environ.get("REPRISE_EVERY_PROFILE") == "1"
CHECKED = {native: STEMS, elsewhere: STEMS if EVERY else third(STEMS, date.today())}
CASES = [
    pytest.param(profile, stem, id=f"{profile.__name__}-{stem}") for profile in CHECKED for stem in CHECKED[profile]
]


def test_three_days_cover_every_notebook():
    days = [third(STEMS, date(2026, 1, day)) for day in (1, 2, 3)]
    assert sorted(sum(days, [])) == sorted(STEMS)


@cache
def validated(profile) -> dict[str, list[tuple[str, str]]]:
    """Cells of every notebook as validated: {stem: [(name, "" or why it failed), ...]}. One run a profile.

    A module-scoped fixture would be torn down and made again for each of its parameters, and with it all notebooks.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = folder / "report.xml"
        command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-p", "no:cacheprovider", "-q"]
        command += ["--nbval-sanitize-with", str(SANITIZE), "-o", "addopts=", f"--junitxml={report}"]
        command += [str(paths.notebooks(ROOT)[stem]) for stem in CHECKED[profile]]
        done = subprocess.run(command, cwd=ROOT, env=profile(folder), capture_output=True, text=True, timeout=LIMIT)
        assert report.exists(), f"{done.stdout}\n{done.stderr}"
        cases = list(xml.parse(report).getroot().iter("testcase"))
    cells: dict[str, list[tuple[str, str]]] = {}
    for case in cases:
        problem = next((part.text or part.get("message") for part in case if part.tag in ("failure", "error")), "")
        skipped = any(part.tag == "skipped" for part in case)
        problem = ESCAPES.sub("", problem)
        stem = case.get("classname").removeprefix("notebooks.").removesuffix(".ipynb").replace(".", "/")
        cells.setdefault(stem, []).append((case.get("name"), "skipped" if skipped else problem))
    return cells


@pytest.mark.parametrize(("profile", "stem"), CASES)
def test_the_saved_outputs_are_the_computed_ones(profile, stem):
    code = [
        cell for cell in json.loads(paths.notebooks(ROOT)[stem].read_bytes())["cells"] if cell["cell_type"] == "code"
    ]
    found = validated(profile).get(stem, [])
    assert len(found) == len(code)
    failed = [(name, problem) for name, problem in found if problem]
    # one failure makes the cells after it fail too; the first is the one to read
    assert not failed, f"{len(failed)} of {len(code)} cells; first: {failed[0][0]}\n{failed[0][1]}"


def sanitizers() -> list[str]:
    return re.findall(r"^regex: (.*)$\n^replace: \S+$", SANITIZE.read_text(), flags=re.MULTILINE)


def test_the_sanitize_file_has_two_rules_that_nbval_reads():
    from nbval.plugin import get_sanitize_patterns

    assert [regex for regex, replacement in get_sanitize_patterns(SANITIZE.read_text())] == sanitizers()
    address, checkout = sanitizers()
    assert re.sub(address, "A", "<object at 0x7f3c2a90b1d0>") == "<object at A>"
    assert re.sub(checkout, "C/", "read /home/me/reprise/data/claims/refit.yaml") == "read C/data/claims/refit.yaml"
    assert re.sub(checkout, "C/", "data/claims, 1/2 and n/a") == "data/claims, 1/2 and n/a"


def test_no_sanitize_rule_applies_to_a_committed_output():
    assert list(rules.sanitizer_problems(ROOT)) == []
