"""A tuner that is a language model: asks, reads the reply, asks again where it must, and counts every repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from reprise.memory import prompts
from reprise.memory.errors import InvalidGuidance
from reprise.memory.items import Draft, Failure, Item
from reprise.memory.notes import Guidance, Note
from reprise.memory.replies import BadReply, json_in

Ask = Callable[[str, float, int], str | None]
# temperatures of the released code
SUBJECT, EXTRACT, MERGE = 0.1, 0.5, 0.3
UNCLASSIFIED = "unclassified"


class ChatTuner:
    """`Tuner` over a function that completes a prompt.

    Args:
        ask: (prompt, temperature, attempt) -> reply, None where none came; what was kept of one attempt must not
            be given for the next.
        parse_retries: how often subjects are asked for again.
        domain: ends the subject of failures that could not be classified.

    Attributes:
        repairs: how often which repair was needed: "subjects asked again", "subjects given up", "guidance asked again",
            "guidance given up", "merge given up".
    """

    def __init__(self, ask: Ask, parse_retries: int = 2, domain: str = "general"):
        self._ask, self._retries, self._domain = ask, parse_retries, domain
        self.repairs: Counter[str] = Counter()

    def subjects(self, failures: Sequence[Failure]) -> list[str]:
        """One subject a failure; after the retries all of them are unclassified, so that no batch is lost."""
        prompt = prompts.for_subjects(failures)
        for attempt in range(self._retries + 1):
            self.repairs["subjects asked again"] += attempt > 0
            try:
                found = json_in(self._ask(prompt, SUBJECT, attempt), list)
            except BadReply:
                continue
            if len(found) == len(failures) and all(isinstance(text, str) and text.strip() for text in found):
                return [" ".join(text.split()) for text in found]
        self.repairs["subjects given up"] += 1
        return [f"{UNCLASSIFIED}/{self._domain}"] * len(failures)

    def extract(self, subject: str, failures: Sequence[Failure], passed: Sequence[Item]) -> Draft | None:
        """The note of a cluster; asked for once more where a part is missing, then given up."""
        guidance = self._guidance(prompts.for_extraction(subject, failures, passed), EXTRACT)
        return Draft(subject, guidance[1]) if guidance else None

    def merge(self, existing: Sequence[Note], draft: Draft) -> Draft | None:
        """One note for all; its subject is the reply's, or the new one's where the reply has none."""
        found = self._guidance(prompts.for_merge(existing, draft), MERGE)
        if found is None:
            self.repairs["merge given up"] += 1
            return None
        subject = found[0].get("subject")
        return Draft(subject if isinstance(subject, str) and subject.strip() else draft.subject, found[1])

    def _guidance(self, prompt: str, temperature: float) -> tuple[dict, Guidance] | None:
        for attempt in range(2):
            self.repairs["guidance asked again"] += attempt
            try:
                reply = json_in(self._ask(prompt, temperature, attempt), dict)
                return reply, Guidance.from_json(reply)
            except (BadReply, InvalidGuidance):
                continue
        self.repairs["guidance given up"] += 1
        return None
