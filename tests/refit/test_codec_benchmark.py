"""The benchmark runs, and its deterministic bars hold at a small size too."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "refit.py"


@pytest.mark.slow
def test_quick_run_meets_the_byte_bars(tmp_path):
    out = tmp_path / "refit.json"
    run = subprocess.run(
        [sys.executable, BENCHMARK, "--quick", "--out", out], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    results = json.loads(out.read_text())
    assert {row["name"] for row in results["speeds"]} >= {"ours", "NeMo-RL layout", "index patch", "bsdiff4", "xdelta3"}
    bytes_only = [bar for bar in results["bars"] if "time" not in bar["bar"]]
    assert len(bytes_only) == 10
    assert [bar for bar in bytes_only if not bar["met"]] == []
    assert "index patch / ours, encode time" in run.stdout
