"""A small language model as an agent: it picks one of several texts, or writes one.

A model that is too small to write a query or a tool call can still say which of the legal ones it would rather write.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

import numpy as np

from reprise.chat import LocalModel
from reprise.errors import RepriseError

Messages = Sequence[Mapping[str, str]]


class KeptPrompt:
    """Keys and values of the last prompt read, so that the next one is read from where the two differ.

    One belongs to one model; its answers equal those without it up to the rounding of the arithmetic.

    Attributes:
        read: tokens the model has read in prompts so far, and `shared`, those it did not have to.
    """

    def __init__(self):
        self.read = self.shared = 0
        self._ids: list[int] = []
        self._cache = None

    def forward(self, local: LocalModel, ids: Sequence[int]):
        """(keys and values of `ids`, logits (vocabulary,) of the token after them)."""
        import torch
        from transformers import DynamicCache

        pairs = zip(self._ids, ids[:-1], strict=False)  # one token must be left, or there would be no logits
        same = next((k for k, (a, b) in enumerate(pairs) if a != b), min(len(self._ids), len(ids) - 1))
        if not same:
            self._cache = DynamicCache()
        elif same < len(self._ids):
            self._cache.crop(same - len(self._ids))
        new = torch.tensor([ids[same:]], device=local.device)
        logits = _logits(local, new, self._cache, logits_to_keep=1)[0, -1]
        self._ids, self.read, self.shared = list(ids), self.read + len(ids) - same, self.shared + same
        return self._cache, logits


def choose(
    local: LocalModel, messages: Messages, options: Sequence[str], prefix: str = "", kept: KeptPrompt | None = None
) -> tuple[int, np.ndarray]:
    """The option the model would most likely write next, by mean log-likelihood a token.

    The prompt is read once; all options are then scored together from its keys and values.

    Args:
        messages: {role, content} turns; the model's chat template is applied and its reply opened.
        options: texts, each tokenised by itself: a blank before a word belongs here, not at the end of `prefix`.
        prefix: how the reply begins, the same for every option.
        kept: reads only what the last prompt did not begin with.

    Returns:
        (index of the largest score, the first one of equals; scores (options,) float64, natural logarithms a token).

    Raises:
        RepriseError: no option, an option without a token, or a model that cannot chat.
    """
    import torch

    texts = [local.tokenizer(option, add_special_tokens=False).input_ids for option in options]
    if not texts or not all(texts):
        raise RepriseError(f"options={list(options)!r}: expected at least one, each of at least one token")
    ids = _ids(local, messages, prefix)
    with torch.inference_mode():
        cache, first = (kept or KeptPrompt()).forward(local, ids)
        first = torch.log_softmax(first.double(), -1)
        total = first[[text[0] for text in texts]]
        longest = max(map(len, texts))
        if longest > 1:
            # what stands to the right of a token does not change its logits: padding needs no mask
            padded = torch.tensor([text + [0] * (longest - len(text)) for text in texts], device=local.device)
            cache.batch_repeat_interleave(len(texts))
            logits = _logits(local, padded[:, :-1], cache)
            cache.batch_select_indices(torch.tensor([0], device=local.device))
            cache.crop(1 - longest)
            wanted = torch.log_softmax(logits.double(), -1).gather(-1, padded[:, 1:, None])[..., 0]
            lengths = torch.tensor([len(text) for text in texts], device=local.device)
            inside = torch.arange(1, longest, device=local.device) < lengths[:, None]
            total = total + (wanted * inside).sum(1)
    scores = total.cpu().numpy() / [len(text) for text in texts]
    return int(np.argmax(scores)), scores


def generate(
    local: LocalModel,
    messages: Messages | str,
    max_new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
    kept: KeptPrompt | None = None,
    stop: str | None = None,
) -> str:
    """What the model writes, up to its end-of-turn token, a number of tokens, or a text that ends it.

    Args:
        messages: turns, with the chat template applied; or a text that is continued as it stands.
        max_new_tokens: at least 1.
        temperature: 0 takes the likeliest token each time; above, tokens are drawn in float64.
        seed: of the draws.
        kept: reads only what the last prompt did not begin with; what is written is forgotten again.
        stop: text that ends the reply, and stands at or near its end.

    Raises:
        RepriseError: an argument outside its range, or a model that cannot chat.
    """
    import torch

    if max_new_tokens < 1:
        raise RepriseError(f"max_new_tokens={max_new_tokens}: expected at least 1")
    if temperature < 0:
        raise RepriseError(f"temperature={temperature}: expected at least 0")
    rng = np.random.default_rng(seed)
    written, ids = [], _ids(local, messages, "")
    with torch.inference_mode():
        cache, logits = (kept or KeptPrompt()).forward(local, ids)
        while len(written) < max_new_tokens:
            token = _drawn(logits.double().cpu().numpy(), temperature, rng)
            if token == local.tokenizer.eos_token_id:
                break
            written.append(token)
            if stop is not None and stop in local.tokenizer.decode(written, skip_special_tokens=True):
                break
            logits = _logits(local, torch.tensor([[token]], device=local.device), cache)[0, -1]
        if behind := cache.get_seq_length() - len(ids):
            cache.crop(-behind)
    return local.tokenizer.decode(written, skip_special_tokens=True)


def _ids(local: LocalModel, messages: Messages | str, prefix: str) -> list[int]:
    if not local.model.can_generate():
        raise RepriseError(f"{local.folder.name}: {type(local.model).__name__} predicts no next token")
    text = messages
    if not isinstance(messages, str):
        if not local.tokenizer.chat_template:
            raise RepriseError(f"{local.folder.name}: no chat template: expected an instruction-tuned model")
        text = local.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    ids = local.tokenizer(text + prefix, add_special_tokens=False).input_ids
    if not ids:
        raise RepriseError(f"messages={messages!r}: expected at least one token")
    return ids


def _logits(local: LocalModel, ids, cache, **settings):
    """Logits of a forward that reads and extends `cache`, whose argument transformers renamed."""
    parameters = inspect.signature(local.model.forward).parameters
    name = "cache" if "cache" in parameters else "past_key_values"
    return local.model(ids, **{name: cache}, use_cache=True, **settings).logits


def _drawn(logits: np.ndarray, temperature: float, rng: np.random.Generator) -> int:
    if temperature == 0:
        return int(np.argmax(logits))
    weights = np.exp((logits - logits.max()) / temperature)
    return int(min(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum(), side="right"), len(weights) - 1))
