"""The judges, by name.

RuleJudge     no model: shared words and a table; builds graphs
OpenAIJudge   any OpenAI-compatible endpoint; builds graphs and scores responses
LocalJudge    a small language model on this machine; scores simple criteria, with much noise
"""

from reprise.rubric.endpoint_judge import OpenAIJudge
from reprise.rubric.judging import NO_EDGE, AsyncGraphJudge, GraphJudge, JudgeFailed, Label, Pair, Scorer
from reprise.rubric.local_judge import LocalJudge
from reprise.rubric.rule_judge import RuleJudge

__all__ = [
    "NO_EDGE",
    "AsyncGraphJudge",
    "GraphJudge",
    "JudgeFailed",
    "Label",
    "LocalJudge",
    "OpenAIJudge",
    "Pair",
    "RuleJudge",
    "Scorer",
]
