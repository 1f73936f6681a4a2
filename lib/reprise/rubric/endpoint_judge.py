"""A judge behind an OpenAI-compatible endpoint: roles and labels of a rubric, and scores of a response.

Answers are asked for as JSON by a schema; an endpoint that refuses schemas is asked for plain JSON from then on. What
comes back is checked against the question, and only an answer that passed is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reprise.chat_endpoint import Endpoint, EndpointError, EndpointRefused
from reprise.chat_replay import Completion, ReplayCache, chat_request
from reprise.rubric.graph import Criterion, RubricGraph
from reprise.rubric.judge_questions import Question, ask_labels, ask_roles, ask_scores
from reprise.rubric.judging import JudgeFailed, Label, Pair
from reprise.rubric.validate import normalise_verdict

NO_SUCH_FORMAT = (400, 415, 422, 501)  # statuses by which endpoints refuse a response format
PLAIN = {"type": "json_object"}
HOPELESS = (401, 403, 404)  # wrong key or model: no smaller batch would fare better


class OpenAIJudge:
    """Implements `GraphJudge`, `AsyncGraphJudge` and, when called, `Scorer`.

    While a graph is built, a reply that does not fit the question fails its batch, which is then halved, and an
    endpoint that cannot be reached ends the building: with a cache, what was answered need not be asked again. While
    responses are scored, both leave the response without scores (NaN), for the caller's policy on missing ones.

    Args:
        base_url, model: of the endpoint.
        cache: of checked answers; None asks anew each time.
        policy: for a verdict and a probability that contradict each other; see `normalise_verdict`.
        endpoint: further arguments of `reprise.chat_endpoint.Endpoint`, such as key_variable.

    Attributes:
        contradictions: verdicts met so far whose probability said the opposite.

    Raises:
        ScoreError: an unknown policy.  EndpointError: base_url is no address.
    """

    def __init__(
        self, base_url: str, model: str, *, cache: ReplayCache | None = None, policy: str = "flip", **endpoint: Any
    ):
        normalise_verdict(True, 1.0, policy)  # refuses an unknown policy before anything is asked
        self.chat = Endpoint(base_url, model, **endpoint)
        self.cache, self.policy, self.contradictions = cache, policy, 0
        self._schemas = True  # until the endpoint refuses one

    def roles(self, prompt: str, criteria: Sequence[Criterion]) -> list[str]:
        return self._answer(ask_roles(prompt, criteria))

    async def aroles(self, prompt: str, criteria: Sequence[Criterion]) -> list[str]:
        return await self._aanswer(ask_roles(prompt, criteria))

    def labels(self, prompt: str, criteria: Sequence[Criterion], pairs: Sequence[Pair]) -> list[Label]:
        return self._answer(ask_labels(prompt, criteria, pairs))

    async def alabels(self, prompt: str, criteria: Sequence[Criterion], pairs: Sequence[Pair]) -> list[Label]:
        return await self._aanswer(ask_labels(prompt, criteria, pairs))

    def __call__(self, prompt: str, response: str, graph: RubricGraph) -> list[float]:
        """Probability of each criterion's event; NaN for all of them if there was no usable answer."""
        try:
            return self._probabilities(self._answer(ask_scores(prompt, response, graph.criteria)))
        except (JudgeFailed, EndpointError) as error:
            return _missing(error, len(graph))

    async def ascore(self, prompt: str, response: str, graph: RubricGraph) -> list[float]:
        """The same, awaited: pass `judge.ascore` where an asynchronous scorer is wanted."""
        try:
            return self._probabilities(await self._aanswer(ask_scores(prompt, response, graph.criteria)))
        except (JudgeFailed, EndpointError) as error:
            return _missing(error, len(graph))

    def _probabilities(self, verdicts: Sequence[tuple[bool, float]]) -> list[float]:
        found = [normalise_verdict(met, probability, self.policy) for met, probability in verdicts]
        self.contradictions += sum(contradicts for _, contradicts in found)
        return [p for p, _ in found]

    def _answer(self, question: Question) -> list:
        if (kept := self._kept(question)) is not None:
            return kept
        for form in (forms := self._forms(question)):
            try:
                reply = self.chat.chat(question.messages, form)
            except EndpointRefused as error:
                _refused(error, last=form is forms[-1])
            else:
                return self._read(question, reply, form)

    async def _aanswer(self, question: Question) -> list:
        if (kept := self._kept(question)) is not None:
            return kept
        for form in (forms := self._forms(question)):
            try:
                reply = await self.chat.achat(question.messages, form)
            except EndpointRefused as error:
                _refused(error, last=form is forms[-1])
            else:
                return self._read(question, reply, form)

    def _forms(self, question: Question) -> list[dict[str, Any]]:
        """Response formats to ask for, in order."""
        schema = {"name": question.name, "strict": True, "schema": question.schema}
        return [{"type": "json_schema", "json_schema": schema}, PLAIN] if self._schemas else [PLAIN]

    def _kept(self, question: Question) -> list | None:
        kept = None if self.cache is None else self.cache.get(self._request(question))
        return None if kept is None else question.read(kept.text)

    def _request(self, question: Question) -> dict[str, Any]:
        # the schema and not the response format: which of the two the endpoint takes is no part of the question
        settings = dict(temperature=self.chat.temperature, max_tokens=self.chat.max_tokens)
        return chat_request(self.chat.model, question.messages, **settings, extra={"schema": question.schema})

    def _read(self, question: Question, reply: Completion, form: Mapping[str, Any]) -> list:
        if form is PLAIN:  # taken where a schema was not: that was refused, and not the question
            self._schemas = False
        if reply.finish == "length":
            raise JudgeFailed(f"{question.name}: the reply was cut off: expected a shorter one, or more max_tokens")
        answer = question.read(reply.text)
        if self.cache is not None:
            self.cache.put(self._request(question), reply)
        return answer


def _refused(error: EndpointRefused, last: bool) -> None:
    """Return where another response format may be taken; else the question failed, or all of them will."""
    if error.status in HOPELESS:
        raise error
    if last or error.status not in NO_SUCH_FORMAT:
        raise JudgeFailed(str(error)) from error


def _missing(error: Exception, criteria: int) -> list[float]:
    if isinstance(error, EndpointRefused) and error.status in HOPELESS:
        raise error
    return [math.nan] * criteria
