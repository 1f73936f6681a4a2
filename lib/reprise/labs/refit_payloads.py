"""What a delta costs in bytes: perturbed BF16 weights under every operation, beside the entropy bound.

NeMo-DCR measures its payloads on injected changes of relative size about 1e-2 and does not give their distribution.
Several are tried here and none is tuned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import nan

import numpy as np
import zstandard

from reprise.errors import RepriseError
from reprise.labs.refit_peers import nemo_rl_encode
from reprise.refit import OPERATIONS, as_bits, encode_pair, entropy_bound
from reprise.refit.bits import Bits
from reprise.refit.operations import stored_words

WEIGHT_STD = 0.02  # our choice: the usual initialisation; the figures depend on it only under "absolute"
RELATIVE = ("plus-minus", "normal", "uniform")
SHAPES = (*RELATIVE, "absolute", "independent")

AMPLITUDE = 1e-2  # NeMo-DCR: "relative amplitude about 10^-2"
SHARES = (0.01, 0.03, 0.05)  # 3 and 5 % are the paper's stress settings, 1 % its observed range

SETTING = ("shape", "amplitude", "share", "seed")


def perturb(
    rng: np.random.Generator, n: int, p: float, amplitude: float, shape: str = "plus-minus"
) -> tuple[np.ndarray, np.ndarray]:
    """OLD and NEW words of `n` BF16 weights N(0, 0.02) of which a share `p`, chosen at random, changes.

        plus-minus   w (1 +- amplitude), sign fair
        normal       w (1 + amplitude N(0, 1))
        uniform      w (1 + amplitude U(-1, 1))
        absolute     w + amplitude N(0, 1)
        independent  a fresh draw from N(0, 0.02), whatever the amplitude: the control, since OLD says nothing about NEW

    Only elements that a perturbation moves to another BF16 value can be chosen, so that `p` is the share that really
    changes. Where too few move, all of them are taken; +-1e-3 moves none, as half an ulp is 2e-3 to 4e-3 of the value.

    Returns:
        two (n,) uint16 arrays.

    Raises:
        RepriseError: unknown shape, or `n`, `p` or `amplitude` out of range.
    """
    if shape not in SHAPES:
        raise RepriseError(f"shape={shape!r}: expected one of {', '.join(SHAPES)}")
    if n < 1 or not 0 <= p <= 1 or not amplitude >= 0:
        raise RepriseError(f"n={n}, p={p}, amplitude={amplitude}: expected n >= 1, 0 <= p <= 1 and amplitude >= 0")
    old = bf16_words(rng.normal(0, WEIGHT_STD, n))
    weights = bf16_values(old)
    if shape == "plus-minus":
        candidates = weights * (1 + amplitude * rng.choice((-1.0, 1.0), n))
    elif shape == "uniform":
        candidates = weights * (1 + amplitude * rng.uniform(-1, 1, n))
    elif shape == "independent":
        candidates = rng.normal(0, WEIGHT_STD, n)
    else:
        noise = amplitude * rng.standard_normal(n)
        candidates = weights * (1 + noise) if shape == "normal" else weights + noise
    candidates = bf16_words(candidates)
    movable = np.flatnonzero(candidates != old)
    chosen = rng.choice(movable, min(round(p * n), len(movable)), replace=False)
    new = old.copy()
    new[chosen] = candidates[chosen]
    return old, new


def bf16_words(values: np.ndarray) -> np.ndarray:
    """uint16 words of finite values rounded to BF16 (to nearest, ties to even) by way of FP32."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_values(words: np.ndarray) -> np.ndarray:
    """float64 values of BF16 words."""
    return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def payload_grid(
    seed: int,
    n: int,
    *,
    shapes: Iterable[str] = RELATIVE,
    amplitudes: Iterable[float] = (AMPLITUDE,),
    shares: Iterable[float] = SHARES,
) -> list[dict]:
    """Payload sizes over the product of shapes, amplitudes and shares, three operations each.

    Every setting draws from its own generator, so that a row does not depend on which others were run.

    Returns:
        rows with shape, amplitude, share (asked for), seed and the columns of `compare`.
    """
    rows = []
    for shape in shapes:
        for amplitude in amplitudes:
            for share in shares:
                setting = dict(zip(SETTING, (shape, amplitude, share, seed), strict=True))
                old, new = perturb(np.random.default_rng(seed), n, share, amplitude, shape)
                rows += [{**setting, **row} for row in compare(old, new)]
    return rows


def compare(old, new) -> list[dict]:
    """What one tensor's change costs under each operation.

    Args:
        old, new: BF16 tensors, or uint16 arrays of BF16 words.

    Returns:
        one row an operation, sizes in bytes, headers included:
        op, elements, changed (share);
        ours, ours_bits (per changed element), ours_share (of the dense tensor's bytes);
        bound_bits: `entropy_bound` per changed element;
        peer, peer_bits, peer_share: NeMo-RL's layout, which has no "add" (nan);
        values, planes: the stored words alone under zstd-1, as they come and as two byte planes.
        Where nothing changed, every figure per changed element is nan.
    """
    old, new = _bf16(old), _bf16(new)
    index = np.flatnonzero(old.words != new.words)
    changed, dense = len(index), old.words.nbytes
    rows = []
    for op in OPERATIONS:
        words = stored_words(op, old.words[index], new.words[index])
        ours = len(encode_pair(old, new, op))
        peer = len(nemo_rl_encode(old.words, new.words, op)) if op != "add" else nan
        rows.append(
            {
                "op": op,
                "elements": len(old.words),
                "changed": changed / len(old.words),
                "ours": ours,
                "ours_bits": 8 * ours / changed if changed else nan,
                "ours_share": ours / dense,
                "bound_bits": entropy_bound(old, new, op),
                "peer": peer,
                "peer_bits": 8 * peer / changed if changed else nan,
                "peer_share": peer / dense,
                "values": len(zstandard.compress(words.tobytes(), 1)),
                "planes": len(zstandard.compress(words.view(np.uint8).reshape(-1, 2).T.tobytes(), 1)),
            }
        )
    return rows


def savings(rows: Sequence[dict]) -> list[dict]:
    """What XOR saves over overwriting in each setting of `payload_grid` or in one `compare`.

    Returns:
        one row a setting: its columns, changed, and
        cut_peer, cut_ours: 1 - XOR payload / overwrite payload, in NeMo-RL's layout and in ours;
        cut_add: the same for our "add";
        value_ratio, plane_ratio: compressed overwrite values / compressed XOR values;
        peer_share, ours_share: XOR payload / dense checkpoint.
        All but `changed` are nan where nothing changed.
    """
    settings: dict[tuple, dict[str, dict]] = {}
    for row in rows:
        settings.setdefault(tuple(row.get(name) for name in SETTING), {})[row["op"]] = row
    table = []
    for setting, by_op in settings.items():
        xor, overwrite, add = by_op["xor"], by_op["overwrite"], by_op["add"]
        figures = {
            "cut_peer": 1 - xor["peer"] / overwrite["peer"],
            "cut_ours": 1 - xor["ours"] / overwrite["ours"],
            "cut_add": 1 - add["ours"] / overwrite["ours"],
            "value_ratio": overwrite["values"] / xor["values"],
            "plane_ratio": overwrite["planes"] / xor["planes"],
            "peer_share": xor["peer_share"],
            "ours_share": xor["ours_share"],
        }
        if not xor["changed"]:
            figures = dict.fromkeys(figures, nan)
        named = {name: value for name, value in zip(SETTING, setting, strict=True) if value is not None}
        table.append({**named, "changed": xor["changed"], **figures})
    return table


def _bf16(x) -> Bits:
    bits = as_bits(x)
    if bits.dtype == "U16":
        bits = Bits("BF16", bits.shape, bits.words)
    if bits.dtype != "BF16":
        raise RepriseError(f"dtype={bits.dtype}: expected BF16, or uint16 words of it")
    return bits
