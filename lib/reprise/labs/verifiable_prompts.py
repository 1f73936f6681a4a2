"""Short prompts whose answers a program checks, and completions of them drawn from a real model.

Each prompt shows three solved cases and asks for a fourth, which a small base model can often do and sometimes not:
a group of completions then has different rewards, and GRPO has something to learn from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from reprise.errors import RepriseError

CAPITALS = {
    "France": "Paris",
    "Japan": "Tokyo",
    "Italy": "Rome",
    "Egypt": "Cairo",
    "Spain": "Madrid",
    "Norway": "Oslo",
    "Peru": "Lima",
    "Cuba": "Havana",
    "Greece": "Athens",
    "Austria": "Vienna",
    "Ireland": "Dublin",
    "Poland": "Warsaw",
    "Kenya": "Nairobi",
    "Sweden": "Stockholm",
    "Hungary": "Budapest",
    "Portugal": "Lisbon",
    "China": "Beijing",
    "Germany": "Berlin",
}
OPPOSITES = {
    "big": "small",
    "hot": "cold",
    "up": "down",
    "fast": "slow",
    "old": "new",
    "light": "dark",
    "open": "closed",
    "high": "low",
    "left": "right",
    "rich": "poor",
    "good": "bad",
    "happy": "sad",
    "wet": "dry",
    "hard": "soft",
    "early": "late",
    "day": "night",
    "push": "pull",
    "first": "last",
}


class PromptError(RepriseError):
    """An unknown prompt set, or completions that cannot be drawn as asked."""


@dataclass(frozen=True)
class Task:
    """A prompt and the one line that answers it."""

    prompt: str
    answer: str

    def reward(self, completion: str) -> float:
        """1 if the completion's first line is the answer, else 0; surrounding blanks and a final stop are allowed."""
        return float(completion.split("\n")[0].strip().rstrip(".") == self.answer)


def _sums(rng: np.random.Generator) -> Task:
    # both digits from 5 to 9: every sum has two digits
    pairs = rng.integers(5, 10, (4, 2)).tolist()
    solved = [f"{a} + {b} = {a + b}" for a, b in pairs]
    return Task("\n".join([*solved[:3], "{} + {} =".format(*pairs[3])]), str(sum(pairs[3])))


def _table(sentence: str, answers: dict[str, str]):
    def draw(rng: np.random.Generator) -> Task:
        *shown, asked = rng.choice(list(answers), 4, replace=False).tolist()
        lines = [sentence.format(word) + f" {answers[word]}" for word in shown]
        return Task("\n".join([*lines, sentence.format(asked)]), answers[asked])

    return draw


PROMPT_SETS = {
    "sums": _sums,
    "capitals": _table("The capital of {} is", CAPITALS),
    "opposites": _table("The opposite of {} is", OPPOSITES),
}


def draw_tasks(name: str, rng: np.random.Generator, count: int) -> list[Task]:
    """`count` tasks of a prompt set.

    Raises:
        PromptError: unknown set; the known ones are named.
    """
    if name not in PROMPT_SETS:
        raise PromptError(f"prompts={name!r}: expected one of {', '.join(PROMPT_SETS)}")
    return [PROMPT_SETS[name](rng) for _ in range(count)]


@dataclass(frozen=True)
class Completions:
    """Sampled completions of several prompts.

    Attributes:
        ids: (sequences, tokens) int64, prompts padded on the left, completions on the right.
        attention: same shape, int64; 1 where there is a token.
        mask: same shape, bool; True where the model generated the token, its end mark included.
        texts: what was generated, one string a sequence.
        groups: (sequences,) number of the prompt.
    """

    ids: torch.Tensor
    attention: torch.Tensor
    mask: torch.Tensor
    texts: list[str]
    groups: np.ndarray


def sample(
    model, tokenizer, prompts: list[str], rng: np.random.Generator, *, completions: int, tokens: int
) -> Completions:
    """Draw `completions` of each prompt at temperature 1, up to the first line break or `tokens` tokens.

    Every token comes from a NumPy uniform against the float64 distribution function, so that a seed gives the same
    completions wherever the probabilities agree.
    """
    from transformers import LogitsProcessor

    class Draw(LogitsProcessor):
        def __call__(self, ids, scores):
            cumulative = torch.softmax(scores.cpu().double(), -1).cumsum(-1)
            aims = torch.from_numpy(rng.random((len(scores), 1))) * cumulative[:, -1:]
            chosen = torch.searchsorted(cumulative, aims, right=True).clamp(max=scores.shape[1] - 1)
            return torch.full_like(scores, -torch.inf).scatter_(1, chosen.to(scores.device), 0.0)

    tokenizer.padding_side = "left"
    batch = tokenizer([p for p in prompts for _ in range(completions)], return_tensors="pt", padding=True)
    batch = batch.to(model.device)
    line_break = tokenizer("\n", add_special_tokens=False).input_ids
    ends = [*line_break, tokenizer.eos_token_id]
    options = {
        "do_sample": False,
        "max_new_tokens": tokens,
        "eos_token_id": ends,
        "pad_token_id": tokenizer.pad_token_id,
    }
    with torch.no_grad():
        ids = model.generate(batch.input_ids, attention_mask=batch.attention_mask, logits_processor=[Draw()], **options)
    start = batch.input_ids.shape[1]
    new = ids[:, start:]
    ended = torch.isin(new, torch.tensor(ends, device=ids.device)).long()
    generated = ended.cumsum(1) - ended == 0
    mask = torch.cat([torch.zeros_like(batch.input_ids, dtype=torch.bool), generated], 1)
    attention = torch.cat([batch.attention_mask, generated.long()], 1)
    texts = [tokenizer.decode(row[keep], skip_special_tokens=True) for row, keep in zip(new, generated, strict=True)]
    return Completions(ids, attention, mask, texts, np.arange(len(prompts)).repeat(completions))
