"""Runs the Triton kernels under their interpreter and prints where they differ from torch; started by test_fp4_kernels.

The interpreter is chosen when triton is first imported, so this needs a process of its own.
"""

import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch

from reprise.fp4 import e2m1, kernels, nvfp4
from reprise.fp4.errors import Fp4Error
from reprise.fp4.packing import pack_bits
from reprise.labs import peers

peers.load("triton")
ROWS, WIDTH = 10, 208  # 130 blocks: the last of three programs has two of its 64
BITS = {2: torch.int16, 4: torch.int32}


def inputs(dtype, seed):
    """Zeros of both signs, codes and ties, normal draws over six decades; from row 5 on multiples of 1/16 up to 6.5."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, WIDTH, generator=rng) * torch.logspace(-3, 3, ROWS)[:, None]
    x[0], x[1, :64] = 0.0, -0.0
    x[2, :16] = torch.tensor(e2m1.E2M1_VALUES)
    x[3, :14] = torch.tensor([*e2m1.E2M1_TIES, *(-tie for tie in e2m1.E2M1_TIES)])
    x[3, 14:16], x[3, 16] = 6.0, 6 * 448.0  # the row's global scale and its first block scale are 1
    x[5:] = torch.randint(-104, 105, (ROWS - 5, WIDTH), generator=rng) / 16
    return x.to(dtype)


def differences(x, seed):
    """Kernel against torch: {case: values that differ in a bit}."""
    rng = torch.Generator().manual_seed(seed)
    found = {}
    for scale in ("tensor", "token"):
        ours, theirs = (kernels.quantize_pack(x, scale, device) for device in ("triton", "torch"))
        found[f"quantize {scale} codes"] = int((ours.packed != theirs.packed).sum())
        found[f"quantize {scale} scales"] = int((ours.block_scale != theirs.block_scale).sum())
    codes = torch.randint(0, 16, x.shape, generator=rng, dtype=torch.uint8)
    near = theirs.codes()
    codes = torch.where(torch.rand(x.shape, generator=rng) < 0.5, codes, near)
    # other scales than its own: any for the first rows, 1 for the others, where z = x meets every threshold
    byte = torch.randint(1, 127, (ROWS, WIDTH // 16), generator=rng, dtype=torch.uint8)
    byte[5:], other = 56, theirs.global_scale.clone()
    other[5:] = 1.0
    for b, rule in [
        (1, "nearest"),
        (1, "bracket"),
        (1, "cell"),
        (2, "nearest"),
        (2, "cell"),
        (3, "nearest"),
        (4, "nearest"),
    ]:
        low = pack_bits(codes & (1 << b) - 1, b)
        for name, scales in {"own": (theirs.block_scale, theirs.global_scale), "other": (byte, other)}.items():
            given = x, low, *scales, b, rule
            ours, theirs_values = (kernels.guided_values(*given, device) for device in ("triton", "torch"))
            differ = ours.view(BITS[x.element_size()]) != theirs_values.view(BITS[x.element_size()])
            found[f"guided b={b} {rule} {name} scales"] = int(differ.sum())
    return found


def refusals():
    """Error names of the kernels for bad values, which they count while they work."""
    x = torch.randn(2, 32)
    good = kernels.quantize_pack(x, "token", "torch")
    low = pack_bits(good.codes() & 1, 1)
    x[1, 5] = float("nan")
    x[0, 3] = float("inf")

    def scaled(g, device):
        """Of the codes of x without its bad values."""
        given = torch.ones(2, 32), low, good.block_scale, torch.full((2, 1), g)
        return lambda: kernels.guided_values(*given, 1, device=device, site=(3, "x"))

    found = []
    for call in (
        lambda: kernels.quantize_pack(x, "token", "triton", site=(3, "x")),
        lambda: kernels.guided_values(x, low, good.block_scale, good.global_scale, 1, device="triton", site=(3, "x")),
        lambda: kernels.guided_values(x, low, good.block_scale * 0, good.global_scale, 1, device="triton"),
        *(scaled(g, device) for g in (0.0, -1.0, float("nan"), 3e38) for device in ("triton", "torch")),
        lambda: kernels.quantize_pack(x[:, :24], device="triton", site=(3, "x")),
        lambda: kernels.guided_values(x[:, :24], low, good.block_scale, good.global_scale, 1, site=(3, "x")),
    ):
        try:
            call()
            found.append("nothing")
        except Fp4Error as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


assert nvfp4.BLOCK == 16
result = {str(dtype): differences(inputs(dtype, 1), 2) for dtype in (torch.float32, torch.bfloat16, torch.float16)}
print(json.dumps({"differences": result, "refusals": refusals()}))
