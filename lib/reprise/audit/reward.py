"""Stage 2: the reward of a verdict along three axes, what (format and class), where (step) and who (agent).

    R = G R_content - eta_G (1 - G)                                        G = 1 for a valid verdict
    R_content = +1                                                         truth Safe, said Safe
                -1                                                         one says Safe, the other Alarm
                w_s exp(-(k - k*)^2 / (2 sigma^2)) + w_a r_agent           both Alarm

An alarm on an unsafe prefix earns more than 0 and a miss -1, so that any alarm beats silence there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import exp, isclose, isfinite
from typing import Any

from reprise.audit.errors import AuditError
from reprise.audit.trajectory import normalize_agent
from reprise.audit.verdict import Verdict, parse_verdict
from reprise.rewards import json_object, response_text


@dataclass(frozen=True)
class RewardConfig:
    """Weights of the three axes. The paper gives the form and no value; all of these are our choices.

    Attributes:
        sigma: tolerance of the step, in turns; one turn off keeps 61 % at 1.
        step_weight, agent_weight: w_s and w_a; they sum to 1.
        wrong_agent: what another agent than a* earns, "partial credit" in the paper; 0 gives none.
        format_penalty: eta_G; 1 makes an unreadable answer as bad as the wrong class.

    Raises AuditError for a weight out of its range.
    """

    sigma: float = 1.0
    step_weight: float = 0.5
    agent_weight: float = 0.5
    wrong_agent: float = 0.0
    format_penalty: float = 1.0

    def __post_init__(self):
        if not (self.sigma > 0 and isfinite(self.sigma)):
            raise AuditError(f"sigma={self.sigma}: expected a positive number of turns")
        for name in ("step_weight", "agent_weight", "wrong_agent"):
            if not 0 <= getattr(self, name) <= 1:
                raise AuditError(f"{name}={getattr(self, name)}: expected a number in 0..1")
        if not isclose(self.step_weight + self.agent_weight, 1.0):
            raise AuditError(f"step_weight={self.step_weight}, agent_weight={self.agent_weight}: expected a sum of 1")
        if not 0 <= self.format_penalty < float("inf"):
            raise AuditError(f"format_penalty={self.format_penalty}: expected a number >= 0")


DEFAULT = RewardConfig()


def step_kernel(said: int, true: int, sigma: float = DEFAULT.sigma) -> float:
    """exp(-(said - true)^2 / (2 sigma^2)): 1 on the step, falling with the distance in turns.

    >>> round(step_kernel(4, 3), 6)
    0.606531
    """
    return exp(-((said - true) ** 2) / (2 * sigma**2))


def verdict_reward(
    verdict: Verdict, step: int | None, agent: str | None = None, config: RewardConfig = DEFAULT
) -> float:
    """Reward of a verdict on a prefix.

    Args:
        verdict: what was said; an invalid one closes the format gate.
        step: k*, or None where no decisive error is visible yet.
        agent: a*, compared without a recipient.
        config: the weights.

    Returns:
        a number in [-max(1, format_penalty), 1].

    Raises:
        AuditError: `step` is not an int of at least 0, or an agent without a step.

    Source: AgentForesight, stage 2, r_step and R; "partial credit" for the agent has no value in the paper.
    """
    if step is not None and (type(step) is not int or step < 0):
        raise AuditError(f"step={step!r}: expected an int of at least 0, or None for a safe prefix")
    if step is None and agent is not None:
        raise AuditError(f"agent={agent!r}: expected None without a step")
    if not verdict.valid:
        return -config.format_penalty
    if verdict.is_alarm != (step is not None):
        return -1.0
    if step is None:
        return 1.0
    same = verdict.agent is not None and normalize_agent(verdict.agent) == normalize_agent(agent or "")
    where = config.step_weight * step_kernel(verdict.step, step, config.sigma)
    return where + config.agent_weight * (1.0 if same else config.wrong_agent)


def response_reward(
    response: str,
    last: int,
    roles: Collection[str],
    step: int | None,
    agent: str | None = None,
    config: RewardConfig = DEFAULT,
) -> float:
    """`verdict_reward` of a text given on turns 0..last, whose speakers are `roles`."""
    return verdict_reward(parse_verdict(response, last, roles), step, agent, config)


def trl_reward(prompts: Sequence, completions: Sequence, completion_ids: Sequence | None = None, **columns) -> list:
    """A reward function for TRL's GRPOTrainer.

    Args:
        prompts, completion_ids: not read.
        completions: texts, or conversations.
        columns: of the data set, one entry a completion: `last` (last visible turn), `roles` (speakers so far),
            `decisive_step` and `decisive_agent` (None on safe prefixes).

    Returns:
        (completions,) rewards under the default weights.

    Raises:
        AuditError: a column is missing or has another length.
    """
    names = ("last", "roles", "decisive_step", "decisive_agent")
    for name in names:
        if name not in columns or len(columns[name]) != len(completions):
            found = "missing" if name not in columns else f"{len(columns[name])} entries"
            raise AuditError(f"column {name!r}: {found}: expected {len(completions)}, one a completion")
    rows = zip(completions, *(columns[name] for name in names), strict=True)
    return [
        response_reward(response_text(each), last, roles, _step(step), agent) for each, last, roles, step, agent in rows
    ]


def compute_score(
    data_source: Any = None, solution_str: str = "", ground_truth: Any = None, extra_info: Any = None, **kwargs
) -> float:
    """verl's reward function.

    Args:
        data_source, kwargs: not read.
        solution_str: the response.
        ground_truth: {"step": k* or None, "agent": a* or None}, or its JSON text.
        extra_info: {"last": last visible turn, "roles": speakers so far}, or its JSON text.

    Raises:
        AuditError: a field is missing.
    """
    truth, shown = json_object(ground_truth, "ground_truth"), json_object(extra_info, "extra_info")
    for name, found, key in (
        ("ground_truth", truth, "step"),
        ("extra_info", shown, "last"),
        ("extra_info", shown, "roles"),
    ):
        if key not in found:
            raise AuditError(f"{name}: no {key!r}: expected it beside {', '.join(found) or 'nothing'}")
    return response_reward(solution_str, shown["last"], shown["roles"], _step(truth["step"]), truth.get("agent"))


def _step(value: Any) -> Any:
    """A step from a column of a table, where None among ints makes floats with NaN of them."""
    if isinstance(value, float) or type(value).__module__ == "numpy":
        if value != value:
            return None
        return int(value) if value == int(value) else value
    return value
