"""Bit-exact weight deltas: which stored words changed between two checkpoints, in few bytes, applied exactly.

>>> import numpy as np
>>> old = np.zeros(1000, np.float32)
>>> new = old.copy()
>>> new[[3, 500]] = 1.0, -0.0
>>> payload = encode(diff_bits(old, new), op="xor")
>>> bits = apply_(old, decode(payload)).view(np.uint32)
>>> bool((bits == new.view(np.uint32)).all())
True

Where to find what the paper describes:

    change detection       delta.diff_bits: the set C of changed bits; bits; sparsity (rounding laws, entropy bound)
    value encoding         operations (XOR mask, overwrite), locations, values, scan and kernels; payload, frame and
                           header for the bytes; which tensors may travel as XOR: placement/copy_plan.mixed
    in-place application   apply, digests
    whole checkpoints      checkpoints/: checkpoint (the pair), checkpoint_diff, checkpoint_apply, checkpoint_stats;
                           safetensors_file, container, manifest, streams, staging
    ownership              placement/ownership: the hash of a name that picks the owner
    direct projection      placement/projection: AffineMap is pi; Residual, its flags and its record D are the
                           residual conversion
    native placement       placement/: copy_recorder watches a loader's copies, copy_plan applies along them,
                           plan_check tests Proposition 1; placements, overlaps, index_probe, through_loader
    recovery               recovery/: receiver, resident, chunk_plan, parts, attempt, baseline B, fingerprint
    joint commit           recovery/: commit_log (the record K = (v, g)), coordinator; transport/object_commit
    transport              transport/: places, bundle, store_transport; relay_transport, _node, _link, _messages, _tree;
                           intake and gate at the receiver; push_pull
    latency                latency
    beyond the paper       exponents/: exponent_coder and its parts, places and steps coded by the old exponent

Source: NeMo-DCR. The payload format, the operation "add", resuming by chunk digests and the exponent coder are ours.
"""

from reprise.refit.apply import NEW, OLD, OTHER, apply_, chunk_states
from reprise.refit.bits import DTYPES, Bits, as_bits
from reprise.refit.delta import Delta, TensorDelta, diff_bits
from reprise.refit.digests import CHUNK
from reprise.refit.errors import PayloadError, RefitSchemaError, StaleBaseError
from reprise.refit.frame import Limits
from reprise.refit.operations import OPERATIONS
from reprise.refit.payload import decode, encode, encode_pair, read_header
from reprise.refit.sparsity import change_fraction, entropy_bound, grid_law, predict_change, threshold_law

__all__ = [
    "CHUNK",
    "DTYPES",
    "NEW",
    "OLD",
    "OPERATIONS",
    "OTHER",
    "Bits",
    "Delta",
    "Limits",
    "PayloadError",
    "RefitSchemaError",
    "StaleBaseError",
    "TensorDelta",
    "apply_",
    "as_bits",
    "change_fraction",
    "chunk_states",
    "decode",
    "diff_bits",
    "encode",
    "encode_pair",
    "entropy_bound",
    "grid_law",
    "predict_change",
    "read_header",
    "threshold_law",
]
