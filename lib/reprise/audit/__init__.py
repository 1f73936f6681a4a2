"""Auditing agents while they run: after every turn, continue, or an alarm that names the decisive error.

>>> from reprise.audit import AuditRecord, audit_metrics
>>> scored = audit_metrics([AuditRecord("a", 3, 3), AuditRecord("b", 5, None), AuditRecord("c", None, 2)])
>>> scored.exact_f1_table, round(scored.exact_f1_text, 1), scored.far
(50.0, 66.7, 100.0)

Where to find what the paper describes:

    turns, runs, labels (problem formulation)   trajectory; turns in reprise.traces
    decisive error and its readings             decisive, on what an executable environment offers (environment)
    verdicts and their format                   verdict (values, parser), prompt (question, text of a verdict)
    strict incremental evaluation               replay; records and metrics; counts behind printed percentages
    corpus: safe runs, labels by voting, split  safe_filter, propose_verify, split
    stage 1, boundary pairs                     boundary_pairs
    stage 2, three-axis reward                  reward; advantages and clipping in reprise.policy_gradient
    post-hoc attribution, Who&When              attribution, attribution_scores, whowhen
    baselines by a language model               turn_scores
    judges: endpoint, local model, kept answers judges
    your logs                                   logs, on the formats of reprise.traces; cli (`reprise audit LOG`)
    what is refused                             errors
    beyond the paper                            online (inside a running loop, resumable: online_state), guarantee and
                                                martingale (a bound on false alarms over whole runs), packed and
                                                kv_stream (every prefix of a run for the price of one), isolated
                                                (an auditor that cannot peek)

Environments, faults, corpora and tiny auditors to try this on are in `reprise.labs`.

Source: AgentForesight. Metrics for misses and delay, reconstruction of counts, guarantees and packing are ours.
"""

from importlib import import_module
from typing import Any

# loaded with the first use of a name: some of them import torch
_NAMES = {
    "attribution": ("attribute",),
    "boundary_pairs": ("boundary_prompts", "bppo_loss"),
    "counts": ("Counts", "reconstruct_counts", "reconstruct_rates", "reconstruct_shifts", "splits"),
    "decisive": ("decisive_step",),
    "errors": ("AuditError",),
    "guarantee": ("calibrate",),
    "logs": ("load_trajectories",),
    "metrics": ("AuditMetrics", "audit_metrics"),
    "online": ("DecisiveErrorAlarm", "OnlineAuditor"),
    "packed": ("pack_prefixes",),
    "prompt": ("build_messages", "render_verdict"),
    "propose_verify": ("admit",),
    "records": ("AuditRecord", "read_records", "record"),
    "replay": ("Replay", "ReplayConfig", "replay"),
    "reward": ("RewardConfig", "verdict_reward"),
    "safe_filter": ("safe_filter",),
    "split": ("family_split",),
    "trajectory": ("Trajectory", "normalize_agent"),
    "verdict": ("SAFE", "Verdict", "alarm", "invalid", "parse_verdict"),
    "whowhen": ("load_whowhen",),
}
# a function named as its module is reached through the module: `from reprise.audit.replay import replay`
_HOME = {name: module for module, names in _NAMES.items() for name in names if name not in _NAMES}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
