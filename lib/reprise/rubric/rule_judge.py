"""A graph judge without a model: words shared by two criteria, and a table of what may depend on what.

It reads English and Chinese. It knows no domain, so it finds a dependence only where the texts show one: the same
subject named in both, or a condition ("if a dose is given, ...") that names the parent.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from reprise.rubric.graph import Criterion, EdgeType, Role
from reprise.rubric.judging import NO_EDGE, Label, Pair


class Category(StrEnum):
    """What a criterion asks the response to do; the first whose words occur in the text."""

    APPLIES = "applies"  # whether a condition of the case holds at all
    STYLE = "style"
    SUPPORT = "support"
    ACTION = "action"
    REASON = "reason"
    FACT = "fact"


_WORDS = {
    Category.APPLIES: (
        r"^whether\b|^applies (if|when)\b|^the (case|question|request|conversation) (involves|concerns|mentions)\b"
        r"|^是否|^适用于|^(本案|案件|问题|用户|回答)(是否)?涉及"
    ),
    Category.STYLE: (
        r"\b(tone|polite\w*|friendly|empath\w*|concise\w*|clear(ly)?|plain|readab\w*|format\w*|structur\w*|heading\w*"
        r"|grammar|jargon|layout|bullet\w*)\b|语气|礼貌|简洁|清晰|通俗|格式|结构|条理|排版|共情|安抚"
    ),
    Category.SUPPORT: (
        r"\b(cit(e|es|ed|ing|ation|ations)|quot\w+|sourc\w+|evidence|referenc\w+|examples?|illustrat\w+|footnote\w*)\b"
        r"|引用|援引|出处|依据|证据|举例|示例|条文|参考"
    ),
    Category.ACTION: (
        r"\b(recommend\w*|advis\w+|advice|propos\w+|suggest\w*|conclud\w+|calculat\w+|comput\w+|plans?|offers?|drafts?"
        r"|prescrib\w+|refers?)\b|建议|提出|结论|计算|方案|推荐|给出|起草|拟定"
    ),
    Category.REASON: (
        r"\b(explain\w*|analy[sz]\w+|compar\w+|justif\w+|reason\w*|why|because|interpret\w*|weigh\w*|discuss\w*)\b"
        r"|分析|解释|说明|论证|比较|理由|原因|阐述|权衡"
    ),
}
_PATTERNS = {category: re.compile(words, re.IGNORECASE) for category, words in _WORDS.items()}
_EXTRA = re.compile(r"\b(additional\w*|extra|optional\w*|bonus|goes beyond)\b|额外|加分|进一步", re.IGNORECASE)

# "if X, ..." and "... when X": the clause names what has to hold first
_CONDITIONS = re.compile(
    r"\b(?:if|when|once|after|provided that|given that|where)\b([^,.;:]+)"
    r"|(?:如果|若|一旦|假如|在)([^，。；：]+?)(?:的前提下|的基础上|的情况下|之后|时|后|，)",
    re.IGNORECASE,
)

# what a positive child may lean on, by what the parent asks for; a pair not listed has no edge
DEPENDENCE = {
    (Category.FACT, Category.REASON): EdgeType.STRONG,
    (Category.FACT, Category.ACTION): EdgeType.STRONG,
    (Category.FACT, Category.SUPPORT): EdgeType.STRONG,
    (Category.REASON, Category.ACTION): EdgeType.WEAK,
    (Category.REASON, Category.SUPPORT): EdgeType.WEAK,
    (Category.ACTION, Category.SUPPORT): EdgeType.WEAK,
}

SHARED = 0.25  # least share of common words, our choice; see `_Words.overlap`
SHARED_BY_CONDITION = 0.4  # the same for a clause, which is short

_STOP = frozenset(
    "the and for with that this from are its has have not but was will any all into than then them they their there "
    "response answer user should must does correctly clearly states state includes include provides provide gives give "
    "mentions mention makes make about each other such only also least one two specific appropriate relevant when "
    "which who what how where why whether being been can may could would".split()
)
_STOP_CHARACTERS = frozenset(
    "的了在是和与或及等对其该应否并有无能将为被把而且以从到由于中上下不个一二三四五六七八九十这那此所已可需要者们向就都也很更最"
)
_CJK_RUN = re.compile(r"[一-鿿]+")
_WORD = re.compile(r"[a-z][a-z0-9]{2,}|\d+(?:\.\d+)?")


class RuleJudge:
    """Judges roles and dependences by words; implements `GraphJudge`, deterministic, no network and no model.

    Roles: a negative weight is a penalty; a weight of 0, or a text that asks whether something applies, a trigger;
    style, support and what is called additional a bonus; everything else a foundation.

    Labels: an activation where the child shares words with its trigger; a prerequisite where the two share a subject
    and `DEPENDENCE` has an entry, or where a condition in the child names the parent. The confidence is the share of
    common words.
    """

    def roles(self, prompt: str, criteria: Sequence[Criterion]) -> list[Role]:
        return [_role(each) for each in criteria]

    def labels(self, prompt: str, criteria: Sequence[Criterion], pairs: Sequence[Pair]) -> list[Label]:
        words = _Words([each.text for each in criteria])
        return [_label(pair, criteria, words) for pair in pairs]

    async def aroles(self, prompt: str, criteria: Sequence[Criterion]) -> list[Role]:
        return self.roles(prompt, criteria)

    async def alabels(self, prompt: str, criteria: Sequence[Criterion], pairs: Sequence[Pair]) -> list[Label]:
        return self.labels(prompt, criteria, pairs)


def category(text: str) -> Category:
    """What a criterion asks for, by its words; a statement of fact if nothing else."""
    return next((each for each, pattern in _PATTERNS.items() if pattern.search(text)), Category.FACT)


def _role(criterion: Criterion) -> Role:
    if criterion.weight < 0:
        return Role.PENALTY
    kind = category(criterion.text)
    if criterion.weight == 0 or kind is Category.APPLIES:
        return Role.TRIGGER
    extra = kind in (Category.STYLE, Category.SUPPORT) or _EXTRA.search(criterion.text)
    return Role.BONUS if extra else Role.FOUNDATION


def _label(pair: Pair, criteria: Sequence[Criterion], words: _Words) -> Label:
    overlap, clause = words.overlap(pair.parent, pair.child), words.clause(pair.parent, pair.child)
    named = clause >= SHARED_BY_CONDITION
    if not named and overlap < SHARED:
        return Label(NO_EDGE, 1 - overlap)
    confidence = round(max(overlap, clause if named else 0.0), 6)
    if EdgeType.ACTIVATION in pair.allowed:
        return Label(EdgeType.ACTIVATION, confidence)
    if named:
        return Label(EdgeType.STRONG, confidence)
    above, below = criteria[pair.parent], criteria[pair.child]
    if below.weight < 0:
        return Label(EdgeType.WEAK, confidence)
    type = DEPENDENCE.get((category(above.text), category(below.text)))
    return Label(type, confidence) if type else Label(NO_EDGE, 1 - overlap)


class _Words:
    """The words of a rubric's criteria; rare ones weigh more, since all criteria share the rubric's subject."""

    def __init__(self, texts: Sequence[str]):
        self.sets = [_terms(text) for text in texts]
        self.clauses = [[_terms("".join(clause)) for clause in _CONDITIONS.findall(text)] for text in texts]
        found = Counter(term for terms in self.sets for term in terms)
        self.weight = {term: math.log(1 + len(texts) / count) for term, count in found.items()}

    def overlap(self, parent: int, child: int) -> float:
        """Weight of the common words over that of the shorter text, in [0, 1]."""
        return self._share(self.sets[parent], self.sets[child])

    def clause(self, parent: int, child: int) -> float:
        """The same for the child's condition that fits the parent best; 0 without a condition."""
        return max((self._share(self.sets[parent], clause) for clause in self.clauses[child]), default=0.0)

    def _share(self, one: frozenset[str], other: frozenset[str]) -> float:
        # in one order, so that sums do not depend on the interpreter's hash seed
        total = [math.fsum(self.weight[term] for term in sorted(terms)) for terms in (one, other, one & other)]
        return min(1.0, total[2] / min(total[:2])) if min(total[:2]) > 0 else 0.0


def _terms(text: str) -> frozenset[str]:
    """English words without endings, numbers, and pairs of Chinese characters."""
    terms = {_stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP}
    for run in _CJK_RUN.findall(text):
        terms.update(a + b for a, b in zip(run, run[1:], strict=False) if not {a, b} & _STOP_CHARACTERS)
    return frozenset(terms)


def _stem(word: str) -> str:
    """The word less a common ending; crude, and the same for both sides of a comparison."""
    for ending in ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word
