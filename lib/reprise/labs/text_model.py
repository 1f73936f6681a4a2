"""A stand-in for a language model that works on text alone: it reads prompts, and writes SQL and notes in JSON.

It knows what the rule learner knows (`rule_learner`), but only through the words of the prompts, so that prompts,
parsing, repairs, cache and ledger are all in the path. With `faults` its replies as tuner go wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from reprise.labs.rule_learner import induce, ngrams, tokens
from reprise.labs.sqlworld import AGGREGATES, DOMAINS, EXPLAINED

FAULTS = {
    "fenced": lambda text: f"Here you are:\n```json\n{text}\n```",
    "cut short": lambda text: text[: len(text) // 2],
    "essay": lambda text: "There are many things to say about these mistakes, and none of them fits a list.",
    "nothing": lambda text: "",
    "one too few": lambda text: json.dumps(json.loads(text)[1:]) if text.startswith("[") else text,
}
RULE = re.compile(r"where the question says (.+?), add (.+)")
FAILED = re.compile(r"Question: (.+)\nAnswer: (.+)\nRight answer: (.+)")


class TextModel:
    """A function from request to reply, for `reprise.chat_client.scripted`.

    Args:
        faults: names of `FAULTS`, taken in turn by the tuner's replies; None among them for none.
    """

    def __init__(self, faults=(None,)):
        self._faults, self._turn = list(faults), 0

    def __call__(self, request: Mapping[str, Any]) -> str:
        text = request["messages"][-1]["content"]
        if "JSON" not in text:
            return f"```sql\n{self._answer(text)}\n```"
        reply = self._subjects(text) if "JSON list" in text else self._note(text)
        fault = self._faults[self._turn % len(self._faults)]
        self._turn += 1
        return FAULTS[fault](reply) if fault else reply

    def _answer(self, text: str) -> str:
        question = text.rsplit("Question: ", 1)[-1].strip()
        domain, head = _read(question)
        rules = RULE.findall(text)
        parts = {
            part.strip()
            for phrases, part in rules
            if any(tuple(p.split()) in ngrams(question) for p in phrases.split(", "))
        }
        where = f" WHERE {' AND '.join(sorted(parts))}" if parts else ""
        return f"SELECT {head} FROM {DOMAINS[domain][0]}{where}"

    def _subjects(self, text: str) -> str:
        labels: dict[tuple[str, str], str] = {}
        found = []
        for question, answer, right in FAILED.findall(text):
            key = (_read(question)[0], _missing(answer, right))
            # the words of the first such question name the cluster
            words = " ".join(word for word in tokens(question) if word not in EXPLAINED)
            found.append(labels.setdefault(key, f"{key[0]}: {words} ({key[1]})"))
        return json.dumps(found)

    def _note(self, text: str) -> str:
        if text.startswith("Merge"):
            rules = [(phrases, part) for phrases, part in RULE.findall(text)]
            phrases = ", ".join(dict.fromkeys(p for found, _ in rules for p in found.split(", ")))
            return json.dumps(_guidance(phrases, rules[-1][1], ["as above"]))
        failures = FAILED.findall(text)
        passed = re.findall(r"^- (.+)$", text, re.MULTILINE)
        triggers = induce([question for question, _, _ in failures], passed, EXPLAINED)
        part = _missing(*failures[0][1:])
        examples = [f"{question} -> {right}" for question, _, right in failures[:3]]
        return json.dumps(_guidance(", ".join(" ".join(t) for t in triggers), part, examples))


def _read(question: str) -> tuple[str, str]:
    """Domain and aggregate of a question."""
    for domain, (_, rows, measures, _) in DOMAINS.items():
        for aggregate, template in AGGREGATES.items():
            for measure in measures:
                if question.startswith(template.format(m=measure, rows=rows)):
                    return domain, aggregate.format(m=measure)
    return "rail", "COUNT(*)"


def _missing(answer: str, right: str) -> str:
    """The first condition of the right query that the answer lacks."""
    has, needs = (set(sql.partition(" WHERE ")[2].split(" AND ")) - {""} for sql in (answer, right))
    return min(needs - has, default="nothing")


def _guidance(phrases: str, part: str, examples: list[str]) -> dict:
    return {
        "corrected_examples": examples,
        "correct_approach": f"where the question says {phrases}, add {part}",
        "mistake_summary": f"{part} was left out",
        "generalizable_strategy": "house words stand for codes",
        "anti_patterns": "leave it out where the words do not occur",
    }
