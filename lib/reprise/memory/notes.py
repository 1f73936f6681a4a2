"""A note: what went wrong with a kind of question, in five parts, under a subject it is found by.

Mistake Notebook Learning, section 3.2: an entry is (subject, guidance, embedding of the subject), and guidance has five
fields. How a note that is too long is shortened is our choice: parts give way in the order of `SACRIFICE`, each at the
end of a word, since a cut at a fixed length loses the part that says when a note does not apply.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from reprise.memory.errors import InvalidGuidance, MemoryFault

MAX_EXAMPLES = 3
TITLES = {
    "corrected_examples": "Corrected examples",
    "correct_approach": "Correct approach",
    "mistake_summary": "What went wrong",
    "generalizable_strategy": "Strategy",
    "anti_patterns": "Avoid",
}
TEXTS = tuple(TITLES)[1:]
# which parts give way first when a note is too long; examples are dropped whole, from the last
SACRIFICE = ("correct_approach", "mistake_summary", "generalizable_strategy", "anti_patterns")
SHORTEST = 40  # characters a part keeps while another one can still give way


@dataclass(frozen=True)
class Guidance:
    """The five parts of a note; none is empty.

    Attributes:
        corrected_examples: 1 to 3 worked cases.
        correct_approach: how this kind of question is answered.
        mistake_summary: what was done instead.
        generalizable_strategy: the rule beyond these cases.
        anti_patterns: what not to do, and where the note does not apply.

    Raises:
        InvalidGuidance: a part is missing, empty or of another type.
    """

    corrected_examples: tuple[str, ...]
    correct_approach: str
    mistake_summary: str
    generalizable_strategy: str
    anti_patterns: str

    def __post_init__(self):
        examples = self.corrected_examples
        if not isinstance(examples, tuple) or not 1 <= len(examples) <= MAX_EXAMPLES:
            raise InvalidGuidance(f"corrected_examples={examples!r}: expected 1 to {MAX_EXAMPLES} texts")
        parts = {f"corrected_examples[{k}]": text for k, text in enumerate(examples)}
        parts |= {name: getattr(self, name) for name in TEXTS}
        for name, text in parts.items():
            if not isinstance(text, str) or not text.strip():
                raise InvalidGuidance(f"{name}={text!r}: expected a text that is not empty")

    @classmethod
    def from_json(cls, value: Mapping) -> Guidance:
        """The guidance in a tuner's JSON object; examples beyond the third are left out, one alone may be a string.

        Raises:
            InvalidGuidance: the value is no object, or a part is missing or empty.
        """
        if not isinstance(value, Mapping):
            raise InvalidGuidance(f"guidance={type(value).__name__}: expected an object with {', '.join(TITLES)}")
        missing = [name for name in TITLES if name not in value]
        if missing:
            raise InvalidGuidance(f"guidance: {', '.join(missing)} missing")
        examples = value["corrected_examples"]
        examples = [examples] if isinstance(examples, str) else examples
        if not isinstance(examples, list | tuple):
            raise InvalidGuidance(f"corrected_examples={examples!r}: expected a list of texts")
        return cls(tuple(examples[:MAX_EXAMPLES]), **{name: value[name] for name in TEXTS})

    def to_json(self) -> dict:
        """A JSON object that `from_json` reads back to an equal value."""
        return {name: list(v) if isinstance(v := getattr(self, name), tuple) else v for name in TITLES}

    def render(self, limit: int = 2048) -> str:
        """The note as it stands in a prompt, at most `limit` characters, every title kept.

        Args:
            limit: characters (the public SQL example's value).

        Raises:
            MemoryFault: `limit` cannot hold the titles and a few words of each part.
        """
        parts = self.to_json()
        while len(_layout(parts)) > limit and parts["corrected_examples"]:
            parts["corrected_examples"] = parts["corrected_examples"][:-1]
        for floor in (SHORTEST, 8):
            for name in SACRIFICE:
                excess = len(_layout(parts)) - limit
                if excess > 0:
                    parts[name] = _shortened(parts[name], max(floor, len(parts[name]) - excess))
        text = _layout(parts)
        if len(text) > limit:
            raise MemoryFault(f"limit={limit}: expected at least {len(text)} characters for a note of five parts")
        return text


@dataclass(frozen=True)
class Evidence:
    """What a note rests on: ids of items it corrects, and of items it must leave alone; the last 12 of each."""

    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    KEPT = 12  # our choice

    def merged(self, other: Evidence) -> Evidence:
        """The union, later ones last, each id once."""

        def union(a, b):
            return tuple(dict.fromkeys([*(item for item in a if item not in b), *b]))[-self.KEPT :]

        return Evidence(union(self.positives, other.positives), union(self.negatives, other.negatives))


@dataclass(frozen=True)
class Note:
    """An entry of the memory.

    Attributes:
        subject: the kind of question, in the tuner's words; what is embedded.
        guidance: its five parts.
        supersedes: ids of the notes it replaced.
        evidence: the items it rests on.
        kind: "note", or "heuristic" for what practice found.
        payload: what a program obeys beside the text (a structured hint, a setting); plain JSON.
    """

    subject: str
    guidance: Guidance
    supersedes: tuple[str, ...] = ()
    evidence: Evidence = Evidence()
    kind: str = "note"
    payload: str = "null"

    def __post_init__(self):
        if not isinstance(self.subject, str) or not self.subject.strip():
            raise MemoryFault(f"subject={self.subject!r}: expected a text that is not empty")
        if self.kind not in ("note", "heuristic"):
            raise MemoryFault(f"kind={self.kind!r}: expected note or heuristic")

    @property
    def id(self) -> str:
        """16 hexadecimal digits of the SHA-256 of its content: the same note has the same id everywhere."""
        text = json.dumps(self.to_json(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict:
        """A JSON object that `from_json` reads back to an equal note."""
        return {
            "subject": self.subject,
            "guidance": self.guidance.to_json(),
            "supersedes": list(self.supersedes),
            "positives": list(self.evidence.positives),
            "negatives": list(self.evidence.negatives),
            "kind": self.kind,
            "payload": self.payload,
        }

    @classmethod
    def from_json(cls, value: Mapping) -> Note:
        """Raises MemoryFault where a field is missing or not what a note needs."""
        try:
            return cls(
                subject=value["subject"],
                guidance=Guidance.from_json(value["guidance"]),
                supersedes=tuple(value["supersedes"]),
                evidence=Evidence(tuple(value["positives"]), tuple(value["negatives"])),
                kind=value["kind"],
                payload=value["payload"],
            )
        except KeyError as error:
            raise MemoryFault(f"note: field {error.args[0]!r} is missing") from None


def _layout(parts: Mapping) -> str:
    blocks = []
    for name, title in TITLES.items():
        text = parts[name]
        if isinstance(text, list):
            text = "\n".join(f"- {example}" for example in text) or "- (left out)"
            blocks.append(f"{title}:\n{text}")
        else:
            blocks.append(f"{title}: {text}")
    return "\n".join(blocks)


def _shortened(text: str, length: int) -> str:
    """At most `length` characters, cut behind a word, with an ellipsis; texts already short enough stay."""
    if len(text) <= length:
        return text
    cut = text[: length - 1]
    words = cut.rfind(" ")
    return (cut[:words] if words > length // 2 else cut).rstrip(" ,;:") + "…"
