"""Compiles the Triton kernels for a GPU that need not be there and prints their float32 instructions as JSON."""

import collections
import json
import re

from reprise.labs import peers

triton = peers.load("triton")
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from reprise.fp4 import triton_kernels  # noqa: E402

POINTERS = {"x_at": "*bf16", "y_at": "*i16", "g_at": "*fp32", "threshold_at": "*fp32", "bad_at": "*i32"}
HOPPER = GPUTarget("cuda", 90, 32)


def instructions(kernel, **constants):
    kinds = {}
    for name in kernel.arg_names:
        counts = "i32" if name.startswith("blocks") else "*u8"
        kinds[name] = "constexpr" if name in constants else POINTERS.get(name, counts)
    source = ASTSource(kernel, signature=kinds, constexprs=constants)
    text = triton.compile(source, target=HOPPER, options={"enable_fp_fusion": False}).asm["ptx"]
    return collections.Counter(re.findall(r"^\s*(?:@%\w+ )?([a-z]+[\w.]*\.f32)\s", text, re.MULTILINE))


print(
    json.dumps(
        {
            "quantize": instructions(triton_kernels._quantize_pack, BLOCKS=64),
            "guided": instructions(triton_kernels._guided, B=1, STEPS=3, BF16=True, BLOCKS=64),
        }
    )
)
