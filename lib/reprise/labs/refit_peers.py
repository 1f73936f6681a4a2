"""Delta layouts of other systems, re-implemented from their descriptions, to have something to compare sizes with."""

from __future__ import annotations

import io

import numpy as np
import zstandard

LONGEST_GAP = 0xFFFF


def nemo_rl_encode(old: np.ndarray, new: np.ndarray, op: str = "xor") -> bytes:
    """NeMo-RL's sparse layout: 16-bit gaps and 16-bit values, `torch.save`, then zstd over the whole.

    A gap is the distance to the previous entry less one. The description does not say what becomes of gaps beyond 16
    bits; here entries that change nothing bridge them.

    Args:
        old, new: flat uint16 words of one tensor (its BF16 bits).
        op: "xor" stores old ^ new, "overwrite" stores new.

    Source: NeMo-DCR, on value encoding; NeMo-RL's public documentation for the container.
    """
    import torch  # only here: whoever compares other sizes should not wait for it

    index = _bridged(np.flatnonzero(old != new))
    gaps = (np.diff(index, prepend=-1) - 1).astype(np.uint16)
    values = old[index] ^ new[index] if op == "xor" else new[index]
    record = {"name": "w", "shape": new.shape, "dtype": torch.bfloat16, "op": op}
    arrays = {"gaps": torch.from_numpy(gaps), "values": torch.from_numpy(values.view(np.int16))}
    buffer = io.BytesIO()
    torch.save([record | arrays], buffer)
    return zstandard.compress(buffer.getbuffer(), 1)  # NeMo-DCR's level


def nemo_rl_apply(old: np.ndarray, payload: bytes) -> np.ndarray:
    """NEW from OLD and what `nemo_rl_encode` wrote; for our own payloads: nothing bounds their size."""
    import torch

    (record,) = torch.load(io.BytesIO(zstandard.decompress(payload)), weights_only=True)
    index = np.cumsum(record["gaps"].numpy().astype(np.int64) + 1) - 1
    new, values = old.copy(), record["values"].numpy().view(np.uint16)
    new[index] = old[index] ^ values if record["op"] == "xor" else values
    return new


def _bridged(index: np.ndarray) -> np.ndarray:
    """`index` with entries put in wherever two neighbours, or the start and the first, are too far apart."""
    before = np.concatenate(([-1], index[:-1]))
    far = np.flatnonzero(index - before - 1 > LONGEST_GAP) if len(index) else []
    bridges = [np.arange(before[i] + LONGEST_GAP + 1, index[i], LONGEST_GAP + 1) for i in far]
    return np.sort(np.concatenate([index, *bridges]))
