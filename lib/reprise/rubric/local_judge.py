"""A language model on this machine as a scorer of simple criteria, one criterion and one response at a time.

Two ways of asking. In words: the share of "yes" in the next token. By likelihood: how much likelier the statement
becomes behind the response, which a model too small to answer questions can still show. Either is compared with what
the same criterion gets behind a text without content. `reprise.labs.judge_noise` measures how wrong both are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reprise.chat import LocalModel
from reprise.rubric.graph import RubricGraph
from reprise.rubric.scores import choose

ASK = ("likelihood", "yes_no")
QUESTION = "Text:\n{response}\n\nStatement about the text: {statement}\nIs the statement true? Answer Yes or No."
SUBJECTS = ("The text ", "The response ")  # how statements begin; what is left continues "The text above"
NOTHING = "The chair stands next to the wall."


class LocalJudge:
    """Implements `Scorer`; for criteria that read as a statement about the response ("The text states a price.").

    Args:
        model: a `LocalModel`, or what makes one: a packaged model's name, or a folder.
        ask: "likelihood" or "yes_no".
        calibrate: subtract the log odds of the criterion behind NOTHING, which takes out what its own words decide
            (contextual calibration, Zhao et al., ICML 2021). Without it a likelihood is no probability of anything.
        options: further arguments of `LocalModel`, such as threads.

    Raises:
        RubricError: an unknown way of asking.  ModelUnavailable: see `LocalModel`.
    """

    def __init__(
        self,
        model: LocalModel | str = "smollm2-135m",
        *,
        ask: str = "likelihood",
        calibrate: bool = True,
        **options: Any,
    ):
        choose("ask", ask, ASK)
        self.model = LocalModel(model, **options) if isinstance(model, str) else model
        self.ask, self.calibrate = ask, calibrate
        self._leans: dict[str, float] = {}

    def __call__(self, prompt: str, response: str, graph: RubricGraph) -> list[float]:
        """p in [0, 1] for each criterion. The prompt is not shown: simple criteria speak of the response alone."""
        return self.scores(response, [criterion.text for criterion in graph.criteria]).tolist()

    def scores(self, response: str, statements: Sequence[str]) -> np.ndarray:
        """[K] float64, the model's probability that each statement holds of the response."""
        odds = np.array([self.logit(response, each) for each in statements])
        if self.calibrate:
            odds -= [self._lean(each) for each in statements]
        return 1 / (1 + np.exp(-odds.clip(-500, 500)))

    def logit(self, response: str, statement: str) -> float:
        """Log odds before any calibration; by likelihood, log p of the statement's words behind the response."""
        if self.ask == "yes_no":
            question = QUESTION.format(response=response, statement=statement)
            p = self.model.yes_no([{"role": "user", "content": question}])
            p = min(max(p, 1e-12), 1 - 1e-12)  # a certain answer still has finite odds
            return float(np.log(p) - np.log1p(-p))
        lead, words = f"{response}\nAbout the text above:", f" {statement}"
        if subject := next((each for each in SUBJECTS if statement.startswith(each)), None):
            lead, words = f"{response}\nThe text above", f" {statement.removeprefix(subject)}"
        tokens = len(self.model.tokenizer(words, add_special_tokens=False).input_ids)
        return float(self.model.logprobs(lead + words)[-tokens:].sum())

    def _lean(self, statement: str) -> float:
        if statement not in self._leans:
            self._leans[statement] = self.logit(NOTHING, statement)
        return self._leans[statement]
