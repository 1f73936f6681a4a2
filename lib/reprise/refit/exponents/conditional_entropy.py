"""What the places and steps of changes cost at best when the receiver holds OLD: entropies given the old word.

With n_c elements of context c, of which a share p_c changes, and N changes in all,

    places    sum_c n_c H(p_c) / N          H(p) = -p log2 p - (1-p) log2 (1-p)
    steps     order-0 entropy of the words that "add" stores, context by context

in bits a changed element. One context for all gives H(p)/p, what `entropy_bound` takes. Shares and frequencies are
those of the tensor itself, so many contexts look better than any code could be: each share must be known to the
receiver, which costs about log2(n_c)/2 bits.
"""

from __future__ import annotations

from math import nan

import numpy as np

from reprise.errors import RepriseError
from reprise.refit.bits import as_bits
from reprise.refit.exponents.exponent_classes import exponent_of
from reprise.refit.operations import stored_words

# what is known of an element before it is decoded
CONTEXTS = ("nothing", "exponent", "exponent, sign", "exponent, binade edge", "exponent, parity", "word")


def context(words: np.ndarray, dtype: str, known: str) -> np.ndarray:
    """int64 number of each old word's context.

    Args:
        words: unsigned words of 16 bits.
        dtype: BF16 or F16.
        known: one of CONTEXTS. At a binade edge the significand is the smallest or the largest one, so that a step
            one way is half or double the other; parity is the lowest bit, which ties look at.
    """
    if known not in CONTEXTS:
        raise RepriseError(f"known={known!r}: expected one of {', '.join(CONTEXTS)}")
    shift, mask = exponent_of(dtype)
    words = words.astype(np.int64)
    exponent, significand = words >> shift & mask, words & (1 << shift) - 1
    extra = {
        "exponent, sign": words >> 15,
        "exponent, binade edge": (significand == 0) + 2 * (significand == (1 << shift) - 1),
        "exponent, parity": words & 1,
    }
    if known == "nothing":
        return np.zeros_like(words)
    if known == "word":
        return words
    return 4 * exponent + extra.get(known, 0)


def place_bits(old, new, known: str = "exponent") -> float:
    """Bits a changed element that tell which elements changed, given `known` of each old word; nan if none did.

    Args:
        old, new: arrays, tensors or Bits of one 16-bit dtype and shape.
        known: one of CONTEXTS.
    """
    old, new = as_bits(old), as_bits(new)
    contexts, changed = context(old.words, old.dtype, known), old.words != new.words
    held = np.bincount(contexts)
    moved = np.bincount(contexts[changed], minlength=held.size)
    return _divided(_information(moved, held) + _information(held - moved, held), moved.sum())


def step_bits(old, new, known: str = "exponent") -> float:
    """Bits a changed element that tell its "add" word, given `known` of each old word; arguments as `place_bits`."""
    old, new = as_bits(old), as_bits(new)
    index = np.flatnonzero(old.words != new.words)
    contexts = context(old.words[index], old.dtype, known)
    words = stored_words("add", old.words[index], new.words[index])
    held = np.bincount(contexts, minlength=1)
    pairs, times = np.unique(contexts << 16 | words, return_counts=True)
    return _divided(_information(times, held[pairs >> 16]), index.size)


def _information(times: np.ndarray, held: np.ndarray) -> float:
    """sum of times log2(held / times) over events that happen `times` times out of `held`."""
    happens = times > 0
    times, held = times[happens], held[happens]
    return float((times * np.log2(held / times)).sum())


def _divided(bits: float, changes: int) -> float:
    return bits / int(changes) if changes else nan
