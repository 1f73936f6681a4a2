"""What a causal language model makes of every turn of a run, in one forward pass: two baselines that need no training.

surprise   mean negative log-likelihood of the turn's tokens given the turns before it (length-normalised perplexity)
p_yes      after turns 0..k, the model's share of yes, among yes and no, for "does the last turn contain the error?"

Both see a prefix only. The transcript is read once; the N questions stand behind it as branches, each of which sees
its own prefix (`reprise.audit.packed`).
Source: AgentForesight, method baselines: Perplexity (first turn whose normalised log-likelihood crosses a threshold)
and Reflexion, p_ok = P(no) / (P(yes) + P(no)); the wording and the cut are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reprise.audit.errors import AuditError
from reprise.audit.packed import Packed, pack_prefixes
from reprise.chat import NO, YES, LocalModel
from reprise.traces import Turn

QUESTION = "\nDoes the last turn contain the error that makes this run fail? Answer Yes or No."
OPENING = "The log of a run of several agents, turn by turn:\n"
GAP = " ... "


@dataclass(frozen=True)
class TurnScores:
    """Of each turn, (N,) float64: `surprise` in nats a token, 0 where a turn has none, and `p_yes` in [0, 1]; and
    `tokens`, (N,) int64, scored."""

    surprise: np.ndarray
    p_yes: np.ndarray
    tokens: np.ndarray


@dataclass(frozen=True)
class Layout:
    """A run as tokens: `ids` of the prompt up to the last turn, `ends` (N,) where each turn ends, and which tokens
    are a turn's own words: `scored` their places, `owner` their turns. `branch` is the question that follows."""

    ids: list[int]
    ends: list[int]
    scored: list[int]
    owner: list[int]
    branch: list[int]


def lay_out(local: LocalModel, turns: Sequence[Turn], turn_tokens: int) -> Layout:
    """The run and the question in the model's chat template; of a long turn the first and last tokens are kept.

    Args:
        local: a chat model.
        turns: at least one.
        turn_tokens: tokens kept of each turn's content, half from either end; at least 2.

    Raises:
        AuditError: no turn, turn_tokens below 2, or a model without a chat template.
    """
    if not turns:
        raise AuditError("turns=(): expected at least one turn")
    if turn_tokens < 2:
        raise AuditError(f"turn_tokens={turn_tokens}: expected at least 2")
    if not local.tokenizer.chat_template:
        raise AuditError(f"{local.folder.name}: no chat template: expected an instruction-tuned model")

    def ids_of(text: str) -> list[int]:
        return local.tokenizer(text, add_special_tokens=False).input_ids

    mark = "@@"  # the template around a user's message, told apart by what stands in its place
    whole = local.tokenizer.apply_chat_template(
        [{"role": "user", "content": mark}], tokenize=False, add_generation_prompt=True
    )
    before, _, after = whole.rpartition(mark)
    ids, ends, scored, owner, gap = ids_of(before + OPENING), [], [], [], ids_of(GAP)
    for k, turn in enumerate(turns):
        ids += ids_of(f"[{k}] {turn.role}: ")
        # an empty turn still ends its line, which most tokenizers have a token for
        words = ids_of(turn.content.strip() + "\n")
        half = turn_tokens // 2
        pieces = [words] if len(words) <= turn_tokens else [words[: turn_tokens - half], words[-half:]]
        for p, piece in enumerate(pieces):
            ids += gap if p else []
            scored += range(len(ids), len(ids) + len(piece))
            owner += [k] * len(piece)
            ids += piece
        ends.append(len(ids))
    return Layout(ids, ends, scored, owner, ids_of(QUESTION + after))


def turn_scores(local: LocalModel, turns: Sequence[Turn], turn_tokens: int = 64) -> TurnScores:
    """Surprise and p_yes of every turn.

    Args:
        local: a causal chat model.
        turns: the run, at least one turn.
        turn_tokens: see `lay_out`.

    Raises:
        AuditError: see `lay_out`; or the run is longer than the model's context.
    """
    import torch

    layout = lay_out(local, turns, turn_tokens)
    longest = local.model.config.max_position_embeddings
    if len(layout.ids) + len(layout.branch) > longest:
        raise AuditError(f"turns: {len(layout.ids)} tokens: expected at most {longest}, with turn_tokens smaller")
    # a branch's last token predicts the answer: a response of one token that nothing reads marks the place
    packed = pack_prefixes(layout.ids, [(end, [0]) for end in layout.ends], layout.branch)
    scored, owner = np.array(layout.scored), np.array(layout.owner)
    with torch.inference_mode():
        logits = _logits(local, packed, np.concatenate([scored - 1, packed.predictor]))
        words = logits[: len(scored)].log_softmax(-1).gather(-1, torch.from_numpy(packed.ids[scored])[:, None])[:, 0]
        answers = logits[len(scored) :].double()
    counts = np.bincount(owner, minlength=len(turns))
    surprise = -np.bincount(owner, words.double().numpy(), len(turns)) / np.maximum(counts, 1)
    yes, no = (torch.logsumexp(answers[:, local._single_tokens(each)], -1) for each in (YES, NO))
    return TurnScores(surprise, torch.sigmoid(yes - no).numpy(), counts)


def _logits(local: LocalModel, packed: Packed, places: np.ndarray):
    """(places, vocabulary) logits on the CPU; only these rows meet the vocabulary."""
    import torch

    device, least = local.device, torch.finfo(local.model.dtype).min
    seen = torch.from_numpy(packed.mask).to(device)
    mask = torch.zeros(seen.shape, dtype=local.model.dtype, device=device).masked_fill_(~seen, least)
    return (
        local.model(
            input_ids=torch.from_numpy(packed.ids)[None].to(device),
            position_ids=torch.from_numpy(packed.positions)[None].to(device),
            attention_mask=mask[None, None],
            logits_to_keep=torch.from_numpy(places).to(device),
            use_cache=False,
        )
        .logits[0]
        .float()
        .cpu()
    )


def first_crossing(scores: Sequence[float], threshold: float) -> int | None:
    """The first turn whose score is at least the threshold, None where none is.

    >>> first_crossing([0.1, 0.7, 0.9], 0.5)
    1
    """
    return next((k for k, score in enumerate(scores) if score >= threshold), None)
