"""Evidence before action: was every state-changing call of an agent supported by what it had observed?

>>> from reprise.evidence import load_cases, load_runs, evaluate, provenance
>>> # for run in load_runs("log.jsonl", load_cases("cases/")):
>>> #     print(evaluate(run.case, run.trajectory).codes, provenance(run.case, run.trajectory))

Where to find what the paper describes:

    tasks, protocols legacy and V0 to V3        model (public and hidden half of a case), cases (YAML, JSON)
    evidence ledger, source binding             ledger; trajectory for facts and steps, values for when two agree
    tools, blocked calls, concurrent changes    environment (call, finish, replay)
    Supported(a), exact case success, codes     evaluate
    ECS, BSR, PAR, CAS, Gap, Part, macro means  metrics
    withheld, contradicted, package, claims     interventions
    structured evidence gathering (SCGR)        gather
    evaluation through inspect_ai               inspect_task, with a model that replays recorded calls
    evaluation of a chat model, three repeats   endpoint_agent (any OpenAI-compatible endpoint, resumable)
    logs of agents                              logs, provenance (action <- requirement <- fact <- call), cli
    what is refused                             errors, cases.check_case, trajectory.check_order
    beyond the paper                            reward: case success as a reward for training

Paired statistics (exact bootstrap, McNemar, GRIM) are in `reprise.stats_exact`; the suite of 656 cases, agents and
learners in `reprise.labs`.

Source: SafeActBench. Layout of cases, code names, and how logs are replayed are ours.
"""

from reprise.evidence.cases import load_cases, parse_case
from reprise.evidence.environment import Environment, check_replay, replay
from reprise.evidence.errors import CaseError, EvidenceError, MetricsError, TrajectoryError
from reprise.evidence.evaluate import Checkpoint, Verdict, evaluate
from reprise.evidence.gather import EvidenceGate
from reprise.evidence.ledger import Ledger, Status
from reprise.evidence.logs import Run, from_log, load_runs
from reprise.evidence.metrics import Episode, Summary, summarize
from reprise.evidence.model import Case, CaseView, Decision, Protocol
from reprise.evidence.provenance import Support, provenance
from reprise.evidence.trajectory import Fact, Outcome, Step, Trajectory
from reprise.evidence.values import UNAVAILABLE, norm, same

__all__ = [
    "UNAVAILABLE",
    "Case",
    "CaseError",
    "CaseView",
    "Checkpoint",
    "Decision",
    "Environment",
    "Episode",
    "EvidenceError",
    "EvidenceGate",
    "Fact",
    "Ledger",
    "MetricsError",
    "Outcome",
    "Protocol",
    "Run",
    "Status",
    "Step",
    "Summary",
    "Support",
    "Trajectory",
    "TrajectoryError",
    "Verdict",
    "check_replay",
    "evaluate",
    "from_log",
    "load_cases",
    "load_runs",
    "norm",
    "parse_case",
    "provenance",
    "replay",
    "same",
    "summarize",
]
