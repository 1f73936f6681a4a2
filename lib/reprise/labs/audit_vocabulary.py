"""Words of a small auditor: transcripts become token ids, token ids become the text of a verdict.

A turn is its number, its speaker, its action and the words of its content:

    #2 MathSolver compute 14 + 5 = 19 ;

The numbers of turns are words of their own, so that a step in a verdict is a copy of the one in the transcript and no
number of a sum is mistaken for it. Numbers that the vocabulary lacks are spelled in digits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from reprise.audit.verdict import Verdict, parse_verdict
from reprise.errors import RepriseError
from reprise.traces import Turn

PIECES = re.compile(r"\d+|[A-Za-z_]\w*|\S")
PAD, UNKNOWN, START, TURN_END = "<pad>", "<unk>", "<run>", ";"
# what is asked behind a prefix: a verdict, whether the last turn holds an error, how promising the run looks
VERDICT, ERROR, RATE = "<verdict?>", "<error?>", "<rate?>"
QUESTIONS = (VERDICT, ERROR, RATE)
YES, NO = "yes", "no"
RATINGS = ("Sure", "Likely", "Impossible")
SAFE_WORD, NULL = "SAFE", "null"
THINK, ANSWER, AGENT, REASON, CLOSE = (
    "<think>",
    '</think><answer>{"answer": ',
    ', "agent": ',
    ', "reason": ',
    "}</answer>",
)
FRAME = (THINK, ANSWER, AGENT, REASON, CLOSE)
REASONS = ("value", "check", "report")  # our three, drawn at random in the base's training: no metric reads them
STEPS = 40  # the step budget of a run
RESPONSE_TOKENS = 10  # a verdict has 8; a longer response is cut and then invalid
DIGITS = tuple("0123456789")


class VocabularyError(RepriseError):
    """A text or a word that the vocabulary cannot hold."""


@dataclass(frozen=True)
class Vocabulary:
    """Every word, in the order of its id."""

    words: tuple[str, ...]

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: k for k, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def turn(self, k: int, turn: Turn) -> list[int]:
        """Token ids of turn number k.

        Raises:
            VocabularyError: k is outside the step budget.
        """
        if not 0 <= k < STEPS:
            raise VocabularyError(f"turn={k}: expected 0..{STEPS - 1}")
        content = [piece for word in PIECES.findall(turn.content) for piece in self._known(word)]
        return [self.ids[f"#{k}"], *self._encode([turn.role, turn.action, *content, TURN_END])]

    def transcript(self, turns: Sequence[Turn]) -> tuple[list[int], list[int]]:
        """Token ids of a run behind a start mark, and the number of tokens up to the end of each turn."""
        tokens, ends = [self.ids[START]], []
        for k, turn in enumerate(turns):
            tokens += self.turn(k, turn)
            ends.append(len(tokens))
        return tokens, ends

    def verdict(self, verdict: Verdict) -> list[int]:
        """Token ids of a valid verdict's text.

        Raises:
            VocabularyError: it is not valid, or its agent is no word here.
        """
        if not verdict.valid or verdict.is_alarm and verdict.agent not in self.ids:
            raise VocabularyError(f"verdict={verdict}: expected a valid one, of an agent in the vocabulary")
        step = f"#{verdict.step}" if verdict.is_alarm else SAFE_WORD
        agent, reason = (verdict.agent, verdict.reason or REASONS[0]) if verdict.is_alarm else (NULL, NULL)
        return self._encode([THINK, ANSWER, step, AGENT, agent, REASON, reason, CLOSE])

    def text(self, tokens: Iterable[int]) -> str:
        """What the tokens say in a response: words in quotes, numbers bare, the frame as it is."""
        return "".join(self._literal(self.words[token]) for token in tokens)

    @lru_cache(maxsize=100_000)  # noqa: B019 - one vocabulary a process, and most responses repeat
    def parse(self, tokens: tuple[int, ...], last: int, roles: frozenset[str]) -> Verdict:
        """The verdict that a response on turns 0..last reads as."""
        return parse_verdict(self.text(tokens), last, roles)

    def _literal(self, word: str) -> str:
        if word in FRAME or word == NULL:
            return word
        return word.removeprefix("#") if word.removeprefix("#").isdigit() else json.dumps(word)

    def _known(self, word: str) -> Sequence[str]:
        return [word] if word in self.ids or not word.isdigit() else list(word)

    def _encode(self, words: Iterable[str]) -> list[int]:
        unknown = self.ids[UNKNOWN]
        return [self.ids.get(word, unknown) for word in words]


def build_vocabulary(runs: Iterable[Sequence[Turn]]) -> Vocabulary:
    """All words of `runs`, and those of questions and verdicts."""
    found = set()
    for turns in runs:
        for turn in turns:
            found |= {turn.role, turn.action, *PIECES.findall(turn.content)}
    fixed = (PAD, UNKNOWN, START, TURN_END, *QUESTIONS, YES, NO, *RATINGS, SAFE_WORD, NULL, *FRAME, *REASONS, *DIGITS)
    steps = tuple(f"#{k}" for k in range(STEPS))
    return Vocabulary((*fixed, *steps, *sorted(found - {*fixed, *steps})))
