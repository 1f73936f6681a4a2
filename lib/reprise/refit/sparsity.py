"""How many stored bits a step changes, what sending them costs at best, and what rounding predicts.

A BF16 weight keeps 8 significant bits, so most steps of an optimiser with FP32 masters round back to the stored value.
Two starts give two laws: masters spread evenly over the rounding cells (an FP32 initialisation, or many steps later),
and masters that are the stored weights themselves (training that starts from a BF16 checkpoint).
"""

from __future__ import annotations

from math import ceil, erf, log2, nan, sqrt

import numpy as np

from reprise.errors import RepriseError
from reprise.refit.bits import Bits, is_torch
from reprise.refit.delta import pairs
from reprise.refit.operations import check_operation, stored_words

BF16_BITS = 8  # 7 stored bits and the implicit one; FP32 has 24
MIN_EXPONENT = -126  # of BF16 and FP32: below 2^-126 the spacing no longer shrinks


def change_fraction(old, new) -> float:
    """Share of elements whose storage differs; over all tensors where `old` and `new` are mappings.

    Raises:
        RefitSchemaError: as `diff_bits`.
    """
    elements = changed = 0
    for pair in pairs(old, new):
        elements += pair.elements
        changed += np.count_nonzero(pair.old.words != pair.new.words)
    return changed / elements if elements else 0.0


def entropy_bound(old, new, op: str = "add") -> float:
    """Bits per changed element of a code that knows neither neighbours nor old values.

    With p the share of changed elements and f the frequencies of the words that `op` stores for them,

        H(p) / p - sum f log2 f,    H(p) = -p log2 p - (1-p) log2 (1-p).

    The first term places the changes, which it takes as independent, the second is the order-0 entropy of the words.
    Changes that cluster, or words that depend on the place, can be coded below it.

    Args:
        old, new: as for `diff_bits`; p and f are those of all tensors together, words of each width apart.
        op: "xor", "overwrite" or "add".

    Returns:
        Bits, not bytes; nan where nothing changed.
    """
    check_operation(op)
    elements, words = 0, {}
    for pair in pairs(old, new):
        elements += pair.elements
        index = np.flatnonzero(pair.old.words != pair.new.words)
        words.setdefault(pair.dtype, []).append(stored_words(op, pair.old.words[index], pair.new.words[index]))
    pooled = {dtype: np.concatenate(parts) for dtype, parts in words.items()}
    changed = sum(part.size for part in pooled.values())
    if not changed:
        return nan
    places = _entropy_bits(np.array([changed, elements - changed]))
    values = sum(_entropy_bits(np.unique(part, return_counts=True)[1]) for part in pooled.values())
    return (places + values) / changed


def predict_change(weights, update, masters: str = "uniform", significand_bits: int = BF16_BITS) -> float:
    """Share of stored weights that one step changes, from the weights as stored and the step each master takes.

    With ulp(w) = 2^(floor(log2 |w|) - significand_bits + 1) the spacing of stored values at w,

        uniform   P(change) = min(1, |u| / ulp(w)): the master lies anywhere in the cell that rounds to w
        grid      the master is w: it leaves the cell if |u| > ulp(w)/2, or > ulp(w)/4 from a power of two towards
                  zero; at equality the tie goes to the even neighbour, so that only an odd w changes

    The grid law is exact for w + u in exact arithmetic; FP32 masters round w + u once more, which matters at ties only.

    Args:
        weights: values before the step as stored (array, torch tensor, or Bits of BF16, F16, F32 or F64).
        update: what is added to each master, of the same shape, or one number for all.
        masters: "uniform" or "grid".
        significand_bits: of the stored format: 8 for BF16, 24 for FP32.

    Returns:
        Expected share of changed elements in [0, 1].

    Raises:
        RepriseError: unknown `masters`, or with "grid" a weight that the format does not hold.
    """
    weights, update = np.broadcast_arrays(_float64(weights), _float64(update))
    if masters == "uniform":
        return float(np.minimum(1, np.abs(update) / ulp(weights, significand_bits)).mean())
    if masters == "grid":
        return float(leaves_cell(weights, update, significand_bits).mean())
    raise RepriseError(f"masters={masters!r}: expected 'uniform' or 'grid'")


def ulp(weights: np.ndarray, significand_bits: int = BF16_BITS) -> np.ndarray:
    """float64 distance from each of `weights` to the next stored value away from zero."""
    exponent = np.frexp(weights)[1] - 1
    return np.ldexp(
        1.0, np.maximum(np.where(weights == 0, MIN_EXPONENT, exponent), MIN_EXPONENT) - significand_bits + 1
    )


def leaves_cell(weights: np.ndarray, update: np.ndarray, significand_bits: int = BF16_BITS) -> np.ndarray:
    """bool: whether weight + update rounds (to nearest, ties to even) to another stored value than the weight's own.

    Args:
        weights: float64 values on the grid of the stored format.
        update: float64 of the same shape.

    Raises:
        RepriseError: a weight that is not on the grid.
    """
    spacing = ulp(weights, significand_bits)
    significand = np.abs(weights) / spacing  # exact: division by a power of two
    if not (significand == np.floor(significand)).all():
        raise RepriseError(
            f"weights: not all on the grid of {significand_bits} significant bits, which masters='grid' takes"
        )
    towards_zero = np.signbit(weights) != np.signbit(update)
    binade_start = (significand == 2 ** (significand_bits - 1)) & (
        spacing > np.ldexp(1.0, MIN_EXPONENT - significand_bits + 1)
    )
    half = np.where(towards_zero & binade_start, spacing / 4, spacing / 2)
    step = np.abs(update)
    return (step > half) | ((step == half) & (significand % 2 == 1))


def threshold_law(step: float, std: float, significand_bits: int = BF16_BITS) -> float:
    """Share of N(0, std) weights that a first step of size `step` changes when masters start on the grid; closed form.

        erf(t / (std sqrt 2)),    t = 2^ceil(log2 step + significand_bits):  ulp(w)/2 < step exactly where |w| < t

    It takes all of a cell to change or to stay, so it neglects the half cells around t and ties; `grid_law` does not.
    """
    return erf(2.0 ** ceil(log2(step) + significand_bits) / (std * sqrt(2)))


def grid_law(step: float, std: float) -> float:
    """The share that `threshold_law` approximates, summed over the BF16 grid: weights N(0, std) rounded to BF16, steps
    of size `step` up or down with equal chance, ties to even."""
    grid = (np.arange(0x7F80, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)  # 0 and all positive values
    cell = np.append((grid[1:] + grid[:-1]) / 2, np.inf)  # upper edge of each value's cell
    below = np.array([erf(edge / (std * sqrt(2))) for edge in cell.tolist()])  # P(|w| < edge)
    chance = np.diff(below, prepend=0)
    changes = (leaves_cell(grid, np.full_like(grid, step)) * 0.5) + (leaves_cell(grid, np.full_like(grid, -step)) * 0.5)
    return float(chance @ changes)


def _entropy_bits(counts: np.ndarray) -> float:
    """n times the order-0 entropy in bits of `counts` that add up to n."""
    counts = counts[counts > 0]
    return float((counts * np.log2(counts.sum() / counts)).sum())


def _float64(x) -> np.ndarray:
    if is_torch(x):
        return x.detach().cpu().double().numpy()
    if isinstance(x, Bits):
        if x.dtype == "BF16":
            return (x.words.astype(np.uint32) << 16).view(np.float32).astype(np.float64).reshape(x.shape)
        natives = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
        if x.dtype not in natives:
            raise RepriseError(f"dtype={x.dtype!r}: expected BF16, {', '.join(natives)}")
        return x.words.view(natives[x.dtype]).astype(np.float64).reshape(x.shape)
    return np.asarray(x, np.float64)
