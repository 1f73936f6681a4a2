"""The three ways to send a changed word: what is stored for it, and how the new word comes back.

    xor        stored = new ^ old            new = old ^ stored
    overwrite  stored = new                  new = stored
    add        stored = zigzag(new - old)    new = old + unzigzag(stored)        (mod 2^w, w bits a word)

All three are integer arithmetic on bit patterns, so exact for every pattern, NaNs and signed zeros included. xor and
overwrite are NeMo-DCR's; add is ours: neighbouring floats of one sign are neighbouring integers, so a step of one ulp
is stored as 1 or 2 whatever the mantissa, while its xor is 1, 3, 7, 15 ... where the carry runs on.

xor and add need a target that holds exactly the old word; applying them twice damages it.
"""

from __future__ import annotations

import numpy as np

from reprise.errors import RepriseError

OPERATIONS = ("xor", "overwrite", "add")


def check_operation(op: str) -> str:
    if op not in OPERATIONS:
        raise RepriseError(f"op={op!r}: expected one of {', '.join(OPERATIONS)}")
    return op


def zigzag(difference: np.ndarray) -> np.ndarray:
    """Fold a w-bit two's complement difference so that small ones of either sign are small: 0 -1 1 -2 -> 0 1 2 3."""
    top = 8 * difference.dtype.itemsize - 1
    return (difference << 1) ^ (0 - (difference >> top))


def unzigzag(folded: np.ndarray) -> np.ndarray:
    """Inverse of `zigzag`."""
    return (folded >> 1) ^ (0 - (folded & 1))


def stored_words(op: str, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Words that `op` stores to turn `old` into `new`; three arrays of one unsigned dtype."""
    if check_operation(op) == "xor":
        return old ^ new
    return new if op == "overwrite" else zigzag(new - old)


def new_words(op: str, old: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """New words from `old` and what `op` stored; inverse of `stored_words`."""
    if check_operation(op) == "xor":
        return old ^ stored
    return stored if op == "overwrite" else old + unzigzag(stored)
