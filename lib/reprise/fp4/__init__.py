"""FP4 as the standards have it, and training that rounds towards what the rollout's engine rounded to.

>>> import torch
>>> train, roll = torch.full((1, 16), 59.75), torch.full((1, 16), 60.25)
>>> train[0, 0] = roll[0, 0] = 144.0
>>> code, scale = quantize(roll).codes(), quantize(roll).scales()
>>> e2m1_encode(train / scale)[0, 1].item(), guided_round(train / scale, code)[0, 1].item(), code[0, 1].item()
(4, 5, 5)

Where to find what the paper describes:

    section 3       discrepancy: D_act, the distance of the two paths, and its kin
    section 3.1     guided: the bracket q-, q+ of z, and its end nearer to the rollout's value; fake_quant: straight
                    through; methods: the other ways to round, QUADS-like Q(x) + Q(x - Q(x)) and QaRL-like among them
    section 3.2     record, join, store, guidance_format: guidance by (trajectory, token, site); packing: its b = 1..4
                    bits; cost: its bytes; record.Provenance.require: how old a policy may be
    section 4       quant_path: a model on either path; sites, capture, experts and attention: where it is quantised
    appendix A.1    reconstruct: the rollout's code from its low bits and z
    formats         e2m1, nvfp4, mxfp4, mxfp8 (W4A8 activations); blocks and tensor put them together, compiled is the
                    fused form, kernels and triton_kernels are for GPUs; tensor_file: whole safetensors files
    beyond it       side_information, range_coder: a rollout code costs its entropy given z

Source: TRACE. The formats follow OCP MX v1.0 and NVIDIA's description of NVFP4.
"""

from reprise.fp4.cost import cache_cost
from reprise.fp4.discrepancy import path_discrepancy
from reprise.fp4.e2m1 import E2M1_MAX, E2M1_TIES, E2M1_VALUES, e2m1_decode, e2m1_encode
from reprise.fp4.errors import (
    BlockShapeError,
    CodeRangeError,
    Fp4Error,
    NonFiniteInput,
    PackedSizeError,
    ScaleFormatMismatch,
)
from reprise.fp4.fake_quant import Guide, fake_quant
from reprise.fp4.guidance_errors import GuidanceMismatch
from reprise.fp4.guided import bracket, guided_round
from reprise.fp4.packing import pack_bits, unpack_bits
from reprise.fp4.quant_path import quant_path
from reprise.fp4.reconstruct import RULES, reconstruct
from reprise.fp4.record import GuidanceRecord
from reprise.fp4.store import GuidanceStore
from reprise.fp4.tensor import Fp4Tensor, quantize

__all__ = [
    "E2M1_MAX",
    "E2M1_TIES",
    "E2M1_VALUES",
    "RULES",
    "BlockShapeError",
    "CodeRangeError",
    "Fp4Error",
    "Fp4Tensor",
    "GuidanceMismatch",
    "GuidanceRecord",
    "GuidanceStore",
    "Guide",
    "NonFiniteInput",
    "PackedSizeError",
    "ScaleFormatMismatch",
    "bracket",
    "cache_cost",
    "e2m1_decode",
    "e2m1_encode",
    "fake_quant",
    "guided_round",
    "pack_bits",
    "path_discrepancy",
    "quant_path",
    "quantize",
    "reconstruct",
    "unpack_bits",
]
