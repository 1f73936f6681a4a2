"""`reprise fp4 quantise` and its files, and the conformance check for a quantiser of one's own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors import safe_open
from safetensors.torch import save_file

from reprise.errors import RepriseError
from reprise.fp4 import BlockShapeError, Fp4Error, Fp4Tensor, NonFiniteInput, quantize
from reprise.fp4.cli import cli
from reprise.fp4.tensor_file import quantise_file, read_file

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def model(tmp_path):
    """A file with two matrices, one of them of three dimensions, and three other tensors."""
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "a.weight": torch.randn(8, 64, generator=generator).bfloat16(),
        "b.weight": torch.randn(2, 3, 32, generator=generator) * 1e-3,
        "norm": torch.ones(64),
        "ids": torch.arange(8).reshape(2, 4),
        "empty": torch.zeros(0, 32),
    }
    save_file(tensors, tmp_path / "m.safetensors", {"origin": "test"})
    return tmp_path / "m.safetensors", tensors


def run(*args):
    return CliRunner().invoke(cli, ["quantise", *map(str, args)])


@pytest.mark.parametrize("fmt, scale", [("nvfp4", "tensor"), ("nvfp4", "token"), ("mxfp4", "tensor")])
def test_a_file_comes_back_as_its_tensors_quantised(model, tmp_path, fmt, scale):
    path, tensors = model
    reports, others = quantise_file(path, tmp_path / "o.safetensors", fmt, scale)
    assert sorted(report.name for report in reports) == ["a.weight", "b.weight"]
    assert sorted(others) == ["empty", "ids", "norm"]
    back = read_file(tmp_path / "o.safetensors")
    assert set(back) == set(tensors)
    for name, x in tensors.items():
        if isinstance(back[name], Fp4Tensor):
            expected = quantize(x, fmt, scale)
            assert torch.equal(back[name].dequantize(), expected.dequantize()) and back[name].shape == expected.shape
        else:
            assert torch.equal(back[name], x)
    with safe_open(tmp_path / "o.safetensors", "pt") as file:
        assert file.metadata()["origin"] == "test"


def test_the_report_counts_what_happened(tmp_path):
    x = torch.zeros(2, 32)
    x[0] = torch.tensor([6.0] * 31 + [0.1])
    x[1, 0], x[1, 1] = 7.9, 1.5
    save_file({"w": x}, tmp_path / "w.safetensors")
    (report,), _ = quantise_file(tmp_path / "w.safetensors", None, "mxfp4")
    assert (report.nbytes, report.shape) == (34, (2, 32))
    assert (report.lowest, report.highest) == (1.0, 1.0)
    assert (report.saturated, report.zeros) == (1 / 64, 1 / 64)
    assert report.error == pytest.approx(((0.1**2 + 1.9**2) / (31 * 36 + 0.1**2 + 7.9**2 + 1.5**2)) ** 0.5)


def test_the_command_prints_a_line_a_tensor(model, tmp_path):
    path, _ = model
    result = run(path, "--only", "a.*", "-o", tmp_path / "o.safetensors")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == f"{path}: 1 tensor in nvfp4, 4 left as they are"
    assert lines[1] == f"{tmp_path / 'o.safetensors'}: written"
    assert lines[2].split() == ["tensor", "shape", "bytes", "error", "scales", "saturated", "to", "zero"]
    assert lines[3].split()[:3] == ["a.weight", "8x64", str(8 * 64 // 2 + 8 * 4 + 4)]
    both = json.loads(run(path, "--format", "mxfp4", "--mx-mode", "rceil", "--json").output)["quantised"]
    assert [entry["saturated"] for entry in both] == [0.0, 0.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nothing_is_written_for_a_file_with_a_bad_value(tmp_path, bad):
    x = torch.ones(2, 32)
    x[1, 3] = bad
    save_file({"w": x}, tmp_path / "w.safetensors")
    with pytest.raises(NonFiniteInput, match="^site 'w': 1 values"):
        quantise_file(tmp_path / "w.safetensors", tmp_path / "o.safetensors")
    assert not (tmp_path / "o.safetensors").exists()


def test_files_that_are_refused(tmp_path):
    save_file({"w": torch.ones(2, 37), "w.packed": torch.ones(3)}, tmp_path / "w.safetensors")
    with pytest.raises(BlockShapeError, match=r"^site 'w': x.shape\[-1\]=37"):
        quantise_file(tmp_path / "w.safetensors", None)
    with pytest.raises(Fp4Error, match="^tensor 'w.packed': written twice"):
        quantise_file(tmp_path / "w.safetensors", None, pad=True)
    with pytest.raises(Fp4Error, match="expected shape and fmt"):
        read_file(tmp_path / "w.safetensors")
    (tmp_path / "x").write_bytes(b"no tensors here")
    with pytest.raises(Fp4Error, match="expected a safetensors file"):
        quantise_file(tmp_path / "x", None)
    alone = run(tmp_path / "w.safetensors")
    assert isinstance(alone.exception, BlockShapeError) and str(alone.exception).endswith("or --pad")
    missing = run(tmp_path / "none")
    assert isinstance(missing.exception, RepriseError) and "No such file" in str(missing.exception)


@pytest.mark.parametrize(
    "body, code, words",
    [
        ("return e2m1_encode(x) if fmt == 'e2m1' else pack(quantize(x, fmt))", 0, "0 of 65280"),
        ("return (e2m1_encode(x).numpy() & 7) if fmt == 'e2m1' else skip()", 1, "-0: code 0, expected 8"),
    ],
)
def test_conformance_of_a_quantiser_of_ones_own(tmp_path, body, code, words):
    (tmp_path / "mine.py").write_text(
        "from reprise.fp4 import e2m1_encode, quantize\n"
        "def pack(q):\n    return q.packed, q.block_scale.numpy()\n"
        "def skip():\n    raise NotImplementedError\n"
        f"def quantise(x, fmt):\n    {body}\n"
    )
    command = [sys.executable, ROOT / "benchmarks/fp4_conformance.py", "--quantiser", "mine:quantise"]
    done = subprocess.run([*command, "--random", "1000", "--rows", "2"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, "")
    assert words in done.stdout


@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [], "fmt": "nvfp4"},
        {"shape": ["a"], "fmt": "nvfp4"},
        {"shape": ["8", "64"], "fmt": "nvfp4"},
        {"shape": [8, 64.5], "fmt": "nvfp4"},
        {"shape": [8, 1e999], "fmt": "nvfp4"},
        {"shape": [True, 64], "fmt": "nvfp4"},
        {"shape": [-8, 64], "fmt": "nvfp4"},
        {"shape": [8, 64], "fmt": "nvfp5"},
        {"shape": [8, 64], "fmt": ["nvfp4"]},
    ],
)
def test_metadata_that_lies_is_refused(tmp_path, entry):
    q = quantize(torch.ones(8, 64))
    parts = {f"w.{part}": getattr(q, part) for part in ("packed", "block_scale", "global_scale")}
    save_file(parts, tmp_path / "x", metadata={"reprise.fp4": json.dumps({"w": entry})})
    with pytest.raises(Fp4Error):
        read_file(tmp_path / "x")


def test_names_that_collide_and_endless_metadata_are_refused(tmp_path):
    q = quantize(torch.ones(8, 64))
    parts = {f"w.{part}": getattr(q, part) for part in ("packed", "block_scale", "global_scale")} | {"w": torch.ones(1)}
    entries = json.dumps({"w": {"shape": [8, 64], "fmt": "nvfp4"}})
    for metadata, match in ((entries, "tensor 'w': written twice"), ("[" * 100_000, "RecursionError")):
        save_file(parts, tmp_path / "x", metadata={"reprise.fp4": metadata})
        with pytest.raises(Fp4Error, match=match):
            read_file(tmp_path / "x")


def test_a_quantised_file_is_not_quantised_again(model, tmp_path):
    quantise_file(model[0], tmp_path / "once", scale="token")
    with pytest.raises(Fp4Error, match="once: metadata 'reprise.fp4': it is quantised already"):
        quantise_file(tmp_path / "once", tmp_path / "twice", pad=True)
    assert not (tmp_path / "twice").exists()


def test_a_pattern_that_fits_nothing_is_refused(model, tmp_path):
    with pytest.raises(Fp4Error, match="only='layers.*': fits no tensor"):
        quantise_file(model[0], tmp_path / "x", only=["a.*", "layers.*"])
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "output, words", [("/", "/: Is a folder"), ("none/x", "none: No such folder"), (".", "Is a f")]
)
def test_a_place_that_cannot_be_written_is_named(model, tmp_path, output, words):
    result = run(model[0], "-o", tmp_path / output)
    assert isinstance(result.exception, RepriseError) and words in str(result.exception)
