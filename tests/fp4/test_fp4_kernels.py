"""The Triton kernels against torch, bit for bit, under triton's interpreter; and what they become on a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from reprise.fp4 import kernels, quantize
from reprise.fp4.errors import Fp4Error, PackedSizeError, ScaleFormatMismatch
from reprise.fp4.fake_quant import Guide, fake_quant
from reprise.fp4.packing import pack_bits
from reprise.labs import peers

HERE = Path(__file__).parent


def need_triton():
    """Skip without the version these tests speak of; not imported here, where its folder would stay on the path."""
    if reason := peers.available("triton"):
        pytest.skip(reason)
    if (found := peers.version("triton")) != "3.9.0":
        pytest.skip(f"triton {found} is installed; this test speaks of 3.9.0")


def output_of(script, tmp_path):
    """What a script in a process of its own prints, as JSON."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    run = subprocess.run([sys.executable, HERE / script], capture_output=True, text=True, env=environment, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_kernels_equal_torch_in_every_bit(tmp_path):
    need_triton()
    found = output_of("triton_interpreter.py", tmp_path)
    assert len(found["differences"]) == 3
    for dtype, cases in found["differences"].items():
        assert len(cases) == 4 + 14
        assert cases == dict.fromkeys(cases, 0), dtype
    assert found["refusals"] == [
        "NonFiniteInput: site (3, 'x'): 2 values are NaN or Inf, expected finite ones",
        "NonFiniteInput: site (3, 'x'): 2 values are NaN or Inf, expected finite ones",
        "ScaleFormatMismatch: block_scale: a byte is 0, NaN or negative, expected 1..126",
        *["ScaleFormatMismatch: site (3, 'x'): 4 scales are not positive or not finite, expected all to be"] * 8,
        *["BlockShapeError: site (3, 'x'): x.shape[-1]=24: expected a multiple of 16, or pad=True"] * 2,
    ]


@pytest.mark.slow
def test_compiled_for_a_gpu_nothing_is_approximate_or_contracted(tmp_path):
    """PTX for Hopper: every division rounds to nearest, and no product meets a sum in one rounding."""
    need_triton()
    for name, counts in output_of("triton_compile.py", tmp_path).items():
        arithmetic = {each for each in counts if each.split(".")[0] in ("add", "sub", "mul", "div", "fma", "rcp")}
        assert arithmetic <= {"add.rn.f32", "mul.rn.f32", "div.rn.f32", "add.f32", "sub.f32", "mul.f32"}, name
        assert counts["div.rn.f32"] > 0, name


@pytest.mark.parametrize("b", [1, 2, 3, 4])
@pytest.mark.parametrize("scale", ["tensor", "token"])
def test_packed_guidance_gives_what_fake_quant_gives(b, scale):
    rng = torch.Generator().manual_seed(b)
    x = torch.randn(3, 5, 48, generator=rng)
    rolled = quantize(x + 0.02 * torch.randn(x.shape, generator=rng), "nvfp4", scale)
    low = rolled.codes() & (1 << b) - 1
    got = kernels.guided_values(x, pack_bits(low, b), rolled.block_scale, rolled.global_scale, b)
    assert torch.equal(got, fake_quant(x, Guide(low, rolled.scales(), b)))


def test_auto_on_the_cpu_is_the_torch_code():
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    ours, theirs = kernels.quantize_pack(x, "token"), quantize(x, "nvfp4", "token")
    assert torch.equal(ours.packed, theirs.packed) and torch.equal(ours.block_scale, theirs.block_scale)


@pytest.mark.parametrize(
    "changed, error, name",
    [
        ({"device": "gpu"}, Fp4Error, "device='gpu'"),
        ({"rule": "far"}, Fp4Error, "rule='far'"),
        ({"low_bits": torch.zeros(3, dtype=torch.uint8)}, PackedSizeError, "low_bits: 3 bytes, expected 4"),
        ({"block_scale": torch.ones(1, 4, dtype=torch.uint8)}, ScaleFormatMismatch, "block_scale: torch.uint8"),
        ({"block_scale": torch.zeros(1, 2, dtype=torch.uint8)}, ScaleFormatMismatch, "site .*block_scale: a byte is 0"),
        ({"global_scale": torch.ones(2)}, ScaleFormatMismatch, "global_scale: torch.float32"),
        ({"b": 5}, Fp4Error, "b=5"),
    ],
)
def test_bad_guidance_is_named(changed, error, name):
    given = dict(
        x=torch.ones(1, 32),
        low_bits=torch.zeros(4, dtype=torch.uint8),
        block_scale=torch.ones(1, 2, dtype=torch.uint8),
        global_scale=torch.ones(1, 1),
        b=1,
        site=(0, "x"),
    )
    with pytest.raises(error, match=f"^{name}"):
        kernels.guided_values(**given | changed)
