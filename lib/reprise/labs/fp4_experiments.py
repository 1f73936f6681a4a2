"""How far the training path is from the rollout path: seeded runs on the sorting task, method by method.

Every function returns flat rows. The mechanism is an argument: a `Variant` says which method, how many bits of its
codes, in how many layers, and whether guidance goes to the wrong tokens (the placebo). Settings are chosen on
DESIGN_SEEDS; what a claim states comes from CLAIM_SEEDS, each with a checkpoint, prompts and training data of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import torch

from reprise.fp4.capture import Capture
from reprise.fp4.discrepancy import bit_recovery, corrections, path_discrepancy
from reprise.fp4.methods import BF16, Method, Path
from reprise.fp4.quant_path import quant_path
from reprise.labs import fp4_world as world
from reprise.labs.fp4_rl import Variant, own_logprobs

DESIGN_SEEDS = (0, 1, 2)
CLAIM_SEEDS = (101, 102, 103, 104, 105)

# our choice: from no staleness to a policy that clearly moved; k optimiser steps between rollout and trainer
STEPS_APART = (0, 1, 3, 10)
LR = 1e-5
SEQUENCES = 48
SWITCH_AFTER = 3  # answer tokens of the first policy, of six
CACHES = ("kept", "recomputed")  # what becomes of the prefix when an engine gets new weights


class Rollouts:
    """Trajectories of one policy on the rollout path of each method, sampled once for methods that share it.

    Args:
        model: the policy that generates.
        prompts: [sequences, tokens] int64.
        uniforms: [sequences, answer tokens]; the same draws for every method.
    """

    def __init__(self, model, prompts: np.ndarray, uniforms: np.ndarray):
        self.model, self.prompts, self.uniforms = model, prompts, uniforms
        self._made: dict[tuple, tuple[torch.Tensor, torch.Tensor, Capture]] = {}

    def of(self, method: Method) -> tuple[torch.Tensor, torch.Tensor, Capture]:
        """(ids [sequences, tokens], log-probabilities [sequences, answer tokens] float64, capture)."""
        key = (method.weights, method.rollout, method.kv_rollout, method.fmt)
        if key not in self._made:
            capture = Capture()
            with quant_path(self.model, method, path=Path.ROLLOUT, capture=capture):
                tokens, logps = world.sample(self.model, self.prompts, self.uniforms)
            ids = torch.from_numpy(np.hstack([self.prompts, tokens]))
            self._made[key] = ids, torch.from_numpy(logps), capture
        return self._made[key]


def guided_layers(variant: Variant, layers: int) -> range:
    """The last ones, as many as the variant says."""
    return range(layers - round(variant.last * layers), layers)


@torch.no_grad()
def training_pass(model, variant: Variant, ids: torch.Tensor, roll: Capture, rng, prompt: int = world.PROMPT_TOKENS):
    """The training path over the rollout's tokens and experts.

    Args:
        rng: NumPy generator of the order in which a permuted variant hands guidance to tokens.
        prompt: tokens of the prompt.

    Returns:
        (log-probabilities [sequences, answer tokens] float64, capture).
    """
    guide, seen = None, Capture()
    if variant.method.guided:
        order = torch.from_numpy(rng.permutation(ids.shape[1] - 1))
        guide = roll.tokens(order) if variant.permuted else roll
    layers = guided_layers(variant, model.config.num_hidden_layers)
    options = dict(guide=guide, replay=roll.routes or None, bits=variant.bits, layers=layers)
    with quant_path(model, variant.method, capture=seen, **options):
        return world.answer_logprobs(model, ids, prompt).double(), seen


def compare(rolls: Rollouts, trainers: Iterable[tuple[int, object]], variants: Iterable[Variant], rng) -> Iterator:
    """Both paths of every variant for every trainer.

    Args:
        trainers: (k, model), k steps newer than the rollout's.
        rng: NumPy generator for `training_pass`.

    Yields:
        (tag, row, train capture, rollout capture): tag has k and variant; row has gap, the mean of |log p_train -
        log p_roll| over answer tokens, and the columns of `transmission`.
    """
    prompt, variants = rolls.prompts.shape[1], list(variants)
    for k, new in trainers:
        references = {}
        for variant in variants:
            ids, logp_roll, roll = rolls.of(variant.method)
            logp, seen = training_pass(new, variant, ids, roll, rng, prompt)
            row = {"gap": float((logp - logp_roll).abs().mean())}
            if k:
                if id(ids) not in references:  # methods with the same rollout have the same changes
                    references[id(ids)] = changes(rolls.model, new, variant.method, ids, logp_roll, prompt)
                row |= transmission(logp - logp_roll, *references[id(ids)])
            yield {"k": k, "variant": variant.name}, row, seen, roll


def changes(old, new, method: Method, ids, logp_roll: torch.Tensor, prompt: int) -> tuple[torch.Tensor, torch.Tensor]:
    """How the answers' log-probabilities change from the old weights to the new ones, [sequences, answer tokens] each:
    on the rollout path of `method`, whose old ones are `logp_roll`, and unquantised."""
    own = own_logprobs(new, method, ids, prompt) - logp_roll
    return own, own_logprobs(new, BF16, ids, prompt) - own_logprobs(old, BF16, ids, prompt)


def transmission(seen: torch.Tensor, own: torch.Tensor, unquantised: torch.Tensor) -> dict:
    """How much of a policy's change arrives at the trainer.

    Args:
        seen: log p_train - log p_roll, [sequences, answer tokens].
        own, unquantised: of `changes`.

    Returns:
        own_gap: mean |own|, the change an importance weight is for; transmission: mean |seen| / own_gap; slope: of
        `seen` on `unquantised`, token by token and through the origin, 1 if the trainer sees the whole change.
    """
    own_gap = float(own.abs().mean())
    slope = float((seen * unquantised).sum() / unquantised.square().sum())
    return {"own_gap": own_gap, "transmission": float(seen.abs().mean()) / own_gap, "slope": slope}


def measure(
    seed: int,
    variants: Iterable[Variant],
    *,
    shipped=None,
    steps_apart: Iterable[int] = STEPS_APART,
    lr: float = LR,
    sequences: int = SEQUENCES,
    layers: int = 4,
    sites_of: Collection[str] = (),
) -> dict[str, list[dict]]:
    """Both paths of every variant on the sorting task.

    Args:
        seed: decides checkpoint (unless `shipped`), prompts, draws and what the trainer learnt meanwhile.
        variants: what is compared.
        shipped: path of a checkpoint to use instead of one trained from the seed.
        steps_apart: the values of k, ascending; a later trainer continues the earlier one.
        lr: of the steps between.
        sequences: trajectories.
        layers: of the model, if it is trained here.
        sites_of: names of the variants whose sites are compared too.

    Returns:
        Tables of rows with seed, layers, lr, k and variant. `gaps` as `compare` gives them; for `sites_of` also
        `sites`, `corrections` and `recovery`: the columns of `path_discrepancy`, `corrections` and `bit_recovery`, the
        last two where the whole rollout has E2M1 codes.
    """
    old, rng = policy(seed, shipped, layers)
    rolls = Rollouts(old, world.prompts(rng, sequences), rng.random((sequences, world.ANSWER_TOKENS)))
    study, shuffle = rng.spawn(2)
    tables = {name: [] for name in ("gaps", "sites", "corrections", "recovery")}
    for tag, row, seen, roll in compare(rolls, newer_versions(old, steps_apart, lr, study), variants, shuffle):
        tag = {"seed": seed, "layers": layers, "lr": lr} | tag
        tables["gaps"].append(tag | row)
        for name, frame in (site_tables(seen, roll) if tag["variant"] in sites_of else {}).items():
            tables[name] += [tag | each for each in frame.to_dict("records")]
    return tables


def site_tables(seen: Capture, roll: Capture) -> dict:
    """sites, and where the whole rollout has E2M1 codes corrections and recovery, as data frames."""
    frames = {"sites": path_discrepancy(seen, roll)}
    if all(site.codes is not None for site in roll.sites.values()):
        frames |= {"corrections": corrections(seen, roll), "recovery": bit_recovery(seen, roll)}
    return frames


def policy(seed: int, shipped=None, layers: int = 4) -> tuple:
    """(policy of the rollout, NumPy generator for everything after it)."""
    rng = np.random.default_rng([seed, layers])
    if shipped is not None:
        return world.load_checkpoint(shipped), rng
    return world.train_sft(seed, num_hidden_layers=layers), rng


def newer_versions(old, steps_apart: Iterable[int], lr: float, rng) -> Iterator[tuple[int, object]]:
    """(k, policy k optimiser steps newer), for ascending k; each continues the one before, with fresh moments."""
    new, done = old, 0
    for k in steps_apart:
        new, done = world.newer(new, k - done, lr, rng), k
        yield k, new


def mixed_versions(
    seed: int,
    variants: Iterable[Variant],
    *,
    shipped=None,
    k: int = 3,
    lr: float = LR,
    sequences: int = SEQUENCES,
) -> list[dict]:
    """Trajectories begun by one policy and finished by the next, and a trainer that is newer than both.

    After SWITCH_AFTER answer tokens the rollout gets weights k steps newer; the trainer's are another k newer. The
    second policy either goes on with the first one's keys and values (cache "kept"), or computes the whole prefix again
    ("recomputed"): that is what its guidance then describes, while the log-probabilities of the first tokens are still
    those of the policy that drew them.

    Returns:
        rows with seed, cache, variant, part ("first" or "second" policy's tokens), gap, own_gap and transmission as in
        `transmission`.
    """
    old, rng = policy(seed, shipped)
    asked, uniforms = world.prompts(rng, sequences), rng.random((sequences, world.ANSWER_TOKENS))
    study, shuffle = rng.spawn(2)
    (_, middle), (_, new) = newer_versions(old, (k, 2 * k), lr, study)
    rows = []
    for variant in variants:
        for cache in CACHES:
            ids, logp_roll, roll = _handed_over(old, middle, variant.method, asked, uniforms, SWITCH_AFTER, cache)
            logp, _ = training_pass(new, variant, ids, roll, shuffle)
            own = own_logprobs(new, variant.method, ids)
            for part, tokens in (("first", slice(SWITCH_AFTER)), ("second", slice(SWITCH_AFTER, None))):
                gap, change = (float((x - logp_roll)[:, tokens].abs().mean()) for x in (logp, own))
                row = {"seed": seed, "cache": cache, "variant": variant.name, "part": part}
                rows.append(row | {"gap": gap, "own_gap": change, "transmission": gap / change})
    return rows


def _handed_over(first, second, method: Method, asked, uniforms, at: int, cache: str):
    """ids, log-probabilities and capture of a rollout whose policy changes after `at` tokens."""
    capture = Capture()
    with quant_path(first, method, path=Path.ROLLOUT, capture=capture):
        tokens, logps, state = world.decode(first, asked, uniforms[:, :at])
    fed = tokens[:, -1:]
    if cache == "recomputed":
        fed, state, capture = np.hstack([asked, tokens]), None, Capture()
    with quant_path(second, method, path=Path.ROLLOUT, capture=capture):
        later, more, _ = world.decode(second, fed, uniforms[:, at:], state)
    ids = torch.from_numpy(np.hstack([asked, tokens, later]))
    return ids, torch.from_numpy(np.hstack([logps, more])), capture
