"""Where other libraries agree with the formats and where they do not, each in the version it was found in."""

import pytest
import torch
from peers import need

from reprise.fp4 import e2m1_encode, quantize
from reprise.labs import fp4_peers
from reprise.labs.fp4_conformance import FORMATS, compare, nan_codes

ZEROS = torch.zeros(1, 64)
NORMAL = {"compressed_tensors": 74, "modelopt": 309}  # codes that differ of 65,536 normal BF16 values
PINNED = {entry.module: entry.version for entry in fp4_peers.PEERS}


def found(quantise, fmt, rows=64):
    """{inputs: (codes that differ, scale bytes that differ)} where anything does."""
    every = list(compare(quantise, [fmt], n_random=1 << 14, rows=rows))
    assert every
    return {c.inputs: (c.codes, c.bytes) for c in every if c.codes or c.bytes}


def peer(name):
    module = name.removesuffix("_mx")
    need(module, PINNED[module])
    return getattr(fp4_peers, name)


def ours(x, fmt):
    if fmt == "e2m1":
        return e2m1_encode(x)
    q = quantize(x, fmt)
    return q.codes(), q.block_scale


@pytest.mark.parametrize("fmt", FORMATS)
def test_ours_disagrees_nowhere_and_a_wrong_one_is_found(fmt):
    def wrong(x, fmt):
        got = ours(x, fmt)
        return got ^ (got == 2).to(torch.uint8) if fmt == "e2m1" else (got[0] ^ 8, got[1])

    assert found(ours, fmt) == {}
    assert len(found(wrong, fmt)) == len(list(compare(ours, [fmt])))


@pytest.mark.parametrize("name", ["ml_dtypes", "gfloat", "torchao"])
def test_three_libraries_agree_on_every_element(name):
    assert found(peer(name), "e2m1") == {}


@pytest.mark.parametrize(
    "name, words", [("ml_dtypes", "codes 8, 0"), ("gfloat", "raises AssertionError"), ("torchao", "codes 3, 11")]
)
def test_nan_becomes_a_number_or_an_error(name, words):
    assert nan_codes(peer(name)) == words


def test_gfloat_agrees_on_every_mxfp4_block():
    assert found(peer("gfloat"), "mxfp4", rows=1) == {}


def test_torchao_mxfp4_differs_only_where_the_scale_is_subnormal():
    need("torchao", "0.18.0")
    for quantise in (fp4_peers.torchao, fp4_peers.torchao_even):
        assert found(quantise, "mxfp4") == {"ties at every scale": (13, 0)}
    lowest = torch.full((1, 32), 6 * 2.0**-127)
    codes, byte = fp4_peers.torchao(lowest, "mxfp4")
    assert (byte.item(), codes[0, 0].item(), quantize(lowest, "mxfp4").codes()[0, 0].item()) == (0, 5, 7)
    assert fp4_peers.torchao_rceil(lowest, "mxfp4")[0][0, 0].item() == 0


def test_torchao_rceil_takes_a_float_logarithm():
    """log2 of a float32 just above a power of two is that power's, so the next exponent up is missed."""
    need("torchao", "0.18.0")
    assert found(fp4_peers.torchao_rceil, "mxfp4") == {"ties at every scale": (13, 0), "1 ulp above 6 scales": (0, 239)}
    amax = torch.full((1, 32), 6 * 1024.0).nextafter(torch.tensor(9e9))
    assert fp4_peers.torchao_rceil(amax, "mxfp4")[1].item() == 137
    assert quantize(amax, "mxfp4", mx_mode="rceil").block_scale.item() == 138


def test_torchao_nvfp4_has_no_scale_bytes_below_8():
    """Its block scales stop at 2^-6, a normal E4M3, instead of 2^-9."""
    need("torchao", "0.18.0")
    x = torch.ones(1, 32) * torch.tensor([1.0, 2.0**-18]).repeat_interleave(16)
    assert fp4_peers.torchao(x, "nvfp4")[1].tolist() == [[126, 8]]
    assert quantize(x).block_scale.tolist() == [[126, 1]]
    assert quantize(x).dequantize()[0, 16] != 0


def test_torchao_nvfp4_of_zeros_is_nan():
    need("torchao", "0.18.0")
    codes, byte = fp4_peers.torchao(ZEROS, "nvfp4")
    assert (byte.unique().tolist(), codes.unique().tolist()) == ([255], [12])


def test_torchao_nvfp4_multiplies_by_a_reciprocal():
    """x * ((1 / g) / b) is not x / (b g): for g = 1 ties move up wherever the byte's mantissa is all ones."""
    need("torchao", "0.18.0")
    assert found(fp4_peers.torchao, "nvfp4")["ties at every scale"] == (84, 7)  # 14 such scales of 119, 6 ties each
    x = torch.zeros(1, 32)
    x[0, 0], x[0, 16], x[0, 17] = 2688, 6 * 1.875, 2.5 * 1.875
    assert quantize(x).block_scale.tolist() == [[126, 63]]
    assert (fp4_peers.torchao(x, "nvfp4")[0][0, 17].item(), quantize(x).codes()[0, 17].item()) == (5, 4)


@pytest.mark.slow
def test_compressed_tensors():
    """The sign of zero, exact ties under another order of operations, and zero scales replaced by 0.125."""
    quantise = peer("compressed_tensors")
    assert found(quantise, "e2m1") == {"every finite BF16": (1, 0)}
    assert quantise(torch.tensor([-0.0, 0.0]), "e2m1").tolist() == [0, 0]
    assert nan_codes(quantise) == "codes 0, 0"
    differences = found(quantise, "nvfp4")
    assert differences["normal, BF16"] == (NORMAL["compressed_tensors"], 0)
    assert quantise(ZEROS, "nvfp4")[1].unique().tolist() == [32]  # E4M3 of 0.125
    assert found(quantise, "mxfp4") == {"BF16 up to 4096, permuted": (1, 0)}  # -0 again; held to "even"
    assert {c.fmt for c in compare(quantise, ["mxfp4"])} == {"mxfp4 even"}


@pytest.mark.slow
def test_modelopt_nvfp4():
    """The sign of zero; a block of zeros has the scale 1, a tensor of zeros NaN scales and 6 in every place."""
    quantise = peer("modelopt")
    assert found(quantise, "e2m1") == {"every finite BF16": (1, 0)}
    assert nan_codes(quantise) == "codes 7, 7"
    assert found(quantise, "nvfp4") == {
        "BF16 up to 4096, permuted": (1, 0),
        "a block of zeros": (0, 1),
        "zeros": (0, 2),
    }
    codes, byte = quantise(ZEROS, "nvfp4")
    assert (byte.unique().tolist(), codes.unique().tolist()) == ([255], [7])
    blocks = torch.cat([torch.zeros(1, 16), torch.ones(1, 16)])
    assert quantise(blocks, "nvfp4")[1].tolist() == [[56], [126]]


@pytest.mark.slow
def test_modelopt_mxfp4():
    """Ties at 0.75, 1.75 and 3.5 go down, +0 becomes -0, and log2 is a float32 one, as torchao's."""
    quantise = peer("modelopt_mx")
    z = torch.tensor([0.0, 0.75, 1.75, 3.5, -0.75, -1.75, -3.5])
    assert found(quantise, "e2m1") == {"every finite BF16": (7, 0), "3 ulp around ties and values": (6, 0)}
    assert quantise(z, "e2m1").tolist() == [8, 1, 3, 5, 9, 11, 13]
    differences = found(fp4_peers.modelopt, "mxfp4")
    assert differences["normal, BF16"] == (NORMAL["modelopt"], 0)
    assert differences["1 ulp above 6 scales"][1] == 239
    assert differences["zeros"] == (64, 0)
    assert {c.fmt for c in compare(fp4_peers.modelopt, ["mxfp4"])} == {"mxfp4 rceil"}


@pytest.mark.slow
def test_block_formats_bit_for_bit_on_two_million_normal_values():
    """Two libraries a format: torchao and modelopt for NVFP4, torchao and gfloat (on fewer) for MXFP4."""
    for name in ("torchao", "modelopt"):
        assert "normal, FP32" not in found(peer(name), "nvfp4", rows=2048)
    for quantise in (fp4_peers.torchao, fp4_peers.torchao_rceil, fp4_peers.torchao_even):
        assert not {"normal, FP32", "normal, BF16"} & found(quantise, "mxfp4", rows=2048).keys()
    assert found(peer("gfloat"), "mxfp4", rows=32) == {}
