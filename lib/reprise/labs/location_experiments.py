"""What knowing the old exponent saves: entropies and frames of real updates, and of changes that do not depend on it.

Every function returns a list of flat dictionaries, one a row. Sizes are bits a changed element.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from reprise.labs.refit_payloads import AMPLITUDE, SHARES, perturb
from reprise.refit import as_bits, encode_pair
from reprise.refit.bits import Bits
from reprise.refit.checkpoints.checkpoint import Checkpoint
from reprise.refit.exponents.conditional_entropy import CONTEXTS, context, place_bits, step_bits
from reprise.refit.exponents.exponent_coder import decode, encode

STEPS = (1, 5, 30)


def update_costs(seed: int, *, lr: float = 1e-6, start: str = "grid", steps: Iterable[int] = STEPS) -> list[dict]:
    """Train the tiny Qwen3-MoE without warm-up and price some of its steps.

    Args:
        seed, lr, start: see `tiny_moe.train`.
        steps: numbers of the steps, from 1; training ends with the last.

    Returns:
        one row a step: seed, lr, start, step and the columns of `costs`.
    """
    setting = {"seed": seed, "lr": lr, "start": start}
    return [{**setting, "step": k, **costs(*pair)} for k, pair in updates(seed, lr, start, tuple(steps)).items()]


@lru_cache(maxsize=2)  # a notebook prices and draws the same two runs
def updates(seed: int, lr: float, start: str, steps: tuple[int, ...]) -> dict[int, tuple]:
    """Step -> (OLD, NEW) of some steps of the tiny Qwen3-MoE, all tensors in one; not to be written to."""
    from reprise.labs import tiny_moe
    from reprise.labs.mixed_precision import whole_model

    run = tiny_moe.train(seed, lr=lr, start=start, steps=max(steps))
    return {step.number: whole_model(step.changes) for step in run if step.number in steps}


def stress_costs(seed: int, n: int, *, shares: Iterable[float] = SHARES) -> list[dict]:
    """The placebo: elements chosen evenly, whatever their exponent, move by +-1 %.

    Returns:
        one row a share: seed, share (asked for) and the columns of `costs`.
    """
    rows = []
    for share in shares:
        old, new = perturb(np.random.default_rng(seed), n, share, AMPLITUDE)
        rows.append({"seed": seed, "share": share, **costs(*(Bits("BF16", (n,), words) for words in (old, new)))})
    return rows


def costs(old, new) -> dict:
    """Prices of one BF16 change.

    Returns:
        changed: share of elements;
        places, places_known: entropy of which elements changed, without and with their old exponents;
        steps, steps_known: entropy of the "add" words, likewise;
        add, one_class, coder: whole frames with headers and digests: `encode_pair`, `exponent_coder` made blind to
            exponents, and `exponent_coder`, which must decode to NEW.
    """
    old, new = as_bits(old), as_bits(new)
    changes = int(np.count_nonzero(old.words != new.words))
    blind_old, blind_new = (Bits("U16", bits.shape, bits.words) for bits in (old, new))
    frame = encode(old, new)
    assert (decode(frame, old).words == new.words).all()
    sizes = {"add": encode_pair(old, new, "add"), "one_class": encode(blind_old, blind_new), "coder": frame}
    return {
        "changed": changes / old.words.size,
        "places": place_bits(old, new, "nothing"),
        "places_known": place_bits(old, new, "exponent"),
        "steps": step_bits(old, new, "nothing"),
        "steps_known": step_bits(old, new, "exponent"),
        **{name: 8 * len(data) / changes if changes else np.nan for name, data in sizes.items()},
    }


def context_costs(old, new) -> list[dict]:
    """Entropies of one BF16 change under every context: rows of known, contexts (how many occur), places, steps."""
    old, new = as_bits(old), as_bits(new)
    return [
        {
            "known": known,
            "contexts": int(np.unique(context(old.words, old.dtype, known)).size),
            "places": place_bits(old, new, known),
            "steps": step_bits(old, new, known),
        }
        for known in CONTEXTS
    ]


def change_by_exponent(old, new) -> list[dict]:
    """Rows of exponent (unbiased: floor(log2 |w|)), share of all elements, and share of these that changed."""
    old, new = as_bits(old), as_bits(new)
    exponents, changed = context(old.words, "BF16", "exponent") // 4, old.words != new.words
    held = np.bincount(exponents)
    moved = np.bincount(exponents[changed], minlength=held.size)
    return [
        {"exponent": k - 127, "share": int(held[k]) / old.words.size, "changed": int(moved[k]) / int(held[k])}
        for k in np.flatnonzero(held).tolist()
    ]


def checkpoint_pair(old: str, new: str) -> tuple[Bits, Bits]:
    """All BF16 tensors that two checkpoints share by name and shape, in one each.

    Args:
        old, new: safetensors files or folders of them.

    Raises:
        CheckpointError: one of them cannot be read.
    """
    before, after = Checkpoint.open(old), Checkpoint.open(new)
    parts = [[], []]
    for located in after.tensors():
        same = before.find(located.path, located.entry.name)
        if same and same.entry.shape == located.entry.shape and {same.entry.dtype, located.entry.dtype} == {"BF16"}:
            for part, side in zip(parts, (same, located), strict=True):
                part.append(side.file.read(side.entry))
    words = [np.concatenate(part or [np.empty(0, "<u2")]) for part in parts]
    return tuple(Bits("BF16", (w.size,), w) for w in words)
