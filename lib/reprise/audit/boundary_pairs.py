"""Stage 1: pairs of prompts that differ by the one turn in which a run went wrong, and the preference loss on them.

A run with decisive error (k*, a*) gives two prompts with opposite right verdicts:

    before the boundary (BS)   turns 0..k*-1   Safe
    at the boundary (BE)       turns 0..k*     Alarm(k*, a*)

Arrays and torch tensors both work; with tensors the loss carries gradients.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from reprise.audit.errors import AuditError
from reprise.audit.trajectory import Trajectory, normalize_agent
from reprise.audit.verdict import SAFE, Verdict, alarm

BETA = 0.1  # preference temperature of the paper


class Side(StrEnum):
    """Which side of the boundary a prompt stands on."""

    BEFORE = "BS"
    AT_ERROR = "BE"


@dataclass(frozen=True)
class BoundaryPrompt:
    """The turns an auditor sees and the verdict that is right there.

    Attributes:
        trajectory: id of the run.
        side: of the boundary.
        last: the last visible turn, k*-1 or k*.
        optimum: Safe, or the alarm (k*, a*); its reason is left open.
    """

    trajectory: str
    side: Side
    last: int
    optimum: Verdict

    def accepts(self, verdict: Verdict) -> bool:
        """Whether a verdict is the right one; an invalid one never is, and a reason does not count."""
        if not verdict.valid or verdict.kind != self.optimum.kind or verdict.step != self.optimum.step:
            return False
        return not verdict.is_alarm or normalize_agent(verdict.agent or "") == normalize_agent(self.optimum.agent or "")


def boundary_prompts(trajectory: Trajectory) -> tuple[BoundaryPrompt, ...]:
    """Both prompts of a labelled failure, BS first; only BE where the first turn is the error.

    Raises:
        AuditError: the run carries no decisive step, or no agent for it.

    Source: AgentForesight, stage 1, construction of D_BS and D_BE.
    """
    step, agent = trajectory.decisive_step, trajectory.decisive_agent
    if step is None or not agent:
        raise AuditError(
            f"trajectory {trajectory.id!r}: decisive_step={step!r}, decisive_agent={agent!r}: expected a labelled error"
        )
    at_error = BoundaryPrompt(trajectory.id, Side.AT_ERROR, step, alarm(step, normalize_agent(agent)))
    if step == 0:
        return (at_error,)
    return BoundaryPrompt(trajectory.id, Side.BEFORE, step - 1, SAFE), at_error


def preference_pair(prompt: BoundaryPrompt, verdicts: Sequence[Verdict]) -> tuple[int, int] | None:
    """Which of the sampled responses are chosen and rejected: the first right one and the first wrong one.

    Responses are exchangeable draws of the base policy, so the first of a class is a random one; the paper does not
    say which it takes. Invalid output is a legal rejected response.

    Returns:
        (chosen, rejected) indices, or None where all responses are right or none is.

    >>> prompt = BoundaryPrompt("run", Side.BEFORE, 1, SAFE)
    >>> preference_pair(prompt, [alarm(1, "A"), SAFE, SAFE])
    (1, 0)
    """
    right = [prompt.accepts(verdict) for verdict in verdicts]
    if all(right) or not any(right):
        return None
    return right.index(True), right.index(False)


def implicit_margin(chosen, rejected, ref_chosen, ref_rejected):
    """How much more the policy prefers the right response than the reference does, pair by pair.

        Delta = [log pi(v*|x) - log pi_ref(v*|x)] - [log pi(v|x) - log pi_ref(v|x)]

    Args:
        chosen, rejected, ref_chosen, ref_rejected: (pairs,) sums of log-probabilities over the tokens of a response.

    Raises:
        AuditError: shapes differ, or 16-bit numbers, whose step at -20 is 1/64 or coarser.
    """
    for name, value in {"rejected": rejected, "ref_chosen": ref_chosen, "ref_rejected": ref_rejected}.items():
        if tuple(value.shape) != tuple(chosen.shape):
            raise AuditError(f"{name}={tuple(value.shape)}: expected chosen={tuple(chosen.shape)}")
    for name, value in {"chosen": chosen, "rejected": rejected}.items():
        if value.dtype.itemsize < 4:
            raise AuditError(f"{name}.dtype={value.dtype}: expected float32 or wider")
    return (chosen - ref_chosen) - (rejected - ref_rejected)


def bppo_loss(
    chosen,
    rejected,
    ref_chosen,
    ref_rejected,
    at_error,
    *,
    beta: float = BETA,
    anchor: float = 0.0,
    allow_single_side: bool = False,
):
    """Preference loss on both sides of the boundary, each side with the same weight whatever its number of pairs.

        L = - mean over BS of log sigma(beta Delta) - mean over BE of log sigma(beta Delta)

    This is a sum of two means, not the mean over all pairs. The gradient with respect to log pi(v*|x) is
    -beta sigma(-beta Delta) / n_side, and its negative with respect to log pi(v|x).

    Args:
        chosen, rejected, ref_chosen, ref_rejected: as for `implicit_margin`.
        at_error: (pairs,) bool; True for BE, False for BS.
        beta: preference temperature, > 0.
        anchor: >= 0; adds -anchor times the mean of log pi(v*|x) over all pairs. Our addition, off by default: Delta
            alone lets both responses lose probability as long as the wrong one loses more.
        allow_single_side: accept pairs of one side only, for an ablation.

    Returns:
        a scalar of the inputs' kind; 2 ln 2 where the policy is the reference.

    Raises:
        AuditError: as `implicit_margin`; no pair, a side without a pair, or a weight out of range.

    Source: AgentForesight, stage 1, L_BPPO; Rafailov et al., DPO (2023), equation 7, for one side.
    """
    if not beta > 0:
        raise AuditError(f"beta={beta}: expected a positive number")
    if not anchor >= 0:
        raise AuditError(f"anchor={anchor}: expected a number >= 0")
    margin = implicit_margin(chosen, rejected, ref_chosen, ref_rejected)
    if tuple(at_error.shape) != tuple(margin.shape):
        raise AuditError(f"at_error={tuple(at_error.shape)}: expected chosen={tuple(margin.shape)}")
    counts = {"BE": int(at_error.sum())}
    counts["BS"] = len(at_error) - counts["BE"]
    if not len(at_error) or not (allow_single_side or all(counts.values())):
        raise AuditError(f"at_error: {counts['BS']} BS and {counts['BE']} BE pairs: expected some of each")
    loss = -_log_sigmoid(beta * margin)
    total = sum(loss[side].mean() for side in (~at_error, at_error) if bool(side.any()))
    return total - anchor * chosen.mean() if anchor else total


def _log_sigmoid(x):
    """log(1 / (1 + exp(-x))) without overflow on either side."""
    torch = sys.modules.get("torch")
    xp = torch if torch is not None and isinstance(x, torch.Tensor) else np
    return -xp.logaddexp(xp.zeros_like(x), -x)
