"""A causal language model as an auditor that reads every turn once, however often it is asked.

The prompt of the append layout only ever grows: transcript, then the question. Keys and values of what was read stay
in the cache; a new turn is appended, the question is read, the answer is scored or decoded, and question and answer
are cropped off again. Over a run of N turns the model reads |transcript| + N |question| tokens instead of the sum of
all prefixes, and answers as if it had read each prefix anew, up to the rounding of the arithmetic. A prefix that does
not continue the last one (another run, a turn that was taken back) is read from where the two differ.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from reprise.audit.errors import AuditError
from reprise.audit.prompt import build_messages
from reprise.audit.verdict import SAFE, Verdict, alarm, parse_verdict
from reprise.chat import LocalModel
from reprise.chat_choose import KeptPrompt, generate
from reprise.traces import Turn

# the reply up to the verdict, in the format that `parse_verdict` reads
OPENING = '<think></think><answer>{"answer":'
CLOSING = "</answer>"


class StreamAuditor:
    """An auditor for `replay` and `OnlineAuditor(..., ask=None)`: turns 0..k in, a verdict out.

    Called, it looks only at the verdicts that exist, SAFE and an alarm at each visible turn, so that its verdict is
    always valid: it compares how likely the answer begins like SAFE and like any of the turns, and for an alarm spells
    the likeliest turn out, token by token. The agent is that turn's speaker. `respond` lets the model write instead.

    Args:
        local: a chat model on this machine.
        threshold: alarm where the log-odds of an alarm exceed it; 0 takes the likelier side.
        build: chat messages from turns; text that depends on k must stand behind the transcript to be worth a cache.
        keep: False reads every prompt from its beginning, for comparison.

    Attributes:
        read, shared: prompt tokens the model has read, and those it did not have to.

    Raises:
        AuditError: a threshold that is no number. When called: no chat template, a prompt longer than the model's
            context, or a tokenizer that does not tell SAFE and the turns apart.
    """

    def __init__(
        self,
        local: LocalModel,
        threshold: float = 0.0,
        build: Callable[[Sequence[Turn]], Sequence[Mapping[str, str]]] = build_messages,
        keep: bool = True,
    ):
        if np.isnan(threshold):
            raise AuditError("threshold=nan: expected a number that compares with log-odds")
        self.local, self.threshold, self.build, self.keep = local, threshold, build, keep
        self.read = self.shared = 0
        self._kept = KeptPrompt()
        self._lock = threading.Lock()  # a call that timed out may still be reading

    def __call__(self, prefix: Sequence[Turn]) -> Verdict:
        odds = self.log_odds(prefix)
        if not odds > self.threshold:
            return SAFE
        step = self.likeliest_step(prefix)
        return alarm(step, prefix[step].role, f"log-odds {odds:.3g}")

    def log_odds(self, prefix: Sequence[Turn]) -> float:
        """log P(the answer begins like a turn's number) - log P(it begins like SAFE), over single tokens."""
        ids, safe, steps = self._options(prefix)
        first = sorted({option[0] for option in steps})
        with self._lock, self._reading() as after:
            scores = after(ids)
        return float(np.logaddexp.reduce(scores[first]) - scores[safe[0]])

    def likeliest_step(self, prefix: Sequence[Turn]) -> int:
        """The turn whose number the model would write, each token the likeliest that still spells a visible turn."""
        ids, _, steps = self._options(prefix)
        open_, spelt = dict(enumerate(steps)), 0
        with self._lock, self._reading() as after:
            while len(open_) > 1:
                allowed = sorted({option[spelt] for option in open_.values()})
                token = allowed[int(np.argmax(after(ids)[allowed]))] if len(allowed) > 1 else allowed[0]
                open_ = {step: option for step, option in open_.items() if option[spelt] == token}
                ids, spelt = [*ids, token], spelt + 1
        return next(iter(open_))

    def respond(self, prefix: Sequence[Turn], max_new_tokens: int = 200) -> tuple[Verdict, str]:
        """The verdict that the model writes, and its text. Greedy, as in the paper; ends at the closed answer."""
        kept = self._kept if self.keep else None
        with self._lock:
            text = generate(self.local, self.build(prefix), max_new_tokens, kept=kept, stop=CLOSING)
        return parse_verdict(text, len(prefix) - 1, {turn.role for turn in prefix}), text

    def _options(self, prefix: Sequence[Turn]) -> tuple[list[int], list[int], list[list[int]]]:
        """Tokens up to where the verdicts differ, and from there on those of SAFE and of each visible turn."""
        tokenizer = self.local.tokenizer
        if not tokenizer.chat_template:
            raise AuditError(f"{self.local.folder.name}: no chat template: expected an instruction-tuned model")
        messages = list(self.build(prefix))
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) + OPENING
        # the comma ends a number: turn 1 is not the beginning of turn 12
        options = [' "SAFE"', *(f" {step}," for step in range(len(prefix)))]
        ids, *tokens = (tokenizer(each, add_special_tokens=False).input_ids for each in (text, *options))
        same = next((k for k, column in enumerate(zip(*tokens, strict=False)) if len(set(column)) > 1), None)
        if (
            same is None
            or len(set(map(tuple, tokens))) < len(tokens)
            or tokens[0][same] in [t[same] for t in tokens[1:]]
        ):
            raise AuditError(f"{self.local.folder.name}: the tokenizer does not tell the verdicts apart")
        ids = [*ids, *tokens[0][:same]]
        longest = self.local.model.config.max_position_embeddings
        if len(ids) + max(map(len, tokens)) > longest:
            raise AuditError(f"prefix: {len(prefix)} turns are {len(ids)} tokens: expected at most {longest}")
        return ids, tokens[0][same:], [option[same:] for option in tokens[1:]]

    @contextmanager
    def _reading(self):
        """A function from tokens to the log-probabilities (vocabulary,) of the token after them."""
        import torch

        kept = self._kept if self.keep else KeptPrompt()
        before = kept.read, kept.shared
        with torch.inference_mode():
            yield lambda ids: kept.forward(self.local, ids)[1].double().log_softmax(-1).cpu().numpy()
        self.read += kept.read - before[0]
        self.shared += kept.shared - before[1]


def prompt_tokens(
    turns: Sequence[Turn],
    encode: Callable[[str], Sequence[int]],
    build: Callable[[Sequence[Turn]], Sequence[Mapping[str, str]]] = build_messages,
) -> tuple[int, int]:
    """Tokens a model reads over a whole run: (every prompt from its beginning, only what the last one did not have).

    Args:
        turns: of one run.
        encode: tokens of a text; the prompt is the contents of the messages, one after another.
        build: chat messages from turns.
    """
    last, whole, new = [], 0, 0
    for k in range(len(turns)):
        ids = list(encode("\n".join(message["content"] for message in build(turns[: k + 1]))))
        same = next((i for i, (a, b) in enumerate(zip(last, ids, strict=False)) if a != b), min(len(last), len(ids)))
        whole, new, last = whole + len(ids), new + len(ids) - same, ids
    return whole, new
