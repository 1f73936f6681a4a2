"""The training stages of an auditor on labelled runs: preference pairs, supervised verdicts, policy gradient.

Every stage trains a model in place and returns its curve, one dictionary a step. All draws come from the generator that
is passed; responses are sampled from uniforms of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from reprise.audit.boundary_pairs import BoundaryPrompt, Side, boundary_prompts, bppo_loss, preference_pair
from reprise.audit.packed import PackedBatch, pack_prefixes, stack, token_logprobs
from reprise.audit.reward import DEFAULT, RewardConfig, verdict_reward
from reprise.audit.verdict import SAFE, alarm
from reprise.labs.audit_model import AuditLM, response_logprobs, run_packed
from reprise.labs.audit_prompts import AuditTrainingError, Prompt, Runs, draw_prompts
from reprise.labs.audit_vocabulary import REASONS, RESPONSE_TOKENS, VERDICT
from reprise.policy_gradient import dead_groups, group_advantages, grpo_loss

GROUP = 8  # responses a prompt (the paper's G)
PAIR_GROUP = 16  # responses a boundary prompt from which a pair is kept; our choice, the paper gives no number
BATCH = 16  # pairs, half of each side (the paper's effective batch)
PROMPTS = 32  # prompts a step of stage 2 (the paper's)
KL_WEIGHT = 1e-3
BETAS, CLIP = (0.9, 0.95), 1.0
WARMUP = 0.1  # share of the steps of stage 1; its schedule is a cosine, that of stage 2 constant


@dataclass(frozen=True)
class Pair:
    """Responses to one boundary prompt, chosen and rejected, in tokens; and what the base gives them."""

    prompt: Prompt
    side: Side
    chosen: tuple[int, ...]
    rejected: tuple[int, ...]
    reference: tuple[float, float] = (0.0, 0.0)


def collect_pairs(model: AuditLM, data: Runs, rng: np.random.Generator, group: int = PAIR_GROUP):
    """Preference pairs from responses that the base itself gives to both sides of every boundary.

    Returns:
        pairs, with the reference log-probabilities of `model`; and counts: prompts and pairs of each side, as
        {"BS prompts": .., "BS pairs": .., "BE prompts": .., "BE pairs": ..}.
    """
    asked: list[tuple[Prompt, BoundaryPrompt]] = []
    for n, run in enumerate(data.runs):
        if run.decisive_step is not None:
            asked += [
                (Prompt(n, each.last, each.optimum.step, each.optimum.agent), each) for each in boundary_prompts(run)
            ]
    pairs, counts = [], {f"{side} {what}": 0 for side in Side for what in ("prompts", "pairs")}
    for begin in range(0, len(asked), 64):
        part = asked[begin : begin + 64]
        responses = data.sample(model, [prompt for prompt, _ in part], rng, group)
        for (prompt, boundary), rows in zip(part, responses, strict=True):
            counts[f"{boundary.side} prompts"] += 1
            found = preference_pair(boundary, data.verdicts(prompt, rows))
            if found:
                counts[f"{boundary.side} pairs"] += 1
                pairs.append(Pair(prompt, boundary.side, *(data.cut(rows[k]) for k in found)))
    return with_reference(model, data, pairs), counts


@torch.no_grad()
def with_reference(model: AuditLM, data: Runs, pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with the model's log-probabilities as reference."""
    found = []
    for begin in range(0, len(pairs), 64):
        part = pairs[begin : begin + 64]
        values = response_logprobs(model, pair_rows(data, part)).view(-1, 2).tolist()
        found += [Pair(p.prompt, p.side, p.chosen, p.rejected, tuple(v)) for p, v in zip(part, values, strict=True)]
    return found


def pair_rows(data: Runs, pairs: Sequence[Pair]):
    """One packed row a pair: the prefix, then the chosen and the rejected response."""
    ask = [data.vocabulary.ids[VERDICT]]
    prefixes = [data.prefix(pair.prompt) for pair in pairs]
    return stack(
        [
            pack_prefixes(prefix, [(len(prefix), pair.chosen), (len(prefix), pair.rejected)], ask)
            for prefix, pair in zip(prefixes, pairs, strict=True)
        ]
    )


def optimiser_of(model: AuditLM):
    return torch.optim.AdamW(model.parameters(), betas=BETAS, weight_decay=0.0, fused=True)


def _update(model, optimiser, loss, lr: float) -> None:
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimiser.param_groups[0]["lr"] = lr
    optimiser.step()
    optimiser.zero_grad()


def _cosine(step: int, steps: int, lr: float) -> float:
    return lr * min(1.0, (step + 1) / max(1, WARMUP * steps)) * 0.5 * (1 + np.cos(np.pi * step / steps))


def train_bppo(
    model: AuditLM,
    data: Runs,
    pairs: Sequence[Pair],
    rng: np.random.Generator,
    *,
    steps: int,
    lr: float,
    anchor: float = 0.0,
    sides: Sequence[Side] = tuple(Side),
) -> list[dict]:
    """Stage 1, on pairs of the named sides; a batch has as many of one as of the other.

    Returns:
        curve: loss, preference (share of pairs the policy prefers more than the base does), chosen (mean log pi(v*|x)).
    """
    optimiser, curve = optimiser_of(model), []
    pools = [[pair for pair in pairs if pair.side == side] for side in sides]
    if not all(pools):
        counts = ", ".join(f"{len(pool)} {side}" for pool, side in zip(pools, sides, strict=True))
        raise AuditTrainingError(f"pairs: {counts}: expected some of each side")
    for step in range(steps):
        batch = [pool[i] for pool in pools for i in rng.integers(len(pool), size=BATCH // len(sides))]
        chosen, rejected = response_logprobs(model, pair_rows(data, batch)).view(-1, 2).unbind(-1)
        ref_chosen, ref_rejected = torch.tensor([pair.reference for pair in batch]).unbind(-1)
        at_error = torch.tensor([pair.side == Side.AT_ERROR for pair in batch])
        loss = bppo_loss(
            chosen, rejected, ref_chosen, ref_rejected, at_error, anchor=anchor, allow_single_side=len(sides) == 1
        )
        margin = chosen - ref_chosen - rejected + ref_rejected
        curve.append({"step": step, "loss": loss.item(), "preference": (margin > 0).double().mean().item()})
        curve[-1]["chosen"] = chosen.mean().item()
        _update(model, optimiser, loss, _cosine(step, steps, lr))
    return curve


def train_sft(
    model: AuditLM, data: Runs, rng: np.random.Generator, *, steps: int, lr: float, p_safe: float = 0.5
) -> list[dict]:
    """Cross-entropy of the right verdicts, on the prompts of stage 2; the reason is drawn at random."""
    optimiser, curve, ask = optimiser_of(model), [], [data.vocabulary.ids[VERDICT]]
    for step in range(steps):
        prompts, rows = draw_prompts(data, rng, PROMPTS, p_safe), []
        for prompt in prompts:
            gold = SAFE if prompt.step is None else alarm(prompt.step, prompt.agent, str(rng.choice(REASONS)))
            prefix = data.prefix(prompt)
            rows.append(pack_prefixes(prefix, [(len(prefix), data.vocabulary.verdict(gold))], ask))
        parts = [stack([rows[i] for i in part]) for part in data.by_length(prompts)]
        loss = -torch.cat([response_logprobs(model, part) for part in parts]).mean()
        curve.append({"step": step, "loss": loss.item()})
        _update(model, optimiser, loss, _cosine(step, steps, lr))
    return curve


def train_grpo(
    model: AuditLM,
    reference: AuditLM,
    data: Runs,
    rng: np.random.Generator,
    *,
    steps: int,
    lr: float,
    p_safe: float = 0.5,
    reward: RewardConfig = DEFAULT,
) -> list[dict]:
    """Stage 2: groups of sampled verdicts, the three-axis reward, one update a batch.

    Args:
        reference: anchors the divergence; the paper takes the model that stage 2 starts from.

    Returns:
        curve: reward, alarms (share of alarms), invalid (share of responses that are no verdict), dead (share of
        groups without a gradient), kl.
    """
    optimiser, curve = optimiser_of(model), []
    for step in range(steps):
        prompts = draw_prompts(data, rng, PROMPTS, p_safe)
        responses = data.sample(model, prompts, rng, GROUP)
        verdicts = [data.verdicts(prompt, rows) for prompt, rows in zip(prompts, responses, strict=True)]
        rewards = np.array(
            [
                [verdict_reward(v, p.step, p.agent, reward) for v in said]
                for p, said in zip(prompts, verdicts, strict=True)
            ]
        )
        said = [verdict for group in verdicts for verdict in group]
        groups = np.repeat(np.arange(len(prompts)), GROUP)
        curve.append(
            {
                "step": step,
                "reward": rewards.mean(),
                "alarms": np.mean([verdict.is_alarm for verdict in said]),
                "invalid": np.mean([not verdict.valid for verdict in said]),
                "dead": dead_groups(rewards.ravel(), groups) / len(prompts),
            }
        )
        advantages = group_advantages(rewards.ravel(), groups)
        if advantages.any():
            loss = _grpo_step(model, reference, data, prompts, responses, advantages)
            _update(model, optimiser, loss, lr)
    return curve


def _grpo_step(model, reference, data: Runs, prompts, responses, advantages):
    """The loss of a batch, from its live groups.

    Equal responses to one prompt share a branch: their tokens have the same probabilities. A group of equal rewards has
    no policy gradient; its divergence, weighted by `KL_WEIGHT`, is left out, and the mean is over all tokens still.
    """
    advantages = advantages.reshape(len(prompts), -1)
    live = np.flatnonzero(advantages.any(1))
    tokens = sum(len(data.cut(row)) for group in responses for row in group)
    prompts, responses, advantages = [prompts[i] for i in live], responses[live], advantages[live]
    tables, order = [], data.by_length(prompts)
    for part in order:
        batch, copies = _packed_groups(data, [prompts[i] for i in part], responses[part])
        lengths = np.bincount(batch.branch, minlength=batch.branches)
        within = np.arange(len(batch.branch)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        place = torch.from_numpy(batch.branch), torch.from_numpy(within)
        with torch.no_grad():
            ref = token_logprobs(run_packed(reference, batch), batch)
        rows = [
            values.new_zeros(batch.branches, RESPONSE_TOKENS).index_put(place, values)[copies]
            for values in (token_logprobs(run_packed(model, batch), batch), ref)
        ]
        tables.append([*rows, torch.from_numpy((np.arange(RESPONSE_TOKENS) < lengths[:, None])[copies])])
    new, ref, mask = (torch.cat(each) for each in zip(*tables, strict=True))
    weights = torch.from_numpy(advantages[np.concatenate(order)].ravel()).to(new)
    return grpo_loss(new, new.detach(), ref, weights, mask, kl_weight=KL_WEIGHT) * mask.sum() / tokens


def _packed_groups(data: Runs, prompts, responses) -> tuple[PackedBatch, list[int]]:
    """A row a prompt with each different response once, and the branch of every response."""
    rows, copies, first = [], [], 0
    for prompt, group in zip(prompts, responses, strict=True):
        prefix, branch = data.prefix(prompt), {}
        copies += [first + branch.setdefault(data.cut(row), len(branch)) for row in group]
        rows.append(pack_prefixes(prefix, [(len(prefix), row) for row in branch], [data.vocabulary.ids[VERDICT]]))
        first += len(branch)
    return stack(rows), copies
