"""The benchmark runs at a small size and judges what it measured; no time is asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "fp4.py"


@pytest.mark.slow
def test_quick_run_names_every_bar(tmp_path):
    out = tmp_path / "fp4.json"
    run = subprocess.run(
        [sys.executable, BENCHMARK, "--quick", "--out", out], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    results = json.loads(out.read_text())
    assert {"ours", "ours, compiled"} <= results["seconds"]["nvfp4"].keys()
    names = [bar["bar"] for bar in results["bars"]]
    assert [name for name in names if name.startswith("bandwidth")] == names[-2:]
    assert all(name in run.stdout for name in names)
