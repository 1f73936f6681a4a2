"""The two paths in a pretrained model: SmolLM2-135M, whose MLPs stand for the experts, or a checkpoint of yours."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch

from reprise.chat import LocalModel
from reprise.errors import RepriseError
from reprise.fp4.discrepancy import adjacent_share
from reprise.labs.fp4_experiments import Rollouts, compare, site_tables
from reprise.labs.fp4_rl import Variant
from reprise.labs.pretrained import sft_backward
from reprise.labs.verifiable_prompts import draw_tasks

# our choice, sized for one core: about 300 tokens a pass
SEQUENCES, ANSWER_TOKENS = 8, 12
LR = 1e-6
BETAS = (0.9, 0.95)


def measure(
    seed: int,
    variants: Iterable[Variant],
    *,
    model: str = "smollm2-135m",
    prompts: str = "sums",
    texts: Sequence[str] = (),
    steps_apart: Iterable[int] = (0, 1),
    lr: float = LR,
    device: str = "cpu",
) -> dict[str, list[dict]]:
    """As `fp4_experiments.measure`, with the tables it names.

    Args:
        seed: decides prompts, draws and training data.
        variants: what is compared.
        model: what `LocalModel` takes, a packaged model or a Hugging Face folder of a Llama or a Qwen3-MoE.
        prompts: a set of `verifiable_prompts`; between the two paths the model is trained on its right answers.
        texts: prompts of yours instead, cut on the left to the shortest.
        steps_apart, lr: AdamW steps between rollout and trainer, their numbers increasing.

    Raises:
        RepriseError: steps that do not increase.
        ModelUnavailable: the model is not installed.
        UnsupportedModel: its layers are not ones that `quant_path` knows.
    """
    steps_apart = list(steps_apart)
    if any(k <= before for before, k in pairwise([-1, *steps_apart])):
        raise RepriseError(f"steps_apart={steps_apart}: expected increasing numbers of steps from 0")
    local, rng = LocalModel(model, device=device), np.random.default_rng(seed)
    texts = list(texts) or [task.prompt for task in draw_tasks(prompts, rng, SEQUENCES)]
    encoded = [local.tokenizer(text).input_ids for text in texts]
    shortest = min(len(ids) for ids in encoded)
    asked = np.array([ids[-shortest:] for ids in encoded])
    rolls = Rollouts(local.model, asked, rng.random((len(asked), ANSWER_TOKENS)))
    study, shuffle = rng.spawn(2)
    tables = {name: [] for name in ("gaps", "sites", "corrections", "recovery")}
    trainers = _newer_versions(local, steps_apart, lr, prompts, study)
    for tag, row, seen, roll in compare(rolls, trainers, variants, shuffle):
        tag = {"seed": seed, "prompts": prompts, "lr": lr} | tag
        tables["gaps"].append(tag | row)
        for name, frame in site_tables(seen, roll).items():
            tables[name] += [tag | each for each in frame.to_dict("records")]
    return tables


def _newer_versions(local: LocalModel, steps_apart: Iterable[int], lr: float, prompts: str, rng) -> Iterator[tuple]:
    """(k, model after k AdamW steps on right answers), for ascending k."""
    new = SimpleNamespace(model=local.model, tokenizer=local.tokenizer, device=local.device)
    optimiser, done = None, 0
    for k in steps_apart:
        if k and optimiser is None:
            new.model = copy.deepcopy(local.model)
            optimiser = torch.optim.AdamW(new.model.parameters(), lr=lr, betas=BETAS, weight_decay=0.0)
        for _ in range(k - done):
            sft_backward(new, prompts, rng)
            optimiser.step()
            optimiser.zero_grad()
        done = k
        yield k, new.model


def figures(tables: dict[str, list[dict]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What is drawn and judged of one or several runs' tables.

    Returns:
        gaps, with adjacent (share of mismatching values that are one code apart) and one_bit (share of codes that one
        bit recovers), NaN without codes; and layers: relD of each seed, k, variant, layer and site to four digits.
    """
    gaps, keys = pd.DataFrame(tables["gaps"]), ["seed", "k", "variant"]
    near = {tag: adjacent_share(part) for tag, part in pd.DataFrame(tables["corrections"]).groupby(keys)}
    bits = pd.DataFrame(tables["recovery"]).query("b == 1")
    hits = bits.assign(hit=bits.recovered * bits["values"]).groupby(keys)[["hit", "values"]].sum()
    found = (hits.hit / hits["values"]).to_dict()
    for column, values in {"adjacent": near, "one_bit": found}.items():
        gaps[column] = [values.get((row.seed, row.k, row.variant), float("nan")) for row in gaps.itertuples()]
    layers = pd.DataFrame(tables["sites"])[[*keys, "layer", "site", "relD"]]
    return gaps, layers.assign(relD=[float(f"{x:.4g}") for x in layers.relD])
