"""A causal language model of some hundred thousand weights that reads transcripts and writes verdicts.

Blocks are pre-norm with rotary positions, as in Llama. The attention mask and the positions are arguments, so that a
packed row of `reprise.audit.packed` costs one pass; `sample` reads each transcript once and writes all responses to all
of its prefixes behind it. Weights and uniforms come from NumPy. Numbers are float32: half the time of float64, and no
result of training is compared to more than two digits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from reprise.audit.packed import PackedBatch, branch_sums, token_logprobs
from reprise.durable import atomic_write
from reprise.errors import RepriseError
from reprise.labs.audit_vocabulary import CLOSE, RESPONSE_TOKENS, Vocabulary
from reprise.labs.qwen3_moe import draw_weights

ROTARY_BASE = 1000.0  # our choice for rows of some hundred tokens
CHECKPOINT_BYTES = 4_000_000


class AuditModelError(RepriseError):
    """A checkpoint or a shape that the model cannot take."""


class Block(nn.Module):
    """Attention and a feed-forward layer of four times the width."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def project(self, x, rotary):
        """Queries, keys and values (..., heads, head width), rotated."""
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return rotate(q, rotary), rotate(k, rotary), v

    def close(self, x, attended):
        x = x + self.out(attended.flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class AuditLM(nn.Module):
    """Logits (rows, tokens, vocabulary) of ids and positions (rows, tokens) under mask (rows, tokens, tokens)."""

    def __init__(self, vocabulary: Vocabulary, width: int = 64, layers: int = 3, heads: int = 4):
        super().__init__()
        self.vocabulary, self.shape = vocabulary, {"width": width, "layers": layers, "heads": heads}
        self.embed = nn.Embedding(len(vocabulary), width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)

    def forward(self, ids, positions, mask):
        x, rotary = self.embed(ids), self.rotary(positions)
        for block in self.blocks:
            q, k, v = (each.transpose(1, 2) for each in block.project(x, rotary))
            x = block.close(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None]).transpose(1, 2))
        return self.logits(x)

    def rotary(self, positions):
        half = self.shape["width"] // self.shape["heads"] // 2
        angle = positions[..., None] * ROTARY_BASE ** (-torch.arange(half) / half)
        return angle.cos()[..., None, :], angle.sin()[..., None, :]

    def logits(self, x):
        return self.norm(x) @ self.embed.weight.T


def rotate(x, rotary):
    cos, sin = rotary
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def build(rng: np.random.Generator, vocabulary: Vocabulary, **shape) -> AuditLM:
    """A model with matrices from N(0, 0.02) and norm weights 1.

    Args:
        shape: width, layers, heads.
    """
    return draw_weights(AuditLM(vocabulary, **shape), rng)


def copy_of(model: AuditLM) -> AuditLM:
    """The same weights in a model of its own."""
    twin = AuditLM(model.vocabulary, **model.shape)
    twin.load_state_dict(model.state_dict())
    return twin


def run_packed(model: AuditLM, batch: PackedBatch):
    """(rows, tokens, vocabulary) logits of packed rows."""
    return model(*(torch.from_numpy(each) for each in (batch.ids, batch.positions, batch.mask)))


def response_logprobs(model: AuditLM, batch: PackedBatch):
    """(branches,) log-probability of each whole response."""
    return branch_sums(token_logprobs(run_packed(model, batch), batch), batch)


class Reader:
    """Transcripts read once, to be continued from any of their prefixes.

    Args:
        model: whose keys and values are kept.
        transcripts: token ids of each run.
    """

    def __init__(self, model: AuditLM, transcripts: Sequence[Sequence[int]]):
        self.model, width = model, max(map(len, transcripts))
        ids = torch.zeros(len(transcripts), width, dtype=torch.long)
        for row, tokens in zip(ids, transcripts, strict=True):
            row[: len(tokens)] = torch.tensor(tokens)
        x, rotary = model.embed(ids), model.rotary(torch.arange(width))
        self.kept = []
        for block in model.blocks:
            q, k, v = block.project(x, rotary)
            q, *kv = (each.transpose(1, 2) for each in (q, k, v))
            self.kept.append(kv)
            x = block.close(x, F.scaled_dot_product_attention(q, *kv, is_causal=True).transpose(1, 2))
        self.ids, self.hidden = ids, x

    def surprise(self):
        """(rows, tokens - 1) negative log-probability of every token but the first, in nats."""
        logp = self.model.logits(self.hidden[:, :-1]).log_softmax(-1)
        return -logp.gather(-1, self.ids[:, 1:, None])[..., 0]

    def branches(self, ends) -> Branches:
        """Continuations behind the first ends[row, branch] tokens of each row."""
        return Branches(self, torch.as_tensor(ends))


class Branches:
    """All branches of all rows, one token further at a time; each sees its prefix and itself."""

    def __init__(self, reader: Reader, ends):
        self.reader, self.ends, self.done = reader, ends, 0
        self.sees = torch.arange(reader.ids.shape[1]) < ends[..., None]  # rows, branches, tokens
        self.kept = [None] * len(reader.model.blocks)

    def step(self, tokens):
        """(rows, branches, vocabulary) logits behind `tokens` (rows, branches), which are kept."""
        model = self.reader.model
        x, rotary = model.embed(tokens), model.rotary(self.ends + self.done)
        for n, block in enumerate(model.blocks):
            q, k, v = block.project(x, rotary)
            own = (k[:, :, None], v[:, :, None])  # rows, branches, own tokens, heads, head width
            if self.done:
                own = tuple(torch.cat(pair, 2) for pair in zip(self.kept[n], own, strict=True))
            self.kept[n] = own
            x = block.close(x, self._attend(q, *self.reader.kept[n], *own))
        self.done += 1
        return model.logits(x)

    def _attend(self, q, keys, values, own_keys, own_values):
        scale, shared = q.shape[-1] ** -0.5, keys.shape[2]
        before = (q.transpose(1, 2) @ keys.transpose(2, 3)).masked_fill(~self.sees[:, None], -torch.inf)
        own = (q[:, :, None] * own_keys).sum(-1).permute(0, 3, 1, 2)  # rows, heads, branches, own tokens
        weight = (torch.cat([before, own], -1) * scale).softmax(-1)
        from_own = (weight[..., shared:].permute(0, 2, 3, 1)[..., None] * own_values).sum(2)
        return (weight[..., :shared] @ values).transpose(1, 2) + from_own


@torch.no_grad()
def respond(model: AuditLM, transcripts, ends, question: str, uniforms: np.ndarray | None = None) -> np.ndarray:
    """Responses to a question behind every given prefix.

    Args:
        transcripts: token ids of each run.
        ends: (runs, branches) transcript tokens that each branch sees.
        question: the word that is asked.
        uniforms: (runs, branches, RESPONSE_TOKENS) draws from [0, 1) that decide the tokens; None takes the likeliest.

    Returns:
        (runs, branches, RESPONSE_TOKENS) int64; what stands behind the closing word is padding (0).
    """
    ends = np.asarray(ends)
    branches = Reader(model, transcripts).branches(ends)
    close = model.vocabulary.ids[CLOSE]
    tokens = torch.full(ends.shape, model.vocabulary.ids[question])
    found, over = np.zeros((*ends.shape, RESPONSE_TOKENS), dtype=np.int64), np.zeros(ends.shape, dtype=bool)
    for t in range(RESPONSE_TOKENS):
        logits = branches.step(tokens)
        if uniforms is None:
            tokens = logits.argmax(-1)
        else:
            # compared in float64, so that a draw decides alike wherever the probabilities agree
            below = logits.double().softmax(-1).cumsum(-1)
            tokens = (below < torch.from_numpy(uniforms[..., t, None])).sum(-1).clamp(max=logits.shape[-1] - 1)
        found[..., t] = np.where(over, 0, tokens.numpy())
        over |= found[..., t] == close
        if over.all():
            break
    return found


@torch.no_grad()
def next_words(model: AuditLM, transcripts, ends, question: str, words: Sequence[str], said: Sequence[str] = ()):
    """(runs, branches, words) log-probabilities of the next word behind a question and the words already said."""
    branches = Reader(model, transcripts).branches(np.asarray(ends))
    for word in (question, *said):
        logits = branches.step(torch.full(branches.ends.shape, model.vocabulary.ids[word]))
    return logits.log_softmax(-1)[..., [model.vocabulary.ids[word] for word in words]].double().numpy()


def save(model: AuditLM, path: Path) -> str:
    """Write weights (BF16), shape and vocabulary as safetensors; returns the file's SHA-256."""
    from safetensors.torch import save as encode

    weights = {name: value.bfloat16().contiguous() for name, value in model.state_dict().items()}
    # one entry, because several would be written in an order that changes from call to call
    data = encode(weights, metadata={"model": json.dumps({"shape": model.shape, "words": model.vocabulary.words})})
    atomic_write(path, data)
    return hashlib.sha256(data).hexdigest()


def load(path: Path) -> AuditLM:
    """The model of a file that `save` wrote, in float32.

    Raises:
        AuditModelError: the file is larger than any of ours, or not one of them.
    """
    from safetensors import SafetensorError, safe_open

    if path.stat().st_size > CHECKPOINT_BYTES:
        raise AuditModelError(f"{path}: {path.stat().st_size} bytes: expected at most {CHECKPOINT_BYTES}")
    try:
        with safe_open(path, "pt") as file:
            found = file.metadata() or {}
            weights = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118 - not a dict
        described = json.loads(found["model"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise AuditModelError(f"{path}: {error!r}: expected a checkpoint that `save` wrote") from None
    model = AuditLM(Vocabulary(tuple(described["words"])), **described["shape"])
    model.load_state_dict(weights)
    return model
